"""Remainders and rounded quotients of floats, for all targets.

Inductor rounds the quotient. If that is near an int it can be rounded across it, as 1.0 / 0.1 to
10, where the exact quotient of the floats is below it; and if it is large, what is left of the
number is lost. Eager mode uses `fmod`, which is exact."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions by operator. One that returns NotImplemented leaves the call as it is."""
  import torch

  aten = torch.ops.aten
  return {
    aten.fmod.Scalar: _fmod,
    aten.remainder.Scalar: _remainder,
    aten.remainder.Scalar_Tensor: _remainder,
    aten.remainder.Tensor: _remainder,
    aten.floor_divide.default: _floor_divide,
    aten.floor_divide.Scalar: _floor_divide,
    aten.div.Scalar_mode: _div,
    aten.div.Tensor_mode: _div,
  }


def _fmod(x: torch.Tensor, number: Any) -> Any:
  import torch

  rounded = _rounded(number, x.dtype) if x.is_floating_point() else number
  return NotImplemented if rounded is number else torch.fmod(x, rounded)


def _remainder(x: Any, y: Any) -> Any:
  import torch

  dtype = torch.result_type(x, y)
  if not dtype.is_floating_point:
    return NotImplemented
  if not isinstance(x, torch.Tensor):
    x = torch.full((), _rounded(x, dtype), dtype=dtype, device=y.device)
  y = y.to(dtype) if isinstance(y, torch.Tensor) else _rounded(y, dtype)
  return _moved(x.to(dtype), y)[0]


def _floor_divide(x: Any, y: Any) -> Any:
  """The quotient of elements of 16 bits is one of float32, whose numbers are not rounded."""
  import torch

  dtype = torch.result_type(x, y)
  if not dtype.is_floating_point:
    return NotImplemented
  wide = torch.promote_types(dtype, torch.float32)
  return _quotient(x.to(wide), y.to(wide) if isinstance(y, torch.Tensor) else y).to(dtype)


def _div(x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
  return _floor_divide(x, y) if rounding_mode == "floor" else NotImplemented


def _moved(x: torch.Tensor, y: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
  """The remainder, which has the sign of `y`; what `fmod` says, which has that of `x`; and where
  the signs differ."""
  import torch

  rest = torch.fmod(x, y)
  if isinstance(y, torch.Tensor):
    differ = ((rest > 0) & (y < 0)) | ((rest < 0) & (y > 0))
  else:
    differ = rest > 0 if y < 0 else rest < 0
  return torch.where(differ, rest + y, rest), rest, differ


def _quotient(x: torch.Tensor, y: Any) -> torch.Tensor:
  import torch

  if not isinstance(y, torch.Tensor) and y == 0:
    return x / y
  _, rest, differ = _moved(x, y)
  exact = (x - rest) / y
  exact = torch.where(differ, exact - 1, exact)  # an int but for its own rounding
  floor = exact.floor()
  floor = torch.where(exact - floor > 0.5, floor + 1, floor)
  floor = torch.where(exact != 0, floor, x / y * 0)  # with the sign of the quotient
  return torch.where(y == 0, x / y, floor) if isinstance(y, torch.Tensor) else floor


def _rounded(number: Any, dtype: torch.dtype) -> Any:
  """A number as an element of a tensor would be, which eager mode makes of it."""
  import torch

  if not isinstance(number, float) or not math.isfinite(number):
    return number
  digits = round(1 - math.log2(torch.finfo(dtype).eps))
  mantissa, exponent = math.frexp(number)
  rounded = math.ldexp(round(math.ldexp(mantissa, digits)), exponent - digits)
  return number if rounded == number else rounded
