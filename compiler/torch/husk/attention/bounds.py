"""Masks that say which keys a query sees by its position alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..inductor import graphs
from ..inductor.layouts import known_equal

if TYPE_CHECKING:
  import torch


def window(mask: torch.fx.Node, positions: torch.fx.Node, count: Any) -> int:
  """The number of keys that a query sees up to its position: 0 if it sees all of them, -1 if the
  mask is another one. `positions` is a number for each batch, and the mask has one for each batch
  and each of `count` keys."""
  shape = mask.meta["val"].shape
  rows = [*[1] * (4 - len(shape)), *shape]
  batches = positions.meta["val"].shape[0]
  if (
    not all(known_equal(size, 1) for size in rows[1:3])
    or not known_equal(rows[3], graphs.value(count))
    or not (known_equal(rows[0], 1) or known_equal(rows[0], batches))
  ):
    return -1
  bounds = list(_bounds(mask, source(positions)))
  windows = [bound for bound in bounds if bound]
  # Without an upper bound, keys after the position are seen too.
  if None in bounds or 0 not in bounds or len(windows) > 1:
    return -1
  return windows[0] if windows else 0


def _bounds(node: Any, positions: torch.fx.Node) -> list[int | None]:
  """What a mask says: 0 for the keys up to the position, a number for so many keys before its end,
  None for anything else. A mask that is true everywhere says nothing."""
  import torch

  aten = torch.ops.aten
  node = source(node)
  if node.target in (aten.bitwise_and.Tensor, aten.logical_and.default, aten.__and__.Tensor):
    return [bound for part in node.args[:2] for bound in _bounds(part, positions)]
  if node.target in (aten.new_ones.default, aten.ones.default):
    return []
  for target, other in (
    (aten.le.Tensor, aten.ge.Tensor),
    (aten.gt.Tensor, aten.lt.Tensor),
  ):
    if node.target in (target, other):
      keys, query = node.args[:2] if node.target is target else node.args[1::-1]
      if not _are_keys(keys):
        return [None]
      before = _before(query, positions)
      is_upper = target is aten.le.Tensor
      return [before if before is not None and (before == 0) == is_upper else None]
  return [None]


def source(node: Any) -> Any:
  """The node of ints or truth values of which another one is a view, or a sum with zero."""
  import torch

  aten = torch.ops.aten
  while isinstance(node, torch.fx.Node) and node.op == "call_function":
    if node.target in (
      aten.unsqueeze.default,
      aten.expand.default,
      aten.alias.default,
      aten.to.dtype,
      aten.to.dtype_layout,
      aten.to.device,
      aten._to_copy.default,
    ):
      before: Any = node.args[0]
      kinds = {each.meta["val"].dtype for each in (node, before)}
      if len(kinds) > 1 or not kinds <= {torch.bool, torch.int64}:
        return node
      node = before
    elif node.target is aten.add.Tensor and not node.kwargs:
      left, right = node.args
      if _is_zero(right):
        node = left
      elif _is_zero(left):
        node = right
      else:
        return node
    else:
      return node
  return node


def _is_zero(node: Any) -> bool:
  """Whether a number or a tensor is 0: `arange(1)` is."""
  import torch

  if not isinstance(node, torch.fx.Node):
    return isinstance(node, int) and node == 0
  aten = torch.ops.aten
  if node.target is aten.unsqueeze.default:
    return _is_zero(node.args[0])
  return node.target is aten.arange.default and node.args == (1,)


def _are_keys(node: Any) -> bool:
  """Whether a tensor is 0, 1 and so on along the last dimension alone."""
  import torch

  found = source(node)
  if not isinstance(found, torch.fx.Node) or found.target is not torch.ops.aten.arange.default:
    return False
  value = node.meta["val"]
  size = found.meta["val"].shape[0]
  return (
    len(found.args) == 1
    and known_equal(value.shape[-1], size)
    and all(known_equal(each, 1) for each in value.shape[:-1])
  )


def _before(node: Any, positions: torch.fx.Node) -> int | None:
  """How many positions before those of the queries a tensor is; None if it is something else."""
  import torch

  aten = torch.ops.aten
  found, distance = source(node), 0
  if isinstance(found, torch.fx.Node) and found.target is aten.sub.Tensor and not found.kwargs:
    left, right = found.args
    if not isinstance(right, int) or right <= 0:
      return None
    found, distance = source(left), right
  if found is not positions:
    return None
  value = graphs.value(node)
  sizes = value.shape if isinstance(value, torch.Tensor) else ()
  # The positions are along the first of four dimensions.
  others = sizes[1:] if len(sizes) == 4 else sizes
  return distance if all(known_equal(size, 1) for size in others) else None
