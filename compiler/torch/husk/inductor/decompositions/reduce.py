"""Operators that combine elements by an index: scatter with a reduction, index_reduce,
embedding_bag, segment_reduce, histc.

Inductor has atomic sums of floats. What it lacks, other reductions and sums of 64-bit ints, becomes
a reduction over all elements in which a mask leaves out those with another index: a kernel that
writes nothing but its result, and takes time for each pair of an element and a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .dimensions import along

if TYPE_CHECKING:
  import torch


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions by operator."""
  import torch

  aten = torch.ops.aten
  return {
    aten.scatter.src: _scatter,
    aten.scatter_add.default: _scatter_add,
    aten.scatter_reduce.two: _scatter_reduce,
    aten.scatter.reduce: _scatter_with,
    aten.scatter.value_reduce: _scatter_with,
    aten.index_add.default: _index_add,
    aten._unsafe_index_put.default: index_put_of_small_ints,
    aten.index_reduce.default: _index_reduce,
    aten._embedding_bag.default: _embedding_bag,
    aten._embedding_bag_forward_only.default: _embedding_bag,
    aten.segment_reduce.default: _segment_reduce,
    aten.histc.default: _histc,
  }


# Reductions with a mask


def _neutral(reduce: str, dtype: torch.dtype) -> Any:
  """What a reduction may combine with any element without an effect."""
  import torch

  if reduce in ("sum", "mean"):
    return 0
  if reduce == "prod":
    return 1
  if dtype.is_floating_point:
    return -float("inf") if reduce == "amax" else float("inf")
  if dtype is torch.bool:
    return reduce == "amin"
  info = torch.iinfo(dtype)
  return info.min if reduce == "amax" else info.max


def _masked(values: torch.Tensor, mask: torch.Tensor, reduce: str) -> torch.Tensor:
  """The reduction of the elements of the last dimension whose mask is set; "mean" is the sum."""
  import torch

  values = torch.where(mask, values, _neutral(reduce, values.dtype))
  if reduce in ("sum", "mean"):
    return values.sum(-1, dtype=values.dtype)
  if reduce == "prod":
    return values.prod(-1, dtype=values.dtype)
  return values.amax(-1) if reduce == "amax" else values.amin(-1)


def _combined(
  x: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, reduce: str, include_self: bool
) -> torch.Tensor:
  """`x` with the reductions of `values`, which have one dimension more. Without `include_self` an
  element of `x` counts only if its mask is nowhere set."""
  import torch

  half = x.dtype in (torch.float16, torch.bfloat16)
  own = x.float() if half else x
  result = _masked(values.to(own.dtype), mask, reduce)
  count = mask.sum(-1)
  start = own if include_self else torch.full_like(own, _neutral(reduce, own.dtype))
  if reduce in ("sum", "mean"):
    result = start + result
  elif reduce == "prod":
    result = start * result
  else:
    result = (torch.maximum if reduce == "amax" else torch.minimum)(start, result)
  if reduce == "mean":
    count_with_self = (count + include_self).clamp(min=1)
    rounding = None if own.dtype.is_floating_point else "floor"
    result = torch.div(result, count_with_self, rounding_mode=rounding).to(own.dtype)
  if not include_self:
    result = torch.where(count > 0, result, own)
  return result.to(x.dtype)


def _reduced(
  x: torch.Tensor,
  dim: int,
  index: torch.Tensor,
  source: torch.Tensor,
  reduce: str,
  include_self: bool,
) -> torch.Tensor:
  """scatter_reduce. The index may be smaller than `x` in the other dimensions."""
  import torch

  dim = dim % x.dim() if x.dim() else 0
  if x.dim() == 0:
    x1, index1, source1 = (part.reshape(1) for part in (x, index, source))
    return _reduced(x1, 0, index1, source1, reduce, include_self).reshape(())
  part, smaller = x, []
  for d in range(x.dim()):
    source = source.narrow(d, 0, index.shape[d])
    if d != dim and not _is_same(x.shape[d], index.shape[d]):
      part = part.narrow(d, 0, index.shape[d])
      smaller.append(d)
  index, source = index.movedim(dim, -1).unsqueeze(-2), source.movedim(dim, -1).unsqueeze(-2)
  places = torch.arange(x.shape[dim], device=x.device).unsqueeze(-1)
  result = _combined(part.movedim(dim, -1), source, index == places, reduce, include_self)
  result = result.movedim(-1, dim)
  for d in reversed(smaller):
    # The rest of a dimension stays.
    rest = x
    for other in smaller:
      if other < d:
        rest = rest.narrow(other, 0, result.shape[other])
    rest = rest.narrow(d, result.shape[d], x.shape[d] - result.shape[d])
    result = torch.cat([result, rest], d)
  return result


