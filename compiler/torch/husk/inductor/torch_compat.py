"""What differs between the versions of torch, and replacements of parts of torch that several
packages need.

surface.py has the versions and the private names; replace.py replaces.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import functools
from collections.abc import Callable, Container, Iterable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from .lines import InductorObject
from .replace import replaced, replaced_entries
from .surface import IGNORED_LINES as IGNORED_LINES
from .surface import PATHS

if TYPE_CHECKING:
  import torch

# `options` leaves out the options that the installed version of torch does not have.
OPTIONS = {
  "fx_wrapper": True,
  "size_asserts": False,
  "alignment_asserts": False,
  "scalar_asserts": False,
  "nan_asserts": False,
  "compile_threads": 1,
  # huskc plans the memory, for a list of launches and for a graph.
  "allow_buffer_reuse": False,
  "memory_planning": False,
  "always_keep_tensor_constants": True,
  # Constant folding treats a buffer of one element as a constant, even if the model writes it.
  "joint_graph_constant_folding": False,
  # Before torch 2.15, a number that is scattered into a constant tensor decides its dtype.
  "optimize_scatter_upon_const_tensor": False,
  "comprehensive_padding": True,
  "triton.mix_order_reduction": False,
  "triton.enable_host_side_tma": False,
  "triton.autotune_at_compile_time": False,
  "triton.store_cubin": False,
  "fx_graph_cache": False,
}


def torch_version() -> str:
  import torch

  return torch.__version__.split("+")[0]


def options(more: dict[str, Any]) -> dict[str, Any]:
  """The options of OPTIONS and `more` that the installed version of torch has."""
  from torch._inductor import config

  # With config.fallback_random a program draws the random numbers of eager PyTorch, so the
  # operators that draw them must stay in the order of the model.
  ordered = {"reorder_for_peak_memory": False} if config.fallback_random else {}
  return known_options({**OPTIONS, **ordered, **more})


def patched(wanted: dict[str, Any]) -> contextlib.AbstractContextManager[Any]:
  """A context in which Inductor has the options of `wanted` that the installed torch knows."""
  from torch._inductor import config

  return config.patch(known_options(wanted))


# Options for an export that are not needed, or are wrong, where torch.compile keeps guards and
# caches, and where constants and parameters are inputs.
_FOR_EXPORT = {
  "fx_wrapper",
  "fx_graph_cache",
  "always_keep_tensor_constants",
  "joint_graph_constant_folding",
}


def options_in_process(user_options: dict[str, Any]) -> dict[str, Any]:
  """The options for torch.compile, with the `user_options`."""
  from torch._inductor import config

  with config.patch(fallback_random=user_options.get("fallback_random", config.fallback_random)):
    found = options({})
  return {key: value for key, value in found.items() if key not in _FOR_EXPORT}


@contextlib.contextmanager
def cache_tag(tag: str) -> Iterator[None]:
  """While open, torch's caches have the entries of programs that `tag` belongs to. Without it they
  would return what Inductor itself made of an equal graph."""
  import torch.compiler.config

  config: Any = torch.compiler.config
  before = config.cache_key_tag
  with config.patch(cache_key_tag=f"{before} {tag}"):
    yield


@contextlib.contextmanager
def numbers_of_data(values: Iterable[Any] = ()) -> Iterator[None]:
  """While open, a graph that is traced may read a number from a tensor, as loops do. torch asks for
  an option, by which Dynamo would put more of a model into one graph. `values` are the example
  values of the graph, if Dynamo's tracing has ended."""
  from torch._guards import detect_fake_mode

  mode: Any = detect_fake_mode(list(values))
  if mode is None:
    yield
    return
  before = mode.allow_scalar_outputs
  mode.allow_scalar_outputs = True
  try:
    yield
  finally:
    mode.allow_scalar_outputs = before


