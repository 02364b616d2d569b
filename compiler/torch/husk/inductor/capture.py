"""From a torch.export program to the lines of Inductor's wrapper.

Husk registers a wrapper class where Inductor looks for its FX backend. With this backend Inductor
writes no C++ wrapper, keeps inputs that are ints, executes nothing, and what it would write as
strings can be a line of Husk instead."""

from __future__ import annotations

import contextlib
import dataclasses
import types
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .. import prints
from ..errors import OTHER_OPERATORS, REPORT, CompileError, Unsupported
from . import (
  assumed,
  decompositions,
  empty,
  exported_programs,
  failures,
  graphs,
  host_toolchain,
  loop_ints,
  one_device,
  origins,
  patches,
  simplified_indices,
  single_calls,
  torch_compat,
  updates,
  varying,
  writes,
)
from .assumed import Assumption
from .lines import (
  BranchLine,
  CallLine,
  Captured,
  InductorObject,
  LoopLine,
  NodeLine,
  ZeroLine,
)
from .origins import origin
from .replace import replaced

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

Result = TypeVar("Result")


@dataclasses.dataclass
class Way(Generic[Result]):
  """A way to compile the graph of a program.

  options: Inductor's options.
  on_lines: called once, when `wrapper.lines` are complete; V.graph is the graph of the wrapper. Its
    arguments are the wrapper and the conditions that were assumed since torch.export.
  context: a function that returns the context in which Inductor compiles the graph.
  """

  options: dict[str, Any]
  on_lines: Callable[[InductorObject, list[Assumption]], Result]
  context: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext


def capture(
  exported: ExportedProgram,
  device: str,
  options: dict[str, Any],
  on_lines: Callable[[InductorObject, list[Assumption]], Result],
  lowerings: dict[Any, Callable[..., Any]] | None = None,
  sdpa: Callable[..., Any] | None = None,
  rewrite: Callable[[torch.fx.GraphModule], None] | None = None,
) -> Result:
  """Compiles a program with Inductor and returns what `on_lines(wrapper, assumptions)` returns.
  The arguments are those of `capture_each` and of a Way."""
  (result,) = capture_each(exported, device, [Way(options, on_lines)], lowerings, sdpa, rewrite)
  return result


def is_flat(exported: ExportedProgram) -> bool:
  """Whether a program has a single graph, so that `capture_each` can compile it in several ways."""
  return len(graphs.modules(exported)) == 1


def capture_each(
  exported: ExportedProgram,
  device: str,
  ways: Sequence[Way[Result]],
  lowerings: dict[Any, Callable[..., Any]] | None = None,
  sdpa: Callable[..., Any] | None = None,
  rewrite: Callable[[torch.fx.GraphModule], None] | None = None,
) -> list[Result]:
  """Traces a program once, lets Inductor compile its graph in each of the ways, and returns what
  their `on_lines` return. A program that is not flat can be compiled in one way only.

  device: "cpu" or "cuda".
  lowerings, sdpa: as for `patches.husk_lines`.
  rewrite: called with the graph before Inductor gets it.
  """
  import torch
  from torch._inductor import compile_fx

  results: list[Result] = []
  current: list[Way[Result]] = []  # the way that Inductor compiles in
  shapes = assumed.environment(exported)

  def program(wrapper: InductorObject, guards: list[tuple[Any, Any]]) -> Any:
    assumptions = [*exported_programs.assumptions(exported), *assumed.found(shapes), *indexed]
    results.append(current[-1].on_lines(wrapper, assumptions))
    return torch_compat.empty_program()

  def compile_graph(graph: torch.fx.GraphModule, inputs: Any, **more: Any) -> Any:
    compiled = None
    for way in ways:
      current.append(way)
      # Inductor changes the graph that it compiles.
      own = graph if way is ways[-1] else exported_programs.copied_graph(graph)
      with way.context(), torch_compat.patched(way.options), assumed.restored(shapes):
        compiled = compile_fx.compile_fx_inner(own, inputs, **more)
    return compiled

  module, values = _flat(exported)
  computes = any(node.op == "call_function" for node in module.graph.nodes)
  output = module.graph.output_node()
  if not computes and output.args[0] and not output.all_input_nodes:
    raise Unsupported("a model without a computation: the export knows each of its results")
  loop_ints.carry_ints_as_tensors(module)
  indexed: list[Assumption]
  with (
    assumed.restored(shapes),
    varying.decompositions(),
    varying.pools(),
    varying.smaller_and_larger(),
    empty.checked_indices(shapes, device) as indexed,
    inductor(device, program, varying.lowerings(lowerings or {}), sdpa),
    torch_compat.inner_compiler(compile_graph),
    simplified_indices.kept_simplifications(),
  ):
    if rewrite is not None:
      rewrite(module)
    options = torch_compat.options(ways[0].options)
    torch._inductor.aot_compile(module, values, options=options)
  if len(results) != len(ways):
    raise Unsupported(
      f"Inductor made {len(results)} wrapper programs of the model, {len(ways)} needed",
      remedy=REPORT,
    )
  return results


