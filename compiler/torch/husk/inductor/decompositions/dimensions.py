"""Dimensions of tensors, without a question about their sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
  import torch


def along(values: torch.Tensor, dim: int, rank: int) -> torch.Tensor:
  """A vector as the dimension `dim` of a tensor with `rank` dimensions. A reshape to -1 would ask
  torch whether the vector is empty."""
  return values[tuple(slice(None) if d == dim else None for d in range(rank))]
