"""The order and the extent of a tensor's dimensions in memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch


def known_equal(left: Any, right: Any) -> bool:
  """Whether two sizes, ints or torch.SymInts, are known to be equal. The comparison adds no
  guard."""
  if isinstance(left, int) and isinstance(right, int):
    return left == right
  if isinstance(left, int) or isinstance(right, int):
    return False
  return left.node.expr == right.node.expr


def dense_strides(size: Sequence[Any], order: Sequence[int]) -> list[Any]:
  """The strides of a dense tensor. `order` lists its dimensions, the innermost last."""
  strides: list[Any] = [None] * len(size)
  dense: Any = 1
  for dim in reversed(order):
    strides[dim] = dense
    dense = dense * size[dim]
  return strides


def span(sizes: Sequence[int], strides: Sequence[int]) -> int:
  """The number of elements from the first to the last element of a tensor; 0 if it has none."""
  if 0 in sizes:
    return 0
  return 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides))


def order_in_memory(tensor: torch.Tensor) -> list[int]:
  """The dimensions of a (fake) tensor from the outermost to the innermost in memory. The last
  dimension is the innermost. A tensor that is not dense has the natural order."""
  last = tensor.dim() - 1
  if last < 0:
    return []
  for outer in itertools.permutations(range(last)):
    order = [*outer, last]
    if all(map(known_equal, tensor.stride(), dense_strides(tensor.shape, order))):
      return order
  return list(range(last + 1))