def _is_same(one: Any, other: Any) -> bool:
  from torch.fx.experimental.symbolic_shapes import statically_known_true

  return statically_known_true(one == other)


# Scatter


def _sums_in_memory(dtype: torch.dtype) -> bool:
  """Whether Inductor adds to elements in memory."""
  import torch

  return dtype not in (torch.int64, torch.bool)


def _scatter(x: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor) -> Any:
  import torch

  if _sums_in_memory(src.dtype) or x.dim() == 0:
    return NotImplemented
  dim, src = dim % x.dim(), src.to(x.dtype)
  for d in range(x.dim()):
    src = src.narrow(d, 0, index.shape[d])
  indices: list[torch.Tensor | None] = [
    index if d == dim else along(torch.arange(index.shape[d], device=x.device), d, x.dim())
    for d in range(x.dim())
  ]
  return torch.ops.aten.index_put.default(x, indices, src)


def _wide(dtype: torch.dtype) -> torch.dtype | None:
  """The dtype in which a kernel adds to elements in memory, if it cannot add in their own: Triton
  has no atomic sums of small ints."""
  import torch

  return torch.int32 if dtype in (torch.int8, torch.uint8, torch.int16) else None


def _scatter_add(x: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor) -> Any:
  import torch

  if wide := _wide(x.dtype):
    add = torch.ops.aten.scatter_add.default
    return add(x.to(wide), dim, index, src.to(wide)).to(x.dtype)
  if _sums_in_memory(x.dtype):
    return NotImplemented
  return _reduced(x, dim, index, src, "sum", True)


def _scatter_reduce(
  x: torch.Tensor,
  dim: int,
  index: torch.Tensor,
  src: torch.Tensor,
  reduce: str,
  *,
  include_self: bool = True,
) -> Any:
  import torch

  if reduce == "sum" and (wide := _wide(x.dtype)):
    op = torch.ops.aten.scatter_reduce.two
    sums = op(x.to(wide), dim, index, src.to(wide), reduce, include_self=include_self)
    return sums.to(x.dtype)
  if reduce == "sum" and _sums_in_memory(x.dtype):
    return NotImplemented
  return _reduced(x, dim, index, src, reduce, include_self)


def _scatter_with(
  x: torch.Tensor, dim: int, index: torch.Tensor, source: Any, *, reduce: str
) -> Any:
  """scatter with reduce="add" or "multiply"."""
  import torch

  if not isinstance(source, torch.Tensor):
    source = torch.full(index.shape, source, dtype=x.dtype, device=x.device)
  names = {"add": "sum", "multiply": "prod"}
  return torch.ops.aten.scatter_reduce.two(x, dim, index, source, names[reduce])


def _index_add(
  x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: float = 1
) -> Any:
  import torch

  if wide := _wide(x.dtype):
    return _index_add_in(wide, x, dim, index, source, alpha)
  if x.dtype is torch.bfloat16:
    return index_add_of_bf16(x, dim, index, source, alpha=alpha)
  if _sums_in_memory(x.dtype) or x.dim() == 0:
    return NotImplemented
  return _index_reduced(x, dim, index, source * alpha, "sum", True)


def index_add_of_bf16(
  x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: float = 1
) -> Any:
  """index_add in float32 for bfloat16, which Inductor leaves to a library."""
  import torch

  if x.dtype is not torch.bfloat16:
    return NotImplemented
  return _index_add_in(torch.float32, x, dim, index, source, alpha)


def _index_add_in(
  wide: torch.dtype,
  x: torch.Tensor,
  dim: int,
  index: torch.Tensor,
  source: torch.Tensor,
  alpha: float,
) -> torch.Tensor:
  import torch

  add = torch.ops.aten.index_add.default
  return add(x.to(wide), dim, index, source.to(wide), alpha=alpha).to(x.dtype)


def index_put_of_small_ints(
  x: torch.Tensor, indices: Any, values: torch.Tensor, accumulate: bool = False
) -> Any:
  """Sums by an index, added in wider ints; NotImplemented for others than small ints."""
  import torch

  wide = _wide(x.dtype) if accumulate else None
  if wide is None:
    return NotImplemented
  put = torch.ops.aten.index_put.default
  return put(x.to(wide), indices, values.to(wide), True).to(x.dtype)


def _index_reduce(
  x: torch.Tensor,
  dim: int,
  index: torch.Tensor,
  source: torch.Tensor,
  reduce: str,
  *,
  include_self: bool = True,
) -> Any:
  return _index_reduced(x, dim, index, source, reduce, include_self)


