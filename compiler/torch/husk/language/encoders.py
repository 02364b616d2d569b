"""Models of transformers with an encoder and a decoder, of text (T5, BART, Marian) or of speech
(Whisper).

A file has one function more than that of a decoder: `encode` runs the encoder, and writes the keys
and values by which the layers of the decoder attend to its result. Each slot has a row of them, and
the number of positions that count. `prefill` and `decode` read them. All of it is transformers' own
code, which keeps both kinds of keys and values in an EncoderDecoderCache."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import unittest.mock
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from ..errors import Unsupported
from ..exporter import Function
from ..text.encoders import Kind
from . import caches, decoder, hooks, steps

# By default, the most tokens of the encoder and of the decoder, if the model allows more.
MOST_TOKENS = 1024
# Tokens of a prompt of a decoder that one call takes. Few prompts have more.
_CHUNK = 256
# The fields of a configuration with the number of layers of the decoder.
_LAYERS = ("num_hidden_layers", "decoder_layers", "num_decoder_layers")


@dataclasses.dataclass(frozen=True)
class Encoder:
  """What the file says of the encoder, and the tokens that never come, in all of a text and as its
  first one."""

  kind: Kind
  suppressed: tuple[int, ...] = ()
  first_suppressed: tuple[int, ...] = ()


def has_encoder(model: Any) -> bool:
  """Whether a model of transformers has an encoder and a decoder."""
  return bool(getattr(model.config, "is_encoder_decoder", False))


def most_tokens(model: Any) -> int | None:
  """The most tokens of the decoder, if the model has a limit."""
  for name in ("max_target_positions", "max_position_embeddings"):
    if (found := getattr(model.config, name, None)) is not None:
      return int(found)
  return None


def of_model(model: Any, max_tokens: int | None, generation: Mapping[str, Any]) -> Encoder:
  """How a model takes the input of its encoder, before it uses the hooks. `generation` are its
  settings of generation."""
  kind = model.config.model_type
  start = _start(model, generation)
  suppressed = _suppressed(model, generation.get("suppress_tokens"))
  first_suppressed = _suppressed(model, generation.get("begin_suppress_tokens"))
  name = getattr(model, "main_input_name", None)
  if name == "input_ids":
    limit = getattr(model.config, "max_position_embeddings", None)
    by_default = min(limit or MOST_TOKENS, MOST_TOKENS)
    most = by_default if max_tokens is None else max_tokens
    if most < 8:
      raise ValueError(f"max_encoder_tokens={most}: give at least 8")
    if limit is not None and most > limit:
      raise ValueError(f"max_encoder_tokens={most}: this {kind} takes up to {limit} tokens")
    return Encoder(Kind(most, start), suppressed, first_suppressed)
  if max_tokens is not None:
    raise ValueError(
      f"max_encoder_tokens={max_tokens}: the encoder of this {kind} takes features of one length"
    )
  return Encoder(_of_features(model, name, start), suppressed, first_suppressed)


def _of_features(model: Any, name: str | None, start: tuple[int, ...]) -> Kind:
  bins = getattr(model.config, "num_mel_bins", None)
  positions = getattr(model.config, "max_source_positions", None)
  if name == "input_features" and bins and positions:
    shape = (int(bins), 2 * int(positions))
    parameter = next(model.parameters())
    with torch.no_grad(), contextlib.suppress(ValueError, RuntimeError):
      zeros = torch.zeros(1, *shape, dtype=parameter.dtype, device=parameter.device)
      if model.get_encoder()(**{name: zeros}).last_hidden_state.shape[1] == positions:
        return Kind(positions, start, shape)
  raise Unsupported(
    f"the architecture {model.config.model_type!r} has an encoder whose input ({name}) the export "
    "does not know",
    remedy="encoders take tokens, or the features of Whisper; husk.export takes others with a "
    "wrapper of your own",
  )


def _suppressed(model: Any, tokens: Iterable[int] | None) -> tuple[int, ...]:
  size = model.config.get_text_config(decoder=True).vocab_size
  return tuple(one for one in tokens or () if 0 <= one < size)


def _start(model: Any, generation: Mapping[str, Any]) -> tuple[int, ...]:
  """The tokens with which the decoder begins, by the settings of generation."""
  first = generation.get("decoder_start_token_id")
  if first is None:
    first = getattr(model.config, "decoder_start_token_id", None)
  if not isinstance(first, int):
    raise Unsupported(
      f"the {model.config.model_type} has no token with which its decoder begins "
      f"(decoder_start_token_id is {first})",
      remedy="set decoder_start_token_id in the configuration of the checkpoint or the model",
    )
  result = [first]
  pairs: list[Any] = sorted(generation.get("forced_decoder_ids") or [])
  for position, token in pairs:
    if position != len(result) or token is None:
      break
    result.append(int(token))
  forced = generation.get("forced_bos_token_id")
  if len(result) == 1 and isinstance(forced, int):
    result.append(forced)
  return tuple(result)


class _Source(steps.Step):
  """Where the keys and values for the result of an encoder belong."""

  is_filled = False  # whether a call reads them; else it writes them


class _RecordingCross(hooks.CrossLayer):
  """A layer that notes the shapes of its keys and values, and keeps nothing."""

  shapes: tuple[torch.Tensor, torch.Tensor] | None = None

  def update(
    self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
  ) -> tuple[torch.Tensor, torch.Tensor]:
    self.shapes = (key_states, value_states)
    return key_states, value_states


@contextlib.contextmanager
def used_by(model: Any) -> Iterator[None]:
  """Lets a decoder take positions of its own for each row while open. Some embeddings of positions
  take one dimension, add another in front of it, and so give one too many for positions of rows."""
  hooked = []
  for module in model.get_decoder().modules():
    if "position_ids" in inspect.signature(module.forward).parameters:
      hooked.append(module.register_forward_hook(_without_first))
  try:
    yield
  finally:
    for hook in hooked:
      hook.remove()


def _without_first(_module: Any, _inputs: Any, result: Any) -> Any:
  return result[0] if isinstance(result, torch.Tensor) and result.dim() == 4 else None


class EncoderDecoder(decoder.Decoder):
  """A decoder whose slots have the keys and values of an encoder's result beside their own. Those
  of the first `source_lengths` positions of a slot count."""

  whole_rows = (*decoder.Decoder.whole_rows, "cross_", "source_")
  recorded_rows = 1  # as the result of the encoder

  def __init__(
    self,
    model: Any,
    slots: int,
    max_tokens: int,
    dtype: torch.dtype | None,
    encoder: Encoder,
    pages: int | None = None,
  ) -> None:
    self.encoder, self._source = encoder, _Source()
    # None: the call reads what an encoder has given before.
    self._hidden: torch.Tensor | None = None
    self._cross: list[Any] = []
    self.model_dtype = next(model.parameters()).dtype
    parameters = inspect.signature(type(model).forward).parameters
    self._takes_positions = "decoder_position_ids" in parameters
    self._suppressed: tuple[int, ...] = ()
    self._first_suppressed: tuple[int, ...] = ()
    super().__init__(model, slots, max_tokens, dtype, pages)
    self.chunk = min(self.chunk, _CHUNK)
    recorded, self._cross = self._cross, []
    self._cross_layers = [layer.shapes is not None for layer in recorded]
    if not any(self._cross_layers):
      raise decoder.no_decoder(model, "keeps no keys and values for its encoder")
    for number, layer in enumerate(recorded):
      for name, one in zip(("keys", "values"), layer.shapes or (), strict=False):
        size = (self.rows, one.shape[1], encoder.kind.positions)
        zeros = one.new_zeros((*size, one.shape[3]), dtype=dtype or one.dtype)
        self.register_buffer(f"cross_{name}_{number}", zeros)
        if caches.is_rounded(dtype):
          scales = one.new_zeros(size, dtype=torch.float32)
          self.register_buffer(f"cross_{name}_{number}_scales", scales)
    device = next(model.parameters()).device
    lengths = torch.zeros(self.rows, dtype=torch.int64, device=device)
    self.register_buffer("source_lengths", lengths)

  def _layer_count(self) -> int:
    # Layers that keep nothing are taken away at the end.
    return max(int(getattr(self.model.config, name, None) or 0) for name in _LAYERS)

  def _recorded(self) -> list[Any]:
    empty = caches.Kept(torch.zeros(1, 0, 2, 0))
    self._cross = [
      _RecordingCross(self._source, empty, empty, self.model_dtype)
      for _ in range(self._layer_count())
    ]
    shape = self.encoder.kind.shape
    device = next(self.model.parameters()).device
    with torch.no_grad():
      zeros = torch.zeros(2, dtype=torch.int64) if shape is None else torch.zeros(shape)
      self._hidden = self._encoded(zeros.to(device))
      try:
        return super()._recorded()
      finally:
        self._hidden = None

  def _encoded(self, source: torch.Tensor) -> torch.Tensor:
    """The result of the encoder."""
    name = self.model.main_input_name
    if self.encoder.kind.shape is not None:
      source = source.to(self.model_dtype)
    result: torch.Tensor = self.model.get_encoder()(**{name: source[None]}).last_hidden_state
    return result

  def _cache(self, layers: list[Any]) -> Any:
    from transformers.cache_utils import (  # pyright: ignore[reportMissingImports]
      EncoderDecoderCache,
    )

    cross = self._cross or [self._cross_layer(i) for i in range(len(self._cross_layers))]
    return EncoderDecoderCache(hooks.cache_of(layers), hooks.cache_of(cross))

  def _cross_layer(self, number: int) -> hooks.CrossLayer:
    keys, values = (self._kept(f"cross_{name}_{number}") for name in ("keys", "values"))
    return hooks.CrossLayer(self._source, keys, values, self.model_dtype)

  def _inputs(self, tokens: torch.Tensor) -> dict[str, Any]:
    step, source = self._step, self._source
    keys = torch.arange(step.span, device=tokens.device)
    hidden = self._hidden
    if hidden is None:  # no layer reads it
      hidden = torch.zeros(1, 1, 1, dtype=self.model_dtype, device=tokens.device)
    result: dict[str, Any] = {
      "decoder_input_ids": tokens,
      "decoder_attention_mask": keys <= step.positions[:, None, :, None],
      "encoder_outputs": (hidden,),
    }
    if self._takes_positions:
      result["decoder_position_ids"] = step.positions
    if source.is_filled and self.encoder.kind.shape is None:
      places = torch.arange(source.span, device=tokens.device)
      # A slot that has no source yet takes no part, and must see something.
      lengths = source.rows_of(self.get_buffer("source_lengths")).clamp(min=1)
      result["attention_mask"] = places < lengths[:, None, None, None]
    return result

  def suppress(self) -> None:
    """From now on the functions give tokens that must not come the logit minus infinity."""
    self._suppressed = self.encoder.suppressed
    self._first_suppressed = self.encoder.first_suppressed

  def _run(self, tokens: torch.Tensor, layers: list[Any], every: bool = False) -> torch.Tensor:
    return _without(super()._run(tokens, layers, every), self._suppressed)

  def encode(self, source: torch.Tensor, slot: int) -> torch.Tensor:
    """Runs the encoder for `slot`. `source` are tokens (int64[n]), or features (f32, of one shape).
    Returns how many positions count, as int64[1]."""
    torch._check(slot >= 0)
    torch._check(slot < self.slots)
    hidden = self._encoded(source)
    to = self._source
    to.positions = torch.arange(hidden.shape[1], device=source.device)[None]
    to.slots = torch.zeros_like(to.positions) + slot
    to.is_filled = False
    # The decoder takes a token for nothing: only its keys and values for the encoder are kept.
    step = self._step
    step.positions = torch.zeros(1, 1, dtype=torch.int64, device=source.device)
    step.slots, step.span = step.positions, 1
    empty = caches.Kept(torch.zeros(1, 0, 2, 0))
    layers = [decoder.Recording(step, empty, empty) for _ in range(self.layers)]
    self._hidden = hidden
    try:
      self._run(step.positions, layers)
    finally:
      self._hidden = None
    count = to.positions[0, -1:] + 1
    torch.ops.aten.index_put_(self.source_lengths, (to.slots[0, :1],), count)
    return count

  def prefill(
    self, tokens: torch.Tensor, slot: int, position: int, span: int, source_span: int | None = None
  ) -> tuple[torch.Tensor, torch.Tensor]:
    """Decoder.prefill, which reads `source_span` positions of what `encode` has written: at least
    as many as it has returned. With features these are all positions."""
    self._read(slot, 1, source_span)
    _, logits = super().prefill(tokens, slot, position, span)
    logits = _without(logits, self._first_suppressed)
    return logits.argmax(-1), logits

  def decode(
    self,
    tokens: torch.Tensor,
    positions: torch.Tensor,
    span: int,
    source_span: int | None = None,
  ) -> tuple[torch.Tensor, torch.Tensor]:
    """Decoder.decode, with `source_span` as in `prefill`, for the longest source of the slots."""
    self._read(0, tokens.shape[0], source_span)
    return super().decode(tokens, positions, span)

  def _read(self, first: int, rows: int, span: int | None) -> None:
    source = self._source
    if span is not None:
      torch._check(span >= 1)
      torch._check(span <= self.encoder.kind.positions)
    source.first, source.rows, source.is_filled = first, rows, True
    source.span = self.encoder.kind.positions if span is None else span

  def with_encoder(self, functions: Mapping[str, Function]) -> dict[str, Function]:
    """The functions, and `encode`."""
    kind, auto = self.encoder.kind, torch.export.Dim.AUTO
    result = dict(functions)
    source = torch.zeros(3, dtype=torch.int64) if kind.shape is None else torch.zeros(kind.shape)
    length = torch.export.Dim("source_length", min=1, max=kind.positions)
    result["encode"] = Function(
      self,
      (source, min(1, self.slots - 1)),
      dynamic_shapes={
        "source": {0: length} if kind.shape is None else None,
        "slot": auto if self.slots > 1 else None,
      },
      method="encode",
    )
    for name in ("prefill", "decode") if kind.shape is None else ():
      one = result[name]
      result[name] = dataclasses.replace(
        one, args=(*one.args, 5), dynamic_shapes={**one.dynamic_shapes, "source_span": auto}
      )
    return result


def _without(logits: torch.Tensor, tokens: tuple[int, ...]) -> torch.Tensor:
  """The logits, with minus infinity for tokens that must not come."""
  if not tokens:
    return logits
  return logits.index_fill(-1, torch.tensor(tokens, device=logits.device), float("-inf"))


@dataclasses.dataclass(frozen=True)
class Probe:
  """Tokens of a decoder, and the logits of the model as it is after them, for each of several
  sources."""

  tokens: torch.Tensor
  cases: tuple[tuple[torch.Tensor, torch.Tensor], ...]


def probe(model: Any, encoder: Encoder, tokens: torch.Tensor) -> Probe:
  """The logits after tokens of a decoder, for sources of random numbers: the longest one that the
  file takes, and then a short one. An encoder may attend in another way to many tokens."""
  random = torch.Generator().manual_seed(0)
  kind, parameter = encoder.kind, next(model.parameters())

  def source(count: int) -> torch.Tensor:
    if kind.shape is not None:
      return torch.randn(kind.shape, generator=random).to(parameter.device)
    size = model.get_encoder().get_input_embeddings().weight.shape[0]
    return torch.randint(3, size, (count,), generator=random).to(parameter.device)

  cases = []
  for count in (kind.positions, min(7, kind.positions)):
    one = source(count)
    given = one if kind.shape is None else one.to(parameter.dtype)
    with torch.no_grad():
      logits = model(
        **{model.main_input_name: given[None]}, decoder_input_ids=tokens[None], use_cache=False
      ).logits[0, -1]
    cases.append((one, logits.float()))
  return Probe(tokens, tuple(cases))


@contextlib.contextmanager
def as_exported() -> Iterator[None]:
  """Some models ask whether they are compiled. While open they take the way that is exported."""
  with unittest.mock.patch.object(torch.compiler, "is_compiling", return_value=True):
    yield


def check(module: EncoderDecoder, right: Probe, exact_cache: bool) -> None:
  """Compares the module with the model as it is, as decoder.check does, in a slot that has had
  another source before, of which it must see nothing."""
  with torch.no_grad(), as_exported():
    for number, (source, logits) in enumerate(right.cases):
      module.encode(right.cases[number - 1][0], module.slots - 1)
      module.encode(source, module.slots - 1)
      decoder.check(module, logits, right.tokens, exact_cache)
  module.suppress()
