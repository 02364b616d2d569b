"""Sizes of 0 and 1: what eager mode refuses of them, a program refuses, too.

torch.export takes sizes for 2 and more, so that the checks of an operator are no guards of the
program, although the export may allow a size of 0 or 1, or a crop that keeps nothing. An operator
may also give a result of other sizes than those that the program has, as `x[-2:]` does of one
row: such sizes are refused, too."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import sympy

from . import assumed
from .assumed import Assumption
from .origins import operator_place
from .replace import replaced

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

# Exceptions that an operator raises for arguments that it refuses.
_REFUSALS = (RuntimeError, IndexError, ValueError)

# Parts of the names of operators whose implementation for tensors without data asks less than the
# others do. They are asked with zeros, too. Zeros are indices that only an empty dimension refuses.
_ASKED_WITH_DATA = (
  "upsample",
  "interpolate",
  "pool",
  "pad",
  "grid_sampler",
  "fft",
  "im2col",
  "unfold",
  "conv",
  "embedding",
  "gather",
  "index",
  "scatter",
  "put",
  "take",
  "aten.max.",
  "aten.min.",
  "aten.mode.",
  "median",
  "batch_norm",
  "segment_reduce",
  "multinomial",
)

# Operators that give other numbers for an empty tensor than the formula does that computes the rest
# of their results, and why such a tensor is refused.
_OTHER_WITHOUT_DATA = {
  "aten.linalg_cond.default": "the condition number of matrices without elements is not computed"
}

# The most elements that these zeros may be.
_MOST = 1 << 20

# The sizes that torch.export takes for larger ones.
_SMALL = (0, 1)

# The most sizes of an operator of which all combinations are tried.
_COMBINED = 3

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
  small = _Small(shapes)
  for node in exported.graph.nodes:
    found += small.assumptions(node)
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
      allowing = _allowing(shapes, node, size, zeros)
      either: Any = sympy.Or
      both: Any = sympy.And
      condition = sympy.Gt(size, 0, evaluate=False)
      if allowing:
        empties = []
        for others in allowing:
          parts = [sympy.Eq(other, 0, evaluate=False) for other in others]
          empties.append(parts[0] if len(parts) == 1 else both(*parts, evaluate=False))
        condition = either(condition, *empties, evaluate=False)
      else:
        refused.add(size)
      found.append(Assumption(condition, operator_place(node), text))
  return found


def _allowing(
  shapes: Any, node: torch.fx.Node, size: Any, zeros: dict[Any, dict[Any, int] | None]
) -> list[tuple[Any, ...]]:
  """The sets of other sizes which an operator needs to be 0 if `size` is: an empty index needs no
  elements, for example, and the elements for it are as few. No set contains another one."""
  others = [other for other, values in zeros.items() if values is not None and other != size]
  numbers = range(1, len(others) + 1) if len(others) <= _COMBINED else (1, len(others))
  found: list[tuple[Any, ...]] = []
  for number in numbers:
    for chosen in itertools.combinations(others, number):
      if any(set(smaller) <= set(chosen) for smaller in found):
        continue
      values: dict[Any, int] = {}
      for each in (size, *chosen):
        values.update(zeros[each] or {})
      if _refusal_of_zeros(shapes, node, values) is None:
        found.append(chosen)
  return found


class _Small:
  """Finds the sizes of 0 and 1 for which an operator gives results of other sizes than those that
  the program has for them."""

  def __init__(self, shapes: Any) -> None:
    self._shapes = shapes
    asserts = itertools.chain(*shapes.deferred_runtime_asserts.values())
    self._guards = [shapes.replace(each.expr) for each in (*shapes.guards, *asserts)]
    self._possible: dict[frozenset[tuple[Any, int]], bool] = {}
    self._answers: dict[Any, Any] = {}  # the shapes of results, by the arguments of an operator
    self._refused: set[Any] = set()  # conditions that were found

  def assumptions(self, node: torch.fx.Node) -> list[Assumption]:
    """The conditions under which the operator of a node gives results of the sizes in the program.
    Sizes that it refuses are not of interest here, and sizes of results that only the operator
    decides are what they are."""
    if node.meta.get("unbacked_bindings"):
      return []
    symbols = self._symbols(node)
    if not symbols or self._differs(node, {}) is not False:
      return []
    choices: Iterable[dict[Any, int]]
    if len(symbols) <= _COMBINED:
      choices = (
        {symbol: size for symbol, size in zip(symbols, sizes) if size is not None}
        for sizes in itertools.product((None, *_SMALL), repeat=len(symbols))
      )
    else:
      one = ({symbol: size} for symbol in symbols for size in _SMALL)
      choices = (*one, *(dict.fromkeys(symbols, size) for size in _SMALL))
    unequal: Any = sympy.Ne
    conditions: list[Any] = []
    known_before = self._shapes.backed_var_to_val.keys()  # the others are known while it runs
    for sizes in sorted(choices, key=len):
      ranges = {symbol: assumed.bounds(self._shapes, symbol) for symbol in sizes}
      if not sizes or any(size not in ranges[symbol] for symbol, size in sizes.items()):
        continue
      parts = [unequal(*pair, evaluate=False) for pair in sizes.items()]
      known = not self._refused.isdisjoint(parts)
      if known or not self._is_possible(sizes) or not self._differs(node, sizes):
        continue
      either: Any = sympy.Or
      condition = either(*parts, evaluate=False) if len(parts) > 1 else parts[0]
      if condition not in self._refused:
        self._refused.add(condition)
        conditions.append(condition)
    for symbol in symbols:  # n != 0 and n != 1 are n > 1
      small = [unequal(symbol, size, evaluate=False) for size in _SMALL]
      if small[0] in conditions:
        both = small[1] in conditions
        conditions = [each for each in conditions if each not in small]
        conditions.append(sympy.Gt(symbol, int(both), evaluate=False))
    return [
      Assumption(
        condition,
        operator_place(node),
        ""
        if condition.free_symbols <= known_before
        else "the program has other sizes of the result",
      )
      for condition in conditions
    ]

  def _symbols(self, node: torch.fx.Node) -> list[Any]:
    """The symbols of the sizes that an operator reads or returns which may be small."""
    import torch

    if not isinstance(node.target, torch._ops.OpOverload):
      return []
    numbers = [_expression(each.meta.get("val")) for each in node.all_input_nodes]
    expressions = [*_sizes(node), *(each for each in numbers if each is not None)]
    symbols = sorted({symbol for each in expressions for symbol in each.free_symbols}, key=str)
    return [each for each in symbols if assumed.bounds(self._shapes, each).lower <= _SMALL[-1]]

  def _is_possible(self, sizes: dict[Any, int]) -> bool:
    """Whether these sizes, with those of the example for all others, fulfil the guards and the
    asserts of torch.export."""
    key = frozenset(sizes.items())
    if key not in self._possible:
      guards = [guard for guard in self._guards if not guard.free_symbols.isdisjoint(sizes)]
      self._possible[key] = all(self._is_fulfilled(guard, sizes) for guard in guards)
    return self._possible[key]

  def _is_fulfilled(self, guard: Any, sizes: dict[Any, int]) -> bool:
    values = {s: sympy.Integer(sizes.get(s, _hint(self._shapes, s))) for s in guard.free_symbols}
    try:
      return bool(guard.xreplace(values) != sympy.false)
    except Exception:  # torch's functions assert that numbers are not negative
      return True

  def _differs(self, node: torch.fx.Node, sizes: dict[Any, int]) -> bool | None:
    """Whether an operator gives other sizes than those of the program if symbols have these sizes.
    None if the operator cannot be asked, or refuses them."""
    import torch
    from torch.utils import _pytree as pytree

    try:
      expected = [
        tuple(_number(self._shapes, size, sizes) for size in value.shape)
        for value in pytree.tree_leaves(node.meta.get("val"))
        if isinstance(value, torch.Tensor)
      ]
      # Without input channels a convolution has no output channels in eager mode.
      device = "cpu" if "conv" in str(node.target) and 0 in sizes.values() else "meta"
      args, kwargs = _arguments(self._shapes, node, sizes, device)
      key = node.target, repr(pytree.tree_map_only(torch.Tensor, _described, (args, kwargs)))
      if key not in self._answers:
        self._answers[key] = None
        operator: Any = node.target
        with torch.no_grad():
          leaves = pytree.tree_leaves(operator(*args, **kwargs))
        self._answers[key] = [tuple(x.shape) for x in leaves if isinstance(x, torch.Tensor)]
    except Exception:
      return None
    return None if self._answers[key] is None else self._answers[key] != expected


def _described(x: torch.Tensor) -> str:
  return f"{x.dtype} {tuple(x.shape)}"


def _refusal_of_zeros(shapes: Any, node: torch.fx.Node, values: dict[Any, int]) -> str | None:
  """As `_refusal`, with data where an operator asks less without."""
  text = _refusal(shapes, node, values)
  if not text and any(part in str(node.target) for part in _ASKED_WITH_DATA):
    text = _refusal(shapes, node, values, "cpu")
  return text or _OTHER_WITHOUT_DATA.get(str(node.target))


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

  try:
    operator: Any = node.target
    args, kwargs = _arguments(shapes, node, values, device)
    with torch.no_grad():
      operator(*args, **kwargs)
  except _REFUSALS as error:
    return str(error).strip().split("\n")[0] or type(error).__name__
  except Exception:
    return ""
  return None


def _number(shapes: Any, size: Any, values: dict[Any, int]) -> int:
  """A size if symbols have these values, and all others those of the example."""
  if isinstance(size, int):
    return size
  expression = size.node.expr
  return int(
    expression.xreplace(
      {
        symbol: sympy.Integer(values.get(symbol, _hint(shapes, symbol)))
        for symbol in expression.free_symbols
      }
    )
  )


def _arguments(
  shapes: Any, node: torch.fx.Node, values: dict[Any, int], device: str
) -> tuple[Any, Any]:
  """The arguments of an operator if symbols have these values, and all others those of the example.
  The tensors are zeros on `device`."""
  import torch

  def argument(value: Any) -> Any:
    if isinstance(value, torch.fx.Node):
      value = value.meta.get("val")
    if isinstance(value, torch.SymInt):
      return _number(shapes, value, values)
    if isinstance(value, torch.Tensor):
      shape = [_number(shapes, size, values) for size in value.shape]
      if device != "meta" and math.prod(shape) > _MOST:
        raise MemoryError
      return torch.zeros(shape, dtype=value.dtype, device=device)
    if isinstance(value, (tuple, list)):
      return type(value)(map(argument, value))
    return value

  return tuple(map(argument, node.args)), {k: argument(v) for k, v in node.kwargs.items()}


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
