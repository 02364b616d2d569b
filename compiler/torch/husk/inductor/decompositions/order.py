"""Sorting of rows of any length, and what follows from it: topk, kthvalue, median, mode.

Inductor sorts rows of up to 512 elements in one kernel. A longer row is cut into runs of 512. The
place of an element in several sorted runs is the sum of its places in each of them, which a binary
search finds. Rows whose length is known are merged by sixteen runs at a time. If the length varies,
all runs are merged at once, which takes memory for an int of each element and run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch

# Elements that Inductor sorts in a kernel, and sorted runs that are merged at a time.
_RUN = 512
_MERGED = 16
# Memory for places of elements in other runs.
_MOST_BYTES = 1 << 28


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions by operator."""
  import torch

  aten = torch.ops.aten
  return {
    aten.sort.default: _sort,
    aten.sort.stable: _sort_stable,
    aten.topk.default: _topk,
    aten.kthvalue.default: _kthvalue,
    aten.median.default: lambda x: _median_of_all(x, False),
    aten.median.dim: lambda x, dim, keepdim=False: _median(x, dim, keepdim, False),
    aten.nanmedian.default: lambda x: _median_of_all(x, True),
    aten.nanmedian.dim: lambda x, dim, keepdim=False: _median(x, dim, keepdim, True),
    aten.mode.default: _mode,
    aten.searchsorted.Tensor: _searchsorted,
    aten.searchsorted.Scalar: _searchsorted,
    aten.bucketize.Tensor: lambda x, edges, **options: _searchsorted(edges, x, **options),
    aten.bucketize.Scalar: lambda x, edges, **options: _searchsorted(edges, x, **options),
  }


def _searchsorted(
  keys: torch.Tensor, values: Any, *, out_int32: bool = False, **options: Any
) -> Any:
  """A search among no elements, which Triton does not compile, finds the first place. Keys that a
  `sorter` sorts are gathered first: Inductor's kernel reads the sorter behind its end if its rows
  are closer to one another than those of the keys."""
  import torch

  if isinstance(keys.shape[-1], int) and keys.shape[-1] == 0:
    shape = values.shape if isinstance(values, torch.Tensor) else ()
    return keys.new_zeros(shape, dtype=torch.int32 if out_int32 else torch.int64)
  sorter = options.pop("sorter", None)
  if sorter is None and isinstance(values, torch.Tensor):
    return NotImplemented
  if sorter is not None:
    keys = keys.gather(-1, sorter)
  if not isinstance(values, torch.Tensor):
    dtype = torch.result_type(keys, values)
    keys, values = keys.to(dtype), torch.full((), values, dtype=dtype, device=keys.device)
  return torch.searchsorted(keys, values, out_int32=out_int32, **options)


def _sort(x: torch.Tensor, dim: int = -1, descending: bool = False) -> Any:
  return _sort_stable(x, stable=False, dim=dim, descending=descending)


