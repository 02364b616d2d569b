"""`frexp` on CUDA targets, by the bits of a number.

Inductor calls the function of CUDA's library, which Triton compiles so that it takes a subnormal
number for 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions by operator."""
  import torch

  return {torch.ops.aten.frexp.Tensor: _frexp}


def _frexp(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
  """The mantissa, at least 1/2 and below 1, and the exponent."""
  import torch

  wide = x.to(torch.float32) if x.dtype.itemsize == 2 else x
  is_double = wide.dtype == torch.float64
  ints, fraction, ones = (torch.int64, 52, 0x7FF) if is_double else (torch.int32, 23, 0xFF)
  half = ones // 2 - 1  # the bits of the exponent of 1/2
  # A subnormal number times a power of two is a normal one.
  is_subnormal = wide.abs() < torch.finfo(wide.dtype).smallest_normal
  scale = fraction + 1
  bits = torch.where(is_subnormal, wide * 2.0**scale, wide).view(ints)
  exponent = (bits >> fraction & ones) - half - torch.where(is_subnormal, scale, 0)
  mantissa = (bits & ~(ones << fraction) | half << fraction).view(wide.dtype)
  # A zero, an infinity, and what is no number are their own mantissas.
  is_itself = (wide == 0) | ~wide.isfinite()
  return (
    torch.where(is_itself, x, mantissa.to(x.dtype)),
    torch.where(is_itself, 0, exponent).to(torch.int32),
  )
