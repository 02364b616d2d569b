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
    aten.select_scatter.default: functools.partial(_scattered, aten.select.int),
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
