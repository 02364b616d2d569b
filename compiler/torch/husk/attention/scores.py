"""Attention whose scores have a largest value or a sink: the operator `husk::attention_of_scores`,
which the kernels of CUDA targets compute, and which other targets decompose."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ..inductor import own_operators

if TYPE_CHECKING:
  import torch


@functools.cache
def operator() -> Any:
  """husk::attention_of_scores, which is defined once per process. Tensors are those of
  scaled_dot_product_attention, batches x heads x rows x elements, and heads may share keys. With
  `softcap`, a score x becomes softcap * tanh(x / softcap). `sinks` has a score for each head of the
  query, which is that of one more key without a value. `attn_mask` (bool) says which keys a query
  sees."""
  return own_operators.define(
    "attention_of_scores",
    "Tensor query, Tensor key, Tensor value, Tensor? attn_mask, float scale, "
    "float? softcap=None, Tensor? sinks=None",
    _fake,
    decomposed=_computed,
    eager=_computed,
  )


def _fake(
  query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_others: Any
) -> torch.Tensor:
  import torch

  # Parts of two caches may have sizes of which torch does not know that they are equal.
  torch._check(key.shape[2] == value.shape[2])
  return query.new_empty([*query.shape[:-1], value.shape[-1]])


def _computed(
  query: torch.Tensor,
  key: torch.Tensor,
  value: torch.Tensor,
  attn_mask: torch.Tensor | None,
  scale: float,
  softcap: float | None = None,
  sinks: torch.Tensor | None = None,
) -> torch.Tensor:
  import torch

  heads, shared = query.shape[1], key.shape[1]
  if heads != shared:
    key = key.repeat_interleave(heads // shared, dim=1)
    value = value.repeat_interleave(heads // shared, dim=1)
  scores = (query @ key.transpose(2, 3)).float() * scale
  if softcap is not None:
    scores = torch.tanh(scores / softcap) * softcap
  if attn_mask is not None:
    scores = scores.masked_fill(~attn_mask, float("-inf"))
  if sinks is not None:
    columns = sinks.float().reshape(1, -1, 1, 1).expand(scores.shape[0], -1, scores.shape[2], 1)
    scores = torch.cat([scores, columns], dim=-1)
  weights = torch.softmax(scores, dim=-1)
  if sinks is not None:
    weights = weights[..., :-1]
  return weights.to(value.dtype) @ value
