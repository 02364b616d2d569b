"""Complex numbers and Fourier transforms of CUDA targets, in real numbers."""

import itertools

import complex_graphs
import pytest
import torch
from husk import Unsupported
from torch import fft

# One product; short sums; factors of several lengths; primes that are a product, and that are a
# convolution; a prime that is a factor.
LENGTHS = [1, 2, 4, 9, 64, 97, 120, 134, 257, 1027]
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def random(*sizes, dtype=torch.complex64):
  return torch.randn(sizes, generator=torch.Generator().manual_seed(7), dtype=dtype)


def transforms(x, lengths=LENGTHS):
  """All transforms of lengths of the last dimension."""
  results = []
  for n in lengths:
    z, r = x[..., :n], x.real[..., :n].contiguous()
    results += [
      fft.fft(z),
      fft.ifft(z),
      fft.fft(r),
      fft.rfft(r),
      fft.irfft(z[..., : n // 2 + 1], n),
    ]
  return results


def test_the_error_is_a_few_times_that_of_eager_mode():
  x = random(3, 1027)
  module, constants = complex_graphs.graph(transforms, (x,))
  assert complex_graphs.complex_operators(module) == set()
  assert all(tensor.dtype is torch.float32 for tensor in constants.values())
  results, eager = complex_graphs.run(module, (x,)), transforms(x)
  exact = transforms(x.to(torch.complex128))
  for one, other, wanted in zip(results, eager, exact, strict=True):
    assert one.dtype == other.dtype and one.shape == other.shape
    ours, theirs = ((result - wanted).abs().square().mean().sqrt() for result in (one, other))
    assert ours <= 3 * theirs + 1e-7 * wanted.abs().square().mean().sqrt()


def test_transforms_of_doubles():
  x = random(2, 300, dtype=torch.complex128)
  complex_graphs.check(lambda x: transforms(x, [9, 257, 300]), x, rtol=1e-11, atol=1e-11)


def test_transforms_of_several_dimensions_and_norms():
  def function(x, y):
    results = []
    for norm in ("backward", "ortho", "forward"):
      results += [
        fft.fft2(y, norm=norm).real,
        fft.rfftn(y, dim=(0, 2), norm=norm),
        fft.ifftn(x, dim=(2, 0), norm=norm),
        fft.irfft2(x, s=(5, 7), norm=norm),
        fft.hfft(x, norm=norm),
        fft.ihfft2(y, norm=norm),
        fft.fft(x, n=9, dim=1, norm=norm),
        fft.irfft(fft.rfft(y[0, 0], n=120, norm=norm), norm=norm),
      ]
    return results

  x = random(4, 5, 6)
  complex_graphs.check(function, x, x.real.contiguous(), **CLOSE)


def test_what_is_zero_stays_so():
  """A sign of a zero would decide the angle."""

  def function(x):
    return fft.rfft(x).imag, fft.rfft(x[:, :75]).imag, fft.fft(x[:, :4]).imag

  results = complex_graphs.run(
    complex_graphs.graph(function, (random(2, 120).real,))[0], [torch.randn(2, 120)]
  )
  assert not results[0][:, [0, -1]].any()
  assert not results[1][:, 0].any()
  assert not results[2][:, [0, 2]].any()


def test_a_length_that_varies():
  def function(x):
    return fft.fft2(x).real, fft.rfft(x).abs(), fft.ifft(fft.fft(x, dim=0), dim=0)

  shapes = {"tensors": ({0: torch.export.Dim("n", max=900), 1: torch.export.Dim("m", max=900)},)}
  others = [(torch.randn(20, 7),), (torch.randn(130, 32),)]
  complex_graphs.check(
    function, torch.randn(12, 10), shapes=shapes, others=others, rtol=1e-4, atol=3e-4
  )


def test_transforms_are_exact_with_products_in_tf32():
  before = torch.backends.cuda.matmul.fp32_precision
  torch.backends.cuda.matmul.fp32_precision = "tf32"
  try:
    module, _ = complex_graphs.graph(lambda x: transforms(x, [64]), (random(3, 64),))
  finally:
    torch.backends.cuda.matmul.fp32_precision = before
  assert torch.ops.aten.mm.default not in {node.target for node in module.graph.nodes}


def test_shapes_that_vary():
  def function(z):
    return (
      z.reshape(z.shape[1], -1) * z.shape[0],
      torch.cat([z, z * 2j], 1)[:, 1:],
      z.mT @ z.conj(),
      z.abs().mean(),
    )

  shapes = {
    "tensors": ({0: torch.export.Dim("n", min=4), 1: torch.export.Dim("m", min=4, max=99)},)
  }
  complex_graphs.check(function, random(8, 10), shapes=shapes, others=[(random(7, 14),)], **CLOSE)


def test_short_time_transforms():
  window = torch.hann_window(16)

  def function(x):
    spectrum = torch.stft(x, 16, 4, window=window, return_complex=True)
    return spectrum, spectrum.abs(), torch.istft(spectrum * 1j, 16, 4, window=window)

  complex_graphs.check(function, torch.randn(3, 40), **CLOSE)


def test_rotary_embedding():
  angles = torch.outer(torch.arange(6.0), torch.rand(4))

  def function(x, frequencies):
    z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    own = torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(z * frequencies * own).flatten(-2).type_as(x)

  frequencies = torch.polar(torch.ones_like(angles), angles)
  complex_graphs.check(function, torch.randn(2, 6, 8), frequencies, **CLOSE)


# Values in all quadrants, on the axes and on branch cuts.
POINTS = [-3.0, -1.0, -0.4, -0.0, 0.0, 0.3, 1.0, 2.5]


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_functions(dtype):
  names = """abs angle sgn neg reciprocal square exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin
    cos tan sinh cosh tanh asin acos atan asinh acosh atanh sigmoid isnan isfinite isinf logical_not
    conj conj_physical resolve_conj isreal""".split()

  def function(x):
    return [getattr(torch, name)(x) for name in names]

  pairs = [complex(re, im) for re, im in itertools.product(POINTS, POINTS)]
  # At infinity and at poles, and on the cuts that a sign of zero tells, torch's own functions of
  # vectors and of numbers differ.
  pairs = [z for z in pairs if z not in (0, 1, -1, 1j, -1j) and z.real and z.imag]
  x = torch.tensor(pairs, dtype=dtype)
  tolerance = 2e-6 if dtype is torch.complex64 else 1e-13
  complex_graphs.check(function, x, rtol=tolerance, atol=tolerance)


def test_functions_of_large_and_small_values():
  x = torch.tensor([3e30 + 4e30j, 1e-30 - 1e-30j, -2e25 + 1e-5j])

  def function(x):
    return x.abs(), x / (x * 2), torch.sqrt(x), torch.tanh(x), torch.asinh(x), x.sgn()

  complex_graphs.check(function, x, **CLOSE)


def test_arithmetic():
  x, y, r = random(3, 4), random(3, 4) + 1, torch.randn(3, 4)
  scalar = torch.tensor(2.0 - 1j, dtype=torch.complex128)

  def function(x, y, r, scalar):
    return (
      x + y,
      torch.add(x, r, alpha=2),
      r - x,
      torch.rsub(x, y, alpha=3),
      torch.rsub(x, 2, alpha=1j),
      torch.ops.aten.add.Scalar(x, 3, 2j),
      1j * r,
      x * 2j + 1,
      3 - x,
      x / y,
      r / y,
      x / (1 + 1j),
      2 / y,
      x * scalar,
      r * scalar,
      x**3,
      y**-2,
      y**0.5,
      y**x,
      2**x,
      x * r.double(),
      torch.addcmul(x, x, y, value=2),
      torch.lerp(x, y, 0.25),
      x == y,
      x != x.real,
      x.logical_and(y),
    )

  complex_graphs.check(function, x, y, r, scalar, **CLOSE)


def test_shapes_and_indices():
  x, y = random(3, 4, 6), random(3, 4, 6)
  index = torch.tensor([2, 0])

  def function(x, y, r, index):
    first, second = x.chunk(2, -1)
    z = x.clone()
    z[:, 1] = y[:, 0]
    z += 1j
    return (
      torch.cat([x, r]),
      torch.stack([x, y], 1).flatten(1),
      first * second.mT.mT,
      x.permute(2, 0, 1).reshape(6, -1),
      x[..., None].expand(-1, -1, -1, 2).sum((0, 3)),
      x.roll(2, -1).flip(0).transpose(0, 2),
      x.index_select(0, index),
      x[index, 1:3],
      torch.where(r > 0, x, 0),
      torch.where(r > 0, x, y),
      x.masked_fill(r > 0, 1 - 2j),
      x.unsqueeze(0).squeeze(0).mean(-1),
      torch.nn.functional.pad(x, (1, 2), value=3.0),
      torch.nn.functional.pad(x, (1, 2), mode="circular"),
      x[r > 0],
      x.cumsum(1),
      x.prod(-1),
      x.to(torch.complex128),
      torch.zeros_like(x),
      torch.full((2, 3), 2 - 1j),
      r.to(torch.complex64) + torch.ones(6, dtype=torch.complex64),
      torch.view_as_real(x),
      x.real + x.imag,
      torch.complex(r, x.imag),
      x.any(),
      x.tril(),
      z,
    )

  complex_graphs.check(function, x, y, torch.randn(3, 4, 6), index, **CLOSE)


def test_products_and_norms():
  x, y = random(3, 4, 5), random(3, 5, 6)

  def function(x, y):
    return (
      x @ y,
      x @ y[0, :, 0],
      torch.einsum("bij,bjk->bki", x.conj(), y),
      torch.vdot(x[0, 0], x[1, 0]),
      torch.addmm(y[0, :4], x[0], y[0], beta=2j, alpha=0.5),
      x.norm(dim=-1),
      torch.linalg.vector_norm(y),
      torch.kron(x[0], y[0]),
      x.var(-1),
      *torch.var_mean(x, 1),
      torch.addbmm(y[0, :4], x, y, beta=0.5, alpha=2j),
    )

  complex_graphs.check(function, x, y, **CLOSE)


def test_an_operator_that_is_not_there_is_called():
  def function(x):
    values = torch.linalg.eigvals(x @ x)
    return (values * 2).cumprod(0)

  x = random(3, 3)
  module, _ = complex_graphs.graph(function, (x,))
  assert complex_graphs.complex_operators(module) == {"aten::linalg_eig", "aten::cumprod"}
  (result,) = complex_graphs.run(module, (x,))
  torch.testing.assert_close(result, function(x), **CLOSE)


def test_refusals():
  def branch(x):
    return torch.cond(x.sum() > 0, lambda x: fft.rfft(x).abs(), lambda x: x[:5] * 1, (x,))

  with pytest.raises(Unsupported, match="complex numbers in a branch or a loop"):
    complex_graphs.graph(branch, (torch.randn(8),))


def test_elements_by_their_places_in_memory():
  x, y = torch.randn(3, 4, dtype=torch.complex64), torch.randn(2, 2)
  complex_graphs.check(lambda x: torch.as_strided_copy(x, (2, 2), (1, 3), 1), x)
  complex_graphs.check(lambda x: (x * 2).t().contiguous().as_strided((2, 2), (1, 3), 2), x)
  complex_graphs.check(lambda x: (x.t() * 2).as_strided((2, 2), (1, 3)), x)
  complex_graphs.check(lambda x: (x * 2)[1:].as_strided((2,), (3,)), x)
  complex_graphs.check(lambda x, y: torch.as_strided_scatter(x.t() * 2, y, (2, 2), (2, 3), 1), x, y)
  complex_graphs.check(lambda x: (x.clone().resize_(2, 2), (x.t() * 2).resize_(3)), x)
  complex_graphs.check(lambda x: (x[0, 0] * 2).resize_(1, 1), x)
  with pytest.raises(Unsupported, match="gaps in memory"):
    complex_graphs.graph(lambda x: (x * 2)[:, 1:].as_strided((2,), (1,)), (x,))


def test_products_at_indices():
  x, y = torch.randn(4, dtype=torch.complex64), torch.randn(3, dtype=torch.complex64)
  index = torch.tensor([1, 1, 3])
  for reduce in ("add", "multiply"):
    complex_graphs.check(
      lambda x, y, i, reduce=reduce: x.scatter(0, i, y, reduce=reduce), x, y, index
    )


def test_random_numbers():
  """Eager mode draws others: the parts have the means and variances of its parts."""
  x = torch.empty(4000, dtype=torch.complex64)

  def function(x):
    return x.clone().uniform_(1, 3), x.clone().normal_(2, 4), torch.rand_like(x)

  torch.manual_seed(4)
  module, _ = complex_graphs.graph(function, (x,))
  assert complex_graphs.complex_operators(module) == set()
  for one, mean, deviation in zip(
    complex_graphs.run(module, (x,)), (2, 2, 0.5), (3**-0.5, 8**0.5, 12**-0.5)
  ):
    for part in (one.real, one.imag):
      assert abs(part.mean() - mean) < deviation / 10
      assert abs(part.std() - deviation) < deviation / 10
