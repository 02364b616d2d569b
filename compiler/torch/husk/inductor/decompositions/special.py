"""Special functions: those of Bessel and Airy, gamma and zeta functions, quantiles of the normal
distribution.

Most are Chebyshev series on intervals. Their coefficients are no tables: mpmath, which torch brings
along, computes them at export from the definition of each function, as many as the dtype needs.
The other formulas are those of Abramowitz and Stegun, "Handbook of Mathematical Functions", whose
numbers the comments give."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch

# Digits with which coefficients are computed, and points at which a function is interpolated.
_DIGITS = 40
_POINTS = 64


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions by operator."""
  import torch

  aten = torch.ops.aten
  of_one = {
    aten.digamma.default: _digamma,
    aten.special_airy_ai.default: _airy,
    aten.special_i0e.default: _i0e,
    aten.special_i1e.default: _i1e,
    aten.special_modified_bessel_k0.default: lambda x: _k0(x, False),
    aten.special_modified_bessel_k1.default: lambda x: _k1(x, False),
    aten.special_ndtri.default: _ndtri,
    aten.special_scaled_modified_bessel_k0.default: lambda x: _k0(x, True),
    aten.special_scaled_modified_bessel_k1.default: lambda x: _k1(x, True),
    aten.special_spherical_bessel_j0.default: _spherical_j0,
  }
  of_two = {
    aten.igamma.default: lambda a, x: _incomplete_gamma(a, x)[0],
    aten.igammac.default: lambda a, x: _incomplete_gamma(a, x)[1],
    aten.special_zeta.default: _zeta,
  }
  return {
    **{op: in_floats(function) for op, function in {**of_one, **of_two}.items()},
    aten.neg.default: _negative,
    aten.polygamma.default: lambda n, x: in_floats(functools.partial(_polygamma, n))(x),
  }


