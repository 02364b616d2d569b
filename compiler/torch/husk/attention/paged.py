"""Caches of keys and values in pages: the operator `husk::pages_of`, which says where tokens are
written, and how a program reads such a cache.

A cache has pages x heads x positions of a page x elements. A table has the numbers of the pages of
each batch, in the order of its positions. A program writes the tokens of a call with `index_put_`
at (pages_of(positions, table, size), :, positions % size), and reads all positions of the table by
`index(cache, [table]).transpose(1, 2).flatten(2, 3)`. Attention reads the pages where they are
(`in_place`, and step.py for the kernel of a step on CUDA targets). Elsewhere that read is a
copy."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from ..inductor import graphs, own_operators
from .codes import between, writes

if TYPE_CHECKING:
  import torch


@functools.cache
def operator() -> Any:
  """husk::pages_of(positions, table, size): the pages (int64) of positions, batches x tokens. Page
  0, which is no batch's, stands for positions beyond the table (int64[batches, n])."""
  return own_operators.define(
    "pages_of",
    "Tensor positions, Tensor table, int size",
    lambda positions, table, size: positions.new_empty(positions.shape),
    decomposed=_pages_of,
    eager=_pages_of,
  )


def _pages_of(positions: torch.Tensor, table: torch.Tensor, size: int) -> torch.Tensor:
  import torch

  columns, count = positions // size, table.shape[1]
  rows = torch.arange(table.shape[0], device=table.device)[:, None]
  pages = torch.ops.aten.index(table, (rows, columns.clamp(max=count - 1)))
  return torch.where(columns < count, pages, 0)


def read(cache: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
  """The positions of a table, batches x heads x positions (x elements)."""
  import torch

  pages: torch.Tensor = torch.ops.aten.index(cache, (table,))
  return pages.transpose(1, 2).flatten(2, 3)


def in_place(
  call: torch.fx.Node, arguments: dict[str, Any], multiple: int
) -> dict[str, torch.fx.Node]:
  """What a call of attention takes instead of keys and values, and their scales, that it reads by
  one table: the caches, and `table`. It is empty if they are something else, or if the positions of
  a page are not a multiple of `multiple`. The arguments of the call are not changed."""
  names = [name for name in ("key", "value", "key_scales", "value_scales") if arguments[name]]
  reads = {name: read_of(_unconverted(arguments[name])) for name in names}
  found: dict[str, torch.fx.Node] = {}
  indices: list[torch.fx.Node] = []
  for name, read in reads.items():
    if read is None:
      return {}
    nodes, table = read
    if found.setdefault("table", table) is not table:
      return {}
    indices.append(nodes[-1])
    found[name] = nodes[-1].args[0]  # type: ignore[assignment]
  table_value, size = found["table"].meta["val"], found["key"].meta["val"].shape[2]
  if not isinstance(size, int) or size % multiple:
    return {}
  if arguments["causal"] or str(table_value.dtype) != "torch.int64" or table_value.dim() != 2:
    return {}
  # The program may write the caches, of which it has made a copy that attention would not read.
  return {} if any(map(writes, between(indices, call))) else found


def _unconverted(node: torch.fx.Node) -> torch.fx.Node:
  """A node without conversions to its own type."""
  import torch

  aten = torch.ops.aten
  while node.target in (aten.to.dtype, aten.to.dtype_layout, aten._to_copy.default):
    before: Any = node.args[0]
    if before.meta["val"].dtype != node.meta["val"].dtype:
      break
    node = before
  return node


@dataclasses.dataclass(frozen=True)
class Place:
  """Where a node of a program writes tokens: at `positions` of the pages of a table."""

  positions: torch.fx.Node
  table: torch.fx.Node
  size: int


def read_of(node: torch.fx.Node) -> tuple[list[torch.fx.Node], torch.fx.Node] | None:
  """The nodes of a `read` that ends with a node, and its table."""
  import torch

  aten = torch.ops.aten
  if node.target is not aten.flatten.using_ints or tuple(node.args[1:]) != (2, 3):
    return None
  turned: Any = node.args[0]
  if turned.target is not aten.transpose.int or tuple(turned.args[1:]) != (1, 2):
    return None
  index: Any = turned.args[0]
  if index.target is not aten.index.Tensor or len(index.args[1]) != 1:
    return None
  return [node, turned, index], index.args[1][0]


def place_of(pages: Any, offsets: Any) -> Place | None:
  """Where an index of pages and one of offsets point to."""
  import torch

  if not isinstance(pages, torch.fx.Node) or pages.target is not operator():
    return None
  positions, table, size = graphs.arguments(pages).values()
  if offsets.target is not torch.ops.aten.remainder.Scalar:
    return None
  return Place(positions, table, size) if offsets.args == (positions, size) else None
