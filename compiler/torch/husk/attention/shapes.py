"""Sizes and strides of the tensors of attention as if they had rank 4: batches, heads, rows,
elements."""

from __future__ import annotations

from collections.abc import Iterable

import sympy

from ..launches.call import Size
from ..lower import nodes
from ..lower.nodes import IrNode


def shape_of_rank_4(node: IrNode) -> tuple[list[Size], list[Size]]:
  """The sizes and strides of a tensor, as if it had a batch and a head."""
  view = nodes.node_view(node)
  return to_rank_4(view.sizes, view.strides)


def to_rank_4(sizes: Iterable[Size], strides: Iterable[Size]) -> tuple[list[Size], list[Size]]:
  """Adds dimensions of size 1: rank 3 lacks the head, rank 2 the batch and the head."""
  sizes, strides = list(sizes), list(strides)
  added = {4: [], 3: [1], 2: [0, 0]}[len(sizes)]
  for dim in added:
    sizes.insert(dim, sympy.Integer(1))
    strides.insert(dim, sympy.Integer(0))
  return sizes, strides


def mask_of_rank_4(mask: IrNode, rank: int) -> tuple[list[Size], list[Size]]:
  """The sizes and strides of a mask, which is broadcast to the scores. `rank` is that of the
  query."""
  view = nodes.node_view(mask)
  missing = rank - len(view.sizes)
  return to_rank_4(
    [sympy.Integer(1)] * missing + list(view.sizes),
    [sympy.Integer(0)] * missing + list(view.strides),
  )
