"""How likely texts are by a language model: the logarithms of the probabilities of their tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from .pages import Pages


@dataclasses.dataclass
class Scorer:
  """session: of the program, whose slots are free. verified: how many tokens of a slot `verify`
  takes; 0: the file has no such function. ranks: whether it has `rank`. adapter: the number of the
  adapter of all texts; None if the functions take none. shifts: whether they take shifts of
  positions, which are 0 without images. pages: those of the file, which no request has; None if
  slots have caches of their own."""

  session: Any
  slots: int
  max_tokens: int
  span: int
  verified: int
  ranks: bool
  adapter: int | None = None
  shifts: bool = False
  pages: Pages | None = None

  def score(self, texts: Sequence[Sequence[int]]) -> list[Any]:
    """The log-probabilities of all tokens but the first one of each text, as arrays. A text has 2
    to max_tokens + 1 tokens. As many texts as there are slots are scored together."""
    result: list[Any] = []
    count = self.slots
    if self.pages and texts:
      count = min(count, self.pages.count // self.pages.columns(max(map(len, texts)) - 1))
    for begin in range(0, len(texts), count):
      result += self._together(texts[begin : begin + count])
    return result

  def _seen(self, rows: int, end: int) -> Any:
    """What the functions take for the positions before `end`: their number, or the pages that have
    them. Each row has pages of its own."""
    import numpy as np

    end = min(-(-end // self.span) * self.span, self.max_tokens)
    if self.pages is None:
      return end
    columns = self.pages.columns(end)
    first = 1 + np.arange(rows)[:, None] * (self.pages.count // rows)
    return first + np.arange(columns)[None]

  def _together(self, texts: Sequence[Sequence[int]]) -> list[Any]:
    import numpy as np

    count, longest = max(self.verified, 1), max(map(len, texts)) - 1
    width = -(-longest // count) * count
    tokens = np.zeros((len(texts), width + 1), np.int64)
    for row, text in enumerate(texts):
      tokens[row, : len(text)] = text
    scores = np.zeros((len(texts), width))
    more = () if self.adapter is None else (np.full(len(texts), self.adapter, np.int64),)
    if self.shifts:
      more = (np.zeros(len(texts), np.int64),)
    for begin in range(0, longest, count):
      end = self._seen(len(texts), begin + count)
      chunk = tokens[:, begin : begin + count].copy()
      positions = np.full(len(texts), begin, np.int64)
      if count == 1:
        _, logits = self.session.decode(chunk[:, 0].copy(), positions, end, *more)
      else:
        _, logits = self.session.verify(chunk, positions, end, *more)
      following = tokens[:, begin + 1 : begin + 1 + count].reshape(-1).copy()
      scores[:, begin : begin + count] = self._of(logits, following).reshape(len(texts), count)
    return [scores[row, : len(text) - 1] for row, text in enumerate(texts)]

  def _of(self, logits: Any, tokens: Any) -> Any:
    """The log-probability of a token for each row of logits."""
    import numpy as np

    if self.ranks:
      return self.session.rank(logits, tokens)[0]
    rows = np.asarray(logits, np.float64)
    largest = rows.max(-1)
    totals = largest + np.log(np.exp(rows - largest[:, None]).sum(-1))
    return rows[np.arange(len(rows)), tokens] - totals
