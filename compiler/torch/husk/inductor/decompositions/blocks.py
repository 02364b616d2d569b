"""`husk::scaled_blocks`: products of matrices in fp8 whose rows have a scale for each block of
columns, as those of DeepSeek's models have.

The calls that mean it are `ao::blockwise_fp8_gemm`, torchao's, and `aten::_scaled_mm` with scales
of blocks. GPUs have a template for it (cuda/eight_bits.py), hosts compute it in f32."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import own_operators

if TYPE_CHECKING:
  import torch

# A torch.ops overload.
Operator = Any


@functools.cache
def operator() -> Operator:
  """husk::scaled_blocks, which is defined once per process: a times the transposed b. `a` is m x k,
  with m x k/128 scales in f32; `b` is n x k, with scales for blocks of `columns` of its n rows and
  128 of its k columns. `dtype` is that of the result."""
  return own_operators.define(
    "scaled_blocks",
    "Tensor a, Tensor a_scales, Tensor b, Tensor b_scales, int columns, ScalarType dtype",
    _fake,
    eager=arithmetic,
  )


def _fake(
  a: torch.Tensor,
  a_scales: torch.Tensor,
  b: torch.Tensor,
  b_scales: torch.Tensor,
  columns: int,
  dtype: torch.dtype,
) -> torch.Tensor:
  return a.new_empty([a.shape[0], b.shape[0]], dtype=dtype)


def arithmetic(
  a: torch.Tensor,
  a_scales: torch.Tensor,
  b: torch.Tensor,
  b_scales: torch.Tensor,
  columns: int,
  dtype: torch.dtype,
) -> torch.Tensor:
  """The product by operators of torch's."""
  of_rows = b_scales.repeat_interleave(columns, 0)[: b.shape[0]] if columns > 1 else b_scales
  return (_numbers(a, a_scales) @ _numbers(b, of_rows).mT).to(dtype)


def _numbers(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
  import torch

  blocks = codes.to(torch.float32).reshape(codes.shape[0], scales.shape[1], -1)
  return (blocks * scales[:, :, None]).reshape(codes.shape)


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions of CUDA targets by operator."""
  import torch

  of_blocks = functools.partial(scaled, operator())
  return {torch.ops.aten._scaled_mm.default: of_blocks, **of_torchao(operator())}


def of_torchao(product: Callable[..., Any]) -> dict[Any, Callable[..., Any]]:
  """The decomposition of torchao's operator, which torchao defines when it is imported, by a
  `product` with the arguments of husk::scaled_blocks."""
  import torch

  if not hasattr(torch.ops.ao, "blockwise_fp8_gemm"):
    return {}

  def decomposed(
    a: torch.Tensor,
    a_scales: torch.Tensor,
    b: torch.Tensor,
    b_scales: torch.Tensor,
    block: int = 128,
  ) -> Any:
    *outer, k = a.shape
    a_scales = a_scales.reshape(-1, k // block)
    chosen = product if block == _BLOCK else arithmetic
    result = chosen(a.reshape(-1, k), a_scales, b, b_scales, block, torch.bfloat16)
    return result.reshape(*outer, b.shape[0])

  return {torch.ops.ao.blockwise_fp8_gemm.default: decomposed}


def scaled(
  product: Callable[..., Any],
  x: torch.Tensor,
  y: torch.Tensor,
  x_scale: torch.Tensor,
  y_scale: torch.Tensor,
  bias: torch.Tensor | None = None,
  result_scale: torch.Tensor | None = None,
  out_dtype: torch.dtype | None = None,
  use_fast_accum: bool = False,
) -> Any:
  """`aten::_scaled_mm` of x with y, k x n, by `product`; NotImplemented if the scales are not those
  of blocks of 128 columns of x and of 1 or 128 of y. Scales of 128 rows of x are those of each."""
  import torch

  (m, k), n = x.shape, y.shape[1]
  if result_scale is not None:
    return NotImplemented
  if x_scale.dtype is not torch.float32 or x_scale.dim() != 2 or y_scale.dim() != 2:
    return NotImplemented
  if not isinstance(k, int) or k % _BLOCK or y_scale.shape[0] != k // _BLOCK:
    return NotImplemented
  if x_scale.shape[1] != k // _BLOCK or y_scale.shape[1] not in (n, -(-n // _BLOCK)):
    return NotImplemented
  if tuple(x_scale.shape) != (m, k // _BLOCK):
    x_scale = x_scale.repeat_interleave(_BLOCK, 0)[:m]
  columns = 1 if y_scale.shape[1] == n else _BLOCK
  result = product(x, x_scale, y.mT, y_scale.mT, columns, out_dtype or x.dtype)
  return result if bias is None else result + bias


# The columns of a block of aten::_scaled_mm, and of the template of GPUs.
_BLOCK = 128
