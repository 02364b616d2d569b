"""From a torch.export program to the lines of Inductor's wrapper.

A wrapper class of our own is registered where Inductor looks for its FX backend; so C++ wrapper code stays out, integer
inputs stay in, nothing is executed, and what Inductor would write as strings can become a line of ours.
"""

import contextlib
import dataclasses

from . import versions
from .errors import Unsupported


@dataclasses.dataclass
class ZeroLine:
  """Zeroes a workspace."""

  name: str


def capture(exported, device, options, take):
  """Compiles `exported` for `device` ("cpu", "cuda") and returns what `take(wrapper, guards)` makes of the wrapper,
  whose `lines` are complete then and whose graph is `V.graph`, and of the (condition, value) that Inductor took for
  granted."""
  import torch
  from torch._inductor.codegen import common
  common.init_backend_registration()
  taken = []
  codegen = common.device_codegens[device]
  before = codegen.fx_wrapper_codegen
  codegen.fx_wrapper_codegen = _wrapper_class(lambda wrapper: taken.append(take(wrapper, guards)))
  try:
    module, values = _flat(exported)
    with versions.ignored_guards() as guards:
      torch._inductor.aot_compile(module, values, options=versions.options(options))
  except Exception as error:
    raise _cause(error) from error
  finally:
    codegen.fx_wrapper_codegen = before
  if len(taken) != 1:
    raise Unsupported(f"Inductor made {len(taken)} wrapper programs of the model, one is needed")
  return taken[0]


def _flat(exported):
  """The program as a module of flat inputs and outputs, and the (fake) values of its inputs. How they nest is of no
  concern to Inductor, and it knows only nests that can be serialized."""
  import torch
  module = exported.module()
  module.graph.set_codegen(torch.fx.graph.CodeGen())
  module.recompile()
  module._in_spec = module._out_spec = None
  values = []
  for node in module.graph.find_nodes(op="placeholder"):
    if isinstance(node.meta.get("val"), bool):
      node.meta["val"] = int(node.meta["val"])     # Inductor knows no bool inputs
    values.append(node.meta.get("val"))
  return module, tuple(values)


def _cause(error):
  """Inductor wraps what is raised inside of it."""
  inner = error
  while inner is not None:
    if isinstance(inner, Unsupported):
      return inner
    inner = getattr(inner, "inner_exception", None) or inner.__cause__
  return error


def _wrapper_class(take):
  import torch
  from torch._inductor.codegen.wrapper import PythonWrapperCodegen
  from torch._inductor.codegen.wrapper_fxir import FileBackedGraphModule

  class Wrapper(PythonWrapperCodegen):
    supports_caching = False

    @staticmethod
    def create(is_subgraph, subgraph_name, parent_wrapper, partition_signatures=None):
      if is_subgraph:
        raise Unsupported(f"control flow: the subgraph {subgraph_name}")
      return Wrapper()

    def codegen_inputs(self):
      pass

    def _generate(self, is_inference):
      self.run_wrapper_ir_passes(is_inference)
      take(self)
      return FileBackedGraphModule(torch.fx.GraphModule({}, torch.fx.Graph()), lambda *args: None), None

    def make_zero_buffer(self, name):
      return ZeroLine(name)

  for method, construct in _REFUSED.items():
    setattr(Wrapper, method, _refusing(construct))
  for method in versions.optional_methods():
    setattr(Wrapper, method, lambda self, *args, **kwargs: None)
  return Wrapper


# What Inductor would write as strings.
_REFUSED = {
    "codegen_device_copy": "a copy between devices",
    "codegen_while_loop": "while_loop",
    "codegen_conditional": "cond",
    "codegen_switch": "switch",
    "codegen_invoke_subgraph": "invoke_subgraph",
    "generate_tma_descriptor": "a tensor descriptor made on the host",
    "codegen_dynamic_select_index": "an index that only the data decides",
    "codegen_dynamic_slice_size": "a slice whose size only the data decides",
    "generate_fallback_kernel_with_runtime_lookup": "an operator without a schema that is known",
}


def _refusing(construct):
  def refuse(self, *args, **kwargs):
    from .lines import origin
    near = origin(args[0]) if args else ""
    raise Unsupported(construct + (f" (near {near})" if near else ""))
  return refuse


def prepared(exported):
  """The program with attention in its plain form: two products and a softmax."""
  import torch
  attention = torch.ops.aten.scaled_dot_product_attention.default
  if not any(node.target is attention for node in exported.graph.nodes):
    return exported
  examples = exported.example_inputs
  exported = exported.run_decompositions({attention: _attention})
  exported.example_inputs = examples
  return exported


def _attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
  import torch
  if dropout_p:
    raise Unsupported(f"attention with dropout ({dropout_p}): export the model in eval mode")
  if enable_gqa:
    key, value = (part.repeat_interleave(query.size(-3) // part.size(-3), -3) for part in (key, value))
  # The root on either side keeps half-precision products in range.
  root = (scale if scale is not None else query.size(-1) ** -0.5) ** 0.5
  scores = (query * root) @ (key * root).transpose(-2, -1)
  if is_causal:
    rows = torch.arange(query.size(-2), device=query.device).unsqueeze(-1)
    columns = torch.arange(key.size(-2), device=query.device)
    scores = torch.where(columns <= rows, scores, float("-inf"))
  if attn_mask is not None:
    scores = torch.where(attn_mask, scores, float("-inf")) if attn_mask.dtype is torch.bool else scores + attn_mask
  return torch.softmax(scores, -1, dtype=torch.float32).to(query.dtype) @ value


@contextlib.contextmanager
def quiet():
  """Inductor warns of things that do not matter here."""
  import logging
  import warnings
  logger = logging.getLogger("torch.utils.cpp_extension")
  level = logger.level
  logger.setLevel(logging.ERROR)
  with warnings.catch_warnings():
    for kind in (FutureWarning, UserWarning, DeprecationWarning):
      warnings.simplefilter("ignore", kind)
    try:
      yield
    finally:
      logger.setLevel(level)
