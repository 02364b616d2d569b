"""Operators that PyTorch computes by others, with code that asks about sizes: torch.export refuses
sizes that vary, or has the program for those of the example alone. `traced` gives torch.export the
code below in its place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from . import quantile

if TYPE_CHECKING:
  import torch


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions by operator."""
  import torch

  return {**quantile.table(), torch.ops.aten.cdist.default: _cdist}


@contextlib.contextmanager
def traced() -> Iterator[None]:
  """While open, the operators have this implementation for tensors that are traced."""
  import torch

  key = torch._C.DispatchKey.CompositeImplicitAutograd
  operators = {op: function for op, function in table().items() if key not in op.py_kernels}
  for op, function in operators.items():
    op.py_impl(key)(function)
  try:
    yield
  finally:
    for op in operators:
      op.py_kernels.pop(key, None)
      op._dispatch_cache.clear()


# Eager mode computes the distances of more rows by a product, unless it is told not to.
_FEW_ROWS = 25
_ALWAYS_BY_PRODUCT, _NEVER_BY_PRODUCT = 1, 2


def _cdist(
  x: torch.Tensor, y: torch.Tensor, p: float = 2, compute_mode: int | None = None
) -> torch.Tensor:
  """The distances of all rows of `x` from all rows of `y`. Without a number of rows that the export
  knows they are not computed by a product, which has larger rounding errors."""
  import torch

  rows = x.shape[-2], y.shape[-2]
  many = any(size > _FEW_ROWS for size in rows if isinstance(size, int))
  if p == 2 and (compute_mode == _ALWAYS_BY_PRODUCT or many and not compute_mode):
    return torch.ops.aten._euclidean_dist.default(x, y)
  return torch.ops.aten._cdist_forward.default(x, y, p, _NEVER_BY_PRODUCT)
