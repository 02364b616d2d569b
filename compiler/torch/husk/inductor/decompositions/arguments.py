"""Sizes that must be equal. Eager mode checks them when an operator runs, but its fake tensors do
not, so that they are no guards of torch.export, and a kernel would write out of bounds."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch


def checks() -> dict[Any, Callable[..., None]]:
  """Functions by operator that check its arguments, which they have in common with it."""
  import torch

  aten = torch.ops.aten
  return {
    aten.index_add.default: _indexed,
    aten.index_copy.default: _indexed,
    aten.index_reduce.default: _indexed,
    aten.index_put.default: _put,
    aten._unsafe_index_put.default: _put,
    aten.ormqr.default: _reflected,
    aten.segment_reduce.default: _segments,
    aten.select_scatter.default: functools.partial(_scattered, aten.select.int),
    aten.slice_scatter.default: _slice_scattered,
    aten.as_strided_scatter.default: functools.partial(_scattered, aten.as_strided.default),
  }


def _scattered(
  view: Callable[..., torch.Tensor],
  x: torch.Tensor,
  source: torch.Tensor,
  *place: Any,
  **named: Any,
) -> None:
  """The source has the sizes of the view in whose place it comes."""
  import torch

  for size, wanted in zip(source.shape, view(x, *place, **named).shape):
    torch._check(size == wanted)


def _slice_scattered(
  x: torch.Tensor,
  source: torch.Tensor,
  dim: int = 0,
  start: Any = None,
  end: Any = None,
  step: Any = 1,
) -> None:
  """The source has the sizes of the slice in whose place it comes. No size is asked for: an end
  behind the tensor would pin it."""
  import torch
  from torch.fx.experimental.symbolic_shapes import statically_known_true as known

  dim = dim % x.dim()
  size = x.shape[dim]
  bounds = []
  for bound, otherwise in ((start, 0), (end, size)):
    if bound is None:
      bound = otherwise
    elif known(bound < 0):
      bound = torch.sym_max(bound + size, 0)
    elif not known(bound >= 0):  # only a run knows from which end it is counted
      bound = None
    bounds.append(None if bound is None else torch.sym_min(bound, size))
  for d in range(x.dim()):
    wanted: Any = x.shape[d]
    if d == dim:
      first, last = bounds
      if first is None or last is None:
        continue
      wanted = torch.sym_max(last - first + step - 1, 0) // step
    torch._check(source.shape[d] == wanted)


def _reflected(
  x: torch.Tensor, tau: torch.Tensor, other: torch.Tensor, left: bool = True, *_: Any, **__: Any
) -> None:
  """There are as many factors as reflectors."""
  import torch

  length = other.shape[-2 if left else -1]
  torch._check(tau.shape[-1] == torch.sym_min(length, x.shape[-1]))


def _segments(
  data: torch.Tensor,
  reduce: str,
  *,
  lengths: torch.Tensor | None = None,
  axis: int = 0,
  unsafe: bool = False,
  **_: Any,
) -> None:
  """Lengths of segments are those of all the data, as the model asks with `unsafe=False`."""
  import torch

  if lengths is None or unsafe:
    return
  sums = lengths.sum(-1) == data.shape[axis]
  for fact, text in (
    ((lengths >= 0).all(), "a length of a segment is negative"),
    (sums.all(), "the lengths of segments do not add up to the size of the data"),
  ):
    torch.ops.aten._assert_async.msg(fact, f"segment_reduce: {text}")


def _put(x: torch.Tensor, indices: Any, values: torch.Tensor, *_: Any, **__: Any) -> None:
  """The values have the sizes of the elements that the indices choose, or are repeated."""
  import torch

  if any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices):
    return  # only the data decides how many elements these choose
  chosen = torch.ops.aten.index.Tensor(x, indices).shape
  for size, wanted in zip(reversed(values.shape), reversed(chosen)):
    if not (isinstance(size, int) and size == 1):
      torch._check(size == wanted)


def _indexed(
  x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *_: Any, **__: Any
) -> None:
  """The source has a slice for each index, of the sizes of the tensor's slices."""
  import torch

  if x.dim() == 0 or source.dim() != x.dim():
    return
  for d in range(x.dim()):
    size = index.numel() if d == dim % x.dim() else x.shape[d]
    torch._check(source.shape[d] == size)