def devices(graph: torch.fx.GraphModule) -> set[str]:
  """The devices of the tensors of a graph and of its subgraphs."""
  import torch
  from torch.utils import _pytree as pytree

  modules = [each for each in graph.modules() if isinstance(each, torch.fx.GraphModule)]
  values = [node.meta.get("val") for module in modules for node in module.graph.nodes]
  return {
    str(value.device) for value in pytree.tree_leaves(values) if isinstance(value, torch.Tensor)
  }


def fake_on(value: torch.Tensor, device: torch.device) -> torch.Tensor:
  """A fake tensor as if it lay on another device. Views of one tensor stay views of one tensor."""
  from torch._subclasses import fake_tensor

  assert isinstance(value, fake_tensor.FakeTensor)
  with fake_tensor.in_kernel_invocation_manager(value.fake_mode):
    return fake_tensor.FakeTensor(value.fake_mode, value, device)


def operators_without_kernel(graph: torch.fx.Graph) -> set[Any]:
  """The operators of a graph that Inductor calls, or may call. It makes kernels of all others, if
  products of matrices become kernels. Those of Husk have lowerings of their own."""
  import torch
  from torch._inductor import lowering

  operators = {
    node.target for node in graph.nodes if isinstance(node.target, torch._ops.OpOverload)
  }
  called = set(lowering.fallbacks)
  if not all(map(has_template, convolutions(graph))):
    called.add(torch.ops.aten.convolution.default)
  return {
    op
    for op in operators
    if op in called or op not in lowering.lowerings and op.namespace != "husk"
  }


def convolutions(graph: torch.fx.Graph) -> list[torch.fx.Node]:
  """The convolutions of a graph."""
  import torch

  return graph.find_nodes(op="call_function", target=torch.ops.aten.convolution.default)


def has_template(convolution: torch.fx.Node) -> bool:
  """Whether there is a template for a convolution that is made for it. For groups of few channels
  Inductor has one that mostly multiplies zeros. Images may have dilation, and depthwise
  convolutions of images have a template of their own, unless they have few channels."""
  import torch

  _, weight, _, _, _, dilation, transposed, output_padding, groups = convolution.args
  filters = cast("torch.fx.Node", weight).meta["val"]
  is_image, is_dilated = filters.dim() == 4, set(cast("list[int]", dilation)) != {1}
  if groups == 1:
    suits = is_image or not is_dilated
  else:
    is_depthwise = is_image and filters.shape[1] == 1 and 16 <= filters.shape[0] == groups
    suits = not is_dilated and (filters.shape[1] >= 16 or is_depthwise)
  return bool(
    suits
    and filters.dim() in (4, 5)
    and filters.dtype in (torch.float16, torch.bfloat16, torch.float32)
    and not transposed
    and set(cast("list[int]", output_padding)) == {0}
  )


def _has(config: Any, key: str) -> bool:
  owner = config
  for part in key.split("."):
    if not hasattr(owner, part):
      return False
    owner = getattr(owner, part)
  return True


def empty_program() -> tuple[Any, None]:
  """A compiled program as Inductor's wrapper returns it, which does nothing."""
  import torch
  from torch._inductor.codegen import wrapper_fxir

  empty = torch.fx.GraphModule({}, torch.fx.Graph())
  inductor: Any = wrapper_fxir
  return inductor.FileBackedGraphModule(empty, lambda *args: None), None


def program_of_text(text: str) -> tuple[Any, Any]:
  """A compiled program as Inductor's wrapper returns it: the text of a module with a function
  `call`."""
  from torch._inductor.utils import ValueWithLineMap

  return ValueWithLineMap(text, []), ValueWithLineMap("", [])


@contextlib.contextmanager
def hooks_of_buffers_kept() -> Iterator[None]:
  """Leaves the hooks that see each assignment of a buffer as they were. torch.export forgets its
  own if it fails, and Dynamo then compiles no model that assigns one."""
  import torch

  modules: Any = torch.nn.modules.module
  own = copy.copy(modules._global_buffer_registration_hooks)
  with replaced((modules, "_global_buffer_registration_hooks", own)):
    yield


