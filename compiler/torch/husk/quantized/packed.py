"""Weights in the layouts of PyTorch's own operators for codes of 4 bits.

`aten::_weight_int4pack_mm`, which is for GPUs, and `aten::_weight_int4pack_mm_for_cpu` multiply
with codes whose order suits their kernels, and with a scale and an offset for each group:
(code - 8) * scale + offset. This module puts the codes in the order of the matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .codes import Codes, pairs, small

if TYPE_CHECKING:
  import torch


def layouts() -> dict[Any, Callable[[torch.Tensor], torch.Tensor | None]]:
  """By operator, what returns a weight as n x k codes from 0 to 15; None if it is damaged."""
  import torch

  return {
    torch.ops.aten._weight_int4pack_mm.default: _of_tiles,
    torch.ops.aten._weight_int4pack_mm_for_cpu.default: _of_blocks,
  }


def codes_of_packed(
  operator: Any, weight: torch.Tensor, group: int, scales_and_offsets: torch.Tensor
) -> Codes | None:
  """The weight of a call of an operator of `layouts`. `scales_and_offsets` is k / group x n x 2."""
  import torch

  codes = layouts()[operator](weight)
  if codes is None or group <= 0 or codes.shape[1] % group:
    return None
  n, groups = codes.shape[0], codes.shape[1] // group
  if scales_and_offsets.shape != (groups, n, 2):
    return None
  scales, offsets = (one.T.float().contiguous() for one in scales_and_offsets.unbind(2))
  if not bool(torch.isfinite(scales).all() and torch.isfinite(offsets).all()):
    return None
  # A group without a scale is its offset: codes of 0 and a scale of 1.
  has_scale = scales != 0
  of_codes = has_scale.repeat_interleave(group, 1)
  codes = torch.where(of_codes, codes, torch.full_like(codes, 8))
  scales = torch.where(has_scale, scales, torch.ones_like(scales))
  zeros = -offsets.double() / scales.double()
  kept = small(zeros.float()) if bool(zeros.any()) else None
  return Codes(4, group, pairs(codes), small(scales), kept)


# The columns of the 8 codes of a word, less the place of its thread, by the bits that are below
# them: ATen/native/cuda/int4mm.cu.
_COLUMNS = {0: 0, 16: 1, 4: 8, 20: 9, 8: 16, 24: 17, 12: 24, 28: 25}


def _of_tiles(packed: torch.Tensor) -> torch.Tensor | None:
  """The layout for tensor cores: n / 8 x k / (16 t) x 32 threads x t / 2 words of two tiles of
  8 x 16 codes. A thread has two neighbours of each half of a row of a tile."""
  import torch

  if packed.dim() != 4 or packed.shape[2] != 32 or packed.dtype != torch.int32:
    return None
  bands, steps, _, words = packed.shape
  by_place = packed.reshape(bands, steps, 8, 4, words).permute(0, 2, 1, 4, 3)
  codes = packed.new_empty(bands, 8, steps, words, 32)
  for shift, column in _COLUMNS.items():
    codes[..., column : column + 8 : 2] = by_place >> shift & 15
  return codes.reshape(bands * 8, steps * words * 32)


def _of_blocks(packed: torch.Tensor) -> torch.Tensor | None:
  """The layout for CPUs, which depends on the CPU: it is that of this process. Numbers whose digits
  are packed show where each code is."""
  import torch

  if packed.dim() != 2 or packed.dtype != torch.uint8:
    return None
  n, k = packed.shape[0], 2 * packed.shape[1]
  place = torch.arange(n * k).reshape(n, k)
  found = torch.zeros(2, n * k // 2, dtype=torch.int64)
  for digit in range(0, (n * k - 1).bit_length(), 4):
    numbers = (place >> digit & 15).to(torch.int32)
    bytes = torch.ops.aten._convert_weight_to_int4pack_for_cpu(numbers, 2).reshape(-1)
    found |= torch.stack([bytes & 15, bytes >> 4]).to(torch.int64) << digit
  codes = torch.empty(n * k, dtype=torch.uint8)
  flat = packed.cpu().reshape(-1)
  codes[found.reshape(-1)] = torch.cat([flat & 15, flat >> 4])
  return codes.reshape(n, k).to(packed.device)
