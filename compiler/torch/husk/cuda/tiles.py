"""The tiles of products of matrices."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Tiles:
  """The tile of a block, m x n, of which a step multiplies k columns and rows."""

  m: int
  n: int
  k: int
  stages: int
  warps: int
