"""How quotients and remainders of one number are joined, which Inductor does by a search of SymPy's
for patterns: the same indices result, in a fraction of the time."""

import itertools

import pytest
import sympy
from husk.inductor import simplified_indices
from torch._inductor import sizevars
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

N, M = sympy.symbols("n m", integer=True, nonnegative=True)
BASES = (N, 7 * M + N, N + 3)


def sums():
  """Sums of which some can be joined, once or several times, and others nearly."""
  for base, scale, more in itertools.product(BASES, (1, 5), (0, M, 3 * M + 1)):
    low = scale * ModularIndexing(base, 1, 4)
    middle = 4 * scale * ModularIndexing(base, 4, 6)
    yield low + middle + more
    yield low + middle + 24 * scale * FloorDiv(base, 24) + more
    yield low + 4 * scale * FloorDiv(base, 4) + more
    yield middle + 24 * scale * ModularIndexing(base, 24, 2) + more
    yield low + 3 * scale * ModularIndexing(base, 4, 6) + more
    yield low + middle * M + more
    yield low * ModularIndexing(M, 1, 3) + middle + more


def test_the_same_indices_are_joined():
  changed = 0
  for index in sums():
    expected = sizevars.join_dimensions(index)
    with simplified_indices.kept_simplifications():
      joined = sizevars.join_dimensions(index)
    assert joined == expected, index
    changed += joined != index
    for values in ((0, 0), (5, 2), (47, 3), (100, 11)):
      numbers = dict(zip((N, M), values))
      assert joined.subs(numbers) == index.subs(numbers), (index, numbers)
  assert changed > 50


def test_no_pattern_is_searched_for(monkeypatch):
  def searched(*args, **kwargs):
    raise AssertionError("a search")

  index = next(sums())
  monkeypatch.setattr(sympy.Basic, "match", searched)
  sizevars._join_dimensions_cached.cache_clear()
  with pytest.raises(AssertionError, match="a search"):
    sizevars.join_dimensions(index)
  with simplified_indices.kept_simplifications():
    assert sizevars.join_dimensions(index) != index
