"""What torch and SymPy find again and again of expressions of sizes, kept during a compilation.

The sizes of a model with windows are quotients and remainders of sizes that are quotients
themselves. torch asks for each tensor whether it is contiguous, which of its sizes are 1, and so
on. Each question walks through all of a size, and SymPy searches for a simpler form of a quotient
whenever it is constructed. SymPy itself keeps 1000 results of each function, which a model with
many sizes exceeds. The functions here depend on nothing but their arguments."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from .replace import Replacement, replaced


@contextlib.contextmanager
def known() -> Iterator[None]:
  """While open, functions of expressions of sizes remember their results."""
  with replaced(*replacements()):
    yield


def replacements() -> list[Replacement]:
  """Functions of torch and SymPy, each with one that remembers."""
  import sympy
  from sympy.functions.elementary.miscellaneous import MinMaxBase
  from torch.fx.experimental import symbolic_shapes
  from torch.utils._sympy import interp, value_ranges
  from torch.utils._sympy.functions import FloorDiv, ModularIndexing

  shapes: Any = symbolic_shapes
  ranges: Any = value_ranges
  bound, bounded = _of_parts(interp.sympy_interp, value_ranges.SymPyValueRangeAnalysis)
  return [
    *((kind, "eval", _evaluation(vars(kind)["eval"])) for kind in (FloorDiv, ModularIndexing)),
    (MinMaxBase, "_is_connected", _comparison(vars(MinMaxBase)["_is_connected"])),
    (shapes, "_fast_expand", _expansion(shapes._fast_expand)),
    (sympy.Basic, "free_symbols", _symbols(vars(sympy.Basic)["free_symbols"])),
    (interp, "sympy_interp", bounded),
    (ranges, "sympy_interp", bound),
  ]


def _evaluation(evaluate: Any) -> Any:
  """The class method by which SymPy constructs a quotient or a remainder. It searches for common
  factors, and for a simpler form of all parts if it finds one. Parts that are deep are symbols
  meanwhile: what holds for all integers holds for them."""
  find = functools.cache(evaluate.__func__)

  def evaluated(kind: Any, *arguments: Any) -> Any:
    if all(_depth(argument) < _DEEP for argument in arguments):
      return find(kind, *arguments)
    symbols: dict[Any, Any] = {}
    base, *others = arguments
    if type(base).__name__ != "FloorDiv":  # a quotient of a quotient is one quotient
      base = _without_deep_parts(base, symbols)
    shallow = [base, *(_without_deep_parts(other, symbols) for other in others)]
    found = find(kind, *shallow)
    return found and found.xreplace({symbol: part for part, symbol in symbols.items()})

  return classmethod(evaluated)


# The number of functions inside each other from which on a part is deep. SymPy chooses one of
# several forms by the number of operations, so that the form of a deep one may be another one.
_DEEP = 3


@functools.lru_cache(maxsize=1 << 16)
def _depth(expression: Any) -> int:
  """How many quotients and other functions are inside each other."""
  inner = max(map(_depth, expression.args), default=0)
  return inner + bool(expression.args and not _computes(expression))


def _computes(expression: Any) -> bool:
  """Whether an expression is a sum, a product or a power."""
  return bool(expression.is_Add or expression.is_Mul or expression.is_Pow)


def _without_deep_parts(expression: Any, symbols: dict[Any, Any]) -> Any:
  """A sum or a product with symbols for the terms and factors that are deep functions. `symbols`
  gets them, by the part that they are for."""
  import sympy

  if _depth(expression) < _DEEP:
    return expression
  if _computes(expression):
    return expression.func(*(_without_deep_parts(part, symbols) for part in expression.args))
  if not expression.is_Function or not expression.is_integer:
    return expression
  if expression not in symbols:
    known = {
      name: True for name in ("nonnegative", "positive") if getattr(expression, f"is_{name}")
    }
    symbols[expression] = sympy.Symbol(f"size_{len(symbols)}", integer=True, **known)
  return symbols[expression]


def _comparison(compare: Any) -> Any:
  """The class method by which SymPy finds the larger of two parts of a maximum or minimum. It does
  so whenever an index with one gets other variables, which was half of the time of an export whose
  indices are clamped."""
  return classmethod(functools.cache(compare.__func__))


def _expansion(expand: Callable[..., Any]) -> Callable[..., Any]:
  """torch's function that expands an expression. It returns an expanded one itself: a part which is
  another object would be expanded again, without an end."""
  kept: dict[Any, Any] = {}

  def expanded(expression: Any) -> Any:
    if not expression.args:
      return expression
    if expression not in kept:
      found = expand(expression)
      kept[expression] = None if found is expression else found
    found = kept[expression]
    return expression if found is None else found

  return expanded


def _symbols(symbols: Any) -> Any:
  """The property that has the symbols of an expression. Its callers may change the set."""
  find = functools.cache(symbols.fget)
  return property(lambda expression: set(find(expression)))


# The number of sets of ranges whose results are kept: torch asks for one expression in several.
_SETS_OF_RANGES = 256


def _of_parts(
  interpret: Callable[..., Any], analysis: Any
) -> tuple[Callable[..., Any], Callable[..., Any]]:
  """Two functions in place of the one that interprets an expression: the one for whole expressions,
  whose ranges are compared with earlier ones, and the one that it calls for the parts. Their ranges
  are looked up only if no part of the same form has been."""
  kept: dict[Any, dict[Any, Any]] = {}
  current: tuple[Any, dict[Any, Any]] | None = None

  def whole(kind: Any, ranges: Any, expression: Any, **options: Any) -> Any:
    nonlocal current
    if kind is not analysis:
      return interpret(kind, ranges, expression, **options)
    before = current
    key = frozenset(ranges.items())
    if key not in kept and len(kept) >= _SETS_OF_RANGES:
      kept.clear()
    current = ranges, kept.setdefault(key, {})
    try:
      return part(kind, ranges, expression, **options)
    finally:
      current = before

  def part(kind: Any, ranges: Any, expression: Any, **options: Any) -> Any:
    now = current  # another thread may compile, too
    if now is None or kind is not analysis or ranges is not now[0] or not expression.args:
      return interpret(kind, ranges, expression, **options)
    results = now[1]
    if expression not in results:
      results[expression] = interpret(kind, ranges, expression, **options)
    return results[expression]

  return whole, part
