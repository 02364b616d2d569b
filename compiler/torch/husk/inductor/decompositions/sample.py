"""Sampling of volumes at the points of a grid. Inductor has a decomposition for images."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch

# The numbers of torch's modes.
_TRILINEAR, _NEAREST = 0, 1
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions by operator."""
  import torch

  return {torch.ops.aten.grid_sampler_3d.default: _grid_sample}


def _grid_sample(
  x: torch.Tensor, grid: torch.Tensor, mode: int, padding: int, align_corners: bool
) -> Any:
  """`x` has images, channels and three axes; the points of the grid have as many coordinates, those
  of the last axis first."""
  import torch

  if mode not in (_TRILINEAR, _NEAREST):
    return NotImplemented
  dtype = x.dtype if x.dtype is torch.float64 else torch.float32
  images, channels, *sizes = x.shape
  flat = x.reshape(images, channels, -1)
  places = [
    _place(grid[..., 2 - axis].to(dtype), size, padding, align_corners)
    for axis, size in enumerate(sizes)
  ]
  if mode == _NEAREST:
    # Halves are rounded to even numbers, as in eager mode.
    corners = [[(place.round(), None)] for place in places]
  else:
    corners = [_neighbours(place) for place in places]
  result: Any = 0
  for corner in itertools.product(*corners):
    index: Any = 0
    inside: Any = None
    weight: Any = None
    for (at, factor), size in zip(corner, sizes):
      is_inside = (at >= 0) & (at < size)
      inside = is_inside if inside is None else inside & is_inside
      # An int is clamped, because a coordinate may be NaN.
      index = index * size + at.to(torch.int64).clamp(min=0, max=size - 1)
      if factor is not None:
        weight = factor if weight is None else weight * factor
    points = index.reshape(images, 1, -1).expand(images, channels, -1)
    values = flat.gather(2, points).reshape(images, channels, *grid.shape[1:4]).to(dtype)
    values = values if weight is None else values * weight.unsqueeze(1)
    result = result + torch.where(inside.unsqueeze(1), values, 0.0)
  return result.to(x.dtype)


def _neighbours(place: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
  """The elements before and behind a place on an axis, with their weights."""
  low = place.floor()
  return [(low, low + 1 - place), (low + 1, place - low)]


def _place(at: torch.Tensor, size: Any, padding: int, align_corners: bool) -> torch.Tensor:
  """The place on an axis of `size` elements for a coordinate from -1 to 1: the centers of the first
  and of the last element if `align_corners`, else their outer ends."""
  place = (at + 1) / 2 * (size - 1) if align_corners else ((at + 1) * size - 1) / 2
  if padding == _ZEROS:
    return place
  if padding == _REFLECTION:
    low, span = (0.0, size - 1) if align_corners else (-0.5, size)
    place = _reflected(place, low, span)
  return place.clamp(min=0, max=size - 1)


def _reflected(place: torch.Tensor, low: float, span: Any) -> torch.Tensor:
  """A place that is mirrored at `low` and `low + span` until it lies between them."""
  import torch

  if isinstance(span, int) and span == 0:
    return torch.zeros_like(place)
  distance = (place - low).abs()
  turns = (distance / span).floor()
  rest = distance - turns * span
  is_even = turns - (turns / 2).floor() * 2 == 0
  return torch.where(is_even, rest, span - rest) + low
