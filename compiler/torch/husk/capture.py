"""From a torch.export program to the lines of Inductor's wrapper.

A wrapper class of our own is registered where Inductor looks for its FX backend; so C++ wrapper code stays out, integer
inputs stay in, nothing is executed, and what Inductor would write as strings can become a line of ours.
"""

import contextlib
import dataclasses

from . import control, decompositions, nodes, versions
from .errors import Unsupported


@dataclasses.dataclass
class ZeroLine:
  """Zeroes a workspace."""

  name: str


@dataclasses.dataclass
class NodeLine:
  """A node of Inductor's IR that Inductor would write as a string; told apart by its class."""

  node: object


@dataclasses.dataclass
class Captured:
  """The lines of a subgraph."""

  graph: object
  lines: list


@dataclasses.dataclass
class BranchLine:
  """cond and switch: of `branches`, the one that `selector` counts to, the last one if it counts too far."""

  node: object
  selector: object
  branches: list


@dataclasses.dataclass
class LoopLine:
  node: object
  cond: Captured
  body: Captured


@dataclasses.dataclass
class CallLine:
  """A graph that stands for itself: its lines are written where it is called."""

  node: object
  body: Captured


def capture(exported, device, options, take, flash=False):
  """Compiles `exported` for `device` ("cpu", "cuda") and returns what `take(wrapper, guards)` makes of the wrapper,
  whose `lines` are complete then and whose graph is `V.graph`, and of the (condition, value) that Inductor took for
  granted. `flash` is for `nodes.of_our_own`."""
  import torch
  from torch._inductor.codegen import common
  common.init_backend_registration()
  taken = []
  codegen = common.device_codegens[device]
  before = codegen.fx_wrapper_codegen
  codegen.fx_wrapper_codegen = _wrapper_class(lambda wrapper: taken.append(take(wrapper, guards)))
  try:
    module, values = _flat(exported)
    control.carry_in_tensors(module)
    with versions.ignored_guards() as guards, versions.kept_copies(), nodes.of_our_own(flash):
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
  (results,) = module.graph.output_node().args
  # Inductor knows no floats as outputs; the signature has them.
  module.graph.output_node().args = (tuple(None if isinstance(result, float) else result for result in results),)
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

    def __init__(self):
      super().__init__()
      self.captured = {}     # subgraph -> Captured

    @staticmethod
    def create(is_subgraph, subgraph_name, parent_wrapper, partition_signatures=None):
      if is_subgraph:
        raise Unsupported(f"the subgraph {subgraph_name}, which is not control flow")
      return Wrapper()

    def codegen_inputs(self):
      pass

    def _generate(self, is_inference):
      self.run_wrapper_ir_passes(is_inference)
      take(self)
      return FileBackedGraphModule(torch.fx.GraphModule({}, torch.fx.Graph()), lambda *args: None), None

    def make_zero_buffer(self, name):
      return ZeroLine(name)

    def codegen_conditional(self, node):
      branches = [self._capture(branch) for branch in (node.false_subgraph, node.true_subgraph)]
      self.writeline(BranchLine(node, node.predicate, branches))

    def codegen_switch(self, node):
      self.writeline(BranchLine(node, node.selector, [self._capture(branch) for branch in node.branches]))

    def codegen_while_loop(self, node, stack_output):
      if stack_output:
        raise Unsupported("while_loop that keeps what every iteration gives")
      cond = self._capture(node.cond_subgraph)
      self.writeline(LoopLine(node, cond, self._capture(node.body_subgraph)))

    def codegen_invoke_subgraph(self, node):
      self.writeline(CallLine(node, self._capture(node.subgraph)))

    def generate_tma_descriptor(self, desc):
      if type(desc).__name__ != "TMADescriptorStable":      # those of the calls that get them say it all
        raise Unsupported("a tensor descriptor of Triton's experimental kind; use TensorDescriptor")

    def codegen_dynamic_select_index(self, node, clamp):
      self.writeline(NodeLine(node))

    def codegen_dynamic_slice_size(self, node):
      self.writeline(NodeLine(node))

    def _capture(self, subgraph):
      """The lines of a subgraph; its kernels are the program's. One that is called twice is compiled once."""
      from torch._inductor.virtualized import V
      graph, parent = subgraph.graph, V.graph
      if graph not in self.captured:
        before = self.lines, self.computed_sizes
        self.lines, self.computed_sizes = [], type(self.computed_sizes)()
        graph.fx_wrapper = parent.fx_wrapper
        self.push_codegened_graph(graph)
        try:
          with V.set_graph_handler(graph):
            graph.codegen_subgraph(parent_graph=parent)
          self.captured[graph] = Captured(graph, self.lines)
        finally:
          self.pop_codegened_graph()
          self.lines, self.computed_sizes = before
      return self.captured[graph]

  for method, construct in _REFUSED.items():
    setattr(Wrapper, method, _refusing(construct))
  for method in versions.optional_methods():
    setattr(Wrapper, method, lambda self, *args, **kwargs: None)
  return Wrapper


# What Inductor would write as strings.
_REFUSED = {
    "codegen_device_copy": "a copy between devices",
    "generate_fallback_kernel_with_runtime_lookup": "an operator without a schema that is known",
}


def _refusing(construct):
  def refuse(self, *args, **kwargs):
    from .lines import origin
    near = origin(args[0]) if args else ""
    raise Unsupported(construct + (f" (near {near})" if near else ""))
  return refuse


def prepared(exported):
  """The program without operators for which there is nothing to call."""
  import torch
  graphs = [module.graph for module in exported.graph_module.modules() if isinstance(module, torch.fx.GraphModule)]
  used = {node.target for graph in graphs for node in graph.nodes if node.op == "call_function"}
  wanted = {op: made for op, made in decompositions.table().items() if op in used}
  if not wanted:
    return exported
  examples, undecomposed = exported.example_inputs, exported
  exported = versions.with_guards(exported.run_decompositions(wanted), undecomposed)
  exported.example_inputs = examples
  return exported


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
