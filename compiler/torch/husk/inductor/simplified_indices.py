"""How Inductor simplifies the indices of kernels: each index once, and without SymPy's search."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import sympy

from .replace import replaced


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