def compile_lock() -> contextlib.AbstractContextManager[Any]:
  """The lock that torch.compile takes while it compiles, in forward and in backward."""
  from torch._dynamo import convert_frame

  return convert_frame.compile_lock


def optional_methods() -> tuple[str, ...]:
  """Methods of the wrapper that exist in one version only and must do nothing."""
  return ("register_alignment_check_inputs", "codegen_deferred_alignment_copies", "sync_d2h_copy")


@contextlib.contextmanager
def channels_last(*operators: Any) -> Iterator[None]:
  """Makes Inductor keep intermediate tensors in the channels-last format where they lead to or come
  from one of `operators`, while open, as it does around its own convolutions."""
  from torch._inductor import graph

  is_convolution, decide = graph.is_mkldnn_conv, graph.GraphLowering.decide_layout_opt

  def decide_layout_opt(gm: torch.fx.GraphModule, *, is_inference: bool) -> bool:
    if any(gm.graph.find_nodes(op="call_function", target=each) for each in operators):
      return True
    return decide(gm, is_inference=is_inference)

  with replaced(
    (graph, "is_mkldnn_conv", lambda node: node.target in operators or is_convolution(node)),
    (graph.GraphLowering, "decide_layout_opt", staticmethod(decide_layout_opt)),
  ):
    yield


@contextlib.contextmanager
def ignored_guards() -> Iterator[list[tuple[Any, Any]]]:
  """Collects, while open, the conditions on sizes that Inductor assumes, each with the value that
  it has.

  The shapes of an exported program are frozen, so torch itself drops these conditions.
  """
  from torch.fx.experimental import symbolic_shapes

  ShapeEnv: Any = symbolic_shapes.ShapeEnv
  before = ShapeEnv._check_frozen
  collected: list[tuple[Any, Any]] = []

  def check_frozen(self: Any, expression: Any, value: Any) -> None:
    if self.frozen:
      collected.append((expression, value))
    return before(self, expression, value)

  with replaced((ShapeEnv, "_check_frozen", check_frozen)):
    yield collected


def convolutions_in_tf32() -> bool:
  """Whether torch allows convolutions of f32 to multiply in tf32, which is its default. Inductor's
  template reads the setting of all operators of cuDNN, which by default decides nothing."""
  import torch

  cudnn: Any = torch.backends.cudnn  # its stubs lack `conv`
  return bool(cudnn.conv.fp32_precision == "tf32")


def are_products_in_tf32() -> bool:
  """Whether torch allows products of matrices of f32 to multiply in tf32."""
  import torch

  matmul: Any = torch.backends.cuda.matmul  # its stubs lack `fp32_precision`
  return bool(matmul.fp32_precision == "tf32")


@contextlib.contextmanager
def products_in_tf32() -> Iterator[None]:
  """While open, products of matrices of f32 may be in tf32."""
  import torch

  matmul: Any = torch.backends.cuda.matmul  # its stubs lack `fp32_precision`
  before = matmul.fp32_precision
  matmul.fp32_precision = "tf32"
  try:
    yield
  finally:
    matmul.fp32_precision = before


@contextlib.contextmanager
def kept_copies() -> Iterator[None]:
  """Makes Inductor keep copies of memory that is written later, while open.

  Inductor removes a clone whose shape equals that of its operand. After `kept = x.clone();
  x.copy_(y)` the value of `kept` would then be y, as it is with torch.compile of 2.11 and 2.15."""
  from torch._inductor.fx_passes import post_grad

  before = post_grad.remove_noop_ops

  def remove(graph: torch.fx.Graph) -> Any:
    kept = _copies_of_written(graph, post_grad.noop_registry)
    targets = {node: node.target for node in kept}
    for node in kept:
      node.target = _copy
    try:
      return before(graph)
    finally:
      for node, target in targets.items():
        node.target = target

  with replaced((post_grad, "remove_noop_ops", remove)):
    yield


