"""Resizing of images with antialiasing: each dimension is a product with a matrix of weights, which
are zero outside of the support of the filter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch

Filter = Callable[["torch.Tensor"], "torch.Tensor"]


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions by operator."""
  import torch

  aten = torch.ops.aten
  return {
    aten._upsample_bilinear2d_aa.default: lambda *args: _resized(_triangle, 1.0, *args),
    aten._upsample_bicubic2d_aa.default: lambda *args: _resized(_cubic, 2.0, *args),
  }


def _triangle(x: torch.Tensor) -> torch.Tensor:
  return (1 - x.abs()).clamp(min=0)


def _cubic(x: torch.Tensor) -> torch.Tensor:
  """The cubic filter with the parameter -0.5."""
  import torch

  x = x.abs()
  near = (1.5 * x - 2.5) * x * x + 1
  far = ((-0.5 * x + 2.5) * x - 4) * x + 2
  return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


def _resized(
  function: Filter,
  radius: float,
  x: torch.Tensor,
  output_size: Sequence[int],
  align_corners: bool,
  scale_height: float | None = None,
  scale_width: float | None = None,
) -> Any:
  """The filter `function` is zero from the distance `radius` on."""
  import torch

  height, width = x.shape[-2:]
  dtype = x.dtype if x.dtype is torch.float64 else torch.float32
  if not all(isinstance(size, int) for size in (height, width, *output_size)):
    return NotImplemented
  down, right = (
    _weights(function, radius, size, result, align_corners, scale, x.device, dtype)
    for size, result, scale in zip(
      (int(height), int(width)), output_size, (scale_height, scale_width)
    )
  )
  # The sums are reductions, not products of matrices, which may have the precision of TF32.
  wide = (x.to(dtype).unsqueeze(-2) * right).sum(-1)
  result = (wide.unsqueeze(-3) * down.unsqueeze(-1)).sum(-2)
  return result.to(x.dtype) if x.is_floating_point() else as_bytes(result)


def as_bytes(image: torch.Tensor) -> torch.Tensor:
  """An image of floats as one of bytes."""
  import torch

  return image.round().clamp(0, 255).to(torch.uint8)


def _weights(
  function: Filter,
  radius: float,
  size: int,
  result: int,
  align_corners: bool,
  scale: float | None,
  device: torch.device,
  dtype: torch.dtype,
) -> torch.Tensor:
  """The weights of the elements, the columns, for each result, a row."""
  import torch

  if align_corners:
    step = (size - 1) / (result - 1) if result > 1 else 0.0
  else:
    step = 1 / scale if scale else size / result
  stretch = max(step, 1.0)
  center = step * (torch.arange(result, device=device, dtype=dtype) + 0.5).unsqueeze(-1)
  element = torch.arange(size, device=device)
  begin = (center - radius * stretch + 0.5).to(torch.int64).clamp(min=0)
  end = (center + radius * stretch + 0.5).to(torch.int64).clamp(max=size)
  weights = function((element - center + 0.5) / stretch)
  weights = torch.where((element >= begin) & (element < end), weights, 0.0)
  total = weights.sum(-1, keepdim=True)
  return torch.where(total == 0, weights, weights / total)
