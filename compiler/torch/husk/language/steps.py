"""Where the tokens of a call belong, in caches with a row for each slot and in caches of pages."""

from __future__ import annotations

import torch

from ..attention import paged

PAGE = 64  # positions of a page; the caches of slots are read up to a multiple of so many, too


class Step:
  """Where the tokens of a call belong: their slots and positions (rows x tokens), the number of
  positions of the cache that they may see, the rows of a cache that the call reads, and the
  position of slots that take no part."""

  def __init__(self) -> None:
    self.slots = self.positions = torch.zeros(1, 1, dtype=torch.int64)
    self.span = 1
    self.first = 0
    self.rows = 1
    self.max_tokens = 1

  def rows_of(self, buffer: torch.Tensor) -> torch.Tensor:
    return buffer[self.first : self.first + self.rows]

  def see(self, span: int) -> None:
    """Sets how many positions of the cache the tokens may see, after `positions`."""
    torch._check(span <= self.max_tokens)
    self.span = span

  def places(self) -> tuple[torch.Tensor | None, ...]:
    """The index of a cache by which the tokens of the call are written."""
    return self.slots, None, self.positions

  def read(self, buffer: torch.Tensor) -> torch.Tensor:
    """The positions of a cache that the tokens of the call may see, with a row for each slot."""
    return self.rows_of(buffer)[:, :, : self.span]


class PagedStep(Step):
  """The same in caches of pages. `table` (int64[rows, n]) has the pages of the positions that the
  call may see."""

  def __init__(self) -> None:
    super().__init__()
    self.table = torch.zeros(1, 1, dtype=torch.int64)
    self._pages = self._offsets = self.table

  def see(self, table: torch.Tensor) -> None:  # type: ignore[override]
    """Sets the table; one of a single row may have one dimension."""
    self.table = table[None] if table.dim() == 1 else table
    torch._check(self.table.shape[0] == self.positions.shape[0])
    self.span = self.table.shape[1] * PAGE
    # Tokens beyond the table, which no token sees, go to page 0.
    self._pages = paged.operator()(self.positions, self.table, PAGE)
    self._offsets = self.positions % PAGE

  def places(self) -> tuple[torch.Tensor | None, ...]:
    return self._pages, None, self._offsets

  def read(self, buffer: torch.Tensor) -> torch.Tensor:
    return paged.read(buffer, self.table)
