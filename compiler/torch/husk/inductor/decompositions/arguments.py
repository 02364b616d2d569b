"""Sizes that must be equal. Eager mode checks them when an operator runs, but its fake tensors do
not, so that they are no guards of torch.export, and a kernel would write out of bounds."""

from __future__ import annotations

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
  }


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
