"""`load`: a language model that generates texts."""

from __future__ import annotations

import asyncio
import collections
import hashlib
import json
import os
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Literal, overload

from ..runtime import load as load_program
from . import chats, sounds
from .adapters import Adapters
from .drawing import Drawing
from .encoders import Kind as EncoderKind
from .images import Kind, PromptImages
from .languages import Languages
from .pages import Pages
from .requests import Request, Settings
from .scoring import Scorer
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
    self._adapters = Adapters(
      program, path, described.get("adapters", 0), described.get("adapter_rank", 0)
    )
    self._images = Kind.of(described.get("image"))
    self._encoder = EncoderKind.of(described.get("encoder"))
    self._sound = sounds.Sound(texts["sound"]) if "sound" in texts else None
    self._languages = Languages.of(self.generation) if self._sound is not None else None
    # The last input of `decode` for rows of images in a grid.
    self._shifts = self._images is not None and self._images.grid is not None
    self._pages = Pages.of(described)
    self._single = described.get("single", False)
    self._embeds = described.get("embed", False)
    self._verified = described.get("verify", 0)
    self._drawing = Drawing(
      self._session,
      self.vocabulary,
      self.max_tokens,
      described.get("ranked", 0),
      described.get("candidates", 0),
    )
    self._active: list[Request | None] = [None] * self.slots
    self._submitted = 0
    self._waiting: collections.deque[Request] = collections.deque()
    self._stepping: asyncio.Future[bool] | None = None  # a step for `astream`

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

  # Adapters

  @property
  def adapters(self) -> tuple[str, ...]:
    """The names of the adapters (LoRA) that requests may use, as `generate(..., adapter=name)`."""
    return tuple(self._adapters.numbers)

  def add_adapter(self, name: str, folder: str | os.PathLike[str]) -> None:
    """Reads an adapter of PEFT from a folder: adapter_config.json and adapter_model.safetensors.
    One of the same name is replaced, unless a request that is not done uses it. The file must have
    room for it (`export(adapters=N, rank=R)`). Requests go on, also if the adapter is refused."""
    self._check_unused(name)
    self._adapters.add(name, folder)

  def remove_adapter(self, name: str) -> None:
    """Makes room for another adapter. No request that is not done may use it."""
    self._adapters.number(name)
    self._check_unused(name)
    del self._adapters.numbers[name]

  def _check_unused(self, name: str) -> None:
    requests = [*self._waiting, *(one for one in self._active if one is not None)]
    count = sum(one.settings.adapter == name and not one.done for one in requests)
    if count:
      raise ValueError(
        f"the adapter {name!r} is in use by {count} requests: wait for their ends, or cancel them"
      )

  def embed(self, prompt: Prompt, pooling: str | None = "mean") -> Any:
    """The hidden states of the last layer for a text, as a NumPy array: their mean, with
    pooling="last" that of the last token, and with None those of all tokens. Needs a file with the
    feature "embed"."""
    if pooling not in ("mean", "last", None):
      raise ValueError(f"pooling={pooling!r}: give 'mean', 'last' or None")
    if not self._embeds:
      raise ValueError(
        f'{self.path} has no function embed: export it with "embed" among the features'
      )
    tokens = self.tokens_of(prompt)
    if not 1 <= len(tokens) <= self._chunk:
      raise ValueError(
        f"the text has {len(tokens)} tokens, but embed of {self.path} takes up to {self._chunk}"
      )
    hidden, mean = self._session.embed(self._np.array(tokens, self._np.int64))
    return {"mean": mean, "last": hidden[-1], None: hidden}[pooling]

  def score(self, prompt: Prompt, adapter: str | None = None) -> Any:
    """The logarithms of the probabilities of all tokens of a text but the first one, as a NumPy
    array, by the logits of the model with an adapter. No request may be in progress."""
    self._check_scores()
    tokens = self.tokens_of(prompt)
    if not 2 <= len(tokens) <= self.max_tokens + 1:
      raise ValueError(
        f"the text has {len(tokens)} tokens, but {self.path} scores 2 to {self.max_tokens + 1}: "
        "cut it, or export the file with a larger max_tokens"
      )
    return self._scored([tokens], adapter)[0]

  def perplexity(
    self, text: Prompt, window: int | None = None, adapter: str | None = None
  ) -> tuple[float, int]:
    """The perplexity of a text of any length, and how many tokens it was computed of. The text is
    cut into windows of so many tokens (by default as many as a sequence has room for), of which
    each is scored alone, without its first token."""
    self._check_scores()
    size = self.max_tokens + 1 if window is None else window
    if not 2 <= size <= self.max_tokens + 1:
      raise ValueError(f"window={window}: give 2 to {self.max_tokens + 1}")
    tokens = self.tokens_of(text)
    windows = [tokens[begin : begin + size] for begin in range(0, len(tokens), size)]
    windows = [one for one in windows if len(one) > 1]
    if not windows:
      raise ValueError(f"the text has {len(tokens)} tokens: a perplexity needs at least 2")
    scores = self._np.concatenate(self._scored(windows, adapter))
    return float(self._np.exp(-scores.mean())), len(scores)

  def _check_scores(self) -> None:
    if self._encoder is not None:
      raise ValueError(
        f"{self.path} has an encoder, and scores are those of a decoder alone: ask for logprobs of "
        "a request"
      )

  def _scored(self, texts: Sequence[Sequence[int]], adapter: str | None) -> list[Any]:
    self._leave()
    if any(self._active):
      raise ValueError("requests are in progress: finish or cancel them before texts are scored")
    number = self._adapters.number(adapter)
    return Scorer(
      self._session,
      self.slots,
      self.max_tokens,
      _SPAN,
      self._verified,
      self._drawing.ranked > 0,
      number if self._adapters.count else None,
      self._shifts,
      self._pages,
    ).score(texts)

  def generate(self, prompt: Prompt = (), **settings: Any) -> str:
    """Generates a text. `settings` are the fields of requests.Settings: max_new_tokens,
    temperature, top_k, top_p, min_p, seed, stop, penalties and others; and `images`, `audio`,
    `features` and `decoder_prompt`, as in `submit`."""
    return "".join(self.stream(prompt, **settings))

  def stream(self, prompt: Prompt = (), **settings: Any) -> Iterator[str]:
    """The parts of a text, as they are generated. Other requests go on meanwhile. A generator that
    is closed cancels its request."""
    request = self.submit(prompt, **settings)
    return self._parts(request)

  def _parts(self, request: Request) -> Iterator[str]:
    try:
      while True:
        yield from request.parts()
        if request.done:
          return
        self.step()
    finally:
      request.cancel()

  @overload
  def transcribe(self, audio: Any, *, timestamps: Literal[False] = ..., **settings: Any) -> str: ...

  @overload
  def transcribe(
    self, audio: Any, *, timestamps: Literal[True], **settings: Any
  ) -> list[sounds.Segment]: ...

  def transcribe(
    self,
    audio: Any,
    *,
    timestamps: bool = False,
    language: str | None = None,
    task: str | None = None,
    decoder_prompt: str | Sequence[int] | None = None,
    **settings: Any,
  ) -> str | list[sounds.Segment]:
    """The text of a sound of any length, for a model of speech. It is worked on in windows of as
    many seconds as the encoder takes, and other requests go on meanwhile.

    audio, decoder_prompt: those of `submit`; the token that says whether a text has time stamps is
      added to the prompt, or left out.
    language, task: of a multilingual model, instead of decoder_prompt: such as "en", by default
      what `detect_language` finds; and "transcribe", or "translate" into English.
    timestamps: return segments, with the seconds of their beginning and end, by the rules of
      Whisper; each window begins where the last whole segment ends.
    settings: those of `generate`, for each window."""
    windows = self._checked_sound().windows(audio)
    kind, none = self._encoder, self.generation.get("no_timestamps_token_id")
    if kind is None:
      raise ValueError(f"transcribe: {self.path} has no encoder")
    start = self._start(kind, windows, decoder_prompt, language, task)
    if start[-1:] == [none]:
      start.pop()
    if not timestamps:
      start += [] if none is None else [none]
      return sounds.text_of(self, windows, decoder_prompt=start, **settings)
    rules = self._timestamps(none, settings)
    return list(
      sounds.segments_of(self, windows, rules, kind.positions, decoder_prompt=start, **settings)
    )

  def detect_language(self, audio: Any) -> str:
    """The language of a sound, such as "en", by its first seconds, as many as the encoder takes at
    once. Other requests go on meanwhile."""
    if self._languages is None:
      raise ValueError(
        f"{self.path} names no languages: export a multilingual Whisper whose "
        "generation_config.json has lang_to_id"
      )
    return self._language_of(self._languages, self._checked_sound().windows(audio))

  def _language_of(self, languages: Languages, windows: sounds.Windows) -> str:
    assert self._encoder is not None
    request = self.submit(
      features=windows.at(0),
      decoder_prompt=self._encoder.start[:1],
      max_new_tokens=1,
      allow=lambda _: list(languages.languages.values()),
    )
    for _ in self._parts(request):
      pass
    return languages.name_of(request.tokens[0])

  def _start(
    self,
    kind: EncoderKind,
    windows: sounds.Windows,
    prompt: str | Sequence[int] | None,
    language: str | None,
    task: str | None,
  ) -> list[int]:
    """The tokens with which the decoder begins."""
    if prompt is not None:
      if language is not None or task is not None:
        raise ValueError("decoder_prompt names the language and the task: leave the others out")
      return self._decoder_tokens(prompt)
    languages, start = self._languages, list(kind.start)
    if languages is None:
      if language is not None or task is not None:
        raise ValueError(
          f"language, task: {self.path} names none (lang_to_id): give decoder_prompt"
        )
      return start
    if len(start) > 1 and language is None and task is None:
      return start  # the settings of the checkpoint have chosen
    action = languages.task(task or "transcribe")
    token = languages.language(language or self._language_of(languages, windows))
    return [start[0], token, action]

  def _timestamps(self, none: int | None, settings: Mapping[str, Any]) -> sounds.Timestamps:
    """The rules for time stamps."""
    if none is None or not self._ends:
      raise ValueError(
        f"timestamps: {self.path} does not say which tokens they are: export a checkpoint whose "
        "generation_config.json has no_timestamps_token_id and eos_token_id"
      )
    if not self._drawing.ranked:
      raise ValueError(
        f'timestamps: {self.path} has no masks of tokens: export it with "controls" among the '
        "features"
      )
    if settings.get("allow") is not None:
      raise ValueError("allow: a text with time stamps has a mask of its own: leave it out")
    latest = self.generation.get("max_initial_timestamp_index")
    return sounds.Timestamps(none, min(self._ends), latest)

  async def agenerate(self, prompt: Prompt = (), **settings: Any) -> str:
    """`generate` for asyncio. Several calls are worked on together."""
    return "".join([part async for part in self.astream(prompt, **settings)])

  async def astream(self, prompt: Prompt = (), **settings: Any) -> AsyncIterator[str]:
    """`stream` for asyncio: `async for part in model.astream(prompt)`. The steps run in a thread
    and are those of all calls that are in progress, in one event loop. A call that is cancelled
    cancels its request. `step` and what calls it must not run at the same time."""
    request = self.submit(prompt, **settings)
    try:
      while True:
        for part in request.parts():
          yield part
        if request.done:
          return
        await self._next_step()
    finally:
      if self._stepping is None:
        request.cancel()
      else:  # a step may be adding a token
        self._stepping.add_done_callback(lambda _: request.cancel())

  async def _next_step(self) -> None:
    """Waits for the end of the step in progress, or begins one."""
    if self._stepping is None:

      def end(_: Any) -> None:
        self._stepping = None

      self._stepping = asyncio.ensure_future(asyncio.to_thread(self.step))
      self._stepping.add_done_callback(end)
    # The step of all calls goes on if this one is cancelled.
    await asyncio.shield(self._stepping)

  # Several requests

  def submit(
    self,
    prompt: Prompt = (),
    images: Any = (),
    features: Any = None,
    audio: Any = None,
    decoder_prompt: str | Sequence[int] | None = None,
    **settings: Any,
  ) -> Request:
    """Adds a request, which `step` works on. By default a seed is drawn.

    images: the pixels of the images of the prompt, in their order, as a processor of transformers
      makes them: arrays, each of one image or of several. The prompt has an image token for each
      row of embeddings, as the processor makes it, or one for each image.
    features: what the encoder of a model of speech takes, as a feature extractor of transformers
      makes it, instead of a prompt.
    audio: the sound itself in place of its features: an array of samples of one channel, 16,000 a
      second for Whisper, as floats from -1 to 1 or integers of 16 bits.
    decoder_prompt: of a file with an encoder, which takes the prompt: the tokens with which the
      decoder begins, or their text; by default those of the file."""
    settings.setdefault("seed", secrets.randbits(62))
    chosen = Settings(**settings)
    self._check_controls(chosen)
    if chosen.stop and self.tokenizer is None:
      raise ValueError(f"stop: {self.path} has no tokenizer")
    has_prompt = isinstance(prompt, str) or len(prompt) > 0
    tokens, pixels = self._with_images(self.tokens_of(prompt) if has_prompt else [], images)
    if audio is not None:
      if features is not None:
        raise ValueError("audio and features: give one of them")
      features = self._checked_sound().of_one_window(audio)
    tokens, source = self._with_source(tokens, features, decoder_prompt)
    if not tokens:
      raise ValueError("the prompt has no tokens")
    if len(tokens) > self.max_tokens:
      raise ValueError(
        f"the prompt has {len(tokens)} tokens, but a sequence of {self.path} has up to "
        f"{self.max_tokens}: export it with a larger max_tokens, or shorten the prompt"
      )
    request = Request(tokens, chosen, self.tokenizer, self._ends)
    request.adapter = self._adapters.number(chosen.adapter)
    if self._images is not None and pixels:
      request.images = PromptImages(self._images, tokens, pixels)
    request.source = source
    self._submitted += 1
    request.number = self._submitted
    self._waiting.append(request)
    return request

  def _with_images(self, tokens: list[int], images: Any) -> tuple[list[int], list[Any]]:
    """The tokens of a prompt with images, and the pixels of each image."""
    images = () if images is None else images
    if self._images is None:
      if len(images):
        raise ValueError(
          f'images: {self.path} takes none: export a model that takes images, with "images" among '
          "the features"
        )
      return tokens, []
    pixels = self._images.pixels(images)
    return self._images.expanded(tokens, len(pixels)), pixels

  def _checked_sound(self) -> sounds.Sound:
    if self._sound is None:
      raise ValueError(
        f"audio: {self.path} does not say how to compute features of a sound: give features, or "
        "export a checkpoint of Whisper with preprocessor_config.json"
      )
    return self._sound

  def _with_source(
    self, tokens: list[int], features: Any, decoder_prompt: str | Sequence[int] | None
  ) -> tuple[list[int], Any]:
    """The tokens with which the decoder begins, and the input of the encoder; None without one."""
    if self._encoder is None:
      for name, given in (("features", features), ("decoder_prompt", decoder_prompt)):
        if given is not None:
          raise ValueError(f"{name}: {self.path} has no encoder: give a prompt alone")
      return tokens, None
    source = self._encoder.source(tokens, features)
    if decoder_prompt is None:
      return list(self._encoder.start), source
    return self._decoder_tokens(decoder_prompt), source

  def _decoder_tokens(self, prompt: str | Sequence[int]) -> list[int]:
    if isinstance(prompt, str) and self.tokenizer is not None:
      return self.tokenizer.encode(prompt)
    return self.tokens_of(prompt) if len(prompt) else []

  def _check_controls(self, chosen: Settings) -> None:
    most = self._drawing.ranked
    if (chosen.adjusts or chosen.top_logprobs) and not most:
      raise ValueError(
        f"{self.path} has no penalties, masks of tokens and most likely tokens: export it with "
        '"controls" among the features'
      )
    if chosen.top_logprobs > most:
      raise ValueError(f"top_logprobs={chosen.top_logprobs}: give {most} at most")

  def step(self) -> bool:
    """Generates one token of each request that has a slot, after a part of the prompt of those that
    are new. Returns whether there is more to do."""
    self._admit()
    for request in self._active:
      if request is not None and not request.paused and request.taken < request.cached:
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
    if self._pages and not self._pages.resume([one for one in self._active if one is not None]):
      return
    for slot, request in enumerate(self._active):
      while request is None and self._waiting:
        candidate = self._waiting[0]
        if self._pages and not candidate.done:
          if not self._pages.take(candidate, len(candidate.prompt) + 1):
            return
        self._waiting.popleft()
        if not candidate.done:
          request = self._active[slot] = candidate
          candidate.slot = slot

  def _leave(self) -> None:
    for slot, request in enumerate(self._active):
      if request is not None and request.done:
        request.slot = -1
        self._active[slot] = None
        if self._pages:
          self._pages.give_back(request)

  def _prefill(self, request: Request) -> None:
    begin, images = request.taken, request.images
    if request.source is not None and begin == 0:
      try:
        self._session.encode(request.source, request.slot)
      except Exception as error:  # what the runtime raises; the other requests go on
        request.fail(error)
        return
    end = min(begin + self._chunk, request.cached)
    # Tokens that must not come as the first one are those of `prefill`, which takes two and more.
    if self._encoder is not None and len(request.prompt) - end == 1 and end - begin > 1:
      end -= 1
    if images is not None and begin < images.count:
      end = images.end(begin, self._chunk)
    chunk = (request.prompt + request.tokens)[begin:end]
    row: list[Request | None] = [request]
    if len(chunk) > 1:
      tokens = self._np.array(chunk, dtype=self._np.int64)
      seen = self._seen(row, end)
      where = (tokens, request.slot, begin, seen[0] if self._pages else seen)
      if images is not None and images.are_in(begin, end):
        try:
          self._compute_rows(images)
        except Exception as error:  # what the runtime raises; the other requests go on
          request.fail(error)
          return
        found, logits = self._session.prefill_images(*where, *images.inputs(begin, end))
      else:
        more = (request.adapter,) if self._adapters.count else self._source_span([request])
        found, logits = self._session.prefill(*where, *more)
    else:  # some models decide by whether a chunk has one token, and take two and more
      row = [*[None] * request.slot, request]
      row, found, logits = self._run_decode({request.slot: (chunk[0], begin)}, row)
    request.taken = end
    if end == len(request.prompt) and not request.tokens:
      self._add(row, found, logits)

  def _compute_rows(self, images: PromptImages) -> None:
    """Computes the embeddings of images, if this has not happened."""
    if images.embeddings is None:
      rows = [self._np.asarray(self._session.image(one)) for one in images.pixels]
      images.embeddings, images.pixels = self._np.concatenate(rows), []

  def _decode(self) -> None:
    """A token of each request whose prompt is in the cache and that has a token already."""
    ready = self._ready()
    for request in ready if self._pages else ():
      if self._pages and not request.paused:
        others = [one for one in self._active if one is not None]
        self._pages.reserve(request, len(request.prompt) + len(request.tokens), others)
        ready = self._ready()
    if not ready:
      return
    by_row: list[Request | None] = [None] * (max(one.slot for one in ready) + 1)
    for request in ready:
      by_row[request.slot] = request
    by_row, found, logits = self._run_decode(
      {one.slot: (one.tokens[-1], len(one.prompt) + len(one.tokens) - 1) for one in ready}, by_row
    )
    for request in ready:
      request.taken += 1
    self._add(by_row, found, logits)

  def _ready(self) -> list[Request]:
    """The requests that have a token already, and all tokens before it in the cache."""
    return [
      one
      for one in self._active
      if one is not None and one.tokens and not one.done and one.taken == one.cached
    ]

  def _run_decode(
    self, steps: Mapping[int, tuple[int, int]], requests: list[Request | None]
  ) -> tuple[list[Request | None], Any, Any]:
    """Runs `decode` with a token and its position for some slots, whose requests are these; or
    `single`, for one slot. Returns the requests of the rows, and what the function returns."""
    np = self._np
    slots: tuple[int, ...] = ()
    function = self._session.decode
    if self._single and len(steps) == 1:
      slots, function = tuple(steps), self._session.single
      requests, steps = [requests[slots[0]]], {0: steps[slots[0]]}
    rows = max(steps) + 1
    tokens = np.zeros(rows, dtype=np.int64)
    positions = np.full(rows, self.max_tokens, dtype=np.int64)  # a position that nobody reads
    for row, (token, position) in steps.items():
      tokens[row], positions[row] = token, position
    more: tuple[Any, ...] = ()
    if self._shifts:
      shifts = np.zeros(rows, dtype=np.int64)
      for row, (_, position) in steps.items():
        request = requests[row]
        if request is not None and request.images is not None:
          shifts[row] = request.images.shift_at(position)
      more = (shifts,)
    largest = max(position for _, position in steps.values())
    if self._adapters.count:
      more = (np.array([one.adapter if one else 0 for one in requests], np.int64),)
    if self._encoder is not None:
      more = self._source_span(requests)
    seen = self._seen(requests, largest + 1)
    return requests, *function(tokens, positions, *slots, seen, *more)

  def _add(self, rows: Sequence[Request | None], found: Any, logits: Any) -> None:
    """Gives each request its next token: the most likely one of `found`, or one that is drawn."""
    for request, drawn in zip(rows, self._drawing.draw(rows, found, logits), strict=True):
      if request is not None and drawn is not None and not request.done:
        # The last token of a sequence needs no position of the cache.
        room = self.max_tokens - len(request.prompt) - len(request.tokens)
        request.add(drawn.token, drawn.logprob, room, drawn.top)

  def _seen(self, requests: Sequence[Request | None], end: int) -> Any:
    """What `decode` takes for the positions before `end`: their number, or the pages that have
    them."""
    if self._pages:
      return self._pages.table(requests, end)
    return min(-(-end // _SPAN) * _SPAN, self.max_tokens)

  def _source_span(self, requests: Sequence[Request | None]) -> tuple[int, ...]:
    """The last input of `prefill` and `decode`, if the encoder takes tokens: how many positions of
    the encoder are read."""
    if self._encoder is None or self._encoder.shape is not None:
      return ()
    longest = max(len(one.source) for one in requests if one is not None)
    return (min(-(-longest // _SPAN) * _SPAN, self._encoder.positions),)


def _check_hashes(path: str, texts: Mapping[str, str]) -> None:
  hashes = json.loads(texts.get("hashes", "{}"))
  for name, expected in hashes.items():
    text = texts.get(name)
    if text is None or hashlib.blake2b(text.encode(), digest_size=32).hexdigest() != expected:
      raise ValueError(f"{path}: the metadata husk.text.{name} is not what the export wrote")
