"""Pools with windows that Inductor has no kernel for: large ones, and adaptive ones in three
dimensions. A window becomes further dimensions, over which a kernel reduces."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .dimensions import along

if TYPE_CHECKING:
  import torch

# The largest window that Inductor unrolls.
_UNROLLED = 25


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions by operator."""
  import torch

  aten = torch.ops.aten
  return {
    **averages(),
    aten.max_pool2d_with_indices.default: lambda *args, **kwargs: _largest(2, *args, **kwargs),
    aten.max_pool3d_with_indices.default: lambda *args, **kwargs: _largest(3, *args, **kwargs),
    aten._adaptive_avg_pool2d.default: lambda x, size: _adaptive_average(2, x, size),
    aten._adaptive_avg_pool3d.default: lambda x, size: _adaptive_average(3, x, size),
    aten.adaptive_max_pool2d.default: lambda x, size: _adaptive_largest(2, x, size),
    aten.adaptive_max_pool3d.default: lambda x, size: _adaptive_largest(3, x, size),
  }


def averages() -> dict[Any, Callable[..., Any]]:
  """The decompositions of average pools, which hosts have no operators of, and of gradients."""
  import torch

  aten = torch.ops.aten
  return {
    **{
      op: _with_all_dimensions(op, rank)
      for rank, op in (
        (2, aten.avg_pool2d_backward.default),
        (3, aten.avg_pool3d_backward.default),
        (2, aten.max_pool2d_with_indices_backward.default),
      )
    },
    aten.avg_pool2d.default: lambda *args, **kwargs: _average(2, *args, **kwargs),
    aten.avg_pool3d.default: lambda *args, **kwargs: _average(3, *args, **kwargs),
  }


