"""What torch and SymPy would find again of expressions of sizes, without other results."""

import math

import husk
import pytest
import sympy
import torch
from husk.inductor import exported_programs, repeated_sizes
from sympy.core import cache
from torch.fx.experimental import symbolic_shapes
from torch.utils._sympy import functions
from torch.utils._sympy.functions import FloorDiv, Mod, ModularIndexing
from torch.utils._sympy.value_ranges import SymPyValueRangeAnalysis, ValueRanges, bound_sympy

n, m = (sympy.Symbol(name, integer=True, positive=True) for name in "nm")
EXPRESSIONS = [
  lambda: FloorDiv(12 * n + 8 * m, 4 * m),
  lambda: FloorDiv(n + 5, 4) * (FloorDiv(m, 2) + 3),
  lambda: (n + 1) * (m + Mod(n, 8)) ** 2,
  lambda: ModularIndexing(32 * n + m, 4, 16),
  lambda: FloorDiv(FloorDiv(n, 3), 5) - sympy.Max(1, n - m),
  lambda: sympy.Lt(n * (m + 1), 3 * FloorDiv(m, 7)),
]
RANGES = [
  {n: ValueRanges(2, 40), m: ValueRanges(1, 7)},
  {n: ValueRanges(9, 40), m: ValueRanges(1, 7)},
  {m: ValueRanges(3, 3)},
]


def halved(size, times):
  """A size of which each half has two copies of the one before, so that it has 2**times parts."""
  for _ in range(times):
    size = FloorDiv(size + Mod(size, 2) + 1, 2)
  return size


@pytest.fixture
def counted(monkeypatch):
  """Counts the calls of a function of a module or a class."""

  def count(owner, name):
    cache.clear_cache()
    before, calls = getattr(owner, name), []

    def function(*args, **kwargs):
      calls.append(args)
      return before(*args, **kwargs)

    is_method = isinstance(vars(owner)[name], staticmethod)
    monkeypatch.setattr(owner, name, staticmethod(function) if is_method else function)
    return calls

  return count


def found():
  cache.clear_cache()
  symbolic_shapes.safe_expand.cache_clear()
  expressions = [construct() for construct in EXPRESSIONS]
  expanded = [symbolic_shapes.safe_expand(each) for each in expressions]
  bounds = [bound_sympy(each, ranges) for ranges in RANGES for each in expressions]
  return expressions, expanded, bounds, [each.free_symbols for each in expressions]


def test_results_are_those_of_torch():
  expected = found()
  with repeated_sizes.known():
    assert found() == expected
    assert found() == expected
  assert found() == expected


def test_a_quotient_is_simplified_once(counted):
  calls = counted(functions, "simple_floordiv_gcd")
  with repeated_sizes.known():
    first = FloorDiv(12 * n + 8 * m, 4 * m)
    count = len(calls)
    cache.clear_cache()  # SymPy forgets the oldest results
    assert FloorDiv(12 * n + 8 * m, 4 * m) == first
    assert count == len(calls) > 0


def test_deep_parts_of_a_quotient_are_not_simplified(counted):
  """SymPy would search in each part for a simpler form, whenever an index has other terms."""
  size = halved(n, 2)
  constructions = [
    lambda x: ModularIndexing(8 * size * x + 12 * m, 4, 16),
    lambda x: ModularIndexing(6 * x + 4 * size, 2 * m, 10),
    lambda x: FloorDiv(8 * size * x + 4 * size * m, 4 * m),
    lambda x: FloorDiv(9 * size * size + 6 * x, 3 * size),
    lambda x: FloorDiv(size, 5 * x),
  ]
  calls = counted(sympy, "simplify")
  x = sympy.Symbol("x", integer=True, positive=True)
  with repeated_sizes.known():
    results = [construct(x) for construct in constructions]
  assert calls and not any(FloorDiv in map(type, call[0].atoms(FloorDiv)) for call in calls)
  for construct, result in zip(constructions, results):
    for numbers in ((1, 1, 1), (37, 2, 5), (50, 3, 4), (1001, 7, 2)):
      values = dict(zip((n, m, x), map(sympy.Integer, numbers)))
      with sympy.evaluate(False):
        expected = construct(x)
      assert number(result, values) == number(expected, values)


