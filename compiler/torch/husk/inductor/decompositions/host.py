"""The decompositions of hosts: operators that the host computes in part only, in terms of those
that it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import host_complex, memory, pool, reduce


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions by operator. One that returns NotImplemented leaves the call as it is."""
  import torch

  aten = torch.ops.aten
  return {
    **memory.table(),
    **pool.averages(),
    aten.index_add.default: reduce.index_add_of_bf16,
    **host_complex.table(),
  }
