"""Operators whose results depend on where the elements of a tensor lie in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..layouts import dense_strides, known_equal, order_in_memory

if TYPE_CHECKING:
  import torch


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions by operator, for all targets."""
  import torch

  aten = torch.ops.aten
  return {
    aten.as_strided_copy.default: _as_strided_copy,
    aten.index_fill.int_Scalar: _index_fill,
    aten.index_fill.int_Tensor: _index_fill,
  }


def _as_strided_copy(
  x: torch.Tensor, size: Any, stride: Any, storage_offset: Any = None
) -> torch.Tensor:
  return x.as_strided(size, stride, storage_offset).clone()


def _index_fill(x: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> Any:
  """The elements in the order of the memory, filled, and back in their own order. The decomposition
  of Inductor writes into a tensor if the order is another one, which Inductor refuses."""
  import torch

  # A dimension of one element may have any stride, also of a contiguous tensor.
  if all(map(known_equal, x.stride(), dense_strides(x.shape, range(x.dim())))):
    return NotImplemented
  strides = x.stride()
  order = order_in_memory(x)
  if all(isinstance(stride, int) for stride in strides):
    order = sorted(order, key=lambda d: -strides[d])
  contiguous_copy = x.permute(order).clone(memory_format=torch.contiguous_format)
  filled = torch.index_fill(contiguous_copy, order.index(dim % x.dim()), index, value)
  return filled.permute([order.index(d) for d in range(x.dim())])
