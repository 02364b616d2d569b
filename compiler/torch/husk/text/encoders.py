"""The encoder of a model, and what its functions take: tokens of any number, or features of one
shape."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Kind:
  """How a model takes the input of its encoder, according to the entry `encoder` of
  husk.text.model.

  positions: the most positions that the encoder gives, which is the most tokens that it takes.
  start: the tokens with which the decoder begins.
  shape: that of the features; None if the encoder takes tokens."""

  positions: int
  start: tuple[int, ...]
  shape: tuple[int, ...] | None = None

  @classmethod
  def of(cls, described: Mapping[str, Any] | None) -> Kind | None:
    """None if the file has no encoder."""
    if described is None:
      return None
    shape = described.get("shape")
    return cls(
      described["positions"],
      tuple(described["start"]),
      None if shape is None else tuple(shape),
    )

  def description(self) -> dict[str, Any]:
    """The entry, of which `of` makes the same."""
    return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}

  def source(self, tokens: list[int], features: Any) -> Any:
    """What `encode` takes, as a NumPy array: tokens, or features. Raises ValueError for a wrong
    one."""
    import numpy as np

    if self.shape is None:
      if features is not None:
        raise ValueError("features: the encoder of this file takes tokens: give a prompt alone")
      if not tokens:
        raise ValueError("the prompt has no tokens, and the encoder takes at least one")
      if len(tokens) > self.positions:
        raise ValueError(
          f"the prompt has {len(tokens)} tokens, but the encoder of this file takes up to "
          f"{self.positions}: shorten it, or export the model with a larger max_encoder_tokens"
        )
      return np.array(tokens, np.int64)
    if tokens:
      raise ValueError(
        "the prompt has tokens, but the encoder of this file takes features: give the tokens with "
        "which the decoder begins as decoder_prompt"
      )
    if features is None:
      raise ValueError(
        f"features are missing: the encoder of this file takes {list(self.shape)} numbers, as the "
        "feature extractor of transformers makes them"
      )
    array = np.asarray(features)
    if array.dtype.kind not in "fiu":
      raise ValueError(f"features have the type {array.dtype}: give floats")
    if array.shape not in (self.shape, (1, *self.shape)):
      raise ValueError(
        f"features have the shape {list(array.shape)}, but the encoder of this file takes "
        f"{list(self.shape)}: pad or cut the sound, as the feature extractor of transformers does"
      )
    array = np.ascontiguousarray(array.reshape(self.shape), np.float32)
    if not np.isfinite(array).all():
      raise ValueError("features have numbers that are not finite")
    return array
