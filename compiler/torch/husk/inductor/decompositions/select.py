"""Operators that select elements: nonzero, masked_select, boolean indices, unique. Sizes that the
data decides are read by `item`; the elements are found by a binary search in a running sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .reduce import index_put_of_small_ints

if TYPE_CHECKING:
  import torch


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions by operator."""
  import torch

  aten = torch.ops.aten
  return {
    aten.nonzero.default: _nonzero,
    aten.nonzero_static.default: _nonzero_static,
    aten.masked_select.default: _masked_select,
    aten.index.Tensor: _index,
    aten.index_put.default: _index_put,
    aten._unique2.default: _unique2,
    aten.unique_consecutive.default: _unique_consecutive,
    aten.repeat_interleave.Tensor: _repeat_interleave,
    aten.bincount.default: _bincount,
    aten.take.default: take,
  }


def take(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
  """The elements of all of `x` at indices. torch reads an index without dimensions as a number."""
  import torch

  return torch.ops.aten.index.Tensor(x.reshape(-1), [index])


def _read(number: torch.Tensor, most: Any = None) -> Any:
  """The value of a tensor with one element, as a size of at most `most`."""
  import torch

  value = number.item()
  torch._check(value >= 0)
  # torch.export states the same bound, and none of two elements or less.
  if isinstance(most, int) and most > 2:
    torch._check(value <= most)
  return value


def _running_sum(flags: torch.Tensor) -> torch.Tensor:
  import torch

  return flags.to(torch.int64).cumsum(0)


def _numbered(total: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
  """The places of the elements with these numbers, counted from 1, according to the running sum
  `total` of flags. A number that is too large gets the place behind the last one."""
  import torch

  return torch.searchsorted(total, numbers)


def _places(flags: torch.Tensor) -> torch.Tensor:
  """The places of the flags that are set, in order."""
  import torch

  count = _read(flags.sum(), flags.shape[0])
  return _numbered(_running_sum(flags), torch.arange(1, count + 1, device=flags.device))


def _columns(places: torch.Tensor, shape: Sequence[Any]) -> list[torch.Tensor]:
  """The indices of each dimension, from places in a contiguous tensor."""
  columns, below = [], 1
  for size in reversed(shape):
    columns.append(places // below % size)
    below = below * size
  return columns[::-1]


def _indices(mask: torch.Tensor) -> list[torch.Tensor]:
  """A vector of indices for each dimension of a mask."""
  import torch

  if any(isinstance(size, int) and size == 0 for size in mask.shape):
    return [mask.new_zeros(0, dtype=torch.int64) for _ in mask.shape]
  return _columns(_places((mask != 0).reshape(-1)), mask.shape)


def _nonzero(x: torch.Tensor) -> Any:
  import torch

  if x.dim() == 0:  # a row without columns for each element that is not 0
    return torch.stack(_indices(x.reshape(1)), 1)[:, :0]
  return torch.stack(_indices(x), 1)


def _nonzero_static(x: torch.Tensor, *, size: int, fill_value: int = -1) -> Any:
  import torch

  if x.dim() == 0:
    return torch.empty(size, 0, dtype=torch.int64, device=x.device)
  flags = (x != 0).reshape(-1)
  places = _numbered(_running_sum(flags), torch.arange(1, size + 1, device=x.device))
  rows = torch.stack(_columns(places, x.shape), 1)
  return torch.where((places < flags.shape[0]).unsqueeze(1), rows, fill_value)


def _masked_select(x: torch.Tensor, mask: torch.Tensor) -> Any:
  import torch

  x, mask = torch.broadcast_tensors(x, mask)
  if x.dim() == 0:
    x, mask = x.reshape(1), mask.reshape(1)
  return torch.ops.aten._unsafe_index(x, _indices(mask))


def _is_mask(index: torch.Tensor | None) -> bool:
  import torch

  return index is not None and index.dtype in (torch.bool, torch.uint8)


def _without_masks(indices: Sequence[torch.Tensor | None]) -> Any:
  """The indices with ints in place of masks; None if a mask has no dimension."""
  result: list[torch.Tensor | None] = []
  for index in indices:
    if index is None or not _is_mask(index):
      result.append(index)
    elif index.dim() == 0:
      return None
    else:
      result += _indices(index)
  return result


def _index(x: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> Any:
  import torch

  if not any(map(_is_mask, indices)):
    return NotImplemented
  ints = _without_masks(indices)
  return NotImplemented if ints is None else torch.ops.aten.index.Tensor(x, ints)


def _index_put(
  x: torch.Tensor,
  indices: Sequence[torch.Tensor | None],
  values: torch.Tensor,
  accumulate: bool = False,
) -> Any:
  import torch

  if not any(map(_is_mask, indices)):
    return index_put_of_small_ints(x, indices, values, accumulate)
  (mask, *others) = indices
  one_value = all(isinstance(size, int) and size == 1 for size in values.shape)
  if others or accumulate or not _is_mask(mask) or mask is None or mask.dim() == 0:
    ints = _without_masks(indices)
    if ints is None:
      return NotImplemented
    return torch.ops.aten.index_put.default(x, ints, values, accumulate)
  if one_value:
    return NotImplemented
  # The elements of `values` go to the places of the mask in turn, or are the same for each place.
  rest = x.dim() - mask.dim()
  flags = (mask != 0).reshape(-1)
  shape = [*mask.shape, *[1] * rest]
  if values.dim() == rest + 1 and not (isinstance(values.shape[0], int) and values.shape[0] == 1):
    turn = (_running_sum(flags) - 1).clamp(min=0).reshape(mask.shape)
    values = torch.ops.aten._unsafe_index(values, [turn])
  elif values.dim() == rest + 1:
    values = values.squeeze(0)
  return torch.where(flags.reshape(shape), values.to(x.dtype), x)


def _groups(
  begins: torch.Tensor, order: torch.Tensor | None, inverse: bool, counts: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
  """The first places of groups of equal elements, which begin where the flags `begins` are set; for
  each element the number of its group; the sizes of the groups. `order` are the original places."""
  import torch

  total = _running_sum(begins)
  size = begins.shape[0]
  count = _read(begins.sum(), size)
  numbers = torch.arange(1, count + 1, device=begins.device)
  first = _numbered(total, numbers)
  nothing = torch.empty(0, dtype=torch.int64, device=begins.device)
  of_element = total - 1
  if order is not None and inverse:
    # Inductor has no kernel for a scatter of 64-bit ints.
    zeros = torch.zeros_like(of_element)
    of_element = torch.ops.aten._unsafe_index_put(zeros, [order], of_element)
  sizes = _numbered(total, numbers + 1) - first
  return first, of_element if inverse else nothing, sizes if counts else nothing


def _begins(x: torch.Tensor) -> torch.Tensor:
  """Where an element of a vector differs from the one before."""
  import torch

  before = x[(torch.arange(x.shape[0], device=x.device) - 1).clamp(min=0)]
  return (x != before) | (torch.arange(x.shape[0], device=x.device) == 0)


def _unique2(
  x: torch.Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
  import torch

  flat = x.reshape(-1)
  if isinstance(flat.shape[0], int) and flat.shape[0] == 0:
    return NotImplemented
  values, order = torch.ops.aten.sort.stable(flat, stable=True, dim=0)
  first, inverse, counts = _groups(_begins(values), order, return_inverse, return_counts)
  return values[first], inverse.reshape(x.shape) if return_inverse else inverse, counts


def _unique_consecutive(
  x: torch.Tensor,
  return_inverse: bool = False,
  return_counts: bool = False,
  dim: int | None = None,
) -> Any:
  if dim is not None and x.dim() != 1:
    return NotImplemented
  flat = x.reshape(-1)
  if isinstance(flat.shape[0], int) and flat.shape[0] == 0:
    return NotImplemented
  first, inverse, counts = _groups(_begins(flat), None, return_inverse, return_counts)
  return flat[first], inverse.reshape(x.shape) if return_inverse else inverse, counts


def _repeat_interleave(repeats: torch.Tensor, *, output_size: int | None = None) -> Any:
  import torch

  size: Any = _read(repeats.sum()) if output_size is None else output_size
  total = repeats.cumsum(0)
  numbers = torch.arange(size, device=repeats.device, dtype=total.dtype)
  return torch.searchsorted(total, numbers, right=True).to(repeats.dtype)


def _bincount(x: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0) -> Any:
  import torch

  if isinstance(x.shape[0], int) and x.shape[0] == 0:
    return NotImplemented
  size = _read((x.max() + 1).clamp(min=minlength))
  if weights is None:
    weights = torch.ones_like(x, dtype=torch.int32)
  elif weights.dtype != torch.float32:
    weights = weights.to(torch.float64)
  counts = torch.zeros(size, dtype=weights.dtype, device=x.device)
  counts = counts.scatter_add(0, x.long(), weights)
  # Inductor has no kernel for sums of 64-bit ints in memory.
  return counts.long() if counts.dtype is torch.int32 else counts
