"""Other shapes of a tensor, and the nodes before and after them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch


def is_shape(node: torch.fx.Node) -> bool:
  """Whether a node has all elements of its first argument in the same order, as they are."""
  import torch

  aten = torch.ops.aten
  if is_cast(node):
    below: Any = node.args[0]
    return bool(below.meta["val"].dtype == node.meta["val"].dtype)
  if node.target is aten.select.int:
    below = node.args[0]
    return bool(below.meta["val"].numel() == node.meta["val"].numel())
  return node.target in (
    aten.reshape.default,
    aten.view.default,
    aten.flatten.using_ints,
    aten.squeeze.dim,
    aten.unsqueeze.default,
    aten.alias.default,
    aten.contiguous.default,
  )


def is_cast(node: torch.fx.Node) -> bool:
  """Whether a node has the elements of its first argument as those of a dtype, maybe the same."""
  import torch

  return node.target in (torch.ops.aten.to.dtype, torch.ops.aten._to_copy.default)


def rows_below(node: torch.fx.Node) -> torch.fx.Node:
  """What lies below other shapes of a tensor of the same rows: those whose last dimension has as
  many elements, but for one of size 1 behind it."""
  while is_shape(node):
    below: Any = node.args[0]
    if _row(below) != _row(node):
      break
    node = below
  return node


def _row(node: torch.fx.Node) -> Any:
  """The elements of a row."""
  shape = node.meta["val"].shape
  return shape[-2] if len(shape) > 1 and shape[-1] == 1 else shape[-1] if shape else 1


def only_user(node: torch.fx.Node) -> torch.fx.Node | None:
  """The only user of a node, if it is a call; assertions of its dtype are no users."""
  import torch

  assertion = torch.ops.aten._assert_tensor_metadata.default
  users = [user for user in node.users if user.target is not assertion]
  return users[0] if len(users) == 1 and users[0].op == "call_function" else None


def user_after(nodes: list[torch.fx.Node]) -> torch.fx.Node | None:
  """Appends other shapes of the last of `nodes` as long as it has one user, and returns the user
  after these."""
  user = only_user(nodes[-1])
  while user is not None and is_shape(user):
    nodes.append(user)
    user = only_user(user)
  return user
