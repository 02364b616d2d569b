"""How the exporter helps Inductor to write C++ loops: the strides of indices."""

import husk
import pytest
import sympy
import torch
from export_and_compare import ISAS
from function_module import FunctionModule
from husk.inductor import host_loops
from torch._inductor.codegen import cpp
from torch.utils._sympy.functions import FloorDiv, Mod, ModularIndexing, Where

x0, x1, s0, s1 = (
  sympy.Symbol(name, integer=True, nonnegative=True) for name in "x0 x1 s0 s1".split()
)
INDICES = [
  sympy.Integer(7),
  x0,
  x1,
  -3 * x0,
  s0 * x0,
  x0 + 5 * x1 + 2,
  x0 + s0 * x1,
  4 * s0 * s1 * x0 + s1 * x1 + x1,
  s0 * x0 + s1 * x0 + x0,
  2 * x0 + s0 * (x0 + x1),
  x0**2 + x1,
  FloorDiv(x0, 16) + x1,
  FloorDiv(x0, 3) + 2 * x0,
  ModularIndexing(x0, 1, 32) + 32 * x1,
  ModularIndexing(x0 + 4 * x1, 2, s0),
  24 * ModularIndexing(x0 + 3, 1, 56) + 1344 * ModularIndexing(x1 + 3, 1, 56) + s0,
  96 * ModularIndexing(x0, 16, 7) + 3 * ModularIndexing(x0, 8, 24) + x1,
  5 * FloorDiv(ModularIndexing(x0, 1, 48), 8) + 2 * ModularIndexing(FloorDiv(x0, 16), 3, 4),
  FloorDiv(x0, 16) - FloorDiv(x0, 32) + ModularIndexing(x0, 1, 16) + 5 * FloorDiv(x1, 8),
]


def with_one_name(stride):
  """A stride in which symbols of constant parts have one name. torch numbers them as it goes."""
  return stride.xreplace(
    {one: sympy.Symbol("c") for one in stride.free_symbols if "_c" in one.name}
  )


def strides():
  for each in (cpp.simplify_index_in_vec_range, cpp.stride_at, cpp.stride_at_vec_range):
    if hasattr(each, "cache_clear"):
      each.cache_clear()
  return [
    with_one_name(cpp.stride_at_vec_range(index, variable, length))
    for index in INDICES
    for variable in (x0, x1)
    for length in (None, 8, 16)
  ]


@pytest.mark.skipif(not hasattr(cpp, "stride_at"), reason="this torch finds strides in another way")
def test_strides_are_those_of_torch():
  expected = strides()
  with host_loops.host_codegen("VecAVX2", "// "):
    assert strides() == expected
  assert expected[3:6] == [0, 0, 0] and expected[6:9] == [1, 1, 1]


@pytest.mark.skipif(not hasattr(cpp, "stride_at"), reason="this torch finds strides in another way")
def test_sympy_simplifies_only_quotients_and_remainders_whose_numbers_vary(monkeypatch):
  strides()  # forgets what is known
  seen = []
  simplify = cpp.simplify_index_in_vec_range

  def recorded(index, variable, length):
    seen.append(index)
    return simplify(index, variable, length)

  monkeypatch.setattr(cpp, "simplify_index_in_vec_range", recorded)
  window = 7 * ModularIndexing(x0, 1, s0)
  with host_loops.host_codegen("VecAVX2", "// "):
    cpp.stride_at_vec_range(window + 9 * FloorDiv(x1, 3) + 2 * x1, x0, 8)
    cpp.stride_at_vec_range(window + 5 * x1, x0, 8)
    cpp.stride_at_vec_range(5 * ModularIndexing(x0 + 3, 1, 57), x0, 8)
    cpp.stride_at_vec_range(5 * ModularIndexing(x0, 1, 57) + 5 * FloorDiv(x0, 57), x0, 8)
  assert seen == [window]


