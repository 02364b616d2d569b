"""Masks that say which keys a query sees by its position alone."""

from __future__ import annotations

import itertools
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


def first_position(mask: torch.fx.Node, queries: Any, keys: Any) -> Any:
  """The position of the first query, a number or its node, if a mask says that query i sees the
  keys up to i positions after it; else None. The mask is that of all batches and heads."""
  import torch

  aten = torch.ops.aten
  shape = [*[1] * (4 - len(mask.meta["val"].shape)), *mask.meta["val"].shape]
  if not all(map(known_equal, shape, (1, 1, queries, keys))):
    return None
  node = source(mask)
  if not isinstance(node, torch.fx.Node) or node.target not in (aten.le.Tensor, aten.ge.Tensor):
    return None
  of_keys, of_queries = node.args if node.target is aten.le.Tensor else node.args[::-1]
  if not _are_keys(of_keys) or not isinstance(of_queries, torch.fx.Node):
    return None
  sizes = of_queries.meta["val"].shape
  if len(sizes) < 2 or not known_equal(sizes[-1], 1) or not known_equal(sizes[-2], queries):
    return None
  return _start(source(of_queries), queries)


def _start(node: Any, count: Any) -> Any:
  """The first of `count` numbers that follow one another along a dimension, as a number or its
  node; None if a tensor is something else."""
  import torch

  aten = torch.ops.aten
  if not isinstance(node, torch.fx.Node):
    return None
  if node.target is aten.arange.default and len(node.args) == 1:
    return 0 if known_equal(node.meta["val"].shape[0], count) else None
  if node.target is not aten.add.Tensor or node.kwargs:
    return None
  for numbers, start in (node.args, node.args[::-1]):
    if _start(source(numbers), count) == 0:
      return _number(start)
  return None


def _number(node: Any) -> Any:
  """The number that is a node of a number, or the only element of a tensor: the first one of
  numbers that follow one another."""
  import torch

  aten = torch.ops.aten
  if not isinstance(node, torch.fx.Node):
    return node if isinstance(node, int) else None
  if isinstance(node.meta["val"], (int, torch.SymInt)):
    return node
  node = source(node)
  if node.target is not aten.slice.Tensor or node.args[2:] != (0, 1) or node.kwargs:
    return None
  rows: Any = node.args[0]
  size = rows.meta["val"].shape[node.args[1]]
  return _start(source(rows), size) if known_equal(rows.meta["val"].numel(), size) else None


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
  """The node of ints or truth values of which another one is a view of all elements, or a sum with
  zero."""
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
    elif node.target is aten.slice.Tensor and _is_whole(node):
      node = node.args[0]
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


def _is_whole(part: torch.fx.Node) -> bool:
  """Whether a slice has all elements of its tensor."""
  tensor, *others = list[Any](part.args)
  sizes = zip(part.meta["val"].shape, tensor.meta["val"].shape, strict=True)
  return len(others) < 4 and all(itertools.starmap(known_equal, sizes))


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