@contextlib.contextmanager
def inductor(
  device: str,
  program: Callable[[InductorObject, list[tuple[Any, Any]]], Any],
  lowerings: dict[Any, Callable[..., Any]] | None = None,
  sdpa: Callable[..., Any] | None = None,
  caching: bool = False,
) -> Iterator[None]:
  """While open, what Inductor compiles for `device` with `fx_wrapper` becomes Husk's lines.

  program: called with the wrapper when its lines are complete, and with the guards (see `capture`);
    returns what Inductor takes for the compiled program.
  caching: whether Inductor may keep that in its caches.
  lowerings, sdpa: as for `patches.husk_lines`.

  One thread at a time is inside: the class is registered for the whole process.
  """
  from torch._inductor.codegen import common

  with torch_compat.compile_lock():
    common.init_backend_registration()
    codegen = common.device_codegens[device]
    try:
      with torch_compat.ignored_guards() as guards:
        wrapper_class = _wrapper_class(lambda wrapper: program(wrapper, guards), caching)
        with (
          torch_compat.kept_copies(),
          torch_compat.untraced(),
          updates.from_whole_values(),
          one_device.moving(),
          patches.husk_lines(lowerings, sdpa),
          replaced((codegen, "fx_wrapper_codegen", wrapper_class)),
        ):
          yield
    except Exception as error:
      raise _cause(error) from error


def _flat(exported: ExportedProgram) -> tuple[torch.fx.GraphModule, tuple[Any, ...]]:
  """The program as a module of flat inputs and outputs, and the (fake) values of the inputs.

  Inductor does not need to know how inputs and outputs nest, and accepts only nests that can be
  serialized.
  """
  from torch.fx.graph import CodeGen

  module: Any = exported.module()
  _register_constants(module)
  module.graph.set_codegen(CodeGen())
  module.recompile()
  module._in_spec = module._out_spec = None
  values = []
  for node in module.graph.find_nodes(op="placeholder"):
    if isinstance(node.meta.get("val"), bool):
      node.meta["val"] = int(node.meta["val"])  # Inductor has no inputs that are bools.
    values.append(node.meta.get("val"))
  (results,) = module.graph.output_node().args
  # Inductor has no outputs that are floats; the signature holds their values.
  module.graph.output_node().args = (
    tuple(None if isinstance(result, float) else result for result in results),
  )
  return module, tuple(values)


def _register_constants(module: torch.fx.GraphModule) -> None:
  """Makes the tensors that the model's code wrote (`torch.tensor(2.0)`, `x[[0, 1]]`) buffers. They
  are plain attributes of the module, which tracing would replace by constants without a name, and
  without a value where they are fake."""
  import torch

  for owner in module.modules():
    for name, value in list(vars(owner).items()):
      if isinstance(value, torch.Tensor):
        delattr(owner, name)
        owner.register_buffer(name, value)


def _cause(error: Exception) -> BaseException:
  """The `Unsupported` or `CompileError` inside the exceptions that Inductor wraps around it, else a
  `CompileError` that explains `error`."""
  cause: BaseException | None = error
  while cause is not None:
    if isinstance(cause, Unsupported):
      return _located(cause)
    if isinstance(cause, CompileError):
      return cause
    if type(cause).__name__ == "InvalidCxxCompiler":
      return CompileError(
        f"{host_toolchain.compiler()}, which compiles the host kernels, was not found: run "
        "`apt-get install g++`, or name a C++ compiler in CXX"
      )
    cause = getattr(cause, "inner_exception", None) or cause.__cause__ or cause.__context__
  if isinstance(error, (OSError, ImportError, MemoryError)) or _is_of_dynamo(error):
    return error
  return failures.of(error, "Inductor")