def number(expression, values):
  """The value of an expression, by Python's own operations."""
  numbers = [number(part, values) for part in expression.args]
  if not numbers:
    return int(values.get(expression, expression))
  if isinstance(expression, FloorDiv):
    return numbers[0] // numbers[1]
  if isinstance(expression, ModularIndexing):
    return numbers[0] // numbers[1] % numbers[2]
  if isinstance(expression, Mod):
    return numbers[0] % numbers[1]
  if expression.is_Pow:
    return numbers[0] ** numbers[1]
  return sum(numbers) if expression.is_Add else math.prod(numbers)


def test_a_program_is_decomposed_without_its_guards():
  """Guards compute their sizes from the beginning each time. Here one fails if it is computed."""
  model, shapes = torch.nn.Linear(4, 4), {"input": {0: torch.export.Dim("n", max=9)}}
  program = torch.export.export(model, (torch.randn(3, 4),), dynamic_shapes=shapes)
  program._guards_code = ["L['input'].size()[0].nothing > 0"]
  decomposed = exported_programs.functional(program, {})
  assert exported_programs.guards(decomposed) == exported_programs.guards(program) != []


def test_the_parts_of_an_expression_are_bounded_once(counted):
  size = halved(n, 10)
  calls = counted(SymPyValueRangeAnalysis, "floordiv")
  with repeated_sizes.known():
    bound_sympy(size, RANGES[0])
    assert len(calls) == 10
    bound_sympy(size + 1, dict(RANGES[0]))
    assert len(calls) == 10
    bound_sympy(size, RANGES[1])
    assert len(calls) == 20


def test_the_parts_of_an_expression_are_expanded_once(counted):
  size = halved(n, 10)
  calls = counted(symbolic_shapes, "_fast_expand")
  with repeated_sizes.known():
    symbolic_shapes.safe_expand.cache_clear()
    symbolic_shapes.safe_expand(3 * size)
    assert len(calls) <= 40


def test_an_equal_part_is_not_expanded_again():
  """torch expands an expression again whose parts are other objects than before."""
  with repeated_sizes.known():
    for _ in range(2):
      cache.clear_cache()  # so that SymPy constructs other objects
      product = FloorDiv(n * m + 1, 7) * n
      assert symbolic_shapes._fast_expand(product.args[1]) == product.args[1]
      assert symbolic_shapes._fast_expand(product) is product


def test_the_symbols_of_an_expression_can_be_changed():
  with repeated_sizes.known():
    (n + m).free_symbols.clear()
    assert (n + m).free_symbols == {n, m}


def test_the_symbols_of_parts_are_found_once(monkeypatch):
  size = halved(n, 10)
  seen = []
  find = vars(sympy.Basic)["free_symbols"].fget
  monkeypatch.setattr(
    sympy.Basic, "free_symbols", property(lambda self: seen.append(self) or find(self))
  )
  with repeated_sizes.known():
    assert size.free_symbols == {n}
  assert len(seen) <= 40


class Windows(torch.nn.Module):
  """Pads an image to whole windows, and halves it, as a Swin transformer does."""

  def forward(self, x):
    for _ in range(3):
      height, width = x.shape[2:]
      padded = torch.nn.functional.pad(x, (0, (4 - width % 4) % 4, 0, (4 - height % 4) % 4))
      x = (padded.roll(2, 2) * 2)[:, :, :height, :width]
      x = torch.nn.functional.pad(x, (0, width % 2, 0, height % 2))
      x = x[:, :, ::2, ::2] + x[:, :, 1::2, 1::2]
    return x


def test_an_export_asks_for_known_results(tmp_path):
  shapes = {"x": {2: torch.export.Dim("h", max=256), 3: torch.export.Dim("w", max=256)}}
  path = tmp_path / "windows.husk"
  husk.export(
    Windows(), (torch.randn(1, 2, 50, 37),), path, dynamic_shapes=shapes, targets=("host",)
  )
  program = husk.load(path)
  for size in ((50, 37), (64, 64), (19, 101), (9, 8)):
    x = torch.randn(1, 2, *size)
    torch.testing.assert_close(program(x), Windows()(x))
