"""Functions of which hosts have forms of their own, because Inductor's or the plain ones are slow:
how precise they are, and which operators a program calls."""

import husk
import pytest
import torch
from export_and_compare import ISAS
from function_module import FunctionModule
from torch.nn import functional as F

RANDOM = torch.Generator().manual_seed(1)


def results_of(folder, function, *args, isa=ISAS[0]):
  path = folder / "model.husk"
  husk.export(FunctionModule(function), args, path, targets=(f"host:{isa}",), progress=False)
  results = husk.load(path)(*args)
  return [torch.as_tensor(one) for one in (results if isinstance(results, tuple) else [results])]


def called(folder, function, *args):
  """The names of the operators that the program calls."""
  husk.write(FunctionModule(function), args, folder, targets=(f"host:{ISAS[0]}",), progress=False)
  (text,) = (path.read_text() for path in folder.glob("*.hir"))
  return {line.split('"')[1] for line in text.splitlines() if line.strip().startswith("extern ")}


def distance(one, exact):
  """The largest distance in units of the last place, of results that are finite."""
  exact = exact.double()
  finite = exact.to(one.dtype).isfinite()
  torch.testing.assert_close(
    one[~finite], exact.to(one.dtype)[~finite], rtol=0, atol=0, equal_nan=True
  )
  unit = exact.abs().clamp(min=torch.finfo(one.dtype).tiny) * torch.finfo(one.dtype).eps
  return ((one.double() - exact).abs() / unit)[finite].max().item()


@pytest.mark.parametrize("isa", ISAS)
def test_logarithms_of_the_gamma_function(tmp_path, isa):
  """Near 1 and 2, and near the roots below 0, the result is far smaller than its terms."""
  steps = torch.arange(-40, 40) * 2.0**-22
  x = torch.cat(
    [
      torch.linspace(-30.03, 60, 3000),
      *(at + steps for at in (1, 2, -2.4570248, -2.7476826, -3.1435809)),
      torch.logspace(-38, 38, 77),
      -torch.logspace(-38, 10, 77),
      torch.tensor([0.0, -0.0, 1, 2, -1, -2, -(2.0**23), 1e-42, -1e-42]),
      torch.tensor([float("inf"), -float("inf"), float("nan")]),
    ]
  )
  (one,) = results_of(tmp_path, lambda self, x: torch.lgamma(x), x, isa=isa)
  assert distance(one, torch.lgamma(x.double())) < 1
  assert one[x == 2].eq(0).all() and one[x == 1].eq(0).all()


@pytest.mark.parametrize("isa", ISAS)
def test_remainders(tmp_path, isa):
  """Remainders have no rounding. Quotients are small and large, near integers, and no numbers."""
  odd = torch.randn(4000, generator=RANDOM)
  edges = torch.tensor([0.0, -0.0, 1, -1, 3, 1e-5, 1e20, float("inf"), float("nan")])
  pairs = torch.cartesian_prod(edges, edges)
  near = 0.1 * torch.arange(-2000, 2000)
  x = torch.cat([odd * 7, near, odd * 2.0**24, odd * 1e30, pairs[:, 0], torch.full((64,), -6.0)])
  y = torch.cat([odd.flip(0), torch.full((4000,), 0.1), odd.flip(0), odd.flip(0), pairs[:, 1]])
  y = torch.cat([y, torch.full((64,), 3.0)])
  rest, modulo = results_of(
    tmp_path, lambda self, x, y: (torch.fmod(x, y), torch.remainder(x, y)), x, y, isa=isa
  )
  for one, other in ((rest, torch.fmod(x, y)), (modulo, torch.remainder(x, y))):
    torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
  assert torch.equal(rest.signbit()[~rest.isnan()], torch.fmod(x, y).signbit()[~rest.isnan()])


