"""Numbers that depend on the values of tensors: they are read from memory, or an operator
returns them."""

from collections.abc import Iterable
from typing import Any

import sympy

from .. import hir
from ..errors import OTHER_OPERATORS, Unsupported
from . import prologue
from .body import Body
from .nodes import IrNode, node_view

_MOST_READS = 64  # numbers that the steps of one segment may read (schema/FORMAT.md)
# Statements that do not end a segment.
_BETWEEN_READS = (hir.Let, hir.Check, hir.CheckEqual, hir.CheckStride)
_LARGEST, _SMALLEST = 2**63 - 1, -(2**63)


def scalar(body: Body, node: IrNode) -> None:
  """`tensor.item()`."""
  (source,) = node.inputs
  define(body, node.sym, conversion(node.keypath or (), read(body, source)))


def read(body: Body, source: IrNode) -> hir.Expr:
  """Reads the first element of a tensor; returns the expression that stands for it in the next
  segment. A read joins the reads right before it if it does not depend on them, so that they
  share a segment."""
  tensor = node_view(source)
  name = hir.dtype(tensor.dtype)
  if tensor.dtype.is_complex or name is None:
    raise Unsupported(
      f"a number of the dtype {tensor.dtype} is read from a tensor",
      remedy="read its real and its imaginary part, by .real.item() and .imag.item()"
      if tensor.dtype.is_complex
      else OTHER_OPERATORS,
    )
  place = body.place_of(tensor, source)
  offset = body.exprs.int(place.offset)
  view = hir.View("read", place.buffer, offset, hir.Literal(tensor.dtype.itemsize))
  statement = hir.Read(name, view, body.origin(source))
  index, earlier = _reads_to_join(body.statements, view)
  body.statements.insert(index, statement)
  return hir.op("fresult" if tensor.dtype.is_floating_point else "result", earlier)


def _reads_to_join(statements: list[hir.Statement], view: hir.View) -> tuple[int, int]:
  """The index at which a read of `view` joins the reads before it, and the number of those
  reads."""
  end = len(statements)
  while end and isinstance(statements[end - 1], _BETWEEN_READS):
    end -= 1
  begin = end
  while begin and isinstance(statements[begin - 1], hir.Read):
    begin -= 1
  defined = {statement.name for statement in statements[end:] if isinstance(statement, hir.Let)}
  depends = bool(defined & hir.names_in([view.offset, view.extent]))
  if begin == end or end - begin == _MOST_READS or depends:
    return len(statements), 0
  return end, end - begin


def conversion(keys: Iterable[Any], value: hir.Expr) -> hir.Expr:
  """The number that the path `keys` of torch makes of `value`. Keys that only lead to the value
  do not change it."""
  for key in keys:
    kind = type(key).__name__
    if kind == "DivideByKey":
      value = hir.op("floordiv", value, int(key.divisor))
    elif kind == "ConvertIntKey":
      value = hir.op("ne", value, 0)
    elif kind not in ("SequenceKey", "CallMethodKey", "MappingKey"):
      raise Unsupported(
        f"PyTorch converts a number that depends on data by {kind}, which a program cannot",
        remedy=OTHER_OPERATORS,
      )
  return value


def define(body: Body, symbol: sympy.Symbol, value: hir.Expr, limit: Any = None) -> None:
  """Defines an unbacked symbol. `limit` is an expression that the value cannot exceed, in
  addition to the range that torch knows."""
  known = body.ranges.get(symbol)
  if not value.is_float and known is not None:
    lower = int(known.lower) if known.lower.is_Integer else _SMALLEST
    if known.upper.is_Integer and known.upper < _LARGEST - 1:
      limit = known.upper if limit is None else sympy.Min(known.upper, limit)
    if limit is not None or lower != _SMALLEST:
      value = hir.op("range", value, lower, _LARGEST if limit is None else body.exprs.int(limit))
  body.exprs.define(symbol, body.let(str(symbol), value))
  prologue.write_checks(body)


def bindings(body: Body, node: IrNode) -> list[tuple[sympy.Symbol, Any]]:
  """The unbacked symbols that a node defines, under the names that they have by now. Each comes
  with the path of torch to the number in the node's result."""
  renamings = body.graph.sizevars.shape_env.unbacked_renamings
  symbols = getattr(node, "unbacked_bindings", None) or {}
  return [(renamings.get(symbol, symbol), keys) for symbol, keys in symbols.items()]


# Nodes


def select_offset(body: Body, node: IrNode) -> None:
  """`x[i]` with an `i` that depends on data: the offset at which the selected part begins."""
  exprs = body.exprs
  index, size = exprs.int(node.index), exprs.int(node.size)
  place = hir.op("select", hir.op("lt", index, 0), hir.op("add", index, size), index)
  if node.clamp:
    place = hir.op("max", 0, hir.op("min", size, place))
  else:
    condition = hir.op(
      "and", hir.op("le", hir.op("sub", 0, size), index), hir.op("lt", index, size)
    )
    body.emit(hir.Check(condition, f"an index is out of range ({node.index})"))
  offset = hir.op("mul", exprs.int(node.base_dim_stride), place)
  define(body, node.unbacked_offset_symbol, hir.op("add", exprs.int(node.base_offset), offset))


def slice_size(body: Body, node: IrNode) -> None:
  """`x[i:j]`: its length. The bounds are limited to the tensor as Python does."""
  begin = 0 if node.start is None else _bound(node.start, node.size)
  end = node.size if node.end is None else _bound(node.end, node.size)
  length = body.exprs.int(end - begin)
  if node.step != 1:
    length = hir.op("cdiv", length, body.exprs.int(node.step))
  define(body, node.unbacked_size_symbol, hir.op("max", 0, length), limit=node.size)


def _bound(bound: Any, size: Any) -> Any:
  from torch.utils._sympy.functions import Max, Min, Where

  bound = sympy.sympify(bound)
  if bound.is_nonnegative:
    return Min(bound, size)
  return Where(bound >= 0, Max(0, Min(bound, size)), Max(0, Min(bound + size, size)))


def tensor_assert(body: Body, node: IrNode) -> None:
  """`torch._assert_async`."""
  (source,) = node.inputs
  value = read(body, source)
  condition = hir.op("not", hir.op("feq", value, 0.0)) if value.is_float else hir.op("ne", value, 0)
  body.emit(hir.Check(condition, str(node.text)))
