"""What ranks send to each other: each send must have its receive on the other rank."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import exporter
from ..inductor import collectives, graphs

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

  from ..options import Options
  from ..program.objects import Classes


@dataclasses.dataclass(frozen=True)
class Transfer:
  """A send or a receive. `elements` is None if inputs decide the number."""

  sends: bool
  peer: int
  elements: int | None
  dtype: torch.dtype

  def __str__(self) -> str:
    elements = "some" if self.elements is None else self.elements
    dtype = str(self.dtype).removeprefix("torch.")
    return f"{'sends' if self.sends else 'receives'} {elements} elements of {dtype}"

  def fits(self, other: Transfer) -> bool:
    """Whether one is the send of the other one, as far as the export knows."""
    known = self.elements is not None and other.elements is not None
    are_equal = self.elements == other.elements or not known
    return self.sends != other.sends and self.dtype == other.dtype and are_equal


class Function(exporter.Function):
  """A function of a rank that keeps its transfers when it is traced: None if a branch or a loop has
  some, so that a run decides which ones there are."""

  transfers: list[Transfer] | None = None

  def exported(
    self, options: Options | None = None, classes: Classes | None = None
  ) -> ExportedProgram:
    program = super().exported(options, classes)
    self.transfers = _transfers(program)
    return program


def _transfers(program: ExportedProgram) -> list[Transfer] | None:
  send, receive = collectives.sent(), collectives.recv()
  found = [node for node in graphs.nodes(program) if node.target in (send, receive)]
  if any(node.graph is not program.graph for node in found):
    return None
  return [_transfer(node, node.target is send) for node in found]


def _transfer(node: torch.fx.Node, sends: bool) -> Transfer:
  arguments = graphs.arguments(node)
  tensor: Any = graphs.value(arguments["self"] if sends else node)
  known = all(isinstance(size, int) for size in tensor.shape)
  peer = arguments["to" if sends else "source"]
  return Transfer(sends, peer, math.prod(tensor.shape) if known else None, tensor.dtype)


def check(ranks: Sequence[list[Transfer] | None]) -> None:
  """Refuses programs of ranks of which one sends what the other one does not receive then."""
  for (rank, own), (peer, others) in itertools.combinations(enumerate(ranks), 2):
    if own is None or others is None:
      continue
    pairs = itertools.zip_longest(
      (one for one in own if one.peer == peer), (one for one in others if one.peer == rank)
    )
    for number, (one, other) in enumerate(pairs, 1):
      if one and other and one.fits(other):
        continue
      raise ValueError(
        f"call {number} of husk.parallel.send or recv between rank {rank} and rank {peer}: rank "
        f"{rank} {one or 'has none'}, and rank {peer} {other or 'has none'}. Each send must have "
        "its receive on the other rank, in one order, with equal dtypes and numbers of elements"
      )