@pytest.mark.parametrize("isa", ISAS)
def test_inverses_of_the_error_function(tmp_path, isa):
  near_one = 1 - 2.0 ** -torch.arange(1, 54).double()
  x = torch.cat(
    [
      torch.linspace(-1.01, 1.01, 2021).double(),
      near_one,
      -near_one,
      torch.logspace(-30, -1, 60).double(),
      torch.tensor([0.0, -0.0, 1, -1, float("inf"), float("nan")]).double(),
    ]
  )
  floats, doubles, halves = results_of(
    tmp_path,
    lambda self, *numbers: tuple(map(torch.erfinv, numbers)),
    x.float(),
    x,
    x.half(),
    isa=isa,
  )
  assert distance(floats, torch.erfinv(x.float().double())) < 4
  assert distance(doubles, torch.erfinv(x)) < 6
  torch.testing.assert_close(halves, torch.erfinv(x.half()), rtol=2**-10, atol=0, equal_nan=True)
  assert floats[x == 0].signbit().tolist() == x[x == 0].signbit().tolist()


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_products_of_complex_matrices(tmp_path, dtype):
  def random(*shape):
    return torch.randn(*shape, dtype=dtype, generator=RANDOM)

  def products(self, a, b, x, y, vector):
    return (
      a @ b,
      b.mH @ a.mT.conj(),
      x @ y,
      torch.addmm(vector, a, b),
      torch.addmm(vector, a, b, beta=0.5, alpha=2 - 1j),
      torch.baddbmm(x[:, :, :1], x, y, beta=0),
      torch.addbmm(a[:3, :1], x, y, beta=2),
      a[:0] @ b,
      a[:, :0] @ b[:0],
    )

  args = (random(17, 9), random(9, 33), random(4, 3, 5), random(4, 5, 6), random(33))
  for one, other in zip(results_of(tmp_path, products, *args), products(None, *args), strict=True):
    torch.testing.assert_close(one, other)
  calls = called(tmp_path / "text", lambda self, a, b: a @ b, *args[:2])
  assert "aten::mm.out" in calls or "aten::mm" in calls or "husk::linear" in calls


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_samples_of_images(tmp_path, mode, padding):
  """More positions in a row than are sampled at once. Positions lie far outside, too."""
  images = torch.randn(2, 3, 17, 23, generator=RANDOM)
  if mode != "bicubic":  # which has elements with the weight 0
    images[0, 0, 0, 0] = float("inf")
  grid = torch.randn(2, 5, 131, 2, generator=RANDOM) * 1.5 + 0.4
  if padding == "zeros" and mode != "bicubic":
    grid[0, 0, :2] = torch.tensor([[1e20, 0], [float("nan"), 0]])

  def sampled(self, x, grid):
    return F.grid_sample(x, grid, mode, padding, align_corners=False)

  for x in (images, images.to(memory_format=torch.channels_last), images.double()):
    expected = sampled(None, x, grid.to(x.dtype))
    (one,) = results_of(tmp_path, sampled, x, grid.to(x.dtype))
    same = expected.isfinite()
    assert same.float().mean() > 0.9
    torch.testing.assert_close(one[same], expected[same], rtol=2e-5, atol=2e-5)
  calls = called(tmp_path / "text", sampled, images, grid)
  assert ("aten::grid_sampler_2d" in calls) == (mode != "bicubic")


def test_distinct_elements_of_a_dynamic_size(tmp_path):
  """The workspace grows with the input, and small elements have none."""

  class Distinct(torch.nn.Module):
    def forward(self, x, small):
      return *x.unique(return_inverse=True, return_counts=True), small.unique()

  path = tmp_path / "model.husk"
  x, small = torch.randint(-9, 9, (40,)), torch.randint(0, 200, (30,)).to(torch.uint8)
  size = torch.export.Dim("size", max=100000)
  husk.export(
    Distinct(),
    (x, small),
    path,
    dynamic_shapes=({0: size}, None),
    targets=(f"host:{ISAS[0]}",),
    progress=False,
  )
  program = husk.load(path)
  for count in (1, 40, 3000, 100000):
    x = torch.randint(-(10**12), 10**12, (count,), generator=RANDOM) // 7
    x[::3] = x[0]
    for one, other in zip(program(x, small), Distinct()(x, small), strict=True):
      assert torch.equal(torch.as_tensor(one), other)
