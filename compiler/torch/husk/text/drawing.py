"""`Drawing`: the next tokens of several requests, by the functions of a file that take logits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from .requests import Request

# Histories are padded to a multiple of so many tokens, so that few sizes occur.
_WIDTH = 64


@dataclasses.dataclass
class Drawing:
  """session: of the program. ranked: how many of the most likely tokens the file gives; 0 if it has
  no penalties, masks and most likely tokens. candidates: from how many of the most likely tokens
  `sample_few` draws; 0 if the file has no such function."""

  session: Any
  vocabulary: int
  max_tokens: int
  ranked: int
  candidates: int

  def draw(self, rows: Sequence[Request | None], found: Any, logits: Any) -> list[Drawn | None]:
    """The next token of each request, for each row of logits. `found` are the most likely ones."""
    import numpy as np

    requests = [one for one in rows if one is not None]
    adjusts = any(one.adjusts for one in requests)
    samples = any(one.settings.temperature > 0 or one.settings.logprobs for one in requests)
    logprobs: Any = None
    top: Any = None
    if adjusts or samples:
      adjusted = self._adjusted(rows, logits) if adjusts else logits
      at = [len(one.prompt) + len(one.tokens) if one else 0 for one in rows]
      few = self.candidates and all(
        one.settings.temperature == 0 or 1 <= one.settings.top_k <= self.candidates
        for one in requests
      )
      found, logprobs = (self.session.sample_few if few else self.session.sample)(
        adjusted,
        *(
          np.array([getattr(one.settings, name) if one else other for one in rows], kind)
          for name, kind, other in (
            ("temperature", np.float32, 0),
            ("top_k", np.int64, 0),
            ("top_p", np.float32, 1),
            ("min_p", np.float32, 0),
            ("seed", np.int64, 0),
          )
        ),
        np.array(at, np.int64),
      )
    if any(one.settings.top_logprobs or (adjusts and one.settings.logprobs) for one in requests):
      logprobs, *top = self.session.rank(logits, found)
    result: list[Drawn | None] = []
    for row, request in enumerate(rows):
      if request is None:
        result.append(None)
        continue
      drawn = Drawn(int(found[row]))
      if request.settings.logprobs:
        drawn.logprob = float(logprobs[row])
      if most := request.settings.top_logprobs:
        tokens, numbers = (one[row, :most].tolist() for one in top)
        drawn.top = dict(zip(tokens, numbers, strict=True))
      result.append(drawn)
    return result

  def _adjusted(self, rows: Sequence[Request | None], logits: Any) -> Any:
    import numpy as np

    count = len(rows)
    lengths = [len(one.prompt) + len(one.tokens) if one else 0 for one in rows]
    width = min(-(-max(lengths) // _WIDTH) * _WIDTH, self.max_tokens + 1)
    history = np.zeros((count, width), np.int64)
    allowed = np.full((count, -(-self.vocabulary // 32)), -1, np.int32)
    timed = any(one is not None and one.timestamps is not None for one in rows)
    numbers = np.asarray(logits) if timed else None
    for row, request in enumerate(rows):
      if request is None:
        continue
      history[row, : lengths[row]] = [*request.prompt, *request.tokens]
      if request.settings.allow is not None:
        allowed[row] = self._words(request, request.settings.allow)
      elif request.timestamps is not None and numbers is not None:
        may_come = request.timestamps.allowed(request.tokens, numbers[row])
        allowed[row] = self._bits(may_come)
    penalties = (
      np.array([getattr(one.settings, f"{name}_penalty") if one else other for one in rows])
      for name, other in (("repetition", 1.0), ("presence", 0.0), ("frequency", 0.0))
    )
    return self.session.adjust(
      logits,
      history,
      np.array(lengths, np.int64),
      np.array([len(one.prompt) if one else 0 for one in rows], np.int64),
      *(one.astype(np.float32) for one in penalties),
      allowed,
    )

  def _words(self, request: Request, allow: Callable[[Request], Any]) -> Any:
    """The bits of the tokens that may come next. If the application has an error, or allows none,
    the request ends by that, and all bits are set, since the result does not count."""
    import numpy as np

    every = np.full(-(-self.vocabulary // 32), -1, np.int32)
    may_come = np.zeros(self.vocabulary, np.bool_)
    try:
      allowed = allow(request)
      if allowed is None:
        return every
      chosen = np.asarray(allowed)
      if chosen.dtype == np.bool_ and chosen.shape != (self.vocabulary,):
        raise ValueError(f"allow: give {self.vocabulary} truth values, or numbers of tokens")
      if chosen.dtype == np.bool_:
        may_come = chosen
      elif chosen.size:
        if chosen.min() < 0 or chosen.max() >= self.vocabulary:
          raise ValueError(f"allow: a token is not from 0 to {self.vocabulary - 1}")
        may_come[chosen.astype(np.int64)] = True
      if not may_come.any():
        raise ValueError(
          f"allow: no token may come after {len(request.tokens)}: let it allow the end of the text"
        )
    except Exception as error:
      request.fail(error)
      return every
    return self._bits(may_come)

  def _bits(self, may_come: Any) -> Any:
    """A bit for each token, of a truth value for each."""
    import numpy as np

    bits = np.zeros(-(-self.vocabulary // 32) * 32, np.uint8)
    bits[: self.vocabulary] = may_come
    return np.packbits(bits, bitorder="little").view(np.int32)


@dataclasses.dataclass
class Drawn:
  """A token, its log-probability if asked for, and those of the most likely tokens."""

  token: int
  logprob: float | None = None
  top: dict[int, float] | None = None
