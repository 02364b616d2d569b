"""Rotary embeddings whose frequencies transformers chooses by the largest position of a call.

A file has one choice for all of its texts, that for `max_tokens` positions. Else a slot would have
other frequencies because of the tokens of another one, and a prompt others in its first chunk than
in its last one."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import torch

# The kinds of transformers, by their names in configurations, and one whose frequencies stay.
_KINDS = ("longrope", "dynamic")
_FIXED = "default"


@contextlib.contextmanager
def chosen(model: torch.nn.Module, max_tokens: int) -> Iterator[None]:
  """While open, a model has the frequencies for a text of `max_tokens` tokens at all positions."""
  found: list[tuple[Any, str]] = [
    (module, kind)
    for module in model.modules()
    if isinstance(kind := getattr(module, "rope_type", None), str) and kind in _KINDS
  ]
  before = [module.inv_freq.clone() for module, _ in found]
  try:
    for module, kind in found:
      at = torch.tensor([[max_tokens - 1]], device=module.inv_freq.device)
      with torch.no_grad():
        module(torch.zeros(1, device=at.device), at)
      module.rope_type = _FIXED
      _note(module, kind, max_tokens)
    yield
  finally:
    for (module, kind), frequencies in zip(found, before, strict=True):
      module.rope_type, module.inv_freq = kind, frequencies


def _note(module: Any, kind: str, max_tokens: int) -> None:
  """Logs that short texts have other frequencies than in transformers."""
  fields = getattr(module.config, "rope_parameters", None) or {}
  original = fields.get("original_max_position_embeddings")
  if kind == "longrope" and original is not None and max_tokens > original:
    logging.getLogger("husk").warning(
      "max_tokens=%d: all texts have the rotary frequencies of texts of more than %d tokens, which "
      "transformers gives to these alone; with max_tokens=%d short texts have their own",
      max_tokens,
      original,
      original,
    )