def _is_of_dynamo(error: Exception) -> bool:
  """Whether an exception tells Dynamo what to do next, as to trace again."""
  from torch._dynamo import exc

  return isinstance(error, (exc.RestartAnalysis, exc.SkipFrame))


def _located(error: Unsupported) -> Unsupported:
  """The error with the line of the model in place of what torch.fx adds to the text of an error
  that an operator raises while it is traced."""
  _, added, trace = str(error).partition("\n\nWhile executing ")
  if not added:
    return error
  return Unsupported(error.construct, error.has_place, error.remedy).at(origins.place(trace))


# Methods of Inductor's wrapper that would write strings, and what a model that needs them is
# refused for.
_REFUSED = {
  "codegen_device_copy": "a copy between devices",
  "generate_fallback_kernel_with_runtime_lookup": "an operator without a schema that is known",
}


def _wrapper_class(program: Callable[[InductorObject], Any], caching: bool) -> type:
  """The wrapper class that is registered with Inductor.

  The class is made here, since its base class can be imported only after torch is. Its own methods
  are those of `_WrapperMethods`."""
  from torch._inductor.codegen.wrapper import PythonWrapperCodegen

  def create(
    is_subgraph: bool,
    subgraph_name: str | None,
    parent_wrapper: InductorObject,
    partition_signatures: InductorObject = None,
  ) -> InductorObject:
    if is_subgraph:
      raise Unsupported(
        f"the subgraph {subgraph_name}, which is no function of a branch or a loop", remedy=REPORT
      )
    return wrapper_class()

  methods: dict[str, Any] = {
    "create": staticmethod(create),
    "program": staticmethod(program),
    "supports_caching": caching,
  }
  for method, construct in _REFUSED.items():
    methods[method] = _refusing(construct)
  for method in torch_compat.optional_methods():
    methods[method] = _do_nothing
  wrapper_class = type("Wrapper", (_WrapperMethods, PythonWrapperCodegen), methods)
  return wrapper_class


class _WrapperMethods:
  """The methods in which Husk's wrapper differs from torch's PythonWrapperCodegen."""

  program: Callable[[InductorObject], Any]
  # Attributes of PythonWrapperCodegen.
  lines: list[InductorObject]
  computed_sizes: set[Any]
  writeline: Callable[[InductorObject], None]
  push_codegened_graph: Callable[[InductorObject], None]
  pop_codegened_graph: Callable[[], Any]
  run_wrapper_ir_passes: Callable[[bool], None]

  def __init__(self) -> None:
    super().__init__()
    self.captured: dict[InductorObject, Captured] = {}  # by subgraph

  def codegen_inputs(self) -> None:
    pass

  def _generate(self, is_inference: bool) -> Any:
    self.run_wrapper_ir_passes(is_inference)
    return self.program(self)

  def make_zero_buffer(self, name: str) -> ZeroLine:
    return ZeroLine(name)

  def codegen_conditional(self, node: InductorObject) -> None:
    branches = [self._capture(branch) for branch in (node.false_subgraph, node.true_subgraph)]
    self.writeline(BranchLine(node, node.predicate, branches))

  def codegen_switch(self, node: InductorObject) -> None:
    branches = [self._capture(branch) for branch in node.branches]
    self.writeline(BranchLine(node, node.selector, branches))

  def codegen_while_loop(self, node: InductorObject, stack_output: bool) -> None:
    if stack_output:
      raise Unsupported(
        "a while_loop that keeps the results of every iteration, as its gradient needs them",
        remedy="call it under torch.no_grad(), or use scan",
      )
    cond = self._capture(node.cond_subgraph)
    self.writeline(LoopLine(node, cond, self._capture(node.body_subgraph)))

  def codegen_invoke_subgraph(self, node: InductorObject) -> None:
    self.writeline(CallLine(node, self._capture(node.subgraph)))

  def generate_tma_descriptor(self, desc: InductorObject) -> None:
    # The calls that take a stable descriptor hold all of its values.
    if type(desc).__name__ != "TMADescriptorStable":
      raise Unsupported("a tensor descriptor of Triton's experimental kind; use TensorDescriptor")

  def codegen_dynamic_select_index(self, node: InductorObject, clamp: bool) -> None:
    self.writeline(NodeLine(node))

  def codegen_dynamic_slice_size(self, node: InductorObject) -> None:
    self.writeline(NodeLine(node))

  def _capture(self, subgraph: InductorObject) -> Captured:
    """The lines of a subgraph; its kernels belong to the program. A subgraph that is called twice
    is compiled once."""
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


