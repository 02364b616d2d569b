"""Products of matrices whose dtype or size no template has, sums of products, and distances."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from . import blocks

if TYPE_CHECKING:
  import torch


def table(library: bool = False) -> dict[Any, Callable[..., Any]]:
  """The decompositions by operator. `library`: whether a library computes products of doubles."""
  import torch

  aten = torch.ops.aten
  kept = [torch.float16, torch.bfloat16, torch.float32]
  if library:
    kept.append(torch.float64)
  product, added = functools.partial(_product, kept), functools.partial(_added, kept)
  return {
    aten.mm.default: product,
    aten.bmm.default: product,
    aten.addmm.default: added,
    aten.baddbmm.default: added,
    aten.addbmm.default: _addbmm,
    aten._trilinear.default: _trilinear,
    aten._cdist_forward.default: _cdist,
    aten._pdist_forward.default: _pdist,
  }


def in_other_dtypes() -> dict[Any, Callable[..., Any]]:
  """Products whose result has another dtype than their factors, by operator: products of factors
  that are converted first."""
  import torch

  aten = torch.ops.aten
  return {
    aten.mm.dtype: functools.partial(_converted, aten.mm.default),
    aten.bmm.dtype: functools.partial(_converted, aten.bmm.default),
  }


def _converted(
  product: Callable[..., Any], x: torch.Tensor, y: torch.Tensor, dtype: torch.dtype
) -> Any:
  return product(x.to(dtype), y.to(dtype))


def scaled(
  x: torch.Tensor,
  y: torch.Tensor,
  x_scale: torch.Tensor,
  y_scale: torch.Tensor,
  bias: torch.Tensor | None = None,
  result_scale: torch.Tensor | None = None,
  out_dtype: torch.dtype | None = None,
  use_fast_accum: bool = False,
) -> Any:
  """A product of matrices in fp8 that have one scale, or one for each row of x and each column of
  y, or one for each block."""
  import torch

  block_product = blocks.scaled(
    blocks.arithmetic, x, y, x_scale, y_scale, bias, result_scale, out_dtype, use_fast_accum
  )
  if block_product is not NotImplemented:
    return block_product
  shapes = (x_scale.shape, (x.shape[0], 1)), (y_scale.shape, (1, y.shape[1]))
  known = all(tuple(shape) in ((), (1,), (1, 1), of_rows) for shape, of_rows in shapes)
  if not known or result_scale is not None or x_scale.dtype is not torch.float32:
    return NotImplemented
  result = (x.to(torch.float32) @ y.to(torch.float32)) * x_scale * y_scale
  return (result if bias is None else result + bias).to(out_dtype or x.dtype)


def _is_kept(dtypes: Sequence[torch.dtype], x: torch.Tensor, y: torch.Tensor) -> bool:
  """Whether a product of these matrices is not decomposed: a template or a library computes it, or
  there is none for complex numbers. There is no template for a product without rows or columns."""
  is_empty = any(isinstance(size, int) and size == 0 for size in (*x.shape, y.shape[-1]))
  return x.is_complex() or (x.dtype in dtypes and not is_empty)


def _product(kept: Sequence[torch.dtype], x: torch.Tensor, y: torch.Tensor) -> Any:
  if _is_kept(kept, x, y):
    return NotImplemented
  return (x.unsqueeze(-1) * y.unsqueeze(-3)).sum(-2, dtype=x.dtype)


def _added(
  kept: Sequence[torch.dtype],
  bias: torch.Tensor,
  x: torch.Tensor,
  y: torch.Tensor,
  *,
  beta: float = 1,
  alpha: float = 1,
) -> Any:
  if _is_kept(kept, x, y):
    return NotImplemented
  if not x.dtype.is_floating_point:  # as eager mode, which reads both as numbers of the dtype
    alpha, beta = int(alpha), int(beta)
  product = _product(kept, x, y)
  product = product if alpha == 1 else product * alpha
  return product if beta == 0 else (product + (bias if beta == 1 else bias * beta)).to(x.dtype)


def _addbmm(
  bias: torch.Tensor, x: torch.Tensor, y: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> Any:
  import torch

  rows = x.transpose(0, 1).reshape(x.shape[1], -1)
  bias = bias.expand(x.shape[1], y.shape[2])
  return torch.addmm(bias, rows, y.reshape(-1, y.shape[2]), beta=beta, alpha=alpha)


def _trilinear(
  x: torch.Tensor,
  y: torch.Tensor,
  z: torch.Tensor,
  expand1: Sequence[int],
  expand2: Sequence[int],
  expand3: Sequence[int],
  sumdim: Sequence[int],
  unroll_dim: int = 1,
) -> Any:
  for dim in sorted(expand1):
    x = x.unsqueeze(dim)
  for dim in sorted(expand2):
    y = y.unsqueeze(dim)
  for dim in sorted(expand3):
    z = z.unsqueeze(dim)
  product = x * y * z
  return product.sum(list(sumdim), dtype=product.dtype) if sumdim else product


def bilinear(
  x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, *dims: Any, **more: Any
) -> Any:
  """The sum of products of three tensors that `torch.nn.functional.bilinear` asks for, as a product
  of matrices, whose rows are multiplied by those of `y`."""
  import torch

  *expanded, summed = ([int(dim) for dim in each] for each in dims[:4])
  if [*expanded, summed] != [[1, 3], [0], [1, 2], [2, 3]]:
    return NotImplemented
  if x.dtype not in (torch.float32, torch.float64):
    return NotImplemented
  features, first, second = weight.shape
  columns = weight.permute(1, 0, 2).reshape(first, features * second)
  rows = (x @ columns).reshape(x.shape[0], features, second)
  return (rows * y.unsqueeze(1)).sum(-1)


def _distance(difference: torch.Tensor, p: float) -> torch.Tensor:
  """The p-norms of the last dimension."""
  if p == 0:
    return (difference != 0).sum(-1).to(difference.dtype)
  if p == 1:
    return difference.abs().sum(-1)
  if p == 2:
    return (difference * difference).sum(-1).sqrt()
  if math.isinf(p):
    return difference.abs().amax(-1)
  return difference.abs().pow(p).sum(-1).pow(1 / p)


def _cdist(x: torch.Tensor, y: torch.Tensor, p: float, compute_mode: int | None) -> Any:
  if isinstance(x.shape[-1], int) and x.shape[-1] == 0:
    return NotImplemented
  return _distance(x.unsqueeze(-2) - y.unsqueeze(-3), p)


def _pdist(x: torch.Tensor, p: float = 2) -> Any:
  import torch

  size = x.shape[0]
  if not isinstance(size, int) or (isinstance(x.shape[1], int) and x.shape[1] == 0):
    return NotImplemented
  rows, columns = torch.triu_indices(size, size, 1, device=x.device)
  return _distance(x[rows] - x[columns], p)
