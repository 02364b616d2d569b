"""Experts of one rank, as programs have them until a device takes them. A mixture of experts on
several ranks gives the experts of a token numbers on this rank, and tokens of experts of other
ranks a weight of 0. So whatever an expert of another rank would compute is of no importance, and
its matrix need not be read."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from . import own_operators

if TYPE_CHECKING:
  import torch


@functools.cache
def number() -> Any:
  """husk::expert_of_rank: the number of an expert on the rank that has `count` experts from `first`
  on, and `other` for experts of other ranks. What is computed of those is multiplied by 0."""
  return own_operators.define(
    "expert_of_rank",
    "Tensor index, int first, int count, int other",
    lambda index, first, count, other: index.new_empty(index.shape),
    decomposed=_number,
    eager=_number,
  )


def _number(index: torch.Tensor, first: int, count: int, other: int) -> torch.Tensor:
  import torch

  is_own = (index >= first) & (index < first + count)
  return torch.where(is_own, index - first, other)