def _sort_stable(
  x: torch.Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> Any:
  if x.dim() == 0 or _is_short(x, dim):
    return NotImplemented
  order = _order(x.movedim(dim, -1), descending).movedim(-1, dim)
  return x.gather(dim, order), order


def _is_short(x: torch.Tensor, dim: int) -> bool:
  """Whether Inductor sorts a dimension itself."""
  size = x.shape[dim]
  return isinstance(size, int) and size <= _RUN and not x.is_complex()


def _sorted(x: torch.Tensor, dim: int, descending: bool) -> tuple[torch.Tensor, torch.Tensor]:
  """The elements in order, and their places in `x`."""
  import torch

  return torch.ops.aten.sort.stable(x, stable=True, dim=dim, descending=descending)


def _order(x: torch.Tensor, descending: bool) -> torch.Tensor:
  """The places of the elements of the last dimension in ascending or descending order. Equal
  elements keep their order, NaN is larger than all numbers."""
  keys, places, runs = _sorted_runs(sort_keys(x, descending))
  while not (isinstance(runs, int) and runs == 1):
    merged = _runs_to_merge(keys) if isinstance(runs, int) else runs
    groups = (runs + merged - 1) // merged if isinstance(runs, int) else 1
    length = keys.shape[-1]
    keys = _grouped(keys, groups, merged, _largest(keys))
    places = _grouped(places, groups, merged, 0)
    keys, places = (part.reshape(-1, groups, merged * length) for part in _merge(keys, places))
    runs = groups
  return places.reshape(*x.shape[:-1], -1)[..., : x.shape[-1]].long()


def sort_keys(x: torch.Tensor, descending: bool) -> torch.Tensor:
  """Signed ints that are in the order in which the elements of `x` are sorted."""
  import torch

  widened = {
    torch.bool: torch.int8,
    torch.uint8: torch.int16,
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
  }
  keys = x.to(widened.get(x.dtype, x.dtype))
  if x.dtype.is_floating_point:
    number = x if x.dtype.itemsize > 1 else x.to(torch.float16)
    ints = {2: torch.int16, 4: torch.int32, 8: torch.int64}[number.dtype.itemsize]
    # The bits of a negative number grow with its absolute value.
    bits, largest = number.view(ints), torch.iinfo(ints).max
    keys = torch.where(bits < 0, bits ^ largest, bits)
    keys = torch.where(number == 0, torch.zeros_like(keys), keys)
    keys = torch.where(number.isnan(), torch.full_like(keys, largest), keys)
  return ~keys if descending else keys


def _largest(keys: torch.Tensor) -> int:
  import torch

  return torch.iinfo(keys.dtype).max


def _sorted_runs(keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, Any]:
  """Sorted runs of the last dimension, of dimensions rows, runs, elements; the places that their
  elements had; and the number of runs. What fills the last run comes behind all elements: its keys
  are largest, and its places are last."""
  import torch

  size = keys.shape[-1]
  # A number of runs that varies is never one, since torch.export tells one from other numbers.
  runs = (size + _RUN - 1) // _RUN if isinstance(size, int) else size // _RUN + 2
  keys = _filled(keys, -1, runs * _RUN, _largest(keys)).reshape(-1, runs, _RUN)
  keys, places = _sorted(keys, -1, False)
  offsets = torch.arange(runs, device=keys.device, dtype=torch.int32).unsqueeze(-1) * _RUN
  return keys, places.to(torch.int32) + offsets, runs


def _filled(x: torch.Tensor, dim: int, size: Any, value: int) -> torch.Tensor:
  """A tensor with `value` behind the elements of a dimension, up to a size."""
  import torch

  after = x.dim() - 1 - (dim % x.dim())
  pads = [0, 0] * after + [0, size - x.shape[dim]]
  return torch.ops.aten.constant_pad_nd(x, pads, value)


def _grouped(x: torch.Tensor, groups: Any, merged: Any, value: int) -> torch.Tensor:
  """Runs in groups of `merged` runs, of dimensions groups of all rows, runs, elements. Runs that
  are missing have the elements `value`."""
  import torch

  rows, runs, length = x.shape
  if not isinstance(runs, int) or runs == groups * merged:
    return x.reshape(-1, merged, length)
  # Inductor cannot search in a view of what it has not computed yet, as a padded tensor is.
  group = torch.arange(rows * groups, device=x.device).unsqueeze(-1)
  run = group % groups * merged + torch.arange(merged, device=x.device)
  mask = (run < runs).unsqueeze(-1).expand(-1, -1, length)
  return torch.ops.aten._unsafe_masked_index(x, mask, [group // groups, run], value)


def _runs_to_merge(keys: torch.Tensor) -> int:
  """How many runs are merged at a time, so that the ints of all elements and runs fit in memory. If
  the number of rows varies, they fit for the largest one, or, where that has no bound, for the rows
  that the program then runs with."""
  count, merged = _largest_size(keys.numel()), _MERGED
  while merged > 2 and not (count * merged * 8 <= _MOST_BYTES):
    merged //= 2
  return min(merged, int(keys.shape[1]))


def _largest_size(size: Any) -> Any:
  """The largest value of a size, or the size itself if it has no bound."""
  import torch

  if not isinstance(size, torch.SymInt):
    return size
  upper: Any = size.node.shape_env.bound_sympy(size.node.expr).upper
  return int(upper) if upper.is_Integer else size


def _merge(keys: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
  """Merges the runs of each row; `keys` and `places` have the dimensions rows, runs, elements."""
  import torch

  runs, length = keys.shape[1:]
  flat = keys.reshape(keys.shape[0], -1)
  elements = torch.arange(runs * length, device=keys.device)
  own, at = elements // length, elements % length
  other = torch.arange(runs, device=keys.device).unsqueeze(-1)
  # An element is not searched in its own run. This condition gives the values the dimension of the
  # runs, over which Inductor's kernel reduces: Triton does not compile a search without it.
  values = torch.where(other == own, 0, flat.unsqueeze(1)).contiguous()
  keys = keys.contiguous()
  # Equal elements of earlier runs come before an element, those of later runs behind it.
  before, through = (
    torch.searchsorted(keys, values, right=right, out_int32=True) for right in (False, True)
  )
  counts = torch.where(other < own, through, before)
  ranks = torch.where(other == own, at, counts).sum(1)
  return _put(flat, ranks), _put(places.reshape(flat.shape), ranks)


def _put(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
  """The elements of each row at other places, each of which occurs once. Inductor has no kernel for
  a scatter of 64-bit ints."""
  import torch

  row = torch.arange(x.shape[0], device=x.device).unsqueeze(-1)
  return torch.ops.aten._unsafe_index_put(torch.zeros_like(x), [row, places], x)


# Selections


def _topk(x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
  import torch

  if x.dim() == 0:
    return x.clone(), torch.zeros_like(x, dtype=torch.int64)
  if isinstance(k, int) and isinstance(x.shape[dim], int) and k <= _RUN // 2:
    places = _whole(_first(x.movedim(dim, -1), k, largest).movedim(-1, dim))
    return x.gather(dim, places), places
  values, places = _sorted(x, dim, largest)
  return _whole(values.narrow(dim, 0, k)), _whole(places.narrow(dim, 0, k))


def _whole(part: torch.Tensor) -> torch.Tensor:
  """A tensor that is no part of a larger one, as results are in eager mode: a program may have
  views of it. To ask whether it is contiguous would add guards."""
  import torch

  return part.clone(memory_format=torch.contiguous_format)


def _first(x: torch.Tensor, k: int, descending: bool) -> torch.Tensor:
  """The places of the first `k` elements in order. The first elements of each run are candidates,
  which are again cut into runs."""
  import torch

  if x.shape[-1] <= _RUN:
    return _sorted(x, -1, descending)[1].narrow(-1, 0, k)
  keys, origin = sort_keys(x, descending), None
  while keys.shape[-1] > _RUN:
    sorted_keys, places, runs = _sorted_runs(keys)
    rows = keys.shape[:-1]
    keys = sorted_keys[..., :k].reshape(*rows, runs * k)
    places = places[..., :k].reshape(*rows, runs * k).long()
    if origin is not None:
      # What fills the last run has no place.
      origin = origin.gather(-1, places.clamp(max=origin.shape[-1] - 1))
    else:
      origin = places
  order = _sorted(keys, -1, False)[1].narrow(-1, 0, k)
  assert origin is not None
  return torch.gather(origin, -1, order)


def _kthvalue(x: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
  import torch

  if x.dim() == 0:
    return x.clone(), torch.zeros_like(x, dtype=torch.int64)
  values, places = _sorted(x, dim, False)
  values, places = (part.narrow(dim, k - 1, 1) for part in (values, places))
  return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


def _median_of_all(x: torch.Tensor, ignores_nan: bool) -> Any:
  return _median(x.reshape(-1), 0, False, ignores_nan)[0]


def _median(x: torch.Tensor, dim: int, keepdim: bool, ignores_nan: bool) -> Any:
  """The median is the lower one of two. NaN is the median if there is one, or is ignored."""
  import torch

  if x.dim() == 0:
    return x.clone(), torch.zeros_like(x, dtype=torch.int64)
  values, order = _sorted(x, dim, False)
  size = x.shape[dim]
  numbers = size - _is_nan(x).sum(dim, keepdim=True)  # without the NaNs, which are last
  if ignores_nan:
    at = ((numbers - 1) // 2).clamp(min=0)
  else:
    at = torch.where(numbers < size, numbers, (size - 1) // 2)
  values, order = values.gather(dim, at), order.gather(dim, at)
  return (values, order) if keepdim else (values.squeeze(dim), order.squeeze(dim))


def _is_nan(x: torch.Tensor) -> torch.Tensor:
  return x != x


def _mode(x: torch.Tensor, dim: int = -1, keepdim: bool = False) -> Any:
  """The smallest of the most frequent elements, and the place of the last one that is equal."""
  import torch

  if x.dim() == 0:
    return x.clone(), torch.zeros_like(x, dtype=torch.int64)
  values, order = (part.movedim(dim, -1) for part in _sorted(x, dim, False))
  keys = sort_keys(values, False).contiguous()
  begin, end = (torch.searchsorted(keys, keys, right=right) for right in (False, True))
  counts = torch.where(_is_nan(values), 1, end - begin)  # NaN equals nothing
  most = end.gather(-1, counts.argmax(-1, keepdim=True)) - 1
  values, order = (part.gather(-1, most).movedim(-1, dim) for part in (values, order))
  return (values, order) if keepdim else (values.squeeze(dim), order.squeeze(dim))
