"""What differs between the versions of torch, and replacements of parts of torch that several
packages need.

surface.py has the versions and the private names; replace.py replaces.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import dataclasses
import functools
import os
import pathlib
import re
import subprocess
import weakref
from collections.abc import Callable, Container, Iterable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import sympy

from . import assumed, graphs
from .lines import InductorObject
from .replace import Replacement, replaced, replaced_entries
from .surface import IGNORED_LINES as IGNORED_LINES
from .surface import PATHS

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

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


def traced_frame() -> tuple[Any, dict[str, Any]] | None:
  """The code of the frame that Dynamo traces and its variables, None if it traces none."""
  from torch._dynamo.symbolic_convert import InstructionTranslator

  try:
    translator: Any = InstructionTranslator.current_tx()
  except AttributeError:  # this thread has not traced yet
    return None
  return None if translator is None else (translator.f_code, translator.f_locals)


def wrapped(function: Any) -> Any:
  """The function whose frame Dynamo compiles if `function` is torch's own, which Dynamo would
  skip. Its variable `fn` is `function`."""
  from torch._dynamo import external_utils

  dynamo: Any = external_utils
  return dynamo.wrap_inline(function)


def wraps(code: Any) -> bool:
  """Whether a code is that of `wrapped`."""
  return wrapped(len).__code__ is code


def shape_guards() -> tuple[list[Any], dict[Any, list[str]]]:
  """The conditions on sizes and ints that torch has assumed for the graph that it compiles, and the
  Python expressions that have the value of each symbol."""
  from torch._guards import TracingContext

  context = TracingContext.try_get()
  shapes: Any = context and context.fake_mode and context.fake_mode.shape_env
  if not shapes:
    return [], {}
  conditions = [guard.expr for guard in shapes.guards]
  return conditions, {
    symbol: [assumed.source_name(source) for source in sources]
    for symbol, sources in shapes.var_to_sources.items()
  }


def symbol_ranges() -> dict[Any, Any]:
  """The ranges of the symbols of the graph that torch compiles."""
  from torch._guards import TracingContext

  context = TracingContext.try_get()
  shapes: Any = context and context.fake_mode and context.fake_mode.shape_env
  return dict(shapes.var_to_range) if shapes else {}


def compiled_codes(code: Any) -> list[tuple[Any, tuple[int, ...]]]:
  """The codes that Dynamo runs in place of a code, with the number of their compilation. The first
  one is that which ran last."""
  from torch._dynamo import eval_frame

  dynamo: Any = eval_frame
  entries = dynamo._debug_get_cache_entry_list(code)
  return [
    (entry.code, (entry.compile_id.frame_id or 0, entry.compile_id.frame_compile_id or 0))
    for entry in entries
  ]


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


@contextlib.contextmanager
def sizes_from_zero() -> Iterator[None]:
  """While open, sizes that the data decide begin with 0, also where an operator's function for the
  shapes of its results asks for them by the older of torch's two methods, whose least size is 2. A
  program would refuse a result of fewer elements."""
  from torch._library import fake_impl

  def create(self: Any, *, min: int = 0, max: int | None = None) -> Any:
    return self.new_dynamic_size(min=min, max=max)

  with replaced((fake_impl.FakeImplCtx, "create_unbacked_symint", create)):
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


def smaller_sizes() -> Replacement:
  """A replacement of `min` in torch's functions for shapes.

  torch's own takes the smaller one of two sizes of the example, for all sizes. The functions of the
  CPU do not, which are C++, so a singular value decomposition on a GPU alone was that of a matrix
  with no more columns than rows, or with no fewer.
  """
  import torch
  from torch import _meta_registrations

  def smaller(*values: Any, **options: Any) -> Any:
    if len(values) == 2 and any(isinstance(value, torch.SymInt) for value in values):
      return torch.sym_min(*values)
    return min(*values, **options)

  return _meta_registrations, "min", smaller


@contextlib.contextmanager
def windows_of_all_sizes() -> Iterator[None]:
  """While open, the number of windows of a pool is that of all sizes.

  torch's own function asks whether a division has a remainder, though Python's rounds down in any
  case, and whether the last window of a pool that rounds up begins inside. A program would take
  even sizes alone, for instance.
  """
  import torch
  from torch import _meta_registrations

  def windows(
    size: Any, kernel: Any, before: Any, after: Any, stride: Any, dilation: Any, ceil_mode: bool
  ) -> Any:
    span = size + before + after - dilation * (kernel - 1) - 1
    if not ceil_mode:
      return span // stride + 1
    inside = (size + before - 1) // stride + 1
    count: Any = torch.sym_min((span + stride - 1) // stride + 1, inside)
    return count

  with replaced((_meta_registrations, "pooling_output_shape_pad_lr", windows)):
    yield


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


# Text before and after Inductor's headers of C++ kernels. The headers since torch 2.14, of which
# complex_utils.h is one, throw where earlier ones call a function. Host kernels are compiled
# without exceptions, so `throw` is defined as a call of `fail` (host/prefix.h). The headers of the
# compiler, in which the word must keep its meaning, come first.
_COMPILERS_HEADERS = """
algorithm array atomic bit cassert cfloat climits cmath complex cstddef cstdint cstdlib cstring
exception functional initializer_list iomanip iosfwd iostream iterator limits map memory omp.h
optional ostream ranges sstream stdexcept string string_view tuple type_traits typeinfo
unordered_map utility variant vector
"""
HOST_PRELUDE = "\n".join(
  [
    "#if __has_include(<torch/headeronly/util/complex_utils.h>)",
    *(f"#include <{name}>" for name in _COMPILERS_HEADERS.split()),
    "#if defined(__x86_64__)",
    "#include <immintrin.h>",
    "#elif defined(__aarch64__)",
    "#include <arm_neon.h>",
    "#endif",
    "namespace husk_kernels { [[noreturn]] static void fail(int check); }",
    "#define throw husk_kernels::fail(1), (void)",  # husk_kernels::unnamed
    "#endif",
  ]
)
HOST_POSTLUDE = "#undef throw"

# The functions by which Inductor's C++ templates of products divide their work, with what they keep
# in maps. Compilers instantiate the maps anew in each unit, precompiled headers or not, which takes
# a fifth of the time of a small one. No image can have these functions: they need libstdc++.
_HOST_BLOCKING = r"^inline [^\n;]*\b_get_factors\(.*?(?=^struct amx_tilecfg\b)"

# In C++ kernels of torch 2.15, lines with this name record a division by zero in a global variable,
# which kernels of several sessions would share. These lines are left out: the division is then a
# failed check.
HOST_NOTE = "inductor_cpu_integer_div_error"


@functools.cache
def include_paths() -> list[str]:
  """The folders of the headers of Inductor's C++ kernels."""
  import torch

  return [str(pathlib.Path(torch.__file__).parent / "include")]


