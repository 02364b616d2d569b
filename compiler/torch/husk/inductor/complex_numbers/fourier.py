"""Discrete Fourier transforms as products with constant matrices.

A length is split into factors of at most `_PRODUCT`, each of which is a product (the four-step
algorithm, D. Bailey, "FFTs in external or hierarchical memory", 1990). A prime up to `_PRIME` is
one product too; longer ones are convolutions of a length that is a power of two (L. Bluestein,
1970). Products with a matrix need more arithmetic than butterflies, but few kernels, and the
arithmetic between them is fused. Real transforms of even lengths are complex ones of half the
length.

The constants are computed in float64. A length that varies has one product, whose matrix the
kernels compute."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .. import torch_compat
from .parts import Parts

if TYPE_CHECKING:
  import torch

_PRODUCT, _PRIME = 64, 256

# Gives a tensor of constants to the graph that is traced: the name, and a function that makes it.
Constant = Callable[[str, Callable[[], "torch.Tensor"]], "torch.Tensor"]


class Fourier:
  """The transforms, without a factor. `sign` is that of the exponent. The methods whose names end
  with "over" transform the dimensions `dims`, of which the last one is halved if one side is real;
  the others transform the last dimension."""

  def __init__(self, constant: Constant) -> None:
    self._constant = constant

  def complex_over(self, x: Parts, dims: Sequence[int], sign: int) -> Parts:
    for dim in dims:
      x = _moved(self.complex(_moved(x, dim, -1), sign), -1, dim)
    return x

  def real_over(self, x: torch.Tensor, dims: Sequence[int]) -> Parts:
    """The first half of the transform of real numbers."""
    half = _moved(self.real(x.movedim(dims[-1], -1)), -1, dims[-1])
    return self.complex_over(half, dims[:-1], -1)

  def real_back_over(self, x: Parts, dims: Sequence[int], n: Any) -> torch.Tensor:
    """The real numbers of which `x` is the first half of the transform. `n` is the size of the last
    dimension of `dims` in the result."""
    x = _moved(self.complex_over(x, dims[:-1], 1), dims[-1], -1)
    return self.real_back(x, n).movedim(-1, dims[-1])

  def complex(self, x: Parts, sign: int) -> Parts:
    n = x.re.shape[-1]
    if not isinstance(n, int):
      return self._varying(x, n, n, sign)
    if n == 1:
      return x
    factor = _factor(n)
    if factor == n:
      return self._product(x, n, sign)
    if factor is None:
      return self._convolution(x, n, sign)
    other = n // factor
    rows = _each(x, lambda part: part.reshape(*part.shape[:-1], factor, other).transpose(-1, -2))
    rows = self.complex(rows, sign) * self._waves(rows.re, f"twiddles_{factor}", n, sign, factor)
    columns = self.complex(_each(rows, lambda part: part.transpose(-1, -2)), sign)
    return _each(columns, lambda part: part.transpose(-1, -2).flatten(-2))

  def real(self, x: torch.Tensor, sign: int = -1) -> Parts:
    """The first half of the transform of real numbers, the middle included."""
    import torch

    n = x.shape[-1]
    if not isinstance(n, int):
      return self._varying(x, n, n // 2 + 1, sign)
    if n == 1:
      return Parts(x, torch.zeros_like(x))
    count = n // 2 + 1
    if _factor(n) == n:
      return self._product(x, n, sign)
    if n % 2:
      whole = self.complex(Parts(x, torch.zeros_like(x)), sign)
      half = _each(whole, lambda part: part[..., :count])
      return Parts(half.re, self._without_ends(half.im, n))
    pairs = x.reshape(*x.shape[:-1], n // 2, 2)
    half = self.complex(Parts(pairs[..., 0], pairs[..., 1]), sign)
    half = _each(half, lambda part: torch.cat([part, part[..., :1]], -1))
    back = _each(half, lambda part: part.flip(-1)).conj()
    even, odd = (half + back) * 0.5, (half - back).turned_back() * 0.5
    sums = even + odd * self._waves(half.re, "half", n, sign, count)
    return Parts(sums.re, self._without_ends(sums.im, n))

  def real_back(self, x: Parts, n: Any, sign: int = 1) -> torch.Tensor:
    """The real numbers of which `x` is the first half of the transform."""
    import torch

    if not isinstance(n, int):
      return self._varying_back(x, n, sign)
    count = n // 2 + 1
    x = _each(x, lambda part: part[..., :count])
    if n == 1:
      return x.re
    if _factor(n) == n:
      return self._multiplied(
        torch.cat([x.re, x.im], -1), f"back_{n}{_suffix(sign)}", lambda: _back_matrix(n, sign)
      )
    x = Parts(x.re, self._without_ends(x.im, n))
    if n % 2:
      back = _each(x, lambda part: part[..., 1:].flip(-1)).conj()
      whole = Parts(torch.cat([x.re, back.re], -1), torch.cat([x.im, back.im], -1))
      return self.complex(whole, sign).re
    back = _each(x, lambda part: part.flip(-1)).conj()
    waves = self._waves(x.re, "half", n, sign, count)
    half = x + back + ((x - back) * waves).turned()
    half = self.complex(_each(half, lambda part: part[..., : n // 2]), sign)
    return torch.stack([half.re, half.im], -1).flatten(-2)

  def _without_ends(self, im: torch.Tensor, n: int) -> torch.Tensor:
    """Imaginary parts of the half of a transform of real numbers. The first and that in the middle
    are zero, and stay so where the arithmetic would round."""
    import torch

    k = torch.arange(im.shape[-1], device=im.device)
    return torch.where((k == 0) | (2 * k == n), 0.0, im)

  def _product(self, x: Parts | torch.Tensor, n: int, sign: int) -> Parts:
    """A transform as one product. Of real numbers it has the first half."""
    import torch

    if isinstance(x, Parts):
      columns = torch.cat([x.re, x.im], -1)
      result = self._multiplied(columns, f"whole_{n}{_suffix(sign)}", lambda: _matrix(n, sign))
    else:
      result = self._multiplied(x, f"real_{n}{_suffix(sign)}", lambda: _real_matrix(n, sign))
    return Parts(*result.chunk(2, -1))

  def _multiplied(
    self, x: torch.Tensor, name: str, make: Callable[[], torch.Tensor]
  ) -> torch.Tensor:
    return _times(x, self._of_dtype(x, name, make))

  def _of_dtype(self, x: torch.Tensor, name: str, make: Callable[[], torch.Tensor]) -> torch.Tensor:
    dtype = x.dtype
    kind = str(dtype).removeprefix("torch.")
    return self._constant(f"fourier_{name}_{kind}", lambda: make().to(dtype))

  def _waves(self, x: torch.Tensor, name: str, n: int, sign: int, count: int) -> Parts:
    """exp(2 pi i sign j k / n) for k below `count`. "half" has j = 1 only, "twiddles" all j below
    n / count."""

    def make() -> torch.Tensor:
      import torch

      rows = torch.ones(1, dtype=torch.int64) if name == "half" else torch.arange(n // count)
      cos, sin = _waves(rows, torch.arange(count), n)
      return torch.stack([cos, sign * sin])

    both = self._of_dtype(x, f"{name}_{n}{_suffix(sign)}", make)
    return Parts(both[0, 0], both[1, 0]) if name == "half" else Parts(both[0], both[1])

  def _convolution(self, x: Parts, n: int, sign: int) -> Parts:
    """A transform as a convolution with a chirp, by transforms of a length that is a power of 2."""
    import torch

    size = 1 << (2 * n - 2).bit_length()

    def chirp() -> torch.Tensor:
      squares = torch.arange(n) ** 2
      cos, sin = _waves(squares, torch.ones(1, dtype=torch.int64), 2 * n)
      return torch.stack([cos, sign * sin])[..., 0]

    def filter_transformed() -> torch.Tensor:
      re, im = chirp()
      half = torch.complex(re, -im)
      whole = torch.zeros(size, dtype=torch.complex128)
      whole[:n] = half
      whole[size - n + 1 :] = half[1:].flip(0)
      result = torch.fft.fft(whole) / size
      return torch.stack([result.real, result.imag])

    both = self._of_dtype(x.re, f"chirp_{n}{_suffix(sign)}", chirp)
    waves = Parts(both[0], both[1])
    both = self._of_dtype(x.re, f"filter_{n}{_suffix(sign)}", filter_transformed)
    padded = _each(x * waves, lambda part: torch.nn.functional.pad(part, (0, size - n)))
    product = self.complex(padded, -1) * Parts(both[0], both[1])
    return _each(self.complex(product, 1), lambda part: part[..., :n]) * waves

  def _varying(self, x: Parts | torch.Tensor, n: Any, count: Any, sign: int) -> Parts:
    """The first `count` results of a transform whose length varies, as one product."""
    import torch

    cos, sin = self._varying_waves(x, n, count, sign)
    if not isinstance(x, Parts):
      return Parts(_times(x, cos), _times(x, sin))
    columns = torch.cat([x.re, x.im], -1)
    return Parts(_times(columns, torch.cat([cos, -sin])), _times(columns, torch.cat([sin, cos])))

  def _varying_back(self, x: Parts, n: Any, sign: int) -> torch.Tensor:
    import torch

    count = n // 2 + 1
    x = _each(x, lambda part: part[..., :count])
    cos, sin = self._varying_waves(x, n, count, sign)
    k = torch.arange(count, device=x.re.device)
    # The others stand for themselves and for the second half.
    weight = torch.where((k == 0) | (2 * k == n), 1.0, 2.0).to(x.re.dtype)
    im = torch.where((k == 0) | (2 * k == n), 0.0, x.im)
    columns = torch.cat([x.re * weight, im * weight], -1)
    return _times(columns, torch.cat([cos, -sin], -1).transpose(0, 1))

  def _varying_waves(
    self, x: Parts | torch.Tensor, n: Any, count: Any, sign: int
  ) -> tuple[torch.Tensor, torch.Tensor]:
    """The cosines and sines of all rows j and of columns k below `count`."""
    import torch

    like = x.re if isinstance(x, Parts) else x
    rows = torch.arange(n, device=like.device)
    cos, sin = _waves(rows, torch.arange(count, device=like.device), n)
    return cos.to(like.dtype), (sign * sin).to(like.dtype)


def _suffix(sign: int) -> str:
  """What the name of a constant ends with if it is one of an inverse transform."""
  return "_inverse" if sign > 0 else ""


def _each(x: Parts, function: Callable[[torch.Tensor], torch.Tensor]) -> Parts:
  return Parts(function(x.re), function(x.im))


def _moved(x: Parts, dim: int, to: int) -> Parts:
  return Parts(x.re.movedim(dim, to), x.im.movedim(dim, to))


def _times(x: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
  """The products of the rows of `x` with a matrix."""
  import torch

  depth, count = matrix.shape
  in_tf32 = x.dtype is torch.float32 and torch_compat.are_products_in_tf32()
  # Short sums become a part of the kernels around them. Products with TF32 would lose digits that
  # a Fourier transform has in eager mode.
  if in_tf32 or (isinstance(depth, int) and depth <= 8):
    return (x.unsqueeze(-1) * matrix).sum(-2)
  return torch.mm(x.reshape(-1, depth), matrix).reshape(*x.shape[:-1], count)


@functools.cache
def _factor(n: int) -> int | None:
  """The first factor into which a length is split: `n` itself if the transform is one product, None
  if it is a convolution."""
  if n <= _PRODUCT:
    return n
  steps = math.ceil(math.log(n) / math.log(_PRODUCT))
  wanted = n ** (1 / steps)
  factors = [factor for factor in range(2, _PRODUCT + 1) if n % factor == 0]
  if factors:
    return min(factors, key=lambda factor: abs(math.log(factor / wanted)))
  if n <= _PRIME:
    return n
  return next((factor for factor in range(_PRODUCT, _PRIME + 1) if n % factor == 0), None)


def _waves(rows: torch.Tensor, columns: torch.Tensor, n: Any) -> tuple[torch.Tensor, torch.Tensor]:
  """The cosines and sines of 2 pi j k / n in float64, exact where they are 0, 1 or -1."""
  import torch

  turns = (rows.unsqueeze(-1) * columns) % n * 4
  quarter = torch.div(turns, n, rounding_mode="floor")
  angle = (turns - quarter * n).to(torch.float64) * (math.pi / 2) / n
  cos, sin = angle.cos(), angle.sin()
  is_odd = quarter % 2 == 1
  cos, sin = torch.where(is_odd, -sin, cos), torch.where(is_odd, cos, sin)
  is_far = quarter >= 2
  return torch.where(is_far, -cos, cos), torch.where(is_far, -sin, sin)


def _matrix(n: int, sign: int) -> torch.Tensor:
  """Takes real and imaginary parts to those of the transform."""
  import torch

  cos, sin = _waves(torch.arange(n), torch.arange(n), n)
  sin = sign * sin
  return torch.cat([torch.cat([cos, sin], 1), torch.cat([-sin, cos], 1)])


def _real_matrix(n: int, sign: int) -> torch.Tensor:
  """Takes real numbers to the parts of the first half of the transform."""
  import torch

  cos, sin = _waves(torch.arange(n), torch.arange(n // 2 + 1), n)
  return torch.cat([cos, sign * sin], 1)


def _back_matrix(n: int, sign: int) -> torch.Tensor:
  """Takes the parts of the first half of a transform to real numbers."""
  import torch

  count = n // 2 + 1
  cos, sin = _waves(torch.arange(count), torch.arange(n), n)
  weight = torch.full((count, 1), 2.0, dtype=torch.float64)
  weight[0] = 1
  if n % 2 == 0:
    weight[-1] = 1
  return torch.cat([weight * cos, -sign * weight * sin])


def _scale(sizes: Sequence[Any], normalization: int) -> Any:
  """The factor of a transform: torch's 0 is none, 1 the root of the number of elements."""
  count = math.prod(sizes)
  if normalization == 0:
    return 1
  return 1 / count if normalization == 2 else 1 / count**0.5