def _copy(*args: Any, **kwargs: Any) -> None:
  raise AssertionError("stands for an operator while a pass runs, and is never called")


def _copies_of_written(graph: torch.fx.Graph, candidates: Container[Any]) -> list[torch.fx.Node]:
  """The nodes that copy an input or a buffer which some node of the graph writes; `candidates` are
  the operators that copy."""
  storage: dict[torch.fx.Node, Any] = {}  # node -> the input or buffer that it is a view of
  copies: list[tuple[torch.fx.Node, set[Any]]] = []
  written: set[Any] = set()
  for node in graph.nodes:
    if node.op in ("placeholder", "get_attr"):
      storage[node] = node.target if node.op == "get_attr" else node
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or not node.args:
      continue
    sources = [argument for argument in node.all_input_nodes if argument in storage]
    if schema.is_mutable:
      written |= {storage[argument] for argument in sources if argument is node.args[0]}
    elif any(result.alias_info is not None for result in schema.returns):
      if sources:
        storage[node] = storage[sources[0]]
    elif node.target in candidates and sources:
      copies.append((node, {storage[argument] for argument in sources}))
  return [node for node, storages in copies if storages & written]


def version() -> str:
  """The version of PyTorch, with that of its build."""
  import torch

  return torch.__version__


def cache_folder() -> str:
  """The folder in which Inductor keeps what it compiled (TORCHINDUCTOR_CACHE_DIR)."""
  from torch._inductor.runtime.cache_dir_utils import cache_dir

  return cache_dir()


def allocation_size(graph: InductorObject, buffer: InductorObject) -> Any:
  """The sizes that memory is allocated for: the sizes of the buffer, or larger ones if it is
  padded."""
  sizes = getattr(graph, "get_allocation_size", None)
  return sizes(buffer) if sizes else buffer.get_size()


@contextlib.contextmanager
def decomposed(decompositions: dict[Any, Callable[..., Any]]) -> Iterator[None]:
  """While open, Inductor has other decompositions of some operators."""
  from torch._decomp.decompositions_for_rng import extra_random_decomps
  from torch._inductor import decomposition

  clear = decomposition.fast_random_decomps.cache_clear  # it keeps a copy of the tables
  # Decompositions of draws come before those of the other table.
  draws = {op: function for op, function in decompositions.items() if op in extra_random_decomps}
  try:
    with (
      replaced_entries("torch._inductor.decomposition.decompositions", decompositions),
      replaced_entries("torch._decomp.decompositions_for_rng.extra_random_decomps", draws),
    ):
      clear()
      yield
  finally:
    clear()


@contextlib.contextmanager
def inner_compiler(compile_graph: Callable[..., Any]) -> Iterator[None]:
  """While open, `aot_compile` calls `compile_graph` for the traced graph in place of Inductor's
  `compile_fx_inner`, and does not copy the buffers of the model: torch keeps their values for an
  archive of its own, and an artifact takes them from the model."""
  from torch._inductor import compile_fx

  compiler = functools.partial(compile_fx.compile_fx_aot, inner_compile=compile_graph)
  unlifted = compile_fx._unlift_graph

  def without_copies(*arguments: Any) -> Any:
    with replaced((compile_fx, "clone_preserve_strides", lambda buffer: buffer)):
      return unlifted(*arguments)

  with replaced(
    (compile_fx, "compile_fx_aot", compiler), (compile_fx, "_unlift_graph", without_copies)
  ):
    yield