class _Windows:
  """The windows of the last dimensions of a tensor. `begins` and `ends` have a vector for each
  dimension, `longest` the number of elements of its longest window, `step` the distance of the
  elements of a window."""

  def __init__(
    self,
    x: torch.Tensor,
    begins: Sequence[torch.Tensor],
    ends: Sequence[torch.Tensor],
    longest: Sequence[Any],
    step: Sequence[int],
  ) -> None:
    import torch

    rank = len(begins)
    self.x, self.rank, self.positions = x, rank, []
    shape = (*(begin.shape[0] for begin in begins), *longest)
    mask = None
    sizes = x.shape[x.dim() - rank :]
    for dim, (begin, end, length, d) in enumerate(zip(begins, ends, longest, step)):
      offsets = torch.arange(length, device=x.device) * d
      position = along(begin, dim, 2 * rank) + along(offsets, rank + dim, 2 * rank)
      before_end = position < along(end, dim, 2 * rank)
      inside = (position >= 0) & before_end & (position < sizes[dim])
      mask = inside if mask is None else mask & inside
      self.positions.append(position)
    assert mask is not None
    self.mask = mask.expand(shape)
    self.dims = list(range(-rank, 0))

  def values(self, outside: Any) -> torch.Tensor:
    """The elements of all windows, in further dimensions; `outside` is what a window has outside of
    the tensor."""
    import torch

    leading = self.x.dim() - self.rank
    mask = self.mask.expand(*self.x.shape[:leading], *self.mask.shape)
    indices = [*[None] * leading, *self.positions]
    return torch.ops.aten._unsafe_masked_index(self.x, mask, indices, outside)

  def largest(self) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest elements, and their places in the last dimensions of the tensor."""
    import torch

    lowest = -float("inf") if self.x.dtype.is_floating_point else torch.iinfo(self.x.dtype).min
    values = self.values(lowest)
    place = 0
    for position, size in zip(self.positions, self.x.shape[self.x.dim() - self.rank :]):
      place = place * size + position
    assert isinstance(place, torch.Tensor)
    best = values.amax(self.dims)
    # NaN is the largest of a window in which it is. The first one of several is taken.
    expanded = best.reshape(*best.shape, *[1] * self.rank)
    found = ((values == expanded) | (values != values)) & self.mask
    last = torch.iinfo(torch.int64).max
    places = torch.where(found, place, last).amin(self.dims)
    return best, places


def _each(values: Sequence[int], rank: int) -> list[int]:
  return list(values) if len(values) == rank else list(values) * rank


def _with_all_dimensions(op: Any, rank: int) -> Callable[..., Any]:
  """The gradient of a pool with a number for each dimension. Inductor takes no lists of one number,
  which stands for all dimensions."""

  def decomposed(
    gradient: torch.Tensor,
    x: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    *rest: Any,
  ) -> Any:
    if len(kernel_size) == rank and len(stride) in (0, rank) and len(padding) in (0, rank):
      return NotImplemented
    kernel, paddings = _each(kernel_size, rank), _each(padding or (0,), rank)
    return op(gradient, x, kernel, _each(stride or kernel, rank), paddings, *rest)

  return decomposed


def _lengths(
  x: torch.Tensor,
  kernel: Sequence[int],
  stride: Sequence[int],
  padding: Sequence[int],
  dilation: Sequence[int],
  ceil_mode: bool,
) -> list[Any]:
  """The sizes of the results of a pool."""
  import torch

  sizes = []
  rank = len(kernel)
  for size, k, s, p, d in zip(x.shape[x.dim() - rank :], kernel, stride, padding, dilation):
    span = size + 2 * p - d * (k - 1) - 1
    if ceil_mode:  # no window begins outside
      sizes.append(torch.sym_min((span + s - 1) // s + 1, (size + p + s - 1) // s))
    else:
      sizes.append(span // s + 1)
  return sizes


def _average(
  rank: int,
  x: torch.Tensor,
  kernel_size: Sequence[int],
  stride: Sequence[int] = (),
  padding: Sequence[int] = (0,),
  ceil_mode: bool = False,
  count_include_pad: bool = True,
  divisor_override: int | None = None,
) -> Any:
  import torch

  kernel = _each(kernel_size, rank)
  if math.prod(kernel) <= _UNROLLED:
    return NotImplemented
  stride, padding = _each(stride or kernel, rank), _each(padding, rank)
  lengths = _lengths(x, kernel, stride, padding, [1] * rank, ceil_mode)
  begins = [
    torch.arange(length, device=x.device) * s - p for length, s, p in zip(lengths, stride, padding)
  ]
  ends = [begin + k for begin, k in zip(begins, kernel)]
  windows = _Windows(x, begins, ends, kernel, [1] * rank)
  total = windows.values(0).sum(windows.dims, dtype=_sum_dtype(x))
  if divisor_override:
    return (total / divisor_override).to(x.dtype)
  counts = torch.ones((), dtype=torch.int64, device=x.device)
  for dim, (begin, end, p) in enumerate(zip(begins, ends, padding)):
    size = x.shape[x.dim() - rank + dim]
    beyond = p if count_include_pad else 0
    count = end.clamp(max=size + beyond) - begin.clamp(min=-beyond)
    counts = counts * along(count, dim, rank)
  return (total / counts).to(x.dtype)


def _sum_dtype(x: torch.Tensor) -> torch.dtype:
  import torch

  return torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype


def _largest(
  rank: int,
  x: torch.Tensor,
  kernel_size: Sequence[int],
  stride: Sequence[int] = (),
  padding: Sequence[int] = (0,),
  dilation: Sequence[int] = (1,),
  ceil_mode: bool = False,
) -> Any:
  import torch

  kernel = _each(kernel_size, rank)
  if math.prod(kernel) <= _UNROLLED:
    return NotImplemented
  stride, padding, dilation = (
    _each(values, rank) for values in (stride or kernel, padding, dilation)
  )
  lengths = _lengths(x, kernel, stride, padding, dilation, ceil_mode)
  begins = [
    torch.arange(length, device=x.device) * s - p for length, s, p in zip(lengths, stride, padding)
  ]
  ends = [begin + k * d for begin, k, d in zip(begins, kernel, dilation)]
  return _Windows(x, begins, ends, kernel, dilation).largest()


def _adaptive(rank: int, x: torch.Tensor, sizes: Sequence[int]) -> Any:
  """The windows of an adaptive pool, and the vectors of their lengths. NotImplemented if Inductor
  has a kernel."""
  import torch

  inputs = x.shape[x.dim() - rank :]
  longest = []
  for size, result in zip(inputs, sizes):
    if not (isinstance(size, int) and isinstance(result, int)):
      longest.append((size + result - 1) // result + 1)
    elif size % result == 0:
      longest.append(size // result)
    else:
      starts = [(at * size // result, -(-(at + 1) * size // result)) for at in range(result)]
      longest.append(max(end - begin for begin, end in starts))
  static = all(isinstance(length, int) for length in longest)
  if rank == 2 and static and math.prod(longest) <= _UNROLLED:
    return NotImplemented
  at = [torch.arange(result, device=x.device) for result in sizes]
  begins = [part * size // result for part, size, result in zip(at, inputs, sizes)]
  ends = [
    ((part + 1) * size + result - 1) // result for part, size, result in zip(at, inputs, sizes)
  ]
  windows = _Windows(x, begins, ends, longest, [1] * rank)
  return windows, [end - begin for begin, end in zip(begins, ends)]


def _adaptive_average(rank: int, x: torch.Tensor, sizes: Sequence[int]) -> Any:
  found = _adaptive(rank, x, sizes)
  if found is NotImplemented:
    return NotImplemented
  windows, lengths = found
  total = windows.values(0).sum(windows.dims, dtype=_sum_dtype(x))
  for dim, length in enumerate(lengths):
    total = total / along(length, dim, rank)
  return total.to(x.dtype)


def _adaptive_largest(rank: int, x: torch.Tensor, sizes: Sequence[int]) -> Any:
  found = _adaptive(rank, x, sizes)
  return NotImplemented if found is NotImplemented else found[0].largest()
