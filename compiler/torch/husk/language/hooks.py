"""The hooks that transformers has for exporters: an implementation of attention, the masks that
belong to it, and a cache whose layers are buffers of a module.

Models of transformers call these three wherever they attend or keep a state, so that their own code
is exported, and no list of architectures is needed. `decoder.check` compares the result with the
model as it is, since a model may bypass a hook."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ..attention import scores
from ..errors import Unsupported
from . import caches, recurrences, states

# The name of the hooks in transformers' tables.
NAME = "husk"
# The name for parts of models that take images, in which every key is seen: there is no mask.
IMAGES = "husk_images"
# The property of a configuration that names what the model uses.
_USED = "_attn_implementation"


def attention(
  module: torch.nn.Module,
  query: torch.Tensor,
  key: torch.Tensor,
  value: torch.Tensor,
  attention_mask: torch.Tensor | None,
  scaling: float | None = None,
  dropout: float = 0.0,
  softcap: float | None = None,
  s_aux: torch.Tensor | None = None,
  position_bias: torch.Tensor | None = None,
  **_others: Any,
) -> tuple[torch.Tensor, None]:
  """Attention of queries to the keys and values of a cache, as transformers calls it. Heads may
  share keys. `softcap` limits the scores, `s_aux` has a score for each head of a key without a
  value (an attention sink), and `position_bias` is added to the scores. Returns rows x queries x
  heads x numbers."""
  if position_bias is not None:
    attention_mask = _biased(position_bias, attention_mask, query)
  heads, shared = query.shape[1], key.shape[1]
  if softcap is None and s_aux is None:
    result = torch.nn.functional.scaled_dot_product_attention(
      query, key, value, attn_mask=attention_mask, scale=scaling, enable_gqa=heads != shared
    )
    return result.transpose(1, 2).contiguous(), None
  factor = query.shape[-1] ** -0.5 if scaling is None else scaling
  result = scores.operator()(query, key, value, attention_mask, factor, softcap, s_aux)
  return result.transpose(1, 2).contiguous(), None


def _biased(
  bias: torch.Tensor, attention_mask: torch.Tensor | None, query: torch.Tensor
) -> torch.Tensor:
  """The bias of relative positions (1 x heads x queries x keys), with minus infinity where a mask
  hides a key. A model makes it of the positions of the queries, and takes rows with a query each
  for queries of one row."""
  if isinstance(query.shape[2], int) and query.shape[2] == 1:
    bias = bias.transpose(0, 2)
  return bias if attention_mask is None else bias.masked_fill(~attention_mask, float("-inf"))


def mask(
  batch_size: int,
  q_length: int,
  kv_length: int,
  mask_function: Callable[..., torch.Tensor],
  q_offset: torch.Tensor | int = 0,
  kv_offset: int = 0,
  device: Any = "cpu",
  attention_mask: torch.Tensor | None = None,
  allow_is_bidirectional_skip: bool = False,
  **_others: Any,
) -> torch.Tensor | None:
  """Which keys each query sees, as rows x 1 x queries x keys. `q_offset` is the position of the
  first query of each row, so rows may be at positions of their own. None: each query sees all, as
  in an encoder, for whose masks alone transformers asks whether they may be left out."""
  if allow_is_bidirectional_skip and attention_mask is None:
    return None
  queries = torch.arange(q_length, device=device)[None] + q_offset
  keys = torch.arange(kv_length, device=device)[None, None, None] + kv_offset
  rows = torch.arange(batch_size, device=device)[:, None, None, None]
  head = torch.zeros(1, 1, 1, 1, dtype=torch.int64, device=device)
  seen: torch.Tensor = mask_function(rows, head, queries[:, None, :, None], keys)
  return seen.expand(batch_size, 1, q_length, kv_length)


def added_mask(*inputs: Any, dtype: torch.dtype = torch.float32, **others: Any) -> Any:
  """`mask` as numbers that are added to scores."""
  seen = mask(*inputs, **others)
  return None if seen is None else torch.where(seen, 0.0, torch.finfo(dtype).min).to(dtype)


def register() -> None:
  """Puts the hooks into the tables of transformers."""
  from transformers import (  # pyright: ignore[reportMissingImports]
    AttentionInterface,
    AttentionMaskInterface,
  )
  from transformers.cache_utils import CacheLayerMixin  # pyright: ignore[reportMissingImports]

  CacheLayerMixin.register(SlotLayer)
  CacheLayerMixin.register(CrossLayer)
  AttentionInterface.register(NAME, attention)
  AttentionInterface.register(IMAGES, attention)
  AttentionMaskInterface.register(NAME, mask)


@contextlib.contextmanager
def used_by(model: Any, may_attend: bool = False) -> Iterator[bool]:
  """Lets a model use the hooks while open. With `may_attend` it may also compute attention by
  itself, of what the cache returns and with the masks of this module. Yields whether it does."""
  register()
  before = getattr(model.config, _USED)
  model.set_attn_implementation(NAME)
  attends = getattr(model.config, _USED) != NAME
  if attends and not may_attend:
    raise attends_by_itself(model)
  try:
    with recurrences.used_by(model), _own_masks() if attends else contextlib.nullcontext():
      yield attends
  finally:
    model.set_attn_implementation(before)


@contextlib.contextmanager
def _own_masks() -> Iterator[None]:
  """While open, the masks of transformers' own implementations are those of this module."""
  from transformers import masking_utils  # pyright: ignore[reportMissingImports]

  table, masks = masking_utils.ALL_MASK_ATTENTION_FUNCTIONS, {"eager": added_mask, "sdpa": mask}
  before = {name: table[name] for name in masks}
  try:
    table.update(masks)
    yield
  finally:
    table.update(before)