@contextlib.contextmanager
def untraced() -> Iterator[None]:
  """While open, Inductor writes no program that compiles a graph again, unless torch's traces are
  kept (TORCH_TRACE). torch 2.11 writes it for each graph, and drops it then."""
  from torch._dynamo.repro import after_aot
  from torch._logging._internal import trace_log

  write = after_aot.save_graph_repro

  def written(*args: Any, save_dir: str | None = None, **more: Any) -> None:
    if save_dir is not None or trace_log.handlers:
      write(*args, save_dir=save_dir, **more)

  with replaced((after_aot, "save_graph_repro", written)):
    yield


# Compilation for a GPU that is not there (cuda/fake_cuda.py, cuda/gemm_configs.py)

# Modules that cache properties of the device.
MODULES_WITH_DEVICE_CACHES = (
  "torch.utils._triton",
  "torch._inductor.utils",
  "torch._inductor.codegen.cuda.cuda_env",
  "torch._inductor.kernel.mm",
)


def known_options(wanted: dict[str, Any]) -> dict[str, Any]:
  """The entries of `wanted` that this torch has an option for. Each of them is a row of surface.py,
  since an option that a new torch has dropped has no effect here."""
  from torch._inductor import config

  for key in wanted:
    if f"torch._inductor.config.{key}" not in PATHS:
      raise LookupError(f"the option {key} is no row of husk/inductor/surface.py: add it")
  return {key: value for key, value in wanted.items() if _has(config, key)}


def selected(name: str, choices: list[Any], inputs: list[Any], layout: Any) -> Any:
  """The result of one of the choices of a template, which Inductor selects."""
  from torch._inductor.select_algorithm import autotune_select_algorithm

  result = autotune_select_algorithm(name, choices, inputs, layout)
  return result[0] if isinstance(result, tuple) else result  # a pair since torch 2.15


# The place in the range of a size that varies at which `size_hint` takes it, from 0, the least
# size, to 1, the largest. With None it takes the size of the example.
_place: contextvars.ContextVar[float | None] = contextvars.ContextVar("_place", default=None)


@contextlib.contextmanager
def sizes_at(place: float | None) -> Iterator[None]:
  """While open, `size_hint` returns sizes at a place in their range."""
  token = _place.set(place)
  try:
    yield
  finally:
    _place.reset(token)


def size_hint(size: Any) -> int:
  """The value of a size in the example, or 1024 if only the data decides it."""
  from torch._inductor.virtualized import V

  sizevars = V.graph.sizevars
  example = int(sizevars.optimization_hint(size, fallback=1024))
  place = _place.get()
  if place is None or not getattr(size, "free_symbols", None):
    return example
  bounds = sizevars.shape_env.bound_sympy(size)
  # A range without an end says little about the sizes that occur.
  most = 16 * max(example, 256)
  low, high = (int(min(max(bound, 1), most)) for bound in (bounds.lower, bounds.upper))
  return round(low ** (1 - place) * high**place)


def example_size(size: Any) -> int:
  """The value of a size of a program in the example, or 1024 if only the data decides it."""
  if isinstance(size, int):
    return size
  hint = size.node.hint if size.node.has_hint() else None
  return 1024 if hint is None else int(hint)


def kernel_source(function: Any, *rest: Any) -> Any:
  """The object from which Triton compiles a kernel."""
  from triton.compiler import ASTSource
  from triton.experimental.gluon._runtime import GluonASTSource

  return (GluonASTSource if function.is_gluon() else ASTSource)(function, *rest)


def gluon(text: str) -> str:
  """The text of a Gluon kernel, written for Triton 3.6, with the function names of this Triton."""
  from triton.experimental.gluon.language.nvidia.ampere import async_copy

  return (
    text.replace(".async_copy_global_to_shared(", ".async_load(")
    if hasattr(async_copy, "async_load")
    else text
  )


def cuda_environment() -> list[ModuleType]:
  """The module that knows the installed CUDA, if this torch has it."""
  import importlib

  try:
    return [importlib.import_module("torch._inductor.codegen.cuda.cuda_env")]
  except ModuleNotFoundError:
    return []