def _index_reduced(
  x: torch.Tensor,
  dim: int,
  index: torch.Tensor,
  source: torch.Tensor,
  reduce: str,
  include_self: bool,
) -> Any:
  if x.dim() == 0:
    one = _index_reduced(
      x.reshape(1), 0, index.reshape(-1), source.reshape(-1), reduce, include_self
    )
    return one if one is NotImplemented else one.reshape(())
  dim = dim % x.dim()
  index = index.reshape(-1) if index.dim() != 1 else index
  index = along(index, dim, x.dim()).expand(source.shape)
  return _reduced(x, dim, index, source, reduce, include_self)


# Segments


def _embedding_bag(
  weight: torch.Tensor,
  indices: torch.Tensor,
  offsets: torch.Tensor,
  scale_grad_by_freq: bool = False,
  mode: int = 0,
  sparse: bool = False,
  per_sample_weights: torch.Tensor | None = None,
  include_last_offset: bool = False,
  padding_idx: int = -1,
) -> Any:
  """Mode 0 is the sum of a bag, 1 its mean, 2 its largest elements."""
  import torch

  starts = offsets[:-1] if include_last_offset else offsets
  at = torch.arange(indices.shape[0], device=weight.device, dtype=offsets.dtype)
  bag = torch.searchsorted(starts.contiguous(), at, right=True) - 1
  used = torch.ones_like(bag, dtype=torch.bool) if padding_idx < 0 else indices != padding_idx
  bags = torch.arange(starts.shape[0], device=weight.device).unsqueeze(-1)
  members = (bag == bags) & used
  sizes = members.sum(-1)
  rows = weight[indices]
  half = weight.dtype in (torch.float16, torch.bfloat16)
  rows = rows.float() if half else rows
  if per_sample_weights is not None:
    rows = rows * per_sample_weights.unsqueeze(-1).to(rows.dtype)
  if mode == 2:
    result = _masked(rows.T, members.unsqueeze(1), "amax")
    result = torch.where(sizes.unsqueeze(-1) > 0, result, 0)
  else:
    result = _masked(rows.T, members.unsqueeze(1), "sum")
    if mode == 1:
      result = result / sizes.clamp(min=1).unsqueeze(-1)
  sizes = sizes.to(indices.dtype)
  return result.to(weight.dtype), bag.to(indices.dtype), sizes, torch.zeros_like(sizes)


def _segment_reduce(
  data: torch.Tensor,
  reduce: str,
  *,
  lengths: torch.Tensor | None = None,
  indices: torch.Tensor | None = None,
  offsets: torch.Tensor | None = None,
  axis: int = 0,
  unsafe: bool = False,
  initial: float | None = None,
) -> Any:
  import torch

  if indices is not None or axis != 0:
    return NotImplemented
  if lengths is not None:
    ends = lengths.cumsum(0)
    begins = ends - lengths
  elif offsets is not None:
    begins, ends = offsets[:-1], offsets[1:]
  else:
    return NotImplemented
  name = {"max": "amax", "min": "amin"}.get(reduce, reduce)
  at = torch.arange(data.shape[0], device=data.device)
  # Dimensions: segments, those of the data, the elements of a segment.
  members = (at >= begins.unsqueeze(-1)) & (at < ends.unsqueeze(-1))
  members = members.reshape(members.shape[0], *[1] * (data.dim() - 1), members.shape[1])
  values = data.movedim(0, -1).unsqueeze(0)
  counts = members.sum(-1)
  start = _neutral(name, data.dtype) if initial is None else initial
  shape = (members.shape[0], *data.shape[1:])
  own = torch.full(shape, start, dtype=data.dtype, device=data.device)
  if name != "mean":
    return _combined(own, values, members, name, True)
  total = _combined(own, values, members, "sum", True)
  nothing = float("nan") if initial is None else initial
  return torch.where(counts > 0, total / counts.clamp(min=1), nothing)


def _histc(x: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Any:
  import torch

  x = x.reshape(-1)
  if not x.dtype.is_floating_point:
    return NotImplemented
  low, high = (torch.full((), value, dtype=x.dtype, device=x.device) for value in (min, max))
  if min == max:
    low, high = x.amin(), x.amax()
    low, high = torch.where(low == high, low - 1, low), torch.where(low == high, high + 1, high)
  at = ((x - low) * bins / (high - low)).to(torch.int64).clamp(0, bins - 1)
  counts = ((x >= low) & (x <= high)).to(torch.float32)
  sums = torch.zeros(bins, dtype=torch.float32, device=x.device).scatter_add(0, at, counts)
  return sums.to(x.dtype)
