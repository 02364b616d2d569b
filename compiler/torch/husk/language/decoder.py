"""`Decoder`: a language model of transformers with the functions of a file, and its caches as
buffers."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

import torch

from ..errors import Unsupported
from . import caches, hooks, mixtures, paging, recurrences, states, steps

# How far the logits of the exported way may be from those of the model as it is, as a part of the
# largest logit. Rounding alone stays below.
_TOLERANCES = {torch.float32: 1e-3, torch.float64: 1e-6}
_HALF_TOLERANCE = 6e-2
_WIDE = 1024  # positions that the comparison lets a step read at most
_ROUNDED_TOLERANCE = 0.15
REMEDY = (
  "husk.language.export takes decoders of text, with an encoder or without, that keep keys, values "
  "and states in the cache of transformers; husk.export takes others with a wrapper of your own"
)
# The kinds of layers that keep nothing, as configurations of models call them.
_WITHOUT = ("mlp", "moe")


class Recording(hooks.SlotLayer):
  """A layer that notes the shapes of its keys, values and states, and keeps nothing."""

  records = True
  shapes: tuple[torch.Tensor, torch.Tensor] | None = None

  def update(
    self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
  ) -> tuple[torch.Tensor, torch.Tensor]:
    self.shapes = (key_states, value_states)
    return key_states, value_states

  def get_state(self, kind: str, number: int) -> None:
    return None

  def update_conv_state(self, inputs: torch.Tensor, number: int, size: int | None) -> torch.Tensor:
    kept = inputs.new_zeros(*inputs.shape[:-1], size or inputs.shape[-1])
    self.states["conv", number] = states.State(kept)
    return inputs

  def update_recurrent_state(self, state: torch.Tensor, number: int) -> torch.Tensor:
    self.states["recurrent", number] = states.State(state)
    return state

  def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
    return query_length, 0


class Decoder(torch.nn.Module):
  """A model with `slots` sequences of up to `max_tokens` tokens each.

  `prefill` takes tokens of one sequence, and `decode` a token of each of the first sequences. Both
  return the logits of the token that follows, and the most likely one. `verify` takes several
  tokens of each of the first sequences, and returns the same for each token. `single` is `decode`
  for one sequence. `copy` gives a slot what another one has in the caches. `embed` uses no cache.
  The caches have one position more, `max_tokens`, which no token sees: slots that take no part in a
  step write there. States, which some layers keep, have no positions: a call goes on from that of
  its slot, and begins with zeros at position 0.

  With `pages`, the keys and values are in so many pages of PAGE positions, and page 0 besides,
  which belongs to no sequence: tokens that no token sees are written there. The functions take a
  table of pages in place of `span`, and `copy_page` is the function `copy`. States stay by slot."""

  # The beginnings of the names of buffers with a row for each slot, which has no positions.
  whole_rows = states.KINDS
  # The rows of the run that finds the shapes of the caches.
  recorded_rows = 2

  def __init__(
    self,
    model: Any,
    slots: int,
    max_tokens: int,
    dtype: torch.dtype | None,
    pages: int | None = None,
  ) -> None:
    super().__init__()
    self.model, self.slots, self.max_tokens, self.pages = model, slots, max_tokens, pages
    parameters = inspect.signature(type(model).forward).parameters
    self.cache_name = "cache" if "cache" in parameters else "past_key_values"
    self.takes_last = "logits_to_keep" in parameters
    self.takes_mask, self._may_take_mask = False, "attention_mask" in parameters
    if self.cache_name not in parameters:
      raise no_decoder(model, "takes no cache of keys and values")
    self._step: Any = steps.PagedStep() if pages else steps.Step()
    self._step.max_tokens = max_tokens
    # torch takes a size for at least 2: one of 1 or 2 would be a constant.
    self.rows = 3 if slots == 2 else slots
    self.chunk = recurrences.most_tokens(model, max_tokens)
    self._slot: int | None = None  # the only one of `decode`, in place of the first ones
    rows, positions = (pages + 1, steps.PAGE) if pages else (self.rows, max_tokens + 1)
    recorded = self._recorded()
    self.layers = len(recorded)
    self._states: dict[int, list[tuple[str, int]]] = {}
    for number, layer in enumerate(recorded):
      for name, one in zip(("keys", "values"), layer.shapes or (), strict=False):
        shape = (rows, one.shape[1], positions)
        zeros = one.new_zeros((*shape, one.shape[3]), dtype=dtype or one.dtype)
        self.register_buffer(f"{name}_{number}", zeros)
        if caches.is_rounded(dtype):
          self.register_buffer(f"{name}_{number}_scales", one.new_zeros(shape, dtype=torch.float32))
      self._states[number] = list(layer.states)
      for (kind, index), state in layer.states.items():
        one = state.buffer
        self.register_buffer(f"{kind}_{number}_{index}", one.new_zeros(self.rows, *one.shape[1:]))

  def by_slots(self) -> Any:
    """An object with `prefill`, `decode`, `verify` and `copy` that take slots and spans."""
    return paging.BySlots(self) if self.pages else self

  @property
  def first(self) -> int:
    """The slot of the first row of `decode`."""
    return 0 if self._slot is None else self._slot

  @property
  def has_states(self) -> bool:
    """Whether layers keep states beside keys and values."""
    return any(self._states.values())

  @property
  def has_rows(self) -> bool:
    """Whether slots have rows of their own beside what is in pages."""
    return any(name.startswith(self.whole_rows) for name, _ in self.named_buffers(recurse=False))

  @property
  def has_keys(self) -> bool:
    """Whether layers keep keys and values."""
    return any(name.startswith("keys_") for name, _ in self.named_buffers(recurse=False))

  @property
  def cache_dtype(self) -> torch.dtype:
    """The type of the keys; without any, that of the first state."""
    buffers = dict(self.named_buffers(recurse=False))
    name = next((one for one in buffers if one.startswith("keys_")), next(iter(buffers)))
    return buffers[name].dtype

  def _layer_count(self) -> int:
    return int(self.model.config.get_text_config(decoder=True).num_hidden_layers)

  def _recorded(self) -> list[Recording]:
    """The layers with the shapes for two tokens, from a run of the model."""
    config = self.model.config.get_text_config(decoder=True)
    device = next(self.model.parameters()).device
    empty = caches.Kept(torch.zeros(1, 0, 2, 0))
    layers = [Recording(self._step, empty, empty) for _ in range(self._layer_count())]
    step = self._step
    step.positions = torch.arange(2, device=device).expand(self.recorded_rows, 2)
    step.slots = torch.zeros_like(step.positions)
    step.span = 2
    with torch.no_grad():
      try:
        logits = self._run(torch.zeros_like(step.positions), layers)
      except TypeError:
        # The model makes a mask of so many tokens as were before, which are not one number here.
        if not self._may_take_mask:
          raise
        self.takes_mask = True
        logits = self._run(torch.zeros_like(step.positions), layers)
    self.vocabulary = int(logits.shape[-1])
    if not any(layer.shapes or layer.states for layer in layers):
      raise no_decoder(self.model, "keeps nothing in its cache")
    while not (layers[-1].shapes or layers[-1].states):  # layers that read the keys of others
      layers.pop()
    kinds = getattr(config, "layer_types", None) or [""] * len(layers)
    missing = [
      str(i)
      for i, layer in enumerate(layers)
      if not (layer.shapes or layer.states) and kinds[i] not in _WITHOUT
    ]
    if missing:
      raise no_decoder(
        self.model, f"has layers that keep nothing in its cache ({', '.join(missing)})"
      )
    return layers

  def _run(self, tokens: torch.Tensor, layers: list[Any], every: bool = False) -> torch.Tensor:
    """The logits of the last token of each row; with `every`, of each token."""
    keywords: dict[str, Any] = {
      **self._inputs(tokens),
      "use_cache": True,
      self.cache_name: self._cache(layers),
    }
    if self.takes_last and not every:
      keywords["logits_to_keep"] = 1
    try:
      logits: torch.Tensor = self.model(**keywords).logits
    finally:
      recurrences.give(None)  # since a call without a cache may follow
    return (logits.flatten(0, 1) if every else logits[:, -1]).float()

  def _cache(self, layers: list[Any]) -> Any:
    """The layers as a cache of transformers."""
    return hooks.cache_of(layers)

  def _inputs(self, tokens: torch.Tensor) -> dict[str, Any]:
    """What the model takes for the tokens of a call."""
    result = {"input_ids": tokens, "position_ids": self._step.positions}
    if self.takes_mask:  # by which each key counts, and none has to be made
      sizes = tokens.shape[0], self._step.span
      result["attention_mask"] = torch.ones(sizes, dtype=torch.int64, device=tokens.device)
    return result

  def _kept(self, name: str) -> caches.Kept:
    numbers = getattr(self, name, None)
    if numbers is None:  # of a layer without attention
      numbers = torch.zeros(1, 0, 2, 0)
    return caches.Kept(numbers, getattr(self, f"{name}_scales", None))

  def _layer(self, number: int) -> hooks.SlotLayer:
    return hooks.SlotLayer(
      self._step,
      self._kept(f"keys_{number}"),
      self._kept(f"values_{number}"),
      {
        (kind, index): states.State(self.get_buffer(f"{kind}_{number}_{index}"))
        for kind, index in self._states[number]
      },
    )

  def _next(self, tokens: torch.Tensor, every: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    layers = [self._layer(number) for number in range(self.layers)]
    of_a_step = isinstance(tokens.shape[1], int) and tokens.shape[1] == 1
    rows = self.slots if self._slot is None else 1
    with mixtures.of_a_step(self.model, rows) if of_a_step else contextlib.nullcontext():
      logits = self._run(tokens, layers, every)
    for layer in layers:
      layer.write_states()
    return logits.argmax(-1), logits

  def prefill(
    self, tokens: torch.Tensor, slot: int, position: int, span: int
  ) -> tuple[torch.Tensor, torch.Tensor]:
    """Takes `tokens` (int64[n]) of the sequence in `slot`, of which the first is at `position`.
    `span` is how many positions of the cache are read, at least position + n; with pages a table
    (int64[m]) with those of the first m * PAGE positions. Returns the most likely next token, as
    int64[1], and the logits as f32[1, vocabulary]."""
    torch._check(slot >= 0)
    torch._check(slot < self.slots)
    torch._check(position >= 0)
    step = self._step
    step.positions = (torch.arange(tokens.shape[0], device=tokens.device) + position)[None]
    step.slots = torch.zeros_like(step.positions) + slot
    step.first, step.rows = slot, 1
    step.see(span)
    torch._check(position + tokens.shape[0] <= step.span)
    return self._next(tokens[None])

  def decode(
    self, tokens: torch.Tensor, positions: torch.Tensor, span: int
  ) -> tuple[torch.Tensor, torch.Tensor]:
    """Takes a token (int64[n]) of each of the first n slots, at `positions` (int64[n]). `span` is
    how many positions of the caches are read, more than the largest position; with pages a table
    (int64[n, m]) with those of the first m * PAGE positions of each slot, 0 where it has none.
    Returns the most likely next tokens, as int64[n], and the logits as f32[n, vocabulary]."""
    # Sizes that are known to be equal are not broadcast, for which torch would exclude 1.
    torch._check(positions.shape[0] == tokens.shape[0])
    step = self._step
    step.positions = positions[:, None]
    step.slots = torch.arange(tokens.shape[0], device=tokens.device)[:, None]
    if self._slot is not None:
      step.slots = torch.zeros_like(step.positions) + self._slot
    step.first, step.rows = self.first, tokens.shape[0]
    step.see(span)
    return self._next(tokens[:, None])

  def single(
    self, tokens: torch.Tensor, positions: torch.Tensor, slot: int, span: int, more: Any = None
  ) -> tuple[torch.Tensor, torch.Tensor]:
    """`decode` of a token (int64[1]) of one slot, by kernels for a single row. `span` and `more`
    are what `decode` takes for the slot after its positions."""
    torch._check(slot >= 0)
    torch._check(slot < self.slots)
    self._slot = slot
    try:
      return self.decode(tokens, positions, span, *(() if more is None else (more,)))
    finally:
      self._slot = None

  def verify(
    self, tokens: torch.Tensor, positions: torch.Tensor, span: int
  ) -> tuple[torch.Tensor, torch.Tensor]:
    """Takes k tokens (int64[n, k]) of each of the first n slots, of which the first ones are at
    `positions` (int64[n]). `span` is as in `decode`. Tokens beyond the last position of a sequence,
    and those without a page, are not kept. Returns what follows each token: the most likely ones,
    as int64[n * k], and the logits as f32[n * k, vocabulary]."""
    torch._check(positions.shape[0] == tokens.shape[0])
    step = self._step
    each = torch.arange(tokens.shape[1], device=tokens.device)[None]
    step.positions = (positions[:, None] + each).clamp(max=self.max_tokens)
    slots = torch.arange(tokens.shape[0], device=tokens.device)
    step.slots = slots[:, None] + torch.zeros_like(each)
    step.first, step.rows = 0, tokens.shape[0]
    step.see(span)
    return self._next(tokens, every=True)

  def copy(self, source: int, slot: int, position: int, count: int) -> torch.Tensor:
    """Gives `slot` the keys and values that the slot `source` has at `count` positions, of which
    the first is `position`, and its states, which are those after its last token. Returns position
    + count, since a function has an output."""
    for number in (source, slot):
      torch._check(number >= 0)
      torch._check(number < self.slots)
    torch._check(position >= 0)
    torch._check(count >= 1)
    torch._check(position + count <= self.max_tokens)
    buffers = dict(self.named_buffers(recurse=False))
    device = next(iter(buffers.values())).device
    # torch takes a size for at least 2: one position more is copied, which no token sees.
    each = torch.arange(count + 1, device=device)[None]
    end = each[0, -1:] + position
    positions = torch.where(each < count, each + position, self.max_tokens)
    slots = torch.zeros_like(positions)
    row = slots[0, :1]
    for name, buffer in buffers.items():
      where = (row,) if name.startswith(self.whole_rows) else (slots, None, positions)
      rows = torch.ops.aten.index(buffer, (where[0] + source, *where[1:]))
      torch.ops.aten.index_put_(buffer, (where[0] + slot, *where[1:]), rows)
    return end

  def copy_page(
    self, source: int, page: int, from_slot: int | None = None, slot: int | None = None
  ) -> torch.Tensor:
    """Gives `page` the keys and values of the page `source`, and `slot` the other rows of
    `from_slot`, if slots have some. Returns `page`, since a function has an output."""
    assert self.pages is not None
    for number in (source, page):
      torch._check(number >= 0)
      torch._check(number <= self.pages)
    buffers = dict(self.named_buffers(recurse=False))
    row = torch.zeros(1, dtype=torch.int64, device=next(iter(buffers.values())).device)
    for name, buffer in buffers.items():
      one, other = source, page
      if name.startswith(self.whole_rows):
        assert from_slot is not None and slot is not None
        one, other = from_slot, slot
        for number in (one, other):
          torch._check(number >= 0)
          torch._check(number < self.slots)
      torch.ops.aten.index_put_(buffer, (row + other,), torch.ops.aten.index(buffer, (row + one,)))
    return row + page

  def embed(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The hidden states of the last layer for a text (int64[n]), which the head of the model takes,
    as f32[n, numbers], and their mean, as f32[numbers]. No slot takes part."""
    positions = torch.arange(tokens.shape[0], device=tokens.device)[None]
    found = (
      self.model.base_model(input_ids=tokens[None], position_ids=positions, use_cache=False)
      .last_hidden_state[0]
      .float()
    )
    return found, found.mean(0)


