"""The lines of Inductor's wrapper become the statements of a variant."""

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sympy

from .. import hir
from ..errors import OTHER_OPERATORS, REPORT, CompileError, Unsupported
from ..inductor import failures, torch_compat
from ..inductor.assumed import Assumption
from ..program.constants import FunctionConstants
from ..program.signature import Signature
from . import control, extern, host_steps, prologue, results, scalars
from .body import Body
from .nodes import IrNode, Line, Place, node_view
from .operators import Operators

# Writes the statements of a node of Inductor's IR.
NodeWriter = Callable[[Body, IrNode], None]

# The writers of the classes of nodes that come as a NodeLine.
NODES: dict[str, NodeWriter] = {
  "InplaceBernoulliFallback": extern.in_place,
  "InplaceCopyFallback": extern.copy,
  "DeviceCopy": extern.device_copy,
  "DynamicSelectStorageOffset": scalars.select_offset,
  "DynamicSliceSize": scalars.slice_size,
  "TensorAssert": scalars.tensor_assert,
}


class VariantWriter:
  """Writes the variants of one function and target. `signature` describes the inputs and
  outputs, `constants` are the weights as this function names them, `backend` compiles the
  kernels, `operators` are those that the target has. `nodes` maps further classes of nodes to the
  functions that write them. `note` gets a text for each size of the export that is excluded."""

  def __init__(
    self,
    target: str,
    signature: Signature,
    constants: FunctionConstants,
    backend: hir.Backend,
    names: hir.Names,
    operators: Operators,
    nodes: Mapping[str, NodeWriter] | None = None,
    note: Callable[[str], object] = lambda text: None,
  ) -> None:
    self.operators, self.note = operators, note
    self.target, self.signature, self.constants = target, signature, constants
    self.backend, self.names, self.nodes = backend, names, {**NODES, **(nodes or {})}

  def write(self, wrapper: Any, assumptions: Iterable[Assumption] = ()) -> hir.Variant:
    """The variant of Inductor's wrapper, whose graph is the current one. `assumptions` are the
    conditions on sizes that torch took for granted."""
    from torch._inductor.virtualized import V

    self.operators.check_lines(wrapper.lines, self._is_of_library)
    body = Body(V.graph, self.signature, self.constants, self.backend, self.names)
    self.backend.begin_function()
    prologue.write(body, assumptions, self.note)
    LineVisitor(body, self.nodes).visit(wrapper.lines)
    values = results.write(body)
    self.operators.check_statements(body.statements)
    statements = host_steps.place(body.statements, self.operators.is_host_step, self.names)
    self.backend.note_statements(statements)
    return hir.Variant(self.target, without_unused(statements), values)

  def _is_of_library(self, op: Any) -> bool:
    return any(library.takes(op) for library in self.backend.libraries)


