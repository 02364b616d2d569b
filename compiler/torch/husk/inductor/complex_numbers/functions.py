"""Functions of complex numbers in real arithmetic. The name of an operator with `_` at its end is
that of its function.

An argument is a `Parts`, a real tensor or a number. Large and small values are no intermediate
results where eager mode has none. The inverse functions are those of W. Kahan, "Branch cuts for
complex elementary functions", 1987."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .parts import Parts

if TYPE_CHECKING:
  import torch


def _parts(x: Any) -> Parts:
  """A value as parts; the imaginary part of a real number is zero."""
  import torch

  if isinstance(x, Parts):
    return x
  return Parts(x, torch.zeros_like(x) if isinstance(x, torch.Tensor) else 0.0)


def _where(condition: Any, x: Parts, y: Parts) -> Parts:
  import torch

  return Parts(torch.where(condition, x.re, y.re), torch.where(condition, x.im, y.im))


def is_nonzero(x: Any) -> Any:
  return (x.re != 0) | (x.im != 0) if isinstance(x, Parts) else x != 0


def sum_(x: Any) -> Any:
  return Parts(x.re.sum(), x.im.sum()) if isinstance(x, Parts) else x.sum()


# Arithmetic


def add_(x: Any, y: Any) -> Any:
  if isinstance(x, Parts) and isinstance(y, Parts):
    return _spread(x + y)
  if isinstance(y, Parts):
    x, y = y, x
  return _spread(x + y)


def _spread(x: Any) -> Any:
  """Parts of one shape: the sum with a real tensor has changed that of one part only, and a part of
  a number is a number."""
  import torch

  if not isinstance(x, Parts):
    return x
  re, im = x.re, x.im
  if not isinstance(im, torch.Tensor):
    im = torch.full_like(re, im)
  if not isinstance(re, torch.Tensor):
    re = torch.full_like(im, re)
  return Parts(*torch.broadcast_tensors(re, im)) if re.shape != im.shape else Parts(re, im)


def sub_(x: Any, y: Any) -> Any:
  return add_(x, -y)


def rsub_(x: Any, y: Any) -> Any:
  return add_(y, -x)


def mul_(x: Any, y: Any) -> Any:
  return y * x if isinstance(y, Parts) and not isinstance(x, Parts) else x * y


def div_(x: Any, y: Any) -> Any:
  """R. Smith, "Algorithm 116: complex division", 1962: the parts of `y` are divided by the larger
  of them, so that their squares do not overflow."""
  import torch

  if not isinstance(y, Parts):
    return Parts(x.re / y, x.im / y)
  if not isinstance(y.re, torch.Tensor):
    square = y.re * y.re + y.im * y.im
    if square and not math.isinf(square):
      return mul_(x, Parts(y.re / square, -y.im / square))
    y = Parts(torch.full_like(x.re, y.re), torch.full_like(x.re, y.im))
  x = _parts(x)
  is_wide = y.re.abs() >= y.im.abs()
  large, small = torch.where(is_wide, y.re, y.im), torch.where(is_wide, y.im, y.re)
  ratio = torch.where(large == 0, 0.0, small / large)
  total = large + small * ratio
  re = torch.where(is_wide, x.re + x.im * ratio, x.re * ratio + x.im)
  im = torch.where(is_wide, x.im - x.re * ratio, x.im * ratio - x.re)
  return Parts(re / total, im / total)


true_divide_ = div_


def reciprocal_(x: Parts) -> Any:
  import torch

  return div_(Parts(torch.ones_like(x.re), torch.zeros_like(x.re)), x)


def square_(x: Parts) -> Parts:
  return x * x


def pow_(x: Any, y: Any) -> Any:
  import torch

  if isinstance(y, (int, float)):
    if float(y).is_integer() and abs(y) <= 8:
      power = _power(x, abs(int(y)))
      return reciprocal_(power) if y < 0 else power
    if y == 0.5:
      return sqrt_(x)
  like = y.re if isinstance(y, Parts) and _is_number(x) else None
  x = _parts(x)
  if like is not None:
    x = Parts(torch.full_like(like, x.re), torch.full_like(like, x.im))
  y = y if isinstance(y, Parts) else Parts(y, 0.0)
  power = exp_(log_(x) * y)
  one, zero = torch.ones_like(power.re), torch.zeros_like(power.re)
  power = _where(~is_nonzero(x) & (one * y.re > 0), Parts(zero, zero), power)
  return _where((one * y.re == 0) & (one * y.im == 0), Parts(one, zero), power)


def _is_number(x: Any) -> bool:
  return isinstance(x, (int, float)) or (isinstance(x, Parts) and isinstance(x.re, (int, float)))


def _power(x: Parts, exponent: int) -> Parts:
  """A power by squares."""
  import torch

  if exponent == 0:
    return Parts(torch.ones_like(x.re), torch.zeros_like(x.re))
  result = None
  while exponent:
    if exponent % 2:
      result = x if result is None else result * x
    exponent //= 2
    x = x * x if exponent else x
  assert result is not None
  return result


# Size, angle and parts


def real_(x: Parts) -> Any:
  return x.re


def imag_(x: Parts) -> Any:
  return x.im


def conj_(x: Any) -> Any:
  return x.conj() if isinstance(x, Parts) else x


conj_physical_ = conj_


def resolve_conj_(x: Any) -> Any:
  return x


resolve_neg_ = resolve_conj_


def abs_(x: Any) -> torch.Tensor:
  import torch

  return torch.hypot(x.re, x.im) if isinstance(x, Parts) else x.abs()


def angle_(x: Parts) -> torch.Tensor:
  import torch

  return torch.atan2(x.im, x.re)


def sgn_(x: Parts) -> Parts:
  import torch

  size = abs_(x)
  return Parts(torch.where(size == 0, 0.0, x.re / size), torch.where(size == 0, 0.0, x.im / size))


# Comparisons


def eq_(x: Any, y: Any) -> torch.Tensor:
  x, y = _parts(x), _parts(y)
  return (x.re == y.re) & (x.im == y.im)


def ne_(x: Any, y: Any) -> torch.Tensor:
  return ~eq_(x, y)


def isnan_(x: Parts) -> torch.Tensor:
  return x.re.isnan() | x.im.isnan()


def isinf_(x: Parts) -> torch.Tensor:
  return x.re.isinf() | x.im.isinf()


def isfinite_(x: Parts) -> torch.Tensor:
  return x.re.isfinite() & x.im.isfinite()


def isreal_(x: Parts) -> torch.Tensor:
  return x.im == 0


def logical_not_(x: Any) -> torch.Tensor:
  return ~is_nonzero(x)


def logical_and_(x: Any, y: Any) -> torch.Tensor:
  return is_nonzero(x) & is_nonzero(y)


def logical_or_(x: Any, y: Any) -> torch.Tensor:
  return is_nonzero(x) | is_nonzero(y)


def logical_xor_(x: Any, y: Any) -> torch.Tensor:
  return is_nonzero(x) ^ is_nonzero(y)


# Exponentials and logarithms


def exp_(x: Parts) -> Parts:
  size = x.re.exp()
  return Parts(size * x.im.cos(), size * x.im.sin())


def exp2_(x: Parts) -> Parts:
  return exp_(x * math.log(2))


def expm1_(x: Parts) -> Parts:
  """The real part is (e^a - 1) cos b - 2 sin(b / 2)^2."""
  less, half = x.re.expm1(), (x.im / 2).sin()
  return Parts(less * x.im.cos() - 2 * half * half, x.re.exp() * x.im.sin())


def log_(x: Parts) -> Parts:
  return Parts(abs_(x).log(), angle_(x))


def log2_(x: Parts) -> Parts:
  return log_(x) * (1 / math.log(2))


def log10_(x: Parts) -> Parts:
  return log_(x) * (1 / math.log(10))


def log1p_(x: Parts) -> Parts:
  """Near zero the real part is that of |1 + x|^2 - 1, without the rounding of the sum."""
  import torch

  near = torch.log1p(x.re * (2 + x.re) + x.im * x.im) / 2
  whole = x + 1
  is_near = (x.re.abs() < 0.5) & (x.im.abs() < 0.5)
  return Parts(torch.where(is_near, near, abs_(whole).log()), angle_(whole))


def sigmoid_(x: Parts) -> Any:
  return reciprocal_(exp_(-x) + 1)


# Roots


def sqrt_(x: Parts) -> Parts:
  import torch

  root = ((abs_(x) + x.re.abs()) / 2).sqrt()
  other = torch.where(root == 0, 0.0, x.im.abs() / (2 * root))
  is_right = ~x.re.signbit()
  im = torch.where(is_right, other, root)
  return Parts(torch.where(is_right, root, other), torch.copysign(im, x.im))


def rsqrt_(x: Parts) -> Any:
  return reciprocal_(sqrt_(x))


# Trigonometric and hyperbolic functions


def sinh_(x: Parts) -> Parts:
  return Parts(x.re.sinh() * x.im.cos(), x.re.cosh() * x.im.sin())


def cosh_(x: Parts) -> Parts:
  return Parts(x.re.cosh() * x.im.cos(), x.re.sinh() * x.im.sin())


def tanh_(x: Parts) -> Parts:
  import torch

  # Beyond this size the result is 1 or -1 in float64 too, and cosh^2 would overflow.
  bounded = x.re.clamp(-22, 22)
  tan, sinh = x.im.tan(), bounded.sinh()
  square = 1 + tan * tan
  total = 1 + square * sinh * sinh
  re = square * (1 + sinh * sinh).sqrt() * sinh / total
  is_small = x.re.abs() <= 22
  far = 4 * x.im.sin() * x.im.cos() * torch.exp(-2 * x.re.abs())
  return Parts(
    torch.where(is_small, re, torch.copysign(torch.ones_like(x.re), x.re)),
    torch.where(is_small, tan / total, far),
  )


def sin_(x: Parts) -> Parts:
  return sinh_(x.turned()).turned_back()


def cos_(x: Parts) -> Parts:
  return cosh_(x.turned())


def tan_(x: Parts) -> Parts:
  return tanh_(x.turned()).turned_back()


def asin_(x: Parts) -> Parts:
  import torch

  less, more = sqrt_(-x + 1), sqrt_(x + 1)
  return Parts(torch.atan2(x.re, (less * more).re), (less.conj() * more).im.asinh())


def acos_(x: Parts) -> Parts:
  import torch

  less, more = sqrt_(-x + 1), sqrt_(x + 1)
  return Parts(2 * torch.atan2(less.re, more.re), (more.conj() * less).im.asinh())


def acosh_(x: Parts) -> Parts:
  import torch

  less, more = sqrt_(x - 1), sqrt_(x + 1)
  return Parts((less.conj() * more).re.asinh(), 2 * torch.atan2(less.im, more.re))


def asinh_(x: Parts) -> Parts:
  return asin_(x.turned()).turned_back()


def atanh_(x: Parts) -> Parts:
  import torch

  size, square = x.re.abs(), x.im * x.im
  less = 1 - size
  re = torch.copysign(torch.log1p(4 * size / (less * less + square)) / 4, x.re)
  return Parts(re, torch.atan2(2 * x.im, (1 - x.re) * (1 + x.re) - square) / 2)


def atan_(x: Parts) -> Parts:
  return atanh_(x.turned()).turned_back()
