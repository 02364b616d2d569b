"""Pages of the keys and values of requests, of a file that was exported with `pages`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .requests import Request


class Pages:
  """size: how many tokens a page has. Page 0 belongs to no request.

  A request gets the pages of its prompt with its slot, and one more whenever its text needs one. If
  none is left, the youngest request gives its pages away, and its tokens are taken again later. The
  oldest one never waits, since the pages suffice for one sequence."""

  def __init__(self, count: int, size: int, max_tokens: int) -> None:
    self.count, self.size, self._max_tokens = count, size, max_tokens
    self._free = list(range(count, 0, -1))

  @staticmethod
  def of(described: Mapping[str, Any]) -> Pages | None:
    """The pages that the description of a model says; None if slots have caches of their own."""
    if "pages" not in described:
      return None
    return Pages(described["pages"], described["page"], described["max_tokens"])

  @property
  def used(self) -> int:
    """How many pages requests have."""
    return self.count - len(self._free)

  def columns(self, tokens: int) -> int:
    """How many pages have so many tokens."""
    return -(-tokens // self.size)

  def take(self, request: Request, tokens: int) -> bool:
    """Gives a request the pages of so many tokens, or none if there are not enough."""
    missing = self.columns(min(tokens, self._max_tokens)) - len(request.pages)
    if missing > len(self._free):
      return False
    request.pages += [self._free.pop() for _ in range(missing)]
    return True

  def give_back(self, request: Request) -> None:
    self._free += request.pages
    request.pages = []

  def reserve(self, request: Request, tokens: int, others: Sequence[Request]) -> None:
    """Gives a request the pages of so many tokens, if necessary those of younger ones among
    `others`. If there is none, the request itself gives its pages away."""
    while not self.take(request, tokens):
      youngest = max(
        (one for one in (request, *others) if one is request or one.pages),
        key=lambda one: one.number,
      )
      self.pause(youngest)
      if youngest is request:
        return

  def pause(self, request: Request) -> None:
    """Takes the pages of a request until there are some again."""
    self.give_back(request)
    request.taken, request.paused = 0, True

  def resume(self, requests: Sequence[Request]) -> bool:
    """Gives pages to those of `requests` that wait for them, the oldest one first. Returns whether
    none waits any more."""
    for request in sorted(requests, key=lambda one: one.number):
      if request.paused:
        if not self.take(request, len(request.prompt) + len(request.tokens) + 1):
          return False
        request.paused = False
    return True

  def table(self, requests: Sequence[Request | None], tokens: int) -> Any:
    """The pages of the first `tokens` positions of each request, as the functions of a file take
    them."""
    import numpy as np

    table = np.zeros((len(requests), self.columns(tokens)), np.int64)
    for row, request in enumerate(requests):
      if request is not None:
        pages = request.pages[: table.shape[1]]
        table[row, : len(pages)] = pages
    return table