@functools.cache
def host_header() -> str:
  """The header of Inductor's C++ kernels, without functions that no image can have."""
  path = pathlib.Path(include_paths()[0], "torch/csrc/inductor/cpp_prefix.h")
  return re.sub(_HOST_BLOCKING, "", path.read_text(), count=1, flags=re.MULTILINE | re.DOTALL)


def version() -> str:
  """The version of PyTorch, with that of its build."""
  import torch

  return torch.__version__


def cache_folder() -> str:
  """The folder in which Inductor keeps what it compiled (TORCHINDUCTOR_CACHE_DIR)."""
  from torch._inductor.runtime.cache_dir_utils import cache_dir

  return cache_dir()


def compiler() -> str:
  """The C++ compiler: the environment variable CXX, else g++."""
  return os.environ.get("CXX", "g++")


def tool_output(command: list[str]) -> str:
  """The output of a tool of binutils."""
  return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def symbols(command: list[str]) -> list[str]:
  """The first column of the output of a tool of binutils."""
  return [line.split()[0] for line in tool_output(command).splitlines() if line.split()]


def allocation_size(graph: InductorObject, buffer: InductorObject) -> Any:
  """The sizes that memory is allocated for: the sizes of the buffer, or larger ones if it is
  padded."""
  sizes = getattr(graph, "get_allocation_size", None)
  return sizes(buffer) if sizes else buffer.get_size()


def guards(exported: ExportedProgram) -> list[str]:
  """The conditions that torch.export found, as Python text."""
  return list(getattr(exported, "_guards_code", None) or ())


