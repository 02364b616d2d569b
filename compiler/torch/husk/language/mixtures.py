"""Mixtures of experts in a step of decoding: the form in which transformers multiplies few rows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

# Forms of transformers: rows that are sorted by expert, and a product for each row.
_SORTED, _BY_ROW = "grouped_mm", "batched_mm"
_FORM = "_experts_implementation"


@contextlib.contextmanager
def of_a_step(model: Any, slots: int) -> Iterator[None]:
  """Lets the layers of experts multiply row by row while open, if the tokens of all slots choose at
  most half as many experts as a layer has. Each row reads its matrices, and nothing is sorted. With
  more tokens, some would share matrices."""
  chosen = getattr(model.config.get_text_config(), "num_experts_per_tok", None)
  configs = []
  for layer in model.modules():
    config, count = getattr(layer, "config", None), getattr(layer, "num_experts", None)
    if not isinstance(count, int) or not isinstance(chosen, int):
      continue
    if 2 * slots * chosen <= count and getattr(config, _FORM, None) == _SORTED:
      configs.append(config)
  for config in configs:
    setattr(config, _FORM, _BY_ROW)
  try:
    yield
  finally:
    for config in configs:
      setattr(config, _FORM, _SORTED)