def transform(
  fourier: Fourier, x: Parts, dims: Sequence[int], normalization: int, forward: bool
) -> Parts:
  """aten._fft_c2c."""
  sizes = [x.re.shape[dim] for dim in dims]
  x = fourier.complex_over(x, dims, -1 if forward else 1)
  return x * _scale(sizes, normalization) if normalization else x


def transform_real(
  fourier: Fourier, x: torch.Tensor, dims: Sequence[int], normalization: int, onesided: bool
) -> Parts:
  """aten._fft_r2c."""
  import torch

  last, n = dims[-1], x.shape[dims[-1]]
  scale = _scale([x.shape[dim] for dim in dims], normalization)
  if onesided:
    result = fourier.real_over(x, dims)
  else:
    half = _moved(fourier.real_over(x, [last]), last, -1)
    others = _each(half, lambda part: part[..., 1 : (n + 1) // 2].flip(-1)).conj()
    whole = Parts(torch.cat([half.re, others.re], -1), torch.cat([half.im, others.im], -1))
    result = fourier.complex_over(_moved(whole, -1, last), dims[:-1], -1)
  return result * scale if normalization else result


def transform_to_real(
  fourier: Fourier, x: Parts, dims: Sequence[int], normalization: int, last_dim_size: Any
) -> torch.Tensor:
  """aten._fft_c2r."""
  scale = _scale([*(x.re.shape[dim] for dim in dims[:-1]), last_dim_size], normalization)
  result = fourier.real_back_over(x, dims, last_dim_size)
  return result * scale if normalization else result