def with_guards(exported: ExportedProgram, source: ExportedProgram) -> ExportedProgram:
  """`exported` with the guards of `source`. torch drops the guards of a program that it
  decomposes."""
  exported._guards_code = guards(source)
  _assumptions[exported] = assumptions(source)
  return exported


# Conditions that were assumed when a program was decomposed, by program.
_assumptions: weakref.WeakKeyDictionary[Any, list[assumed.Assumption]] = weakref.WeakKeyDictionary()


def assumptions(exported: ExportedProgram) -> list[assumed.Assumption]:
  """The conditions on sizes that were assumed when the program was made of the exported one."""
  return _assumptions.get(exported, [])


def assume(exported: ExportedProgram, conditions: list[assumed.Assumption]) -> None:
  """Adds conditions on sizes that a program, and those that are made of it, need."""
  set_assumptions(exported, [*assumptions(exported), *conditions])


def set_assumptions(exported: ExportedProgram, conditions: list[assumed.Assumption]) -> None:
  """Says which conditions on sizes were assumed when a program was made."""
  _assumptions[exported] = conditions


@contextlib.contextmanager
def _without_guards(exported: ExportedProgram) -> Iterator[None]:
  """While open, a program has no guards. torch traces a program together with its guards when it
  decomposes it, and drops them afterwards. A guard is a text without names for its parts: torch
  computes the sizes in it from the beginning each time, and looks up the line of source for each
  operation. In models with windows these are many more operations than in the model."""
  program: Any = exported
  before = program._guards_code
  program._guards_code = []
  try:
    yield
  finally:
    program._guards_code = before


def functional(exported: ExportedProgram, wanted: dict[Any, Callable[..., Any]]) -> ExportedProgram:
  """The program without operators that write, and with the operators of `wanted` decomposed."""
  from torch._export import utils

  shapes = assumed.environment(exported)
  # torch collects the operators of each namespace, and looks up all composite ones each time.
  looked_up = (utils, "_materialize_cpp_cia_ops", functools.cache(utils._materialize_cpp_cia_ops))
  with assumed.restored(shapes), replaced(smaller_sizes(), looked_up):
    with _without_guards(exported):
      decomposed = exported.run_decompositions(wanted)
    with_guards(decomposed, exported)
    _assumptions[decomposed] = [*assumptions(exported), *assumed.found(shapes)]
  decomposed.example_inputs = exported.example_inputs
  return decomposed


def copied(exported: ExportedProgram) -> ExportedProgram:
  """A copy of a program whose graphs can be changed. Nodes keep their names: torch renames the copy
  of a node that is called "input", which the signature of the program refers to."""
  import torch

  module = copy.deepcopy(exported.graph_module)
  for one, other in zip(exported.graph_module.modules(), module.modules()):
    if isinstance(one, torch.fx.GraphModule) and isinstance(other, torch.fx.GraphModule):
      for node, copied_node in zip(one.graph.nodes, other.graph.nodes):
        copied_node.name = node.name
  changeable: Any = exported._update(module, copy.deepcopy(exported.graph_signature))
  changeable.example_inputs = exported.example_inputs
  return with_guards(changeable, exported)


def with_tensors(
  exported: ExportedProgram,
  signature: Any,
  state_dict: dict[str, Any],
  constants: dict[str, Any],
) -> ExportedProgram:
  """The program with another signature, other parameters and buffers, and other constants."""
  changed: Any = exported
  program: ExportedProgram = changed._update(
    exported.graph_module, signature, state_dict=state_dict, constants=constants
  )
  return with_guards(program, exported)


def state_spec(spec: Any) -> Any:
  """The signature of an input that is a parameter or a buffer, as a buffer; that of a constant
  itself."""
  from torch.export.graph_signature import InputKind

  if spec.kind is not InputKind.PARAMETER:
    return spec
  return dataclasses.replace(spec, kind=InputKind.BUFFER, persistent=True)


