"""Sizes of 0: what eager mode refuses of them, a program refuses, too.

torch.export takes sizes for positive, so that the checks of an operator are no guards of the
program, although the export may allow a size of 0, or a crop that keeps nothing."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import sympy

from . import assumed, origins
from .assumed import Assumption
from .replace import replaced

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

# Exceptions that an operator raises for arguments that it refuses.
_REFUSALS = (RuntimeError, IndexError, ValueError)

# Parts of the names of operators whose implementation for tensors without data asks less than the
# others do. They are asked with zeros, too. None of them takes the elements for indices.
_ASKED_WITH_DATA = (
  "upsample",
  "interpolate",
  "pool",
  "pad",
  "grid_sampler",
  "fft",
  "im2col",
  "unfold",
)

# The most elements that these zeros may be.
_MOST = 1 << 20

# The size that a number has here which only the data of a run decides.
_UNKNOWN = 4


def refusals(exported: ExportedProgram) -> list[Assumption]:
  """The sizes of tensors that may become 0 and for which an operator of the program then raises an
  error. The operators themselves are asked, with tensors without data."""
  shapes = assumed.environment(exported)
  if shapes is None:
    return []
  found: list[Assumption] = []
  refused: set[Any] = set()  # the sizes that may not be 0, whatever the others are
  for node in exported.graph.nodes:
    sizes = [size for size in _sizes(node) if may_be_zero(shapes, size)]
    candidates = [size for size in sizes if size not in refused]
    if not candidates or _refusal(shapes, node, {}) is not None:
      continue
    zeros = {size: _zero(shapes, size) for size in sizes}
    for size in candidates:
      values = zeros[size]
      if values is None:
        continue
      text = _refusal_of_zeros(shapes, node, values)
      if not text:
        continue
      # An empty index needs no elements, for example.
      allowing = [
        other
        for other, more in zeros.items()
        if more is not None
        and other != size
        and _refusal_of_zeros(shapes, node, {**(values or {}), **more}) is None
      ]
      either: Any = sympy.Or
      no_size = [sympy.Eq(other, 0, evaluate=False) for other in allowing]
      condition = sympy.Gt(size, 0, evaluate=False)
      if no_size:
        condition = either(condition, *no_size, evaluate=False)
      else:
        refused.add(size)
      found.append(Assumption(condition, _place(node), text))
  return found


def _refusal_of_zeros(shapes: Any, node: torch.fx.Node, values: dict[Any, int]) -> str | None:
  """As `_refusal`, with data where an operator asks less without."""
  text = _refusal(shapes, node, values)
  if not text and any(part in str(node.target) for part in _ASKED_WITH_DATA):
    text = _refusal(shapes, node, values, "cpu")
  return text


def may_be_zero(shapes: Any, size: Any) -> bool:
  """Whether a size can be 0 according to the ranges of its symbols."""
  return bool(getattr(size, "free_symbols", None)) and bool(assumed.bounds(shapes, size).lower <= 0)


def _expression(value: Any) -> Any:
  import torch

  return value.node.expr if isinstance(value, torch.SymInt) else None


def _sizes(node: torch.fx.Node) -> list[Any]:
  """The expressions of the sizes of the tensors that an operator reads or returns."""
  import torch
  from torch.utils import _pytree as pytree

  if not isinstance(node.target, torch._ops.OpOverload):
    return []
  tensors = [
    value
    for each in (*node.all_input_nodes, node)
    for value in pytree.tree_leaves(each.meta.get("val"))
    if isinstance(value, torch.Tensor)
  ]
  expressions = [_expression(size) for tensor in tensors for size in tensor.shape]
  return list(dict.fromkeys(each for each in expressions if each is not None))


def _zero(shapes: Any, size: Any) -> dict[Any, int] | None:
  """Values of symbols for which a size is 0, None if there are none in the ranges."""
  from torch.utils._sympy.solve import try_solve

  for symbol in sorted(size.free_symbols, key=str):
    values = {other: _hint(shapes, other) for other in size.free_symbols if other != symbol}
    rest = size.xreplace({key: sympy.Integer(value) for key, value in values.items()})
    if not isinstance(rest, sympy.Symbol):
      solution = try_solve(sympy.Eq(rest, 0, evaluate=False), symbol)
      if solution is None or not isinstance(solution[0], sympy.Eq):
        continue
      value = solution[1]
    else:
      value = sympy.Integer(0)
    if value.is_Integer and value in assumed.bounds(shapes, symbol):
      return {**values, symbol: int(value)}
  return None


def _hint(shapes: Any, expression: Any) -> int:
  """The value of an expression in the example."""
  value = shapes.size_hint(expression, allow_none=True)
  return _UNKNOWN if value is None or not value.is_Integer else int(value)


def _refusal(
  shapes: Any, node: torch.fx.Node, values: dict[Any, int], device: str = "meta"
) -> str | None:
  """The error that an operator raises if symbols have these values, and all others those of the
  example; None if it raises none, and "" if it cannot be asked. The tensors are zeros on
  `device`."""
  import torch

  def number(expression: Any) -> int:
    symbols = {
      symbol: sympy.Integer(values.get(symbol, _hint(shapes, symbol)))
      for symbol in expression.free_symbols
    }
    return int(expression.xreplace(symbols))

  def argument(value: Any) -> Any:
    if isinstance(value, torch.fx.Node):
      value = value.meta.get("val")
    if isinstance(value, torch.SymInt):
      return number(value.node.expr)
    if isinstance(value, torch.Tensor):
      shape = [size if isinstance(size, int) else number(size.node.expr) for size in value.shape]
      if device != "meta" and math.prod(shape) > _MOST:
        raise MemoryError
      return torch.zeros(shape, dtype=value.dtype, device=device)
    if isinstance(value, (tuple, list)):
      return type(value)(map(argument, value))
    return value

  try:
    operator: Any = node.target
    args: Any = node.args
    with torch.no_grad():
      operator(*map(argument, args), **{k: argument(v) for k, v in node.kwargs.items()})
  except _REFUSALS as error:
    return str(error).strip().split("\n")[0] or type(error).__name__
  except Exception:
    return ""
  return None


def _place(node: torch.fx.Node) -> str:
  line = origins.place(node.meta.get("stack_trace"))
  return f"{node.target} (near {line})" if line else str(node.target)


@contextlib.contextmanager
def checked_indices(shapes: Any, device: str) -> Iterator[list[Assumption]]:
  """While open, an element is taken by an index only if the dimension is not empty, where its size
  may be 0. A clamped index would be -1 there, and torch, which takes sizes for positive, would find
  that it is never negative.

  On a host the kernel checks that. A kernel on a GPU would read in front of the tensor all the
  same, so the program checks it before it runs: the list has the conditions, each of which also
  holds if the kernel has no elements."""
  from torch._inductor import index_propagation

  IndexPropagation: Any = index_propagation.IndexPropagation
  found: list[Assumption] = []

  def created(self: Any, inner: Any, iter_ranges: Any, *args: Any) -> None:
    self.husk_elements = sympy.Mul(*iter_ranges.values())
    create(self, inner, iter_ranges, *args)

  def indirect_indexing(self: Any, index: Any, size: Any, *args: Any, **kwargs: Any) -> Any:
    if shapes is not None and may_be_zero(shapes, size):
      if device == "cpu":
        self.fallback("check_bounds", (sympy.Integer(0), size), {"lower": False, "upper": True})
      else:
        is_empty = sympy.Eq(self.husk_elements, 0, evaluate=False)
        either: Any = sympy.Or
        condition = either(sympy.Gt(size, 0, evaluate=False), is_empty, evaluate=False)
        text = "an index is out of range for a dimension of size 0"
        found.append(Assumption(condition, "", text))
    return before(self, index, size, *args, **kwargs)

  create, before = IndexPropagation.__init__, IndexPropagation.indirect_indexing
  with replaced(
    (IndexPropagation, "__init__", created),
    (IndexPropagation, "indirect_indexing", indirect_indexing),
  ):
    yield found