def attends_by_itself(model: Any) -> Unsupported:
  return Unsupported(
    f"the architecture {model.config.model_type!r} computes attention by itself",
    remedy="its code in transformers has no hook for attention (AttentionInterface), and does not "
    "compute it of any cache and mask alone, so it cannot be exported as a language model; "
    "husk.export takes it with a wrapper of your own",
  )


class SlotLayer:
  """The cache of one layer, as transformers calls it. Keys and values are buffers of slots x heads
  x positions x numbers: a call writes the positions of its tokens and returns those up to
  `step.span`. The states are by kind and number."""

  is_compileable = False
  is_sliding = False
  is_initialized = True
  records = False  # whether it notes shapes alone

  def __init__(
    self,
    step: Any,
    keys: caches.Kept,
    values: caches.Kept,
    layer_states: Mapping[tuple[str, int], states.State] | None = None,
  ) -> None:
    self.step, self.keys, self.values = step, keys, values
    self.states = dict(layer_states or {})

  def update(
    self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
  ) -> tuple[torch.Tensor, torch.Tensor]:
    # Both are written before one is read, so that attention reads what no later node writes.
    self.keys.write(self.step, key_states)
    self.values.write(self.step, value_states)
    keys = self.keys.read(self.step, key_states.dtype)
    return keys, self.values.read(self.step, value_states.dtype)

  def get_state(self, kind: str, number: int) -> torch.Tensor | None:
    return self.states[kind, number].read(self.step)

  def update_conv_state(self, inputs: torch.Tensor, number: int, _size: int | None) -> torch.Tensor:
    return self.states["conv", number].join(self.step, inputs)

  def update_recurrent_state(self, state: torch.Tensor, number: int) -> torch.Tensor:
    self.states["recurrent", number].value = state
    return state

  def write_states(self) -> None:
    """Writes the states at the end of a call of the model."""
    for state in self.states.values():
      state.write(self.step)

  def get_mask_sizes(self, _query_length: int) -> tuple[int, int]:
    return self.step.span, 0

  def get_seq_length(self) -> torch.Tensor:
    return self.step.positions[:, :1]

  def get_max_length(self) -> int:
    return int(self.step.max_tokens)


class CrossLayer:
  """What a layer of a decoder keeps of an encoder's result, as transformers calls it. `source` says
  which rows and positions a call writes, or, if `source.is_filled`, which ones it reads."""

  is_compileable = False
  is_sliding = False
  is_initialized = True

  def __init__(
    self, source: Any, keys: caches.Kept, values: caches.Kept, dtype: torch.dtype
  ) -> None:
    self.source, self.dtype = source, dtype
    self._keys, self._values = keys, values

  @property
  def keys(self) -> torch.Tensor:
    return self._keys.read(self.source, self.dtype)

  @property
  def values(self) -> torch.Tensor:
    return self._values.read(self.source, self.dtype)

  def update(
    self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
  ) -> tuple[torch.Tensor, torch.Tensor]:
    self._keys.write(self.source, key_states)
    self._values.write(self.source, value_states)
    return key_states, value_states

  def get_seq_length(self) -> int:
    return int(self.source.is_filled)


def cache_of(layers: Sequence[Any]) -> Any:
  """The layers as an object of transformers' class of caches."""
  from transformers.cache_utils import Cache  # pyright: ignore[reportMissingImports]

  class SlotCache(Cache):
    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:
      found: torch.Tensor | None = layers[layer_idx].get_state("conv", state_idx)
      return found

    def update_conv_state(
      self,
      conv_states: torch.Tensor,
      layer_idx: int,
      state_idx: int = 0,
      conv_kernel_size: int | None = None,
      **_kwargs: Any,
    ) -> Any:
      return layers[layer_idx].update_conv_state(conv_states, state_idx, conv_kernel_size)

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:
      found: torch.Tensor | None = layers[layer_idx].get_state("recurrent", state_idx)
      recurrences.give(found)
      return found

    def update_recurrent_state(
      self, recurrent_states: torch.Tensor, layer_idx: int, state_idx: int = 0, **_kwargs: Any
    ) -> Any:
      return layers[layer_idx].update_recurrent_state(recurrent_states, state_idx)

    def has_previous_state(
      self, layer_idx: int | None = None, state_idx: int | None = None
    ) -> bool:
      return any(bool(layer.states) and not layer.records for layer in layers)

  return SlotCache(layers=list(layers))