def _refusing(construct: str) -> Callable[..., None]:
  def refuse(self: InductorObject, *args: Any, **kwargs: Any) -> None:
    raise Unsupported(construct, remedy=OTHER_OPERATORS).at(str(origin(args[0])) if args else "")

  return refuse


def _do_nothing(self: InductorObject, *args: Any, **kwargs: Any) -> None:
  pass


def prepared(
  exported: ExportedProgram, keep_attention: bool = False, in_place: bool = False
) -> ExportedProgram:
  """The program with the operators decomposed that have no implementation at run time; attention
  stays if `keep_attention` is set. Operators that write become functional too if they write to
  copies of constants (`t = torch.tensor([1, 2]); t[0] = x`), since Inductor would take such a copy
  for a constant, or if strides decide what they change (`y = x.flatten(); y.add_(1)`), since
  decompositions have other strides than operators. torch.vmap becomes what it maps. With
  `in_place`, the program itself may be changed."""
  import torch

  exported = _without_views_of_prims(exported)
  used = {node.target for node in graphs.nodes(exported) if node.op == "call_function"}
  wanted = {op: function for op, function in decompositions.table().items() if op in used}
  if keep_attention:
    wanted.pop(torch.ops.aten.scaled_dot_product_attention.default, None)
  if any(map(writes.depend_on_strides, graphs.modules(exported))):
    return _viewing_any_strides(exported_programs.functional(exported, wanted))
  writes_copies = torch.ops.aten.lift_fresh_copy.default in used and any(
    map(writes.written, graphs.nodes(exported))
  )
  if not writes_copies and not any(map(_maps, used)):
    if not wanted:
      return exported
    if (separately := single_calls.decomposed(exported, wanted, in_place)) is not None:
      return separately
  return exported_programs.functional(exported, wanted)


def _without_views_of_prims(exported: ExportedProgram) -> ExportedProgram:
  """The program with views of PyTorch's internal operators as those of models, since torch cannot
  tell what memory the internal ones share."""
  import torch

  aten, prims = torch.ops.aten, torch.ops.prims
  views = {
    prims.view_of.default: aten.alias.default,
    prims.squeeze.default: aten.squeeze.dims,
    prims.split_dim.default: aten.unflatten.int,
  }
  if not any(node.target in views for node in graphs.nodes(exported)):
    return exported
  exported = exported_programs.copied(exported)
  for module in graphs.modules(exported):
    node: Any
    for node in module.graph.nodes:
      if node.target is prims.split_dim.default:
        x, dim, outer = node.args
        node.args = (x, dim, [outer, -1])
      node.target = views.get(node.target, node.target)
    module.recompile()
  return exported


def _viewing_any_strides(exported: ExportedProgram) -> ExportedProgram:
  """A program that writes nothing, in which views are reshapes: they copy where a decomposition has
  strides that a view of this shape does not take."""
  import torch

  for module in graphs.modules(exported):
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default):
      node.target = torch.ops.aten.reshape.default
    module.recompile()
  return exported


def _maps(op: Any) -> bool:
  """Whether an operator is a part of torch.vmap, which a program that is functional has not."""
  return getattr(op, "__module__", None) == "torch._functorch.predispatch"


@contextlib.contextmanager
def quiet() -> Iterator[None]:
  """Silences warnings of Inductor that do not matter to an export. The warnings of torch's loggers,
  and the graph that torch.export prints when it fails, go to the log of the export."""
  import logging
  import warnings

  from torch.export import _trace

  printing = types.SimpleNamespace(stderr=prints.Appender())
  logger = logging.getLogger("torch.utils.cpp_extension")
  level = logger.level
  logger.setLevel(logging.ERROR)
  with (
    warnings.catch_warnings(),
    prints.records_of_torch(prints.is_no_warning),
    replaced((_trace, "sys", printing)),
  ):
    for kind in (FutureWarning, UserWarning, DeprecationWarning):
      warnings.simplefilter("ignore", kind)
    try:
      yield
    finally:
      logger.setLevel(level)