@pytest.mark.skipif(not hasattr(cpp, "stride_at"), reason="this torch finds strides in another way")
def test_sympy_searches_for_no_simpler_form_of_sizes(monkeypatch):
  size = s0 + Mod(8 - Mod(s0, 8), 8)
  condition = sympy.Ge(x0, sympy.Max(1, size - 4))
  indices = [
    x0 * size + x1,
    x0 * (sympy.Max(1, size) + 2) + ModularIndexing(x1, 1, size),
    3 * x0 + FloorDiv(x0, 16 * size) + ModularIndexing(x0, 1, 8 * FloorDiv(size, 8)),
    ModularIndexing(x0 + 3, 2, size) + x0 * size,
    Where(condition, x0, size) * size,
  ]
  expected = [cpp.stride_at_vec_range(index, x0, length) for index in indices for length in (0, 8)]
  for each in (cpp.simplify_index_in_vec_range, cpp.stride_at, cpp.stride_at_vec_range):
    each.cache_clear()
  seen, simplify = [], sympy.simplify

  def recorded(index, **options):
    seen.append(index)
    return simplify(index, **options)

  monkeypatch.setattr(sympy, "simplify", recorded)
  with host_loops.host_codegen("VecAVX2", "// "):
    found = [cpp.stride_at_vec_range(index, x0, length) for index in indices for length in (0, 8)]
  assert not any(index.has(Mod, sympy.Max, Where) for index in seen)
  values = {s0: sympy.Integer(13), x0: sympy.Integer(24), x1: sympy.Integer(5)}
  numbers = [[with_one_name(one).subs(values) for one in strides] for strides in (found, expected)]
  assert numbers[0] == numbers[1]


def test_an_index_that_is_compared_before_it_is_checked(tmp_path):
  """The mask is indexed by numbers that the comparison has computed, after all loads."""

  def function(self, x, mask):
    keys, queries = torch.arange(x.shape[1]), torch.arange(x.shape[0])
    allowed = (keys <= queries[:, None]) & mask[keys]
    return torch.where(allowed, x, -1e9).softmax(-1)

  shapes = {"x": {1: torch.export.Dim("n", max=64)}, "mask": {0: torch.export.Dim("m", max=64)}}
  arguments = torch.randn(5, 20), torch.arange(22) % 3 > 0
  model, path = FunctionModule(function), tmp_path / "made.husk"
  husk.export(model, arguments, path, dynamic_shapes=shapes, targets=(f"host:{ISAS[0]}",))
  program = husk.load(path)
  for length in (20, 13):
    x, mask = torch.randn(5, length), torch.arange(length) % 3 > 0
    torch.testing.assert_close(program(x, mask), model(x, mask))
  with pytest.raises(husk.Error, match="out of bounds"):
    program(torch.randn(5, 21), torch.arange(20) % 3 > 0)


def test_the_nearest_of_several_points(tmp_path):
  """The distances are computed in tiles of points and of those that they are compared with."""

  def function(self, x, points):
    distances = (x[:, None, :] - points).square().sum(-1)
    return distances.argmin(-1), distances.argmax(-1)

  arguments = torch.randn(4, 6), torch.randn(16, 6)
  path = tmp_path / "nearest.husk"
  husk.export(
    FunctionModule(function), arguments, path, targets=(f"host:{ISAS[0]}",), progress=False
  )
  for found, expected in zip(husk.load(path)(*arguments), function(None, *arguments)):
    assert torch.equal(found, expected)


@pytest.mark.parametrize("varies", (False, True))
def test_places_in_parts_of_a_tensor(tmp_path, varies):
  """No number of rows is a multiple of 12, or one that varies may not be."""

  def function(self, x, y):
    place = torch.arange(x.shape[0])
    return y[place // 12] + place, (place // 12 == place[:, None] // 12) & (x > 0), place // 16

  def arguments(length):
    return torch.randn(length), torch.randn(20)

  model, path = FunctionModule(function), tmp_path / "parts.husk"
  shapes = {"x": {0: torch.export.Dim("n", min=2, max=200)}, "y": None} if varies else None
  husk.export(model, arguments(100), path, dynamic_shapes=shapes, targets=(f"host:{ISAS[0]}",))
  program = husk.load(path)
  for length in (100, 96, 11, 192, 7) if varies else (100,):
    x, y = arguments(length)
    for found, expected in zip(program(x, y), model(x, y), strict=True):
      assert torch.equal(found, expected)


def test_parts_that_are_written_one_after_another(tmp_path):
  """The values of all parts are under masks, and begin as the number 0."""

  def function(self, x):
    areas = torch.zeros(x.shape[0], 12)
    for number, part in enumerate((slice(0, -4), slice(-4, -2))):
      areas[part] += number
      areas[:, part] += number
    return areas

  model, path = FunctionModule(function), tmp_path / "areas.husk"
  shapes = {"x": {0: torch.export.Dim("n", min=6, max=64)}}
  husk.export(model, (torch.randn(10),), path, dynamic_shapes=shapes, targets=(f"host:{ISAS[0]}",))
  program = husk.load(path)
  for length in (10, 6, 33):
    x = torch.randn(length)
    assert torch.equal(program(x), model(x))