def copied_graph(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
  """A copy of a module with one graph. It has the tensors of the module itself, and nodes of the
  same names."""
  from torch.fx._lazy_graph_module import _make_graph_module

  graph = copy.deepcopy(module.graph)
  for node, copied_node in zip(module.graph.nodes, graph.nodes):
    copied_node.name = node.name
  copied_module: Any = _make_graph_module(module, graph)
  copied_module.meta = dict(module.meta)
  return copied_module


@contextlib.contextmanager
def right_dtypes() -> Iterator[None]:
  """While open, the results of operators are traced with the dtypes and shapes that they have.
  torch 2.11 traces the places and counts of `unique`, and all results of `bincount`, with the dtype
  of the argument, and keeps dimensions of one element that `linalg_vector_norm` counts from the
  last. `unique` along a dimension that is counted from the last gets too many dimensions, and
  `masked_select` at most as many elements as its input has before it is broadcast. The last states
  of an LSTM get a dimension of one element too many, so that no other LSTM takes them."""
  import torch
  from torch._decomp import decomposition_table, decompositions
  from torch._subclasses import FakeTensorMode, fake_impls

  module: Any = fake_impls
  table: dict[Any, Any] = module.op_implementations_dict
  bincount_operator = torch.ops.aten.bincount.default
  select_operator = torch.ops.aten.masked_select.default
  unique_before, bincount_before = module._unique, table[bincount_operator]
  select_before = table[select_operator]

  def as_dtype(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return value if value.dtype == dtype else value.new_empty(value.shape, dtype=dtype)

  def unique(
    mode: Any, op: Any, x: torch.Tensor, dim: int | None, *args: Any, **kwargs: Any
  ) -> Any:
    if dim is not None and x.dim():
      dim %= x.dim()
    values, *places = unique_before(mode, op, x, dim, *args, **kwargs)
    return values, *(as_dtype(one, torch.int64) for one in places)

  def masked_select(mode: Any, op: Any, x: torch.Tensor, mask: torch.Tensor) -> Any:
    with mode:
      x, mask = torch.broadcast_tensors(x, mask)
    return select_before(mode, op, x, mask)

  def bincount(
    mode: Any, op: Any, x: torch.Tensor, weights: torch.Tensor | None = None, minlength: Any = 0
  ) -> Any:
    dtype = torch.int64
    if weights is not None:
      dtype = torch.float32 if weights.dtype == torch.float32 else torch.float64
    return as_dtype(bincount_before(mode, op, x, weights, minlength), dtype)

  def norm(
    mode: Any, op: Any, x: torch.Tensor, ord: Any = 2, dim: Any = None, *args: Any, **kwargs: Any
  ) -> Any:
    if not x.dim() or all(each >= 0 for each in dim or ()):
      return NotImplemented
    with mode:
      return with_dims_from_the_first(op)(x, ord, dim, *args, **kwargs)

  layer_before = decompositions.one_layer_lstm

  def lstm_layer(inputs: Any, states: Any, *args: Any, **kwargs: Any) -> Any:
    results, last = layer_before(inputs, states, *args, **kwargs)
    return results, tuple(
      one.squeeze(0) if one.dim() > state.dim() else one for one, state in zip(last, states)
    )

  norm_operator = torch.ops.aten.linalg_vector_norm.default
  of_any_size = with_dims_from_the_first(decomposition_table[norm_operator])
  implementations = {
    bincount_operator: bincount,
    norm_operator: norm,
    select_operator: masked_select,
  }
  FakeTensorMode.cache_clear()
  with (
    replaced((module, "_unique", unique), (decompositions, "one_layer_lstm", lstm_layer)),
    replaced_entries("torch._subclasses.fake_impls.op_implementations_dict", implementations),
    replaced_entries("torch._decomp.decomposition_table", {norm_operator: of_any_size}),
  ):
    yield


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


def with_dims_from_the_first(norm: Callable[..., Any]) -> Callable[..., Any]:
  """Makes the decomposition of `linalg_vector_norm` count dimensions from the first. That of torch
  2.11 keeps dimensions of one element that are counted from the last."""

  def counted(x: Any, ord: Any = 2, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
    if dim is not None and x.dim():
      dim = [each % x.dim() for each in ([dim] if isinstance(dim, int) else dim)]
    return norm(x, ord, dim, *args, **kwargs)

  return counted


def with_right_dtypes(exported: ExportedProgram) -> ExportedProgram:
  """A program that was traced outside of `right_dtypes`, as if it had been traced inside."""
  import torch

  aten = torch.ops.aten
  operators = {
    aten._unique2.default,
    aten.unique_consecutive.default,
    aten.unique_dim.default,
    aten.unique_dim_consecutive.default,
    aten.bincount.default,
    aten.masked_select.default,
  }
  nodes = graphs.nodes(exported)
  if operators.isdisjoint(node.target for node in nodes) and not any(map(_counts_from_last, nodes)):
    return exported
  shapes = assumed.environment(exported)
  if shapes is not None:
    shapes.fake_tensor_cache.clear()
  return functional(exported, {})


def _counts_from_last(node: torch.fx.Node) -> bool:
  """Whether a node is a norm along dimensions that are counted from the last."""
  import torch

  if node.target is not torch.ops.aten.linalg_vector_norm.default:
    return False
  dims: Any = node.args[2] if len(node.args) > 2 else node.kwargs.get("dim")
  return any(each < 0 for each in dims or ())


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


@contextlib.contextmanager
def kept_simplifications() -> Iterator[None]:
  """Keeps, while open, how Inductor simplifies indices, so that each graph that is compiled
  meanwhile finds what the one before has found. Indices with sizes that vary are left out, since
  what is known of these sizes changes. SymPy's search for patterns of several dimensions, which
  takes a quarter of the time of some models, is replaced."""
  from torch._inductor import sizevars

  def keeping(find: Callable[..., Any]) -> Callable[..., Any]:
    kept: dict[Any, Any] = {}

    def found(self: Any, *args: Any) -> Any:
      if self.replacements or self.shape_env.var_to_range:
        return find(self, *args)
      key = tuple(
        tuple(value.items()) if isinstance(value, dict) else tuple(value)
        for value in (args if isinstance(args[0], (list, tuple)) else ((args[0],), *args[1:]))
      )
      if key not in kept:
        kept[key] = find(self, *args)
      return kept[key]

    return found

  allocator: Any = sizevars.SizeVarAllocator
  with replaced(
    (sizevars, "_join_dimensions_cached", functools.lru_cache(256)(_joined)),
    *(
      (allocator, name, keeping(vars(allocator)[name]))
      for name in ("_simplify_with_ranges", "_simplify_loops_impl")
      if name in vars(allocator)
    ),
  ):
    yield


def _joined(index: Any) -> Any:
  """An index with the quotients and remainders of one number joined, as Inductor joins them:
  `s * (b // d % m) + s * m * (b // (d * m))` is `s * (b // d)`, and the same with `% n` is
  `s * (b // d % (m * n))`."""
  from torch._inductor import sizevars
  from torch.utils._sympy.functions import FloorDiv, ModularIndexing

  def without(one: Any, other: Any, joined: Any) -> Any:
    return sizevars.join_dimensions(index - one - other + joined)

  def factors(term: Any) -> tuple[Any, Any] | None:
    """The scale and the remainder of a term, None if it has another form."""
    remainders = [each for each in sympy.Mul.make_args(term) if isinstance(each, ModularIndexing)]
    return (term / remainders[0], remainders[0]) if len(remainders) == 1 else None

  terms = [(term, found) for term in index.args if (found := factors(term)) is not None]
  for one, (scale, remainder) in terms:
    base, divisor, modulus = remainder.args
    for other, (other_scale, following) in terms:
      if (
        other_scale == scale * modulus
        and following == ModularIndexing(base, divisor * modulus, following.args[2])
        and one != other
      ):
        joined = ModularIndexing(base, divisor, modulus * following.args[2])
        return without(one, other, scale * joined)
  for one, (scale, remainder) in terms:
    base, divisor, modulus = remainder.args
    rest = scale * modulus * FloorDiv(base, divisor * modulus)
    if rest in index.args:
      return without(one, rest, scale * FloorDiv(base, divisor))
  return index


def argument_names(exported: ExportedProgram) -> list[str]:
  """The names of a program's positional and keyword arguments; `*many` has a name for each
  value."""
  signature = exported.module_call_graph[0].signature
  return list(signature.forward_arg_names or []) if signature else []


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
