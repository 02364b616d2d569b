"""Whether memory may be written between two nodes of a graph."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from ..inductor import writes

if TYPE_CHECKING:
  import torch


class Order:
  """The nodes of a graph in their order, as they were when the object was created."""

  def __init__(self, graph: torch.fx.Graph) -> None:
    self._places = {node: place for place, node in enumerate(graph.nodes)}
    self._writers = [node for node in self._places if writes.may_write(node)]

  def are_before(self, nodes: Iterable[torch.fx.Node], place: torch.fx.Node) -> bool:
    """Whether all `nodes` stand before another one."""
    return all(self._places[node] < self._places[place] for node in nodes)

  def is_written_between(
    self, first: torch.fx.Node, last: torch.fx.Node, besides: Container[torch.fx.Node] = ()
  ) -> bool:
    """Whether a node between two others may write memory; nodes of `besides` do not count. If so,
    the operands of `first` cannot be read where `last` stands."""
    begin, end = self._places[first], self._places[last]
    return any(begin < self._places[node] < end and node not in besides for node in self._writers)