def no_decoder(model: Any, reason: str) -> Unsupported:
  return Unsupported(
    f"the architecture {model.config.model_type!r} {reason}",
    remedy=REMEDY,
  )


def tolerance(decoder: Decoder, exact_cache: bool) -> float:
  """How far logits may be from those of the model, as a part of the largest one."""
  dtype = decoder.cache_dtype
  if caches.is_rounded(dtype):
    return _ROUNDED_TOLERANCE
  return _TOLERANCES.get(dtype, _HALF_TOLERANCE) if exact_cache else _HALF_TOLERANCE


def check(
  decoder: Decoder, right: torch.Tensor, tokens: torch.Tensor, exact_cache: bool = True
) -> None:
  """Compares the decoder with `right`, the logits of the model as it is after the last of `tokens`
  (int64[n]). The tokens are taken in two chunks and one by one, in a slot that is not the first if
  there are several. The last call reads positions, too, that no token has yet, since some models
  take the last position that is read for that of the token. The caches are zeros afterwards."""
  count, slot = len(tokens), decoder.slots - 1
  split, single = count // 2, count - 2
  wide = min(decoder.max_tokens, _WIDE)
  functions = decoder.by_slots()
  with torch.no_grad():
    # A sequence must not see what the slot has of another one.
    functions.prefill(tokens[split:single], slot, 0, split)
    functions.prefill(tokens[:split], slot, 0, split)
    functions.prefill(tokens[split:single], slot, split, single)
    logits = right
    for at in range(single, count):
      row = torch.zeros(decoder.slots, dtype=torch.int64, device=tokens.device)
      positions = row.clone()
      row[slot], positions[slot] = tokens[at], at
      _, found = functions.decode(row, positions, wide if at == count - 1 else at + 1)
      logits = found[slot]
    for buffer in decoder.buffers(recurse=False):
      buffer.zero_()
  error = float((logits - right).abs().max() / right.abs().max().clamp(min=1e-6))
  if not error <= tolerance(decoder, exact_cache):
    raise no_decoder(
      decoder.model,
      "does not follow transformers' hooks for attention, masks and caches: by these its logits "
      f"differ by {error:.2g} of the largest one",
    )


