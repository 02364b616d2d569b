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
  path, targets = folder / "model.husk", (f"host:{isa}",)
  husk.export(FunctionModule(function), args, path, targets=targets, keep=folder, progress=False)
  results = husk.load(path)(*args)
  return [torch.as_tensor(one) for one in (results if isinstance(results, tuple) else [results])]


def called(folder):
  """The names of the operators that the program calls which `results_of` has made."""
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
  (one,) = results_of(tmp_path / "one", lambda self, a, b: a @ b, *args[:2])
  torch.testing.assert_close(one, args[0] @ args[1])
  calls = called(tmp_path / "one")
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

  def sampled(self, grid, grid_of_doubles, *images):
    return tuple(
      F.grid_sample(
        x, grid_of_doubles if x.dtype == torch.float64 else grid, mode, padding, align_corners=False
      )
      for x in images
    )

  xs = images, images.to(memory_format=torch.channels_last), images.double()
  args = (grid, grid.double(), *xs)
  for one, expected in zip(results_of(tmp_path, sampled, *args), sampled(None, *args), strict=True):
    same = expected.isfinite()
    assert same.float().mean() > 0.9
    torch.testing.assert_close(one[same], expected[same], rtol=2e-5, atol=2e-5)
  assert "aten::grid_sampler_2d" in called(tmp_path)


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


@pytest.mark.parametrize("isa", ISAS)
def test_next_numbers_and_signs(tmp_path, isa):
  """Numbers next to 0 are denormal. The sizes are no multiples of a vector."""
  edges = torch.tensor([0.0, -0.0, 1, -1, 1e-45, -1e-45, 3.4028235e38, float("inf"), float("nan")])
  pairs = torch.cartesian_prod(torch.cat([edges, -edges]), torch.cat([edges, -edges]))
  x = torch.cat([torch.randn(333, generator=RANDOM), pairs[:, 0]])
  y = torch.cat([torch.randn(333, generator=RANDOM), pairs[:, 1]])
  tensors = x, y, x.double(), y.double()

  def numbers(self, x, y, a, b):
    signs = [torch.copysign(x, y), torch.copysign(a, b)]
    return torch.nextafter(x, y), torch.nextafter(a, b), *signs, x.signbit(), x.isnan(), x.isinf()

  results, expected = results_of(tmp_path, numbers, *tensors, isa=isa), numbers(None, *tensors)
  for one, other in zip(results, expected):
    torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    if one.is_floating_point():
      assert torch.equal(one.signbit()[~one.isnan()], other.signbit()[~one.isnan()])


def dividends(dtype):
  """Integers of a type, and divisors of them."""
  info = torch.iinfo(dtype)
  bounds = [n for n in (5, 100, 2**31 - 1, 2**51 - 1, 2**51 + 99, 2**62) if n <= info.max]
  low = 0 if info.min == 0 else -1
  parts = [torch.randint(low * n, n, (2, 403), dtype=dtype, generator=RANDOM) for n in bounds]
  x, y = torch.cat(parts, 1)
  y = torch.where(y == 0, torch.tensor(3, dtype=dtype), y)
  y[::3] = torch.randint(1, 4, y[::3].shape, dtype=dtype, generator=RANDOM)
  x[-1], y[-1] = info.max, info.max
  return x.clone(), y


@pytest.mark.parametrize("isa", ISAS)
def test_quotients_of_integers(tmp_path, isa):
  """Quotients of f64 are exact up to 2^51; other integers of 64 bits are divided one by one. Each
  type has a function of one program."""

  def quotients(self, x, y):
    return x // y, x % y, torch.div(x, y, rounding_mode="trunc"), x * y

  dtypes = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
  pairs = {str(dtype).removeprefix("torch."): dividends(dtype) for dtype in dtypes}
  model, path = FunctionModule(quotients), tmp_path / "model.husk"
  functions = {name: husk.Function(model, pair) for name, pair in pairs.items()}
  husk.export(functions, path, targets=(f"host:{isa}",), progress=False)
  session = husk.load(path).session()
  for name, (x, y) in pairs.items():
    function, info = getattr(session, name), torch.iinfo(x.dtype)
    for one, other in zip(function(x, y), quotients(None, x, y), strict=True):
      assert torch.equal(torch.as_tensor(one), other)
    y[77] = 0
    with pytest.raises(husk.Error, match="divided by 0"):
      function(x, y)
    if info.min < 0:  # eager mode traps where CPUs do
      x[:], y[:] = info.min, -1
      assert torch.as_tensor(function(x, y)[0]).eq(info.min).all()


@pytest.mark.parametrize("isa", ISAS)
def test_bools_of_whole_vectors(tmp_path, isa):
  """Bools become masks, and masks bools, of elements of each size."""
  floats = torch.randn(37, 43, generator=RANDOM)
  tensors = floats > 0, floats, floats.double(), (floats * 9).long(), (floats * 9).to(torch.int8)

  def masks(self, bools, *tensors):
    compared = [one > 1 for one in tensors]
    chosen = [torch.where(bools, one, 0) for one in tensors]
    reduced = [bools.any(-1), bools.all(0), bools & compared[0], bools.float().sum(-1)]
    return *compared, *chosen, *reduced

  results = results_of(tmp_path, masks, *tensors, isa=isa)
  for one, other in zip(results, masks(None, *tensors)):
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("mode", ["circular", "reflect", "replicate"])
def test_pads_with_elements_of_the_tensor(tmp_path, mode):
  pads = [(3, 2), (0, 4, 1, 0), (5, 0, 2, 2, 1, 1), (-1, 2)]
  xs = [torch.randn(2, 3, *(6, 7, 8)[3 - len(one) // 2 :], generator=RANDOM) for one in pads]

  def padded(self, *xs):
    return tuple(F.pad(x, one, mode=mode) for x, one in zip(xs, pads, strict=True))

  for one, other in zip(results_of(tmp_path, padded, *xs), padded(None, *xs), strict=True):
    assert torch.equal(one, other)


def test_bilinear_products(tmp_path):
  tensors = [torch.randn(*shape, generator=RANDOM) for shape in ((9, 33), (9, 20), (7, 33, 20))]

  def product(self, x, y, weight):
    return F.bilinear(x, y, weight)

  (one,) = results_of(tmp_path, product, *tensors)
  exact = product(None, *(tensor.double() for tensor in tensors))
  torch.testing.assert_close(one, exact.float(), rtol=1e-5, atol=1e-4)
  assert "aten::_trilinear" not in called(tmp_path)
