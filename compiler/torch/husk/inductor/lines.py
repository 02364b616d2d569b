"""The lines that Husk adds to those of Inductor's wrapper."""

from __future__ import annotations

import dataclasses
from typing import Any

# A node, a graph or a line of torch._inductor. The classes and their attributes differ between the
# versions of torch, so a type checker learns nothing from their names.
InductorObject = Any


@dataclasses.dataclass
class ZeroLine:
  """A workspace is filled with zeros."""

  name: str


@dataclasses.dataclass
class NodeLine:
  """A node of Inductor's IR that Inductor would write as a string. The class of the node tells its
  kind."""

  node: InductorObject


@dataclasses.dataclass
class Captured:
  """A subgraph and its lines."""

  graph: InductorObject
  lines: list[InductorObject]


@dataclasses.dataclass
class BranchLine:
  """A cond or a switch. `selector` is the index of the branch that runs; an index that is too large
  selects the last branch."""

  node: InductorObject
  selector: InductorObject
  branches: list[Captured]


@dataclasses.dataclass
class LoopLine:
  """A while_loop: `body` runs as long as `cond` yields true."""

  node: InductorObject
  cond: Captured
  body: Captured


@dataclasses.dataclass
class CallLine:
  """A call of a subgraph. The lines of the subgraph are written in place of the call."""

  node: InductorObject
  body: Captured
