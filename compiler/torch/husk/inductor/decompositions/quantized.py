"""Scales and zeros of quantized tensors that a program computes itself.

PyTorch's own code of these operators makes a tensor on the CPU, which it does not combine with one
on a GPU, and asks for numbers of tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions by operator; none before `torch.ao.quantization` has defined them."""
  import torch

  quantized = torch.ops.quantized_decomposed
  rows = (("choose_qparams", False), ("choose_qparams_symmetric", True))
  return {
    getattr(quantized, name).tensor: functools.partial(_chosen, is_symmetric)
    for name, is_symmetric in rows
    if hasattr(quantized, name)
  }


def _chosen(
  is_symmetric: bool,
  x: torch.Tensor,
  quant_min: int,
  quant_max: int,
  eps: float,
  dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
  """The scale and the zero of a tensor, as torch.ao.quantization's determine_qparams."""
  import torch

  least, most = (end.clamp(**bound) for end, bound in zip(x.aminmax(), ({"max": 0}, {"min": 0})))
  smallest = torch.full((1,), eps, dtype=torch.float32, device=x.device)
  if is_symmetric:
    scale = torch.maximum(torch.maximum(-least, most) / ((quant_max - quant_min) / 2), smallest)
    zero = torch.full((1,), 128 if dtype is torch.uint8 else 0, dtype=torch.int64, device=x.device)
  else:
    scale = torch.maximum((most - least) / float(quant_max - quant_min), smallest)
    zero = (quant_min - torch.round(least / scale).to(torch.int32)).clamp(quant_min, quant_max)
  return scale.to(torch.float64), zero.to(torch.int64)
