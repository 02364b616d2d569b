"""A call and the operations after it that one call of Husk's computes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .order import Order

if TYPE_CHECKING:
  import torch

  # Finds out whether a node, the only user of another one, can be a part of the call.
  Find = Callable[[torch.fx.Node, torch.fx.Node], "Part | None"]


@dataclasses.dataclass(frozen=True)
class Part:
  """An operation as a part of a call: what the call gets for it, and the nodes that it takes the
  place of."""

  value: Any
  nodes: list[torch.fx.Node]


class Chain:
  """A call and its parts. Each node but the last has the next one as its only user. No memory is
  written between the first and the last, so that the last one can read the operands of all.

  `finds` has the parts that the call may have, in the order in which it computes them, by names.
  `parts` has what the call gets for those that it has.
  """

  def __init__(self, call: torch.fx.Node, order: Order, finds: Mapping[str, Find]) -> None:
    self.nodes = [call]
    self.parts: dict[str, Any] = {}
    for name, find in finds.items():
      user = only_user(self.last)
      part = None if user is None else find(user, self.last)
      if part is None:
        continue
      if order.is_written_between(call, part.nodes[-1], self.nodes):
        return
      self.nodes += part.nodes
      self.parts[name] = part.value

  @property
  def last(self) -> torch.fx.Node:
    return self.nodes[-1]

  def become(self, operator: Any, args: tuple[Any, ...]) -> None:
    """Makes the last node the call. It stays, because the outputs of a program have the names of
    nodes."""
    self.last.target, self.last.args, self.last.kwargs = operator, args, {}
    for node in reversed(self.nodes[:-1]):
      node.graph.erase_node(node)


def only_user(node: torch.fx.Node) -> torch.fx.Node | None:
  """The only user of a node, if it is a call. An assertion is a user here, other than in
  `shapes.only_user`: a chain removes the node, which the assertion needs."""
  user = next(iter(node.users)) if len(node.users) == 1 else None
  return user if user is not None and user.op == "call_function" else None
