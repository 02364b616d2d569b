"""`load`: a language model that generates texts."""

from __future__ import annotations

import collections
import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..runtime import load as load_program
from . import chats
from .requests import Request, Settings
from .tokenizer import Tokenizer

Message = Mapping[str, Any]
Prompt = str | Sequence[Message] | Sequence[int]

_PREFIX = "husk.text."
# Caches are read up to a multiple of so many positions, so that few sizes occur.
_SPAN = 64


def load(path: str | os.PathLike[str], device: str | None = None, **options: Any) -> Model:
  """Loads a language model that `husk.language.export` has made. It contains native code: load only
  files that you trust. The arguments are those of husk.load."""
  return Model(load_program(path, device, **options), os.fspath(path))


class Model:
  """A language model.

  tokenizer: None if the file has none; prompts are tokens then.
  max_tokens, slots: how many tokens a sequence may have, and how many sequences are generated at
    the same time. More requests wait for a slot.

  One thread at a time may use it."""

  def __init__(self, program: Any, path: str) -> None:
    import numpy as np

    self._np = np
    self.path = path
    texts = {
      key.removeprefix(_PREFIX): text
      for key, text in program.metadata().items()
      if key.startswith(_PREFIX)
    }
    if "model" not in texts:
      raise ValueError(
        f"{path} is no language model: it lacks the metadata husk.text.model, which "
        "husk.language.export writes"
      )
    _check_hashes(path, texts)
    described = json.loads(texts["model"])
    self.architecture: str = described["architecture"]
    self.max_tokens: int = described["max_tokens"]
    self.slots: int = described["slots"]
    self.vocabulary: int = described["vocabulary"]
    self._chunk: int = described["chunk"]
    self.generation: dict[str, Any] = json.loads(texts["generation"])
    self.chat_template = texts.get("chat_template")
    self.tokenizer = Tokenizer(texts["tokenizer"]) if "tokenizer" in texts else None
    self._ends = set(self.generation.get("end", ()))
    self._session = program.session()
    self._active: list[Request | None] = [None] * self.slots
    self._waiting: collections.deque[Request] = collections.deque()

  def __repr__(self) -> str:
    return (
      f"husk.text.Model {self.architecture}, {self.slots} slots of {self.max_tokens} tokens, of "
      f"{self.path}"
    )

  # Texts

  def tokens_of(self, prompt: Prompt) -> list[int]:
    """The tokens of a prompt: a text, the messages of a chat, or tokens."""
    if not isinstance(prompt, str):
      tokens = [one for one in prompt if isinstance(one, int)]
      if tokens and len(tokens) == len(prompt):
        wrong = [one for one in tokens if not 0 <= one < self.vocabulary]
        if wrong:
          raise ValueError(f"no token has the number {wrong[0]}: there are {self.vocabulary}")
        return tokens
    if self.tokenizer is None:
      raise ValueError(f"{self.path} has no tokenizer: give tokens (a list of ints)")
    if isinstance(prompt, str):
      return self.tokenizer.encode(prompt, special=True)
    return self.tokenizer.encode(
      self.chat_text([one for one in prompt if not isinstance(one, int)])
    )

  def chat_text(self, messages: Sequence[Message]) -> str:
    """The text of a chat, up to the beginning of an answer, by the template of the file."""
    if self.chat_template is None:
      raise ValueError(f"{self.path} has no chat template: give a text")
    chats.check(messages)
    return chats.render(self.chat_template, messages, self.generation)

  def generate(self, prompt: Prompt, **settings: Any) -> str:
    """Generates a text. `settings` are the fields of requests.Settings: max_new_tokens,
    temperature, top_k, top_p, seed, stop."""
    return "".join(self.stream(prompt, **settings))

  def stream(self, prompt: Prompt, **settings: Any) -> Iterator[str]:
    """The parts of a text, as they are generated. Other requests go on meanwhile. A generator that
    is closed cancels its request."""
    request = self.submit(prompt, **settings)
    return self._parts(request)

  def _parts(self, request: Request) -> Iterator[str]:
    try:
      while not request.done:
        self.step()
        if part := request.take():
          yield part
      if part := request.take():
        yield part
    finally:
      request.cancel()

  # Several requests

  def submit(self, prompt: Prompt, **settings: Any) -> Request:
    """Adds a request, which `step` works on. By default a seed is drawn."""
    settings.setdefault("seed", secrets.randbits(62))
    chosen = Settings(**settings)
    if chosen.stop and self.tokenizer is None:
      raise ValueError(f"stop: {self.path} has no tokenizer")
    tokens = self.tokens_of(prompt)
    if not tokens:
      raise ValueError("the prompt has no tokens")
    if len(tokens) > self.max_tokens:
      raise ValueError(
        f"the prompt has {len(tokens)} tokens, but a sequence of {self.path} has up to "
        f"{self.max_tokens}: export it with a larger max_tokens, or shorten the prompt"
      )
    request = Request(tokens, chosen, self.tokenizer, self._ends)
    self._waiting.append(request)
    return request

  def step(self) -> bool:
    """Generates one token of each request that has a slot, after a part of the prompt of those that
    are new. Returns whether there is more to do."""
    self._admit()
    for request in self._active:
      if request is not None and request.taken < len(request.prompt):
        self._prefill(request)
    self._decode()
    self._leave()
    return bool(self._waiting) or any(self._active)

  def run(self) -> None:
    """Finishes all requests."""
    while self.step():
      pass

  def _admit(self) -> None:
    self._leave()
    for slot, request in enumerate(self._active):
      while request is None and self._waiting:
        candidate = self._waiting.popleft()
        if not candidate.done:
          request = self._active[slot] = candidate
          candidate.slot = slot

  def _leave(self) -> None:
    for slot, request in enumerate(self._active):
      if request is not None and request.done:
        request.slot = -1
        self._active[slot] = None

  def _prefill(self, request: Request) -> None:
    begin = request.taken
    chunk = request.prompt[begin : begin + self._chunk]
    end = begin + len(chunk)
    row: list[Request | None] = [request]
    if len(chunk) > 1:
      tokens = self._np.array(chunk, dtype=self._np.int64)
      found, logits = self._session.prefill(tokens, request.slot, begin, self._span(end))
    else:  # some models decide by whether a chunk has one token, and take two and more
      row = [*[None] * request.slot, request]
      found, logits = self._run_decode({request.slot: (chunk[0], begin)})
    request.taken = end
    if end == len(request.prompt):
      self._add(row, found, logits)

  def _decode(self) -> None:
    """A token of each request whose prompt is in the cache and that has a token already."""
    ready = [
      one
      for one in self._active
      if one is not None and one.tokens and not one.done and one.taken == len(one.prompt)
    ]
    if not ready:
      return
    found, logits = self._run_decode(
      {one.slot: (one.tokens[-1], len(one.prompt) + len(one.tokens) - 1) for one in ready}
    )
    by_row: list[Request | None] = [None] * (max(one.slot for one in ready) + 1)
    for request in ready:
      by_row[request.slot] = request
    self._add(by_row, found, logits)

  def _run_decode(self, steps: Mapping[int, tuple[int, int]]) -> tuple[Any, Any]:
    """Runs `decode` with a token and its position for some slots."""
    np = self._np
    rows = max(steps) + 1
    tokens = np.zeros(rows, dtype=np.int64)
    positions = np.full(rows, self.max_tokens, dtype=np.int64)  # a position that nobody reads
    for slot, (token, position) in steps.items():
      tokens[slot], positions[slot] = token, position
    largest = max(position for _, position in steps.values())
    return self._session.decode(tokens, positions, self._span(largest + 1))

  def _add(self, rows: Sequence[Request | None], found: Any, logits: Any) -> None:
    """Gives each request its next token: the most likely one of `found`, or one that is drawn."""
    np = self._np
    logprobs: Any = None
    if any(one and (one.settings.temperature > 0 or one.settings.logprobs) for one in rows):

      def column(kind: Any, name: str, other: float) -> Any:
        return np.array([getattr(one.settings, name) if one else other for one in rows], kind)

      at = [len(one.prompt) + len(one.tokens) if one else 0 for one in rows]
      found, logprobs = self._session.sample(
        logits,
        column(np.float32, "temperature", 0),
        column(np.int64, "top_k", 0),
        column(np.float32, "top_p", 1),
        column(np.int64, "seed", 0),
        np.array(at, np.int64),
      )
    for row, request in enumerate(rows):
      if request is not None:
        logprob = float(logprobs[row]) if request.settings.logprobs else None
        # The last token of a sequence needs no position of the cache.
        room = self.max_tokens - len(request.prompt) - len(request.tokens)
        request.add(int(found[row]), logprob, room)

  def _span(self, end: int) -> int:
    return min(-(-end // _SPAN) * _SPAN, self.max_tokens)


def _check_hashes(path: str, texts: Mapping[str, str]) -> None:
  hashes = json.loads(texts.get("hashes", "{}"))
  for name, expected in hashes.items():
    text = texts.get(name)
    if text is None or hashlib.blake2b(text.encode(), digest_size=32).hexdigest() != expected:
      raise ValueError(f"{path}: the metadata husk.text.{name} is not what the export wrote")