class LineVisitor:
  """Writes the statements of each line. The method `visit_X` visits the lines of class X, so
  that a class that only one version of torch has needs no import. A line without a method is
  refused by name."""

  def __init__(self, body: Body, nodes: Mapping[str, NodeWriter]) -> None:
    self.body, self.nodes = body, nodes

  def visit(self, lines: Iterable[Line]) -> None:
    lines = list(lines)
    definitions = [
      (line.kernel_name, line.kernel_body)
      for line in lines
      if type(line).__name__ == "KernelDefinitionLine"
    ]
    self.body.backend.compile_ahead(definitions)
    for line in lines:
      if not _is_ignored(line):
        self._visit(line, lines)

  def _visit(self, line: Line, lines: Sequence[Line]) -> None:
    method: Callable[[Line], None] = getattr(self, f"visit_{type(line).__name__}", _refuse)
    try:
      method(line)
    except (Unsupported, CompileError) as error:
      located = self.body.located(error, self._node(line, lines))
      if located is error:
        raise
      raise located from error
    except (OSError, MemoryError):
      raise
    except Exception as error:
      explained = failures.of(error, "Husk")
      raise self.body.located(explained, self._node(line, lines)) from error

  def _node(self, line: Line, lines: Sequence[Line]) -> IrNode:
    """The node of a line. A kernel's definition has that of the last buffer in its first call."""
    if type(line).__name__ == "KernelCallLine":
      return self._last_buffer(line)
    if type(line).__name__ != "KernelDefinitionLine":
      return getattr(line, "node", None)
    for call in lines:
      if getattr(call, "kernel_name", None) == line.kernel_name and hasattr(call, "call_args"):
        return self._last_buffer(call)
    return None

  def _last_buffer(self, call: Line) -> IrNode:
    """The node of the last buffer among the arguments of a kernel, which it writes."""
    names = [name for name in call.call_args if isinstance(name, str)]
    found = (self.body.graph.try_get_buffer(name) for name in reversed(names))
    return next((node for node in found if node is not None), None)

  # Memory

  def visit_AllocateLine(self, line: Line) -> None:
    body, node = self.body, line.node
    if node.get_name() in body.graph.removed_buffers:
      return
    if getattr(line, "comm_buffer", False):
      raise Unsupported(
        "a computed tensor in memory that ranks share",
        remedy="copy it to a tensor of torch.distributed._symmetric_memory.empty that is an input",
      )
    sizes = torch_compat.allocation_size(body.graph, node)
    view = node_view(node)
    buffer = body.declare_tensor(view.name, sizes, view.strides, view.dtype)
    body.places[view.name] = Place(buffer, layout=node)

  def visit_ReuseLine(self, line: Line) -> None:
    # Inductor leaves such a line out of a graph, but not out of a subgraph.
    if line.node.get_name() in self.body.graph.removed_buffers:
      return
    old = self.body.place(line.node.get_name())
    self.body.places[line.reused_as.get_name()] = Place(old.buffer, old.offset, line.reused_as)

  def visit_ReinterpretLine(self, line: Line) -> None:
    view = node_view(line.layout.view)
    self.body.places[line.reused_as.get_name()] = self.body.place_of(view, line.layout)

  def visit_ZeroLine(self, line: Line) -> None:
    destination = hir.View("write", self.body.place(line.name).buffer)
    self.body.emit(hir.Fill("u8", destination, hir.Literal(0)))

  # Kernels

  def visit_KernelDefinitionLine(self, line: Line) -> None:
    self.body.backend.define_kernel(line.kernel_name, line.kernel_body, line.metadata)

  def visit_KernelCallLine(self, line: Line) -> None:
    body = self.body
    nodes = line.raw_args or ()
    if len(nodes) != len(line.call_args):
      nodes = [None] * len(line.call_args)
    args = [self._kernel_argument(*pair) for pair in zip(line.call_args, nodes)]
    call = body.backend.call_kernel(line.kernel_name, args, body.ranges, body.bytes_of)
    if (node := self._last_buffer(line)) is not None:
      body.backend.note_call(call.kernel, functools.partial(body.operators, node))
    body.launch(call, self._origin_of_results(call), body.view)

  def _kernel_argument(self, value: Any, node: IrNode) -> Any:
    """The argument of a call as a backend gets it: the name of a buffer, a Place, a Descriptor
    or an expression. `node` is the node of the argument if the line has one."""
    body = self.body
    if type(node).__name__ == "TMADescriptorStable":
      view = node_view(node.tensor)
      body.places[value] = body.place_of(view, node.tensor)
      return hir.Descriptor(value, list(view.sizes), list(view.strides))
    if type(node).__name__ == "ReinterpretView":  # only kernels of the model's own get views
      return body.place_of(node_view(node), node)
    if hasattr(value, "inner_expr"):
      return value.inner_expr
    if not isinstance(value, str) or value in body.places or value in body.graph.constants:
      return value
    if value in body.scalars:
      return body.scalars[value]
    if re.fullmatch(r"[-+]?\d+", value):
      return sympy.Integer(int(value))
    symbol = sympy.Symbol(value, integer=True)
    if not body.exprs.knows(symbol):
      raise Unsupported(
        f"the argument {value} of a kernel is neither a buffer nor a symbol", remedy=REPORT
      )
    return next((known for known in body.ranges if str(known) == value), symbol)

  def _origin_of_results(self, call: hir.KernelCall) -> str:
    """The origin of the first buffer that a kernel writes and whose origin is known."""
    for argument in call.arguments:
      if isinstance(argument, hir.ViewArg) and argument.access != "read":
        memory = argument.memory
        node = (
          memory.layout
          if isinstance(memory, Place)
          else self.body.graph.try_get_buffer(str(memory))
        )
        if text := self.body.origin(node):
          return text
    return ""

  # Operators

  def visit_ExternKernelOutLine(self, line: Line) -> None:
    extern.out(self.body, line.node)

  def visit_ExternKernelAllocLine(self, line: Line) -> None:
    extern.alloc(self.body, line.node)

  def visit_ExternKernelMultiOutLine(self, line: Line) -> None:
    extern.multi_out(self.body, line.node)

  def visit_ScatterFallbackLine(self, line: Line) -> None:
    extern.scatter(self.body, line.node)

  def visit_IndexPutFallbackLine(self, line: Line) -> None:
    extern.index_put(self.body, line.node, line.indices)

  def visit_MultiOutputLine(self, line: Line) -> None:
    """Checks that the operator's own line has placed the result."""
    if line.result_name not in self.body.places:
      raise Unsupported(
        f"{line.result_name}, one of the results of {line.arg_name}, has no place", remedy=REPORT
      )

  def visit_NodeLine(self, line: Line) -> None:
    kind = type(line.node).__name__
    if kind not in self.nodes:
      raise Unsupported(
        f"Inductor makes a {kind} of this operator, which a program does not have",
        remedy=OTHER_OPERATORS,
      )
    self.nodes[kind](self.body, line.node)

  # Numbers

  def visit_SymbolicCallArgLine(self, line: Line) -> None:
    self.body.exprs.define(line.arg.inner, self.body.exprs.any(line.arg.inner_expr))

  def visit_DynamicScalarLine(self, line: Line) -> None:
    scalars.scalar(self.body, line.node)

  def visit_UnbackedSymbolDefsLine(self, line: Line) -> None:
    """Checks that the line of the node itself has defined the symbols."""
    unknown = [
      str(symbol) for symbol in line.unbacked_bindings or () if not self.body.exprs.knows(symbol)
    ]
    if unknown:
      raise Unsupported(
        f"this operator decides the sizes {', '.join(unknown)} in a way that a program cannot read",
        remedy=OTHER_OPERATORS,
      )

  # Control flow

  def visit_BranchLine(self, line: Line) -> None:
    control.branch(self.body, line, self.visit)

  def visit_LoopLine(self, line: Line) -> None:
    control.loop(self.body, line, self.visit)

  def visit_CallLine(self, line: Line) -> None:
    control.call(self.body, line, self.visit)


def _refuse(line: Line) -> None:
  """Visits a line without a method."""
  text = repr(line.strip()) if isinstance(line, str) else type(line).__name__
  raise Unsupported(
    f"the line {text} of Inductor's wrapper is not supported", remedy=OTHER_OPERATORS
  )


def _is_ignored(line: Line) -> bool:
  """Whether a line is one that has no effect here, a comment or an empty line."""
  if isinstance(line, str):
    return line.lstrip()[:1] in ("#", "")
  return type(line).__name__ in torch_compat.IGNORED_LINES


def without_unused(statements: list[hir.Statement]) -> list[hir.Statement]:
  """The statements without declarations of arena buffers that no step uses and of buffers that
  stand for others."""
  used = {id(row) for statement in hir.walk(statements) for row in statement.rows()}

  def is_needed(statement: hir.Statement) -> bool:
    if not isinstance(statement, hir.Declare):
      return True
    buffer = statement.buffer
    return buffer.stands_for is None and (buffer.space != "arena" or id(buffer) in used)

  def pruned(block: list[hir.Statement]) -> list[hir.Statement]:
    for statement in block:
      for inner in statement.blocks():
        inner[:] = pruned(inner)
    return [statement for statement in block if is_needed(statement)]

  return pruned(statements)