def check_features(decoder: Decoder, tokens: torch.Tensor) -> None:
  """Compares `verify`, which no decoder with states has, and `decode` after `copy`, with `decode`
  alone. The caches are zeros afterwards."""
  count, slot = len(tokens), decoder.slots - 1
  begin = count - 3
  row = torch.zeros(decoder.slots, 3, dtype=torch.int64, device=tokens.device)
  positions = torch.full_like(row[:, 0], decoder.max_tokens)
  row[slot], positions[slot] = tokens[begin:], begin
  functions = decoder.by_slots()
  with torch.no_grad():
    functions.prefill(tokens[:begin], slot, 0, begin)
    found = []
    if not decoder.has_states:
      found.append(functions.verify(row, positions, count)[1].unflatten(0, row.shape)[slot, -1])
    for k in range(2):
      at = (positions + k).clamp(max=decoder.max_tokens)
      functions.decode(row[:, k], at, count)
    if slot > 0:
      functions.copy(slot, 0, 0, count - 1)
    at = (positions + 2).clamp(max=decoder.max_tokens)
    right = functions.decode(row[:, 2], at, count)[1][slot]
    if slot > 0:
      row[0], positions[0] = row[slot], begin
      found.append(functions.decode(row[:1, 2], positions[:1] + 2, count)[1][0])
    for buffer in decoder.buffers(recurse=False):
      buffer.zero_()
  limit = _TOLERANCES.get(decoder.cache_dtype, _HALF_TOLERANCE)
  error = max((float((one - right).abs().max()) for one in found), default=0.0)
  if not error <= limit * float(right.abs().max()):
    raise no_decoder(
      decoder.model,
      "gives other logits for several tokens of a sequence than for one: leave verify out of the "
      f"features; they differ by {error:.2g}",
    )
