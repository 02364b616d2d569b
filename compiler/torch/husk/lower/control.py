"""Control flow: branches, loops and calls of subgraphs. A subgraph is written where it is called.

The inputs of a subgraph are bound to the places of the operands, so that nothing is copied on the
way in. The result of a branch is written to the buffer of the node's result if possible, else it is
copied there. A loop carries its tensors in buffers to which each iteration copies at its end.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import sympy

from .. import hir
from ..errors import REPORT, Unsupported
from ..inductor.lines import BranchLine, CallLine, Captured, LoopLine
from . import prologue, scalars
from .body import Body
from .nodes import IrNode, Line, Place, node_view, unboxed

if TYPE_CHECKING:
  import torch

# Writes the statements of a subgraph's lines.
Visit = Callable[[Iterable[Line]], None]


@dataclasses.dataclass
class _Tensor:
  """A tensor that is an operand or a result of a subgraph. Unlike those of a `Place`, its
  expressions mean the same inside and outside of the subgraph."""

  buffer: hir.Buffer
  offset: hir.Expr  # bytes
  sizes: list[hir.Expr]
  strides: list[hir.Expr]
  dtype: "torch.dtype"
  span: hir.Expr  # bytes
  is_known: bool = True  # whether the sizes and strides are known before the subgraph runs


@dataclasses.dataclass
class _Number:
  """A number that is an operand or a result of a subgraph."""

  value: hir.Expr


_Value = _Tensor | _Number | None


def branch(body: Body, line: BranchLine, visit: Visit) -> None:
  """cond and switch: `when selector { … } else { … }`."""
  node = line.node
  choice = _Choice(body, line)
  operands = [_described(body, operand) for operand in node.operands]
  blocks: list[list[hir.Statement]] = []
  results: list[list[_Value]] = []
  for captured in line.branches:
    with body.block() as statements:
      results.append(_inline(body, visit, node, captured, operands))
    blocks.append(statements)
  late_symbols = _choose_sizes(body, node, choice, blocks, results)
  shared = _repeated(part.buffer for result in results for part in _tensors(result))
  late_outputs: list[int] = []
  for index, output in enumerate(node.outputs):
    if body.exprs.knows_all([*output.get_size(), *output.get_stride()]):
      _place_result(body, output, _column(results, index), blocks, shared)
    else:
      late_outputs.append(index)
  choice.emit(blocks)
  for symbol, value in late_symbols:
    scalars.define(body, symbol, value)
  if late_outputs:
    copies: list[list[hir.Statement]] = [[] for _ in blocks]
    for index in late_outputs:
      _place_result(body, node.outputs[index], _column(results, index), copies, shared)
    choice.emit(copies)


def _column(results: list[list[_Value]], index: int) -> list[_Tensor]:
  """The tensors that each of the branches returns at an index."""
  column: list[_Tensor] = []
  for result in results:
    part = result[index]
    assert isinstance(part, _Tensor)
    column.append(part)
  return column


def _tensors(values: Iterable[_Value]) -> Iterator[_Tensor]:
  return (value for value in values if isinstance(value, _Tensor))


class _Choice:
  """The number that selects a branch."""

  def __init__(self, body: Body, line: BranchLine) -> None:
    self.body = body
    self.is_cond: bool = getattr(line.node, "is_cond", True)
    self.selector = _number(body, line.selector, "branch")

  def among(self, values: Sequence[hir.Expr]) -> hir.Expr:
    """The number of the branch that is taken. `values` has one number for each branch."""
    if self.is_cond:
      return hir.op("select", self.selector, values[1], values[0])
    result = values[-1]
    for index in reversed(range(len(values) - 1)):
      result = hir.op("select", self._is(index), values[index], result)
    return result

  def emit(self, blocks: list[list[hir.Statement]]) -> None:
    """Writes the statements of the branches, one block each."""
    if self.is_cond:
      self.body.emit(hir.When(self.selector, yes=blocks[1], no=blocks[0]))
      return
    block: list[hir.Statement] = blocks[-1]
    for index in reversed(range(len(blocks) - 1)):
      when = hir.When(self._is(index), yes=blocks[index], no=block)
      block = [when]
    self.body.statements += block

  def _is(self, index: int) -> hir.Expr:
    return hir.op("eq", self.selector, index)


def loop(body: Body, line: LoopLine, visit: Visit) -> None:
  """while_loop: `loop { cond while … body }`."""
  node = line.node
  carried = [_described(body, operand) for operand in node.carried_inputs]
  others = [_described(body, operand) for operand in node.additional_inputs]
  outputs = {output.indices[0][1]: output for output in node.outputs}
  for index, output in outputs.items():  # the subgraph writes the other carried tensors in place
    carried[index] = _carry(body, output, carried[index])
  with body.block() as before:
    with body.inside(line.cond.graph, node):
      _enter(body, visit, line.cond, [*carried, *others])
      condition = _number(body, line.cond.graph.graph_outputs[0], "goes_on")
  with body.block() as after:
    results = _inline(body, visit, node, line.body, [*carried, *others])
    moved = [results[index] if index in outputs else None for index in range(len(carried))]
    _carry_on(body, carried, moved)
  body.emit(hir.Loop(condition, before=before, after=after))
  for symbol, keys in scalars.bindings(body, node):
    scalars.define(body, symbol, _at(carried, keys))


def call(body: Body, line: CallLine, visit: Visit) -> None:
  """invoke_subgraph: the statements of the subgraph."""
  node = line.node
  operands = [_described(body, operand) for operand in node.inputs]
  results = _inline(body, visit, node, line.body, operands)
  for output, part in zip(node.outputs, results):
    if isinstance(part, _Tensor):
      body.places[output.get_name()] = _placed(body, part, output)


# Operands and results of a subgraph


def _described(body: Body, node: IrNode) -> _Value:
  """An operand or a result, in expressions of the graph that is being written."""
  node = unboxed(node)
  if node is None or type(node).__name__ == "NoneAsConstantBuffer":
    return None
  expression = getattr(node, "expr", node)
  if isinstance(expression, (sympy.Basic, int, float)):
    return _Number(body.exprs.any(expression))
  view, exprs = node_view(node), body.exprs
  place = body.place_of(view, node)
  span = exprs.int(body.span(view.sizes, view.strides) * view.dtype.itemsize)
  return _Tensor(
    place.buffer,
    exprs.int(body.offset(place.offset, view.sizes)),
    exprs.ints(view.sizes),
    exprs.ints(view.strides),
    view.dtype,
    span,
  )


def _inline(
  body: Body, visit: Visit, node: IrNode, captured: Captured, operands: list[_Value]
) -> list[_Value]:
  """Writes the lines of a subgraph; returns its results."""
  outputs = captured.graph.graph_outputs
  with body.inside(captured.graph, node):
    _enter(body, visit, captured, operands)
    results = [_described(body, output) for output in outputs]
  for result, output in zip(results, outputs):
    if isinstance(result, _Tensor):
      view = node_view(output)
      result.is_known = body.exprs.knows_all([*view.sizes, *view.strides])
  return results


def _enter(body: Body, visit: Visit, captured: Captured, operands: list[_Value]) -> None:
  """Binds the inputs of a subgraph to the operands, and writes its lines."""
  inputs = captured.graph.graph_inputs
  if len(inputs) != len(operands):
    raise Unsupported(
      f"a function of a branch or a loop takes {len(inputs)} values, and is called with "
      f"{len(operands)}",
      remedy=REPORT,
    )
  body.asserts = prologue.asserts(captured.graph)
  _define_symbols(body, list(zip(inputs.values(), operands)))
  for (name, node), operand in zip(inputs.items(), operands):
    if isinstance(operand, _Tensor):
      _bind(body, name, node, operand)
  prologue.write_checks(body)
  visit(captured.lines)


def _define_symbols(body: Body, pairs: list[tuple[IrNode, _Value]]) -> None:
  """Defines the symbols of a subgraph's inputs by the operands. An operand may have other strides
  than the subgraph assumes, so a stride defines a symbol only if nothing else does."""
  tensors = [(node, operand) for node, operand in pairs if isinstance(operand, _Tensor)]
  for node, operand in pairs:
    if isinstance(operand, _Number) and isinstance(node, sympy.Symbol):
      body.exprs.define(node, operand.value)
  for node, operand in tensors:
    for symbol, size in zip(node.get_size(), operand.sizes):
      if isinstance(symbol, sympy.Symbol):
        body.exprs.define(symbol, size)
  for node, operand in tensors:
    for symbol, stride in zip(node.get_stride(), operand.strides):
      if isinstance(symbol, sympy.Symbol) and not body.exprs.knows(symbol):
        body.exprs.define(symbol, stride)


def _bind(body: Body, name: str, node: IrNode, operand: _Tensor) -> None:
  """Binds the input `name` of a subgraph to a tensor."""
  assumed = zip(node.get_stride(), body.exprs.ints(node.get_stride()), strict=True)
  for (stride, expression), size, own in zip(assumed, operand.sizes, operand.strides, strict=True):
    # A stride of a dimension with one element has no effect.
    if size == hir.Literal(1) or own in (expression, body.exprs.int(_of_elements(stride))):
      continue
    operand = _restrided(body, name, node, operand)
    break
  body.places[name] = _placed(body, operand, node)


def _of_elements(stride: Any) -> Any:
  """A stride of a tensor that has elements. Since a size n may be 0, torch computes strides by
  `max(1, n)`."""
  stride = sympy.sympify(stride)
  for part in sympy.preorder_traversal(stride):
    if type(part).__name__ == "Max" and len(part.args) == 2 and part.args[0] == 1:
      return _of_elements(stride.xreplace({part: part.args[1]}))
  return stride


def _restrided(body: Body, name: str, node: IrNode, operand: _Tensor) -> _Tensor:
  """A copy of an operand with the strides that the kernels of the subgraph assume."""
  buffer = body.declare_tensor(name, node.get_size(), node.get_stride(), node.get_dtype())
  copy = dataclasses.replace(
    operand,
    buffer=buffer,
    offset=hir.Literal(0),
    sizes=body.exprs.ints(node.get_size()),
    strides=body.exprs.ints(node.get_stride()),
  )
  _copy_elements(body, copy, operand)
  return copy


def _placed(body: Body, tensor: _Tensor, layout: IrNode) -> Place:
  """The place of a tensor. Its offset becomes a symbol unless it is a literal."""
  if isinstance(tensor.offset, hir.Literal):
    return Place(tensor.buffer, sympy.Integer(tensor.offset.value), layout)
  name = body.let("offset", tensor.offset)
  symbol = sympy.Symbol(name.name, integer=True)
  body.exprs.define(symbol, name)
  return Place(tensor.buffer, symbol, layout)


def _number(body: Body, node: IrNode, wanted: str) -> hir.Name:
  """Names an int that is an expression, or the only element of a tensor, which is read."""
  described = _described(body, node)
  value = described.value if isinstance(described, _Number) else scalars.read(body, unboxed(node))
  if value.is_float:
    raise Unsupported(
      "a float selects a branch", remedy="give torch.cond a bool, such as `x > 0`, or an int"
    )
  return body.let(wanted, value)


# Results


def _choose_sizes(
  body: Body,
  node: IrNode,
  choice: _Choice,
  blocks: list[list[hir.Statement]],
  results: list[list[_Value]],
) -> list[tuple[sympy.Symbol, hir.Expr]]:
  """Defines the symbols of sizes that differ between branches. Returns those that are known only
  after the branches, with their values."""
  late: list[tuple[sympy.Symbol, hir.Expr]] = []
  for symbol, keys in scalars.bindings(body, node):
    parts = [result[keys[0].idx] for result in results]
    values = [_at(result, keys) for result in results]
    if all(part.is_known for part in parts if isinstance(part, _Tensor)):
      scalars.define(body, symbol, choice.among(values))
      continue
    for index, (statements, value) in enumerate(zip(blocks, values)):
      with body.block() as block:
        values[index] = body.let(str(symbol), value)
      statements += block
    late.append((symbol, choice.among(values)))
  return late


def _at(values: Sequence[_Value], keys: Sequence[Any]) -> hir.Expr:
  """The number at a path of torch: (SequenceKey(1), CallMethodKey("size"), SequenceKey(0)) is
  the first size of the second value."""
  kinds = [type(key).__name__ for key in keys]
  part = values[keys[0].idx] if kinds[:1] == ["SequenceKey"] else None
  if len(kinds) == 1 and isinstance(part, _Number):
    return part.value
  if kinds[1:3] == ["CallMethodKey", "SequenceKey"] and isinstance(part, _Tensor):
    numbers = {"size": part.sizes, "stride": part.strides}.get(keys[1].name)
    if numbers is not None:
      return scalars.conversion(keys[3:], numbers[keys[2].idx])
  path = "".join(map(str, keys))
  raise Unsupported(
    f"a branch or a loop decides the number {path} of its result, which a program cannot read",
    remedy="return it as a tensor of one element",
  )


def _repeated(buffers: Iterable[hir.Buffer]) -> set[int]:
  """The ids of the buffers that occur more than once."""
  seen: set[int] = set()
  repeated: set[int] = set()
  for buffer in buffers:
    (repeated if id(buffer.row()) in seen else seen).add(id(buffer.row()))
  return repeated


def _place_result(
  body: Body,
  output: IrNode,
  parts: list[_Tensor],
  blocks: list[list[hir.Statement]],
  shared: set[int],
) -> None:
  """Declares the buffer of a result. A branch that computes its part in a buffer of its own
  computes it in the result's buffer instead; any other branch gets a copy at its end. `shared`
  has the ids of buffers that are returned more than once."""
  if sympy.sympify(output.get_layout().offset) != 0:
    raise Unsupported(
      "the result of a branch begins inside of another tensor", remedy="return a .clone() of it"
    )
  sizes, strides, dtype = output.get_size(), output.get_stride(), output.get_dtype()
  buffer = body.declare_tensor(output.get_name(), sizes, strides, dtype)
  body.places[output.get_name()] = Place(buffer, layout=output)
  assert buffer.bytes is not None
  whole = _Tensor(
    buffer, hir.Literal(0), body.exprs.ints(sizes), body.exprs.ints(strides), dtype, buffer.bytes
  )
  for part, statements in zip(parts, blocks):
    row = part.buffer.row()
    is_declared = any(
      isinstance(statement, hir.Declare) and statement.buffer is row
      for statement in hir.walk(statements)
    )
    is_same = _has_strides(strides, whole, part)
    if (
      is_declared
      and is_same
      and id(row) not in shared
      and part.offset == hir.Literal(0)
      and row.bytes == part.span
    ):
      row.stands_for = buffer
      continue
    with body.block() as block:
      (_copy_bytes if is_same else _copy_elements)(body, whole, part)
    statements += block


def _has_strides(strides: Sequence[Any], whole: _Tensor, part: _Tensor) -> bool:
  """Whether a part has the strides of the whole. A stride that the branches decide counts as
  equal."""
  return all(
    expected == actual
    or any(str(symbol)[:1] == "u" for symbol in sympy.sympify(stride).free_symbols)
    for stride, expected, actual in zip(strides, whole.strides, part.strides)
  )


def _copy_bytes(body: Body, destination: _Tensor, source: _Tensor) -> None:
  view = hir.View("read", source.buffer, source.offset, source.span)
  body.emit(hir.Copy(hir.View("write", destination.buffer), view, body.called_at))


def _copy_elements(body: Body, destination: _Tensor, source: _Tensor) -> None:
  """Copies between tensors whose strides differ."""
  arguments = [_typed_view("write", destination), _typed_view("read", source), hir.Literal(False)]
  body.call_operator(hir.OperatorCall("aten::copy_", arguments, [], body.called_at))


def _typed_view(access: str, tensor: _Tensor) -> hir.Tensor:
  offset, itemsize = tensor.offset, tensor.dtype.itemsize
  elements = (
    hir.Literal(int(offset.value) // itemsize)
    if isinstance(offset, hir.Literal)
    else hir.op("floordiv", offset, itemsize)
  )
  dtype = hir.required_dtype(tensor.dtype, "a tensor of a branch or a loop")
  return hir.Tensor(access, tensor.buffer, dtype, tensor.sizes, tensor.strides, elements)


# Tensors that a loop carries


def _carry(body: Body, output: IrNode, initial: _Value) -> _Tensor:
  """The buffer of a carried tensor, to which the initial value is copied."""
  assert isinstance(initial, _Tensor)
  carried = _moved(body, initial, output.get_name())
  body.places[output.get_name()] = Place(carried.buffer, layout=output)
  return carried


def _moved(body: Body, tensor: _Tensor, wanted: str) -> _Tensor:
  """A copy of a tensor in a buffer of its own."""
  buffer = body.declare(wanted, tensor.span)
  copy = dataclasses.replace(tensor, buffer=buffer, offset=hir.Literal(0))
  _copy_bytes(body, copy, tensor)
  return copy


def _carry_on(body: Body, carried: list[_Value], results: list[_Value]) -> None:
  """Copies the results of an iteration to the carried tensors. A result that lies in a carried
  tensor is first copied to a buffer of its own."""
  rows = {id(tensor.buffer.row()) for tensor in _tensors(carried)}
  moves: list[tuple[_Tensor, _Tensor]] = []
  for destination, result in zip(carried, results):
    if not isinstance(destination, _Tensor) or not isinstance(result, _Tensor):
      continue
    row = result.buffer.row()
    is_in_place = row is destination.buffer.row() and result.offset == destination.offset
    if is_in_place and result.strides == destination.strides:
      continue
    moves.append((destination, _moved(body, result, "carried") if id(row) in rows else result))
  for destination, result in moves:
    same = destination.strides == result.strides
    (_copy_bytes if same else _copy_elements)(body, destination, result)
