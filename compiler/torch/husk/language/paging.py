"""`PagedDecoder`: a language model whose keys and values are in pages. A page has those of PAGE
positions of one sequence, or of several that begin alike. The functions take tables, which say
which pages a sequence has, so that memory follows the tokens that are there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..attention import paged
from ..errors import Unsupported
from ..exporter import Function
from . import decoder

PAGE = 64  # positions; the caches of slots are read up to a multiple of so many, too


def least(max_tokens: int, slots: int) -> int:
  """The fewest pages that a file may have: those of one sequence of `max_tokens` tokens."""
  return max(-(-max_tokens // PAGE), min(slots, 2))


class PagedStep(decoder.Step):
  """Where the tokens of a call belong. `table` (int64[rows, n]) has the pages of the positions that
  the call may see."""

  def __init__(self) -> None:
    super().__init__()
    self.table = torch.zeros(1, 1, dtype=torch.int64)
    self._pages = self._offsets = self.table

  def take(self, positions: torch.Tensor, table: torch.Tensor) -> None:
    """Begins a call with tokens at `positions` (rows x tokens)."""
    self.positions, self.table = positions, table
    # Tokens beyond the table, which no token sees, go to page 0.
    self._pages = paged.operator()(positions, table, PAGE)
    self._offsets = positions % PAGE
    self.span = table.shape[1] * PAGE

  def places(self) -> tuple[torch.Tensor | None, ...]:
    return self._pages, None, self._offsets

  def read(self, buffer: torch.Tensor) -> torch.Tensor:
    return paged.read(buffer, self.table)


class PagedDecoder(decoder.Decoder):
  """A decoder whose functions take tables of pages instead of numbers of slots.

  The caches have a row for each of `pages` pages, and page 0 besides, which belongs to no sequence:
  tokens that no token sees are written there."""

  def __init__(
    self, model: Any, slots: int, max_tokens: int, dtype: torch.dtype | None, pages: int
  ) -> None:
    super().__init__(model, slots, max_tokens, dtype, (pages + 1, PAGE))
    self.pages = pages
    if self.has_states:
      raise Unsupported(
        f"pages={pages}: the architecture {model.config.model_type!r} keeps states, and files with "
        "states have no pages yet",
        remedy="leave pages out (--pages)",
      )

  def _new_step(self) -> PagedStep:
    return PagedStep()

  def by_slots(self) -> BySlots:
    return BySlots(self)

  def prefill(  # type: ignore[override]
    self, tokens: torch.Tensor, position: int, table: torch.Tensor
  ) -> tuple[torch.Tensor, torch.Tensor]:
    """Takes `tokens` (int64[n]) of one sequence, of which the first is at `position`. `table`
    (int64[m]) has the pages of the first m * PAGE positions, at least position + n. Returns the
    most likely next token, as int64[1], and the logits as f32[1, vocabulary]."""
    torch._check(position >= 0)
    torch._check(position + tokens.shape[0] <= table.shape[0] * PAGE)
    positions = torch.arange(tokens.shape[0], device=tokens.device) + position
    self._step.take(positions[None], table[None])
    return self._next(tokens[None])

  def decode(  # type: ignore[override]
    self, tokens: torch.Tensor, positions: torch.Tensor, table: torch.Tensor
  ) -> tuple[torch.Tensor, torch.Tensor]:
    """Takes a token (int64[n]) of each of the first n slots, at `positions` (int64[n]). `table`
    (int64[n, m]) has the pages of the first m * PAGE positions of each slot, 0 where it has none.
    Returns the most likely next tokens, as int64[n], and the logits as f32[n, vocabulary]."""
    # Sizes that are known to be equal are not broadcast, for which torch would exclude 1.
    torch._check(positions.shape[0] == tokens.shape[0])
    torch._check(table.shape[0] == tokens.shape[0])
    self._step.take(positions[:, None], table)
    return self._next(tokens[:, None])

  def verify(  # type: ignore[override]
    self, tokens: torch.Tensor, positions: torch.Tensor, table: torch.Tensor
  ) -> tuple[torch.Tensor, torch.Tensor]:
    """Takes k tokens (int64[n, k]) of each of the first n slots, of which the first ones are at
    `positions` (int64[n]). `table` is as in `decode`. Tokens at positions without a page are not
    kept. Returns what follows each token: the most likely ones, as int64[n * k], and the logits as
    f32[n * k, vocabulary]."""
    torch._check(positions.shape[0] == tokens.shape[0])
    torch._check(table.shape[0] == tokens.shape[0])
    each = torch.arange(tokens.shape[1], device=tokens.device)[None]
    self._step.take((positions[:, None] + each).clamp(max=self.max_tokens), table)
    return self._next(tokens, every=True)

  def copy(self, source: int, page: int) -> torch.Tensor:  # type: ignore[override]
    """Gives `page` the keys and values of the page `source`. Returns `page`, since a function has
    an output."""
    for number in (source, page):
      torch._check(number >= 0)
      torch._check(number <= self.pages)
    buffers = list(self.buffers(recurse=False))
    row = torch.zeros(1, dtype=torch.int64, device=buffers[0].device)
    for buffer in buffers:
      torch.ops.aten.index_put_(
        buffer, (row + page,), torch.ops.aten.index(buffer, (row + source,))
      )
    return row + page

  def described(self) -> dict[str, int]:
    """What the file says of its pages."""
    return {"pages": self.pages, "page": PAGE}

  def with_tables(self, functions: Mapping[str, Function]) -> dict[str, Function]:
    """The functions of a decoder with slots, as those of this one, with examples of tables."""
    result = dict(functions)
    # torch takes a size for at least 2: one of 1 or 2 would be a constant.
    most = max(-(-self.max_tokens // PAGE), 3)
    columns = torch.export.Dim("columns", min=1, max=most)
    for name in ("prefill", "decode", "verify"):
      if name not in functions:
        continue
      one = functions[name]
      tokens, *_ = one.args
      sizes = {
        key: one.dynamic_shapes[key]
        for key in ("tokens", "position", "positions")
        if key in one.dynamic_shapes
      }
      if name == "prefill":
        args = (tokens, 2, torch.tensor([1, 2]))
        shape = {0: columns}
      else:
        args = (tokens, one.args[1], torch.ones(len(tokens), 2, dtype=torch.int64))
        shape = {**(sizes["positions"] or {}), 1: columns}
      result[name] = Function(self, args, dynamic_shapes={**sizes, "table": shape}, method=name)
    if "copy" in functions:
      auto = torch.export.Dim.AUTO
      result["copy"] = Function(
        self, (2, 3), dynamic_shapes={"source": auto, "page": auto}, method="copy"
      )
    return result


class BySlots:
  """The functions of a PagedDecoder by numbers of slots, for comparing it with others. A slot gets
  its pages when it is used first."""

  def __init__(self, module: PagedDecoder) -> None:
    self.module = module
    self.columns = -(-module.max_tokens // PAGE)
    self._tables: dict[int, list[int]] = {}

  def _table(self, slot: int, span: int) -> list[int]:
    pages = self._tables.setdefault(slot, [])
    count = -(-span // PAGE)
    while len(pages) < count:
      used = {page for one in self._tables.values() for page in one}
      pages.append(max(set(range(1, self.module.pages + 1)) - used))
    return pages[:count]

  def _tables_of(self, positions: torch.Tensor, span: int) -> torch.Tensor:
    rows = [
      self._table(slot, span) if slot in self._tables else [0] * -(-span // PAGE)
      for slot in range(len(positions))
    ]
    return torch.tensor(rows, device=positions.device)

  def prefill(self, tokens: torch.Tensor, slot: int, position: int, span: int) -> Any:
    return self.module.prefill(
      tokens, position, torch.tensor(self._table(slot, span), device=tokens.device)
    )

  def decode(self, tokens: torch.Tensor, positions: torch.Tensor, span: int) -> Any:
    return self.module.decode(tokens, positions, self._tables_of(positions, span))

  def verify(self, tokens: torch.Tensor, positions: torch.Tensor, span: int) -> Any:
    return self.module.verify(tokens, positions, self._tables_of(positions, span))

  def copy(self, source: int, slot: int, position: int, count: int) -> None:
    sources, pages = (self._table(one, position + count) for one in (source, slot))
    for one, other in zip(sources, pages, strict=True):
      self.module.copy(one, other)
