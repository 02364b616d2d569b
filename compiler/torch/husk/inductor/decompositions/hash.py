"""The hash of a tensor: the bits of its elements, combined by an exclusive or."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch


def table() -> dict[Any, Callable[..., Any]]:
  """The decomposition of the operator."""
  import torch

  return {torch.ops.aten.hash_tensor.default: _hash_tensor}


def _hash_tensor(
  x: torch.Tensor, dim: Sequence[int] = (), *, keepdim: bool = False, mode: int = 0
) -> Any:
  """Eager mode takes the bits of floats as float64, and ints as int64."""
  import torch

  if mode or x.is_complex():
    return NotImplemented
  bits = x.double().view(torch.int64) if x.is_floating_point() else x.to(torch.int64)
  dims = sorted({one % x.dim() for one in dim} or range(x.dim())) if x.dim() else []
  found = torch.ops.prims.xor_sum.default(bits, dims) if dims else bits.clone()
  for one in dims if keepdim else ():
    found = found.unsqueeze(one)
  return found.view(torch.uint64)
