"""The place of the largest or the least element of a long row: argmax, argmin, max and min along a
dimension.

Inductor divides sums of long rows among blocks, but not these: one block read the 151,936 logits of
a step of a language model in 37 us on an H200. Here parts of a row have a place and an element
each, and the best part has the place."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch

# The elements of a part, and the least number of them that is worth a second kernel.
_OF_A_PART, _LEAST = 2048, 8192
# With so many rows, the rows are blocks enough.
_MOST_ROWS = 64


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions by operator."""
  import torch

  aten = torch.ops.aten
  return {
    aten.argmax.default: _argmax,
    aten.argmin.default: _argmin,
    aten.max.dim: _max,
    aten.min.dim: _min,
  }


def _argmax(x: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
  return _place(x, dim, keepdim, "amax")


def _argmin(x: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
  return _place(x, dim, keepdim, "amin")


def _max(x: torch.Tensor, dim: int, keepdim: bool = False) -> Any:
  return _both(x, dim, keepdim, "amax")


def _min(x: torch.Tensor, dim: int, keepdim: bool = False) -> Any:
  return _both(x, dim, keepdim, "amin")


def _both(x: torch.Tensor, dim: int, keepdim: bool, reduce: str) -> Any:
  place = _place(x, dim, keepdim, reduce)
  if place is NotImplemented:
    return NotImplemented
  return getattr(x, reduce)(dim, keepdim), place


def _place(x: torch.Tensor, dim: int | None, keepdim: bool, reduce: str) -> Any:
  """The first place of the largest or the least element. NaN counts as both."""
  is_last = x.dim() > 0 and (dim is None or dim % x.dim() == x.dim() - 1)
  rows = x.flatten() if dim is None and is_last else x
  if not is_last or not _is_long(rows):
    return NotImplemented
  parts = _parts(rows, float("-inf") if reduce == "amax" else float("inf"))
  find = "argmax" if reduce == "amax" else "argmin"
  places, elements = getattr(parts, find)(-1), getattr(parts, reduce)(-1)
  best = getattr(elements, find)(-1, True)
  place = best * parts.shape[-1] + places.gather(-1, best)
  if dim is None:
    return place.reshape([1] * x.dim() if keepdim else [])
  return place if keepdim else place.squeeze(-1)


def _is_long(x: torch.Tensor) -> bool:
  sizes = x.shape
  return (
    x.dtype.is_floating_point
    and all(isinstance(size, int) for size in sizes)
    and sizes[-1] >= _LEAST
    and x.numel() <= sizes[-1] * _MOST_ROWS
  )


def _parts(x: torch.Tensor, rest: float) -> torch.Tensor:
  """Rows in equal parts, as rows x parts x elements, with `rest` behind their ends if need be."""
  import torch

  size = x.shape[-1]
  least = -(-size // _OF_A_PART)
  count = next((count for count in range(least, 4 * least) if size % count == 0), least)
  if more := -size % count:
    x = torch.nn.functional.pad(x, (0, more), value=rest)
  return x.reshape(*x.shape[:-1], count, -1)
