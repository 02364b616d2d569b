"""A language model whose keys and values are in pages. A page has those of PAGE positions of one
sequence, or of several that begin alike. The functions take tables, which say which pages a
sequence has, so that memory follows the tokens that are there."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from ..exporter import Function
from .steps import PAGE

# The pages of the example for `copy_page`. Neither is 0 or 1, which torch takes for constants.
_SOURCE, _COPY = 2, 3


def least(max_tokens: int, slots: int) -> int:
  """The fewest pages that a file may have: those of one sequence of `max_tokens` tokens, and with
  several slots those of the example for `copy_page`."""
  return max(-(-max_tokens // PAGE), _COPY if slots > 1 else 1)


def described(module: Any) -> dict[str, int]:
  """What the file says of the pages of a decoder."""
  return {"pages": module.pages, "page": PAGE}


def with_tables(module: Any, functions: Mapping[str, Function]) -> dict[str, Function]:
  """The functions of a decoder with examples of tables in place of spans."""
  result = dict(functions)
  # torch takes a size for at least 2: one of 1 or 2 would be a constant.
  most = max(-(-module.max_tokens // PAGE), 3)
  columns = torch.export.Dim("columns", min=1, max=most)
  for name in ("prefill", "decode", "verify"):
    if name not in functions:
      continue
    one = functions[name]
    sizes = {key: size for key, size in one.dynamic_shapes.items() if key != "span"}
    table, shape = torch.tensor([1, 2]), {0: columns}
    if name != "prefill":
      table = torch.ones(len(one.args[0]), 2, dtype=torch.int64)
      shape = {**(sizes["positions"] or {}), 1: columns}
    # `span` is the last input here.
    result[name] = dataclasses.replace(
      one, args=(*one.args[:-1], table), dynamic_shapes={**sizes, "span": shape}
    )
  if "copy" in functions:
    auto = torch.export.Dim.AUTO
    numbers: dict[str, Any] = {"source": _SOURCE, "page": _COPY}
    if module.has_rows:
      numbers |= {"from_slot": 1, "slot": min(2, module.slots - 1)}
    result["copy"] = Function(
      module,
      tuple(numbers.values()),
      dynamic_shapes=dict.fromkeys(numbers, auto),
      method="copy_page",
    )
  return result


class BySlots:
  """The functions of a decoder with pages by numbers of slots and spans, for comparing it with
  others. A slot gets its pages when it is used first."""

  def __init__(self, module: Any) -> None:
    self.module = module
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

  def _of_slot(self, tokens: torch.Tensor, slot: int, span: int) -> torch.Tensor:
    return torch.tensor(self._table(slot, span), device=tokens.device)

  def prefill(self, tokens: torch.Tensor, slot: int, position: int, span: int, *more: Any) -> Any:
    table = self._of_slot(tokens, slot, span)
    return self.module.prefill(tokens, slot, position, table, *more)

  def prefill_images(
    self, tokens: torch.Tensor, slot: int, position: int, span: int, *more: Any
  ) -> Any:
    table = self._of_slot(tokens, slot, span)
    return self.module.prefill_images(tokens, slot, position, table, *more)

  def decode(self, tokens: torch.Tensor, positions: torch.Tensor, span: int, *more: Any) -> Any:
    return self.module.decode(tokens, positions, self._tables_of(positions, span), *more)

  def verify(self, tokens: torch.Tensor, positions: torch.Tensor, span: int, *more: Any) -> Any:
    return self.module.verify(tokens, positions, self._tables_of(positions, span), *more)

  def copy(self, source: int, slot: int, position: int, count: int) -> None:
    slots = (source, slot) if self.module.has_rows else ()
    sources, pages = (self._table(one, position + count) for one in (source, slot))
    for one, other in zip(sources, pages, strict=True):
      self.module.copy_page(one, other, *slots)