def in_floats(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
  """A function of tensors that computes in float32 or float64, as eager mode does."""

  def decomposition(*args: torch.Tensor) -> torch.Tensor:
    import torch

    dtype = functools.reduce(torch.promote_types, (arg.dtype for arg in args))
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    computed = torch.float64 if dtype is torch.float64 else torch.float32
    return function(*(arg.to(computed) for arg in args)).to(dtype)

  return decomposition


# Chebyshev series


@functools.cache
def _coefficients(function: Any, low: float, high: float, bits: int) -> tuple[float, ...]:
  """The coefficients of a function of mpmath's numbers on an interval, without those at the end
  that are below 2^-bits of the largest."""
  import mpmath

  with mpmath.workdps(_DIGITS):
    begin, end = mpmath.mpf(low), mpmath.mpf(high)
    angles = [mpmath.pi * (2 * k + 1) / (2 * _POINTS) for k in range(_POINTS)]
    values = [
      function(mpmath, (begin + end) / 2 + (end - begin) / 2 * mpmath.cos(angle))
      for angle in angles
    ]
    found = [
      2 * sum(v * mpmath.cos(j * angle) for v, angle in zip(values, angles)) / _POINTS
      for j in range(_POINTS)
    ]
    least = max(map(abs, found)) * mpmath.mpf(2) ** -bits
    while len(found) > 2 and abs(found[-1]) < least:
      found.pop()
    return tuple(map(float, found))


def _series(function: Any, low: float, high: float, x: torch.Tensor) -> torch.Tensor:
  """The Chebyshev series of a function on an interval, by Clenshaw's recurrence. `x` is taken to
  lie in the interval."""
  import torch

  bits = 56 if x.dtype is torch.float64 else 28
  first, *others = _coefficients(function, low, high, bits)
  t = (x - low) * (2 / (high - low)) - 1
  t2 = t + t
  one: Any = 0.0
  two: Any = 0.0
  for coefficient in reversed(others):
    one, two = t2 * one - two + coefficient, one
  return t * one - two + first / 2


# Modified Bessel functions. The intervals are those of 9.8.1 to 9.8.8: up to a bound the functions
# are power series, beyond it they are an exponential function and a series in 1/x.

_I_BOUND, _K_BOUND = 8.0, 2.0


def _i0e_near(mp: Any, x: Any) -> Any:
  return mp.besseli(0, x) * mp.exp(-x)


def _i0e_far(mp: Any, u: Any) -> Any:
  return mp.sqrt(1 / u) * mp.besseli(0, 1 / u) * mp.exp(-1 / u)


def _i1e_near(mp: Any, x: Any) -> Any:
  return mp.besseli(1, x) / x * mp.exp(-x)


def _i1e_far(mp: Any, u: Any) -> Any:
  return mp.sqrt(1 / u) * mp.besseli(1, 1 / u) * mp.exp(-1 / u)


def _i0e(x: torch.Tensor) -> torch.Tensor:
  import torch

  a = x.abs()
  far = _series(_i0e_far, 0, 1 / _I_BOUND, 1 / a) / a.sqrt()
  return torch.where(a <= _I_BOUND, _series(_i0e_near, 0, _I_BOUND, a), far)


def _i1e(x: torch.Tensor) -> torch.Tensor:
  import torch

  a = x.abs()
  far = _series(_i1e_far, 0, 1 / _I_BOUND, 1 / a) / a.sqrt()
  near = _series(_i1e_near, 0, _I_BOUND, a) * a
  result = torch.where(a <= _I_BOUND, near, far)
  return torch.where(x < 0, -result, result)


def _i0_of_square(mp: Any, u: Any) -> Any:
  return mp.besseli(0, mp.sqrt(u))


def _i1_of_square(mp: Any, u: Any) -> Any:
  return mp.besseli(1, mp.sqrt(u)) / mp.sqrt(u)


def _k0_regular(mp: Any, u: Any) -> Any:
  x = mp.sqrt(u)
  return mp.besselk(0, x) + mp.log(x / 2) * mp.besseli(0, x)


def _k0_far(mp: Any, u: Any) -> Any:
  return mp.besselk(0, 1 / u) * mp.exp(1 / u) / mp.sqrt(u)


def _k1_regular(mp: Any, u: Any) -> Any:
  x = mp.sqrt(u)
  return x * (mp.besselk(1, x) - mp.log(x / 2) * mp.besseli(1, x))


def _k1_far(mp: Any, u: Any) -> Any:
  return mp.besselk(1, 1 / u) * mp.exp(1 / u) / mp.sqrt(u)


def _k0(x: torch.Tensor, scaled: bool) -> torch.Tensor:
  square, end = x * x, _K_BOUND**2
  near = _series(_k0_regular, 0, end, square)
  near = near - (x / 2).log() * _series(_i0_of_square, 0, end, square)
  return _k_joined(x, near, _series(_k0_far, 0, 1 / _K_BOUND, 1 / x), scaled)


def _k1(x: torch.Tensor, scaled: bool) -> torch.Tensor:
  square, end = x * x, _K_BOUND**2
  near = _series(_k1_regular, 0, end, square) / x
  near = near + (x / 2).log() * x * _series(_i1_of_square, 0, end, square)
  return _k_joined(x, near, _series(_k1_far, 0, 1 / _K_BOUND, 1 / x), scaled)


def _k_joined(x: torch.Tensor, near: torch.Tensor, far: torch.Tensor, scaled: bool) -> torch.Tensor:
  """A function K or e^x K, which has a pole at 0 and is not defined for negative numbers."""
  import torch

  far = far / x.sqrt()
  near, far = (near * x.exp(), far) if scaled else (near, far * (-x).exp())
  result = torch.where(x <= _K_BOUND, near, far)
  result = torch.where(x == 0, float("inf"), result)
  return torch.where(x < 0, float("nan"), result)


def _spherical_j0(x: torch.Tensor) -> torch.Tensor:
  """sin(x) / x, 10.1.11, near 0 its power series."""
  import torch

  square = x * x
  near: Any = 1.0
  for k in range(6, 0, -1):
    near = 1 - square * near / (2 * k * (2 * k + 1))
  result = torch.where(x.abs() < 0.5, near, x.sin() / x)
  return torch.where(x.isinf(), 0.0, result)


# The Airy function, 10.4.59 and 10.4.60: beyond the bound it is an exponential function or a wave,
# times series in the argument of that.

_AIRY_BOUND = 2.0
_AIRY_WAVE = 2 / 3 * _AIRY_BOUND**1.5


def _airy_near(mp: Any, x: Any) -> Any:
  return mp.airyai(x)


def _airy_far(mp: Any, u: Any) -> Any:
  x = (3 / (2 * u)) ** (mp.mpf(2) / 3)
  return 2 * mp.sqrt(mp.pi) * mp.root(x, 4) * mp.exp(1 / u) * mp.airyai(x)


def _airy_waves(mp: Any, u: Any) -> tuple[Any, Any]:
  """The amplitudes of the sine and of the cosine for a negative argument; `u` is the square of the
  inverse of the phase."""
  phase = 1 / mp.sqrt(u)
  x = (3 * phase / 2) ** (mp.mpf(2) / 3)
  scale, angle = mp.sqrt(mp.pi) * mp.root(x, 4), phase + mp.pi / 4
  ai, bi = mp.airyai(-x) * scale, mp.airybi(-x) * scale
  sine, cosine = mp.sin(angle), mp.cos(angle)
  return ai * sine + bi * cosine, (bi * sine - ai * cosine) * phase


def _airy_sine(mp: Any, u: Any) -> Any:
  return _airy_waves(mp, u)[0]


def _airy_cosine(mp: Any, u: Any) -> Any:
  return _airy_waves(mp, u)[1]


def _airy(x: torch.Tensor) -> torch.Tensor:
  import torch

  a = x.abs()
  phase = 2 * a * a.sqrt() / 3
  root = a.sqrt().sqrt()
  inverse = 1 / phase
  far = _series(_airy_far, 0, 1 / _AIRY_WAVE, inverse) * (-phase).exp()
  square, angle = inverse * inverse, phase + math.pi / 4
  sine = _series(_airy_sine, 0, _AIRY_WAVE**-2, square) * angle.sin()
  wave = sine - _series(_airy_cosine, 0, _AIRY_WAVE**-2, square) * inverse * angle.cos()
  outside = torch.where(x > 0, far / 2, wave) / (math.sqrt(math.pi) * root)
  near = _series(_airy_near, -_AIRY_BOUND, _AIRY_BOUND, x)
  return torch.where(x.isinf(), float("nan"), torch.where(a <= _AIRY_BOUND, near, outside))


def _negative(x: torch.Tensor) -> Any:
  """Triton subtracts from zero, so that the negative of 0.0 would be 0.0 again."""
  return x * -1 if x.is_floating_point() else NotImplemented


# Gamma and zeta functions

# The Bernoulli numbers of index 2, 4, 6 and so on.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
_SHIFT = 10


def _digamma(x: torch.Tensor) -> torch.Tensor:
  """6.3.18 for large arguments, to which 6.3.6 and the reflection 6.3.7 bring all others."""
  import torch

  positive = torch.where(x < 0, 1 - x, x)
  is_small = positive < _SHIFT
  total = 1 / positive
  for k in range(1, _SHIFT):
    total = total + 1 / (positive + k)
  at = torch.where(is_small, positive + _SHIFT, positive)
  inverse = 1 / at
  square = inverse * inverse
  tail: Any = 0.0
  for k in range(len(_BERNOULLI), 0, -1):
    tail = (tail + _BERNOULLI[k - 1] / (2 * k)) * square
  result = at.log() - inverse / 2 - tail - torch.where(is_small, total, 0.0)
  rest = x - x.trunc()
  result = torch.where(x < 0, result - math.pi / (rest * math.pi).tan(), result)
  result = torch.where(x == 0, torch.copysign(torch.full_like(x, float("inf")), -x), result)
  return torch.where((x < 0) & (rest == 0), float("nan"), result)


def _zeta_of_positive(s: Any, q: torch.Tensor) -> torch.Tensor:
  """Hurwitz's zeta function for q > 0, by the sum of Euler and Maclaurin, 23.2.3."""
  import torch

  result = q**-s
  for k in range(1, _SHIFT):
    result = result + (q + k) ** -s
  end = q + _SHIFT
  power = end**-s
  rest: Any = power / 2
  term, factorial = power * s / end, 2.0
  for k, number in enumerate(_BERNOULLI, 1):
    rest = rest + term * (number / factorial)
    term = term * ((s + 2 * k - 1) / end) * ((s + 2 * k) / end)
    factorial *= (2 * k + 1) * (2 * k + 2)
  # The powers of a large `s` vanish, and so do their multiples.
  return result + end ** (1 - s) / (s - 1) + torch.where(power == 0, 0.0, rest)


def _zeta_of_all(s: Any, q: torch.Tensor, is_odd: Any) -> torch.Tensor:
  """The zeta function of an integer `s` for negative `q` too: the terms with a negative base are
  those of two other sums, up to their sign."""
  import torch

  rest = q - q.floor()
  result = _zeta_of_positive(s, torch.where(q > 0, q, rest))
  base = torch.where(q < 0, q, -0.5)
  mirrored = _zeta_of_positive(s, base.ceil() - base) - _zeta_of_positive(s, 1 - base)
  if isinstance(is_odd, torch.Tensor):
    mirrored = torch.where(is_odd, -mirrored, mirrored)
  elif is_odd:
    mirrored = -mirrored
  result = torch.where(q < 0, result + mirrored, result)
  result = torch.where((q <= 0) & (q == q.floor()), float("inf"), result)
  return torch.where(q == float("inf"), float("nan"), result)  # torch has no limit either


def _zeta(s: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
  import torch

  whole = s == s.floor()
  result = _zeta_of_all(s, q, s - 2 * (s / 2).floor() == 1)
  result = torch.where((q < 0) & (q != q.floor()) & ~whole, float("nan"), result)
  result = torch.where(s < 1, float("nan"), result)
  return torch.where(s == 1, float("inf"), result)


def _polygamma(n: int, x: torch.Tensor) -> torch.Tensor:
  """6.4.10. Only for n = 1 torch has the limit at infinity."""
  import torch

  if n == 0:
    return _digamma(x)
  sign = 1 if n % 2 else -1
  result = _zeta_of_all(n + 1, x, n % 2 == 0) * (sign * math.exp(math.lgamma(n + 1)))
  return torch.where(x == float("inf"), 0.0, result) if n == 1 else result


# The number of nodes of the integral below, and their distance, by whether the result is float64.
_NODES = {False: (96, 0.09), True: (160, 0.055)}


def _incomplete_gamma(a: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
  """The incomplete gamma functions P and Q, 6.5.1 to 6.5.3, whose sum is 1. The smaller one is
  x^a e^-x / gamma(a) times the integral of exp(a v - x (e^v - 1)) for t from 0 to infinity, where v
  is t for Q and -t for P. It is a sum over nodes t = exp(u - exp(-u)) of equal distances in u
  (Takahasi and Mori, "Double exponential formulas", 1974), in float64."""
  import torch

  dtype = x.dtype
  a, x = torch.broadcast_tensors(a.double(), x.double())
  upper = (x > a) & (x > 1)
  sign = torch.where(upper, 1.0, -1.0).double()
  # The length in which the integrand falls.
  width = 1 / ((x - a).abs() + x.sqrt() * 0.5)
  width = torch.where(
    upper, width, 1 / ((x - a).abs().minimum(a) + (a.minimum(a * a)).sqrt() * 0.5)
  )
  nodes, step = _NODES[dtype is torch.float64]
  u = (torch.arange(nodes, device=x.device).double() - nodes // 2) * step
  decay = (-u).exp()
  places = (u - decay).exp()
  weights = places * (1 + decay) * step
  t = places * width.unsqueeze(-1)
  v = t * sign.unsqueeze(-1)
  power = a.unsqueeze(-1) * v - x.unsqueeze(-1) * v.expm1()
  integral = (power.exp() * weights).sum(-1) * width
  smaller = (a * x.log() - x - torch.lgamma(a)).exp() * integral
  lower_part = torch.where(upper, 1 - smaller, smaller)
  upper_part = torch.where(upper, smaller, 1 - smaller)
  inf, nan = float("inf"), float("nan")
  # The limits are 0 or 1; both numbers infinite, or both 0, have none.
  for at, value in ((x == 0, 0.0), (a == 0, 1.0), (x == inf, 1.0), (a == inf, 0.0)):
    lower_part = torch.where(at, value, lower_part)
    upper_part = torch.where(at, 1 - value, upper_part)
  wrong = (x < 0) | (a < 0) | ((a == 0) & ~(x > 0)) | ((x == inf) & (a == inf))
  lower_part, upper_part = (torch.where(wrong, nan, part) for part in (lower_part, upper_part))
  return lower_part.to(dtype), upper_part.to(dtype)


# The inverse of the normal distribution: in the middle a series, in the tails a series in the
# logarithm of w = sqrt(-2 log p), compare 26.2.22.

_TAIL = math.exp(-2)


def _quantile(mp: Any, log_p: Any) -> Any:
  """The number below which the normal distribution has the logarithm `log_p`, a negative one."""
  w = mp.sqrt(-2 * log_p)
  start = w - (mp.log(w) + mp.log(2 * mp.pi) / 2) / w
  return -mp.findroot(lambda z: mp.log(mp.erfc(z / mp.sqrt(2)) / 2) - log_p, start)


def _ndtri_middle(mp: Any, square: Any) -> Any:
  distance = mp.sqrt(square)
  return -_quantile(mp, mp.log(mp.mpf(1) / 2 - distance)) / distance


def _ndtri_tail(mp: Any, log_w: Any) -> Any:
  w = mp.exp(log_w)
  return -_quantile(mp, -w * w / 2) / w


def _ndtri(p: torch.Tensor) -> torch.Tensor:
  import torch

  centred = p - 0.5
  middle = centred * _series(_ndtri_middle, 0, (0.5 - _TAIL) ** 2, centred * centred)
  small = torch.minimum(p, 1 - p)
  w = (-2 * small.log()).sqrt()
  least = torch.finfo(p.dtype).tiny * torch.finfo(p.dtype).eps
  end = math.log(math.sqrt(-2 * math.log(least)))
  tail = w * _series(_ndtri_tail, math.log(2), end, w.log())
  tail = torch.where(p < 0.5, -tail, tail)
  result = torch.where(small >= _TAIL, middle, tail)
  result = torch.where(p == 0, -float("inf"), torch.where(p == 1, float("inf"), result))
  return torch.where((p < 0) | (p > 1), float("nan"), result)


def _erfinv_tail(mp: Any, w: Any) -> Any:
  return -_quantile(mp, -w * w / 2) / (w * mp.sqrt(2))


def erfinv(x: torch.Tensor) -> torch.Tensor:
  """Up to a factor the quantile of (1 + x) / 2 of the normal distribution, compare 7.1.22. The
  distances of this number to 0.5 and to 1 are computed without a rounding."""
  import torch

  half, small = x * 0.5, 0.5 - x.abs() * 0.5
  middle = half * _series(_ndtri_middle, 0, (0.5 - _TAIL) ** 2, half * half) * math.sqrt(0.5)
  w = (-2 * small.log()).sqrt()
  end = math.sqrt(-2 * math.log(torch.finfo(x.dtype).eps / 4))
  tail = w * _series(_erfinv_tail, 2, end, w)
  result = torch.where(small >= _TAIL, middle, torch.where(x < 0, -tail, tail))
  return torch.where(small == 0, x * float("inf"), result)
