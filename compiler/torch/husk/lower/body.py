"""The body of a variant while it is written: its statements, and the names, places and symbols
that they may use."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import sympy

from .. import hir
from ..errors import REPORT, CompileError, Unsupported
from ..inductor import empty
from ..inductor.origins import Origin, nodes_of, of_call, operators_of, origin
from ..program.constants import Places
from ..program.signature import Signature
from .nodes import Graph, IrNode, NodeView, Place, layout_of, node_view

if TYPE_CHECKING:
  import torch


class Body:
  """Writes the statements of one variant. `signature` describes the inputs and outputs,
  `constants` are the weights as this function names them, `backend` compiles the kernels."""

  def __init__(
    self,
    graph: Graph,
    signature: Signature,
    constants: Places,
    backend: hir.Backend,
    names: hir.Names,
  ) -> None:
    self.signature, self.constants, self.backend, self.names = signature, constants, backend, names
    self.ranges: dict[sympy.Symbol, Any] = graph.sizevars.shape_env.var_to_range
    self.buffers = {
      value.name: hir.Buffer(value.name, space)
      for space, values in (("input", signature.inputs), ("output", signature.outputs))
      for value in values
    }
    # The block that is being written.
    self.statements: list[hir.Statement] = []
    self._token: hir.Buffer | None = None  # of collective operators, if the block has any so far
    # The graph that is being written: the function's, or a subgraph while `inside` is open.
    self.graph = graph
    self.places: dict[str, Place] = {}  # by Inductor's name of a buffer
    self.scalars: dict[str, Any] = {}  # the symbols of inputs that the graph has as tensors
    self.exprs = hir.Expressions()
    self.asserts: list[tuple[Any, str]] = []  # (condition, message) with a symbol not yet defined
    self.called_at = ""  # the origin of the node that calls the subgraph
    # Subgraphs with the nodes of their first calls, during which they were lowered; and of the
    # calls that are being written those nodes, and what the calls say of origins.
    self._first_calls: dict[Graph, set[Any]] = {}
    self.calls: list[tuple[set[Any], dict[Origin, Origin]]] = []

  # Blocks and subgraphs

  @contextlib.contextmanager
  def block(self) -> Iterator[list[hir.Statement]]:
    """While open, statements are appended to the list that the context manager returns."""
    before, self.statements, token = self.statements, [], self._token
    try:
      yield self.statements
    finally:
      self.statements, self._token = before, token

  @contextlib.contextmanager
  def inside(self, graph: Graph, node: IrNode) -> Iterator[None]:
    """While open, the body writes a subgraph that `node` calls. The subgraph has its own names of
    buffers, and knows the symbols that are known outside."""
    before = self.graph, self.places, self.exprs, self.asserts, self.called_at
    self.called_at = self.origin(node)
    first = self._first_calls.setdefault(graph, set(nodes_of(node)))
    self.calls.append((first, of_call(node)))
    self.graph, self.places, self.exprs, self.asserts = graph, {}, self.exprs.child(), []
    try:
      yield
    finally:
      self.graph, self.places, self.exprs, self.asserts, self.called_at = before
      self.calls.pop()

  # Statements

  def emit(self, statement: hir.Statement) -> None:
    self.statements.append(statement)

  def let(self, name: str, value: hir.Expr) -> hir.Name:
    """Names a number."""
    name = self.names.take(name)
    self.emit(hir.Let(name, value))
    return hir.Name(name, value.is_float)

  def declare(self, wanted: str, size: hir.Expr, align: int = 64) -> hir.Buffer:
    """A new buffer of the arena. `size` and `align` are in bytes."""
    buffer = hir.Buffer(self.names.take(wanted), "arena", size, align)
    self.emit(hir.Declare(buffer))
    return buffer

  def declare_tensor(
    self, wanted: str, sizes: Sequence[Any], strides: Sequence[Any], dtype: "torch.dtype"
  ) -> hir.Buffer:
    """A new buffer of the arena for a tensor."""
    return self.declare(wanted, self.exprs.int(self.span(sizes, strides) * dtype.itemsize))

  def token(self) -> hir.Tensor:
    """A byte that each collective operator of the function writes, which orders them."""
    if self._token is None:
      self._token = self.declare("order", hir.Literal(1), align=1)
    return hir.Tensor("write", self._token, "u8", [hir.Literal(1)], [hir.Literal(1)])

  def call_operator(self, call: hir.OperatorCall) -> None:
    """Calls an operator the way that the backend decides."""
    self.statements += self.backend.call_operator(call)

  def launch(
    self,
    call: hir.KernelCall,
    origin: str,
    view: Callable[[str, Any], hir.View],
  ) -> None:
    """Launches a kernel. `view` converts the access and the memory of a ViewArg."""
    arguments = [self._launch_argument(argument, view) for argument in call.arguments]
    grid = tuple(self.exprs.int(side) for side in call.grid)
    self.emit(hir.Launch(call.kernel, grid, arguments, origin))

  def _launch_argument(
    self, argument: hir.LaunchArg, view: Callable[[str, Any], hir.View]
  ) -> hir.Argument:
    match argument:
      case hir.ViewArg(access, memory):
        return view(access, memory)
      case hir.ValueArg(value):
        return self.number(value)
      case hir.ScratchArg(size, alignment):
        return hir.View("write", self.declare("scratch", self.exprs.int(size), alignment))
      case hir.NullArg():
        return hir.NullPointer()
      case hir.AssertFlag():
        return hir.AssertPointer()

  # Numbers

  def number(self, value: Any) -> hir.Expr:
    """An expression of a Python number or of a SymPy expression."""
    return hir.Literal(value) if isinstance(value, (bool, int, float)) else self.exprs.any(value)

  def span(self, sizes: Iterable[Any], strides: Iterable[Any]) -> Any:
    """The number of elements from the first to the last element of a tensor, an expression. It
    is 0 if the tensor has no elements."""
    sizes = [sympy.sympify(size) for size in sizes]
    strides = [sympy.sympify(stride) for stride in strides]
    left, dense = [pair for pair in zip(sizes, strides) if pair[0] != 1], sympy.Integer(1)
    while innermost := next((pair for pair in reversed(left) if pair[1] == dense), None):
      left.remove(innermost)
      dense *= innermost[0]
    if not left:
      return dense
    last = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides))
    return last * self._is_filled(sizes)

  def _is_filled(self, sizes: Iterable[Any]) -> Any:
    """An expression that is 1, and 0 if one of these sizes is 0."""
    shapes = self.graph.sizevars.shape_env
    filled = sympy.Integer(1)
    for size in map(sympy.sympify, sizes):
      if size == 0:
        return size
      if empty.may_be_zero(shapes, size):
        filled *= hir.Filled(size)
    return filled

  def offset(self, offset: Any, sizes: Iterable[Any]) -> Any:
    """The bytes in front of a view of these sizes, whose first element would lie at `offset`: 0 if
    it has no elements, since the buffer may then end in front of that."""
    return offset * self._is_filled(sizes) if offset != 0 else offset

  def bytes_of(self, memory: str | Place) -> Any:
    """The bytes that a buffer's name or a place stands for, an expression."""
    layout = layout_of(self.place(memory).layout)
    return self.span(layout.sizes, layout.strides) * layout.dtype.itemsize

  # Memory

  def place(self, memory: str | Place) -> Place:
    """The place of one of Inductor's names, which may be a constant that is used for the first
    time."""
    if isinstance(memory, Place):
      return memory
    name = str(memory)
    if name not in self.places:
      if name not in self.graph.constants:
        raise Unsupported(f"the buffer {name} is used before anything writes it", remedy=REPORT)
      buffer, offset = self.constants.place(self.graph, name)
      self.places[name] = Place(buffer, sympy.Integer(offset), self.graph.constants[name])
    return self.places[name]

  def place_of(self, view: NodeView, layout: Any) -> Place:
    """The place of a view of a buffer whose place is known."""
    base = self.place(view.name)
    return Place(base.buffer, base.offset + view.byte_offset, layout)

  def view(self, access: str, memory: str | Place) -> hir.View:
    """The bytes that a buffer's name or a place stands for, as a kernel gets them."""
    place = self.place(memory)
    self.record_access(access, place.buffer)
    if place.offset == 0:
      return hir.View(access, place.buffer)
    offset = self.exprs.int(self.offset(place.offset, layout_of(place.layout).sizes))
    extent = self.exprs.int(self.bytes_of(place))
    return hir.View(access, place.buffer, offset, extent)

  def tensor(self, access: str, node: IrNode) -> hir.Tensor:
    """A buffer of Inductor's or a view of one, as an operator gets it."""
    view = node_view(node)
    place = self.place_of(view, node)
    self.record_access(access, place.buffer)
    return self.typed_view(access, place.buffer, view.dtype, view.sizes, view.strides, place.offset)

  def typed_view(
    self,
    access: str,
    buffer: hir.Buffer,
    dtype: "torch.dtype",
    sizes: Sequence[Any],
    strides: Sequence[Any],
    byte_offset: Any,
  ) -> hir.Tensor:
    name = hir.required_dtype(dtype, "a tensor")
    elements = sympy.expand(sympy.sympify(byte_offset) / dtype.itemsize)
    offset = self.exprs.int(self.offset(elements, sizes))
    return hir.Tensor(
      access, buffer, name, self.exprs.ints(sizes), self.exprs.ints(strides), offset
    )

  def record_access(self, access: str, buffer: hir.Buffer) -> None:
    """Turns a constant that is written into state."""
    if access != "read" and buffer.space == "constant":
      buffer.space = "state"

  # Messages

  def origin(self, node: IrNode) -> str:
    """The place in the model that a node comes from. For a node of a subgraph it is the place of
    the call if the node itself does not name a line."""
    own = origin(node, set().union(*(nodes for nodes, _ in self.calls)))
    for _, others in reversed(self.calls):
      own = others.get(own, own)
    if not self.called_at or own.is_in_file:
      return str(own)
    return f"{self.called_at}: {own}"

  def operators(self, node: IrNode) -> str:
    """The operators that a node computes, and the place of the node in the model."""
    names = ", ".join(operators_of(node)) or "a kernel"
    place = self.origin(node)
    return f"{names} (near {place})" if place else names

  def located(self, error: Unsupported | CompileError, node: IrNode) -> Unsupported | CompileError:
    """The error with the place of `node`, or else an `Unsupported` with the place of the last
    statement. An error that has a place already stays as it is."""
    if isinstance(error, CompileError):
      return error if error.place or node is None else error.at(self.operators(node))
    place = self.origin(node) if node is not None else ""
    place = place or next((s.origin for s in reversed(self.statements) if s.origin), "")
    return error.at(place)
