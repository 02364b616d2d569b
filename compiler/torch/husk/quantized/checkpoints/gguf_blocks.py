"""The types of tensors in GGUF files: how many elements a block has, and which codes, scales and
zeros they are.

The operators compute (code - zero) * scale. A type whose elements are code * scale + offset, such
as Q4_1 and Q4_K, has -offset / scale for its zero, rounded to f32 once. So an element differs from
that of the file by up to 2^-24 of |offset| + 8 |scale|. All other types are exact."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..codes import Codes, pairs, small

if TYPE_CHECKING:
  import torch

# Bytes of the rows of a tensor, rows x blocks x bytes, to its codes, or to floats.
_Decoder = Callable[["torch.Tensor"], Any]


@dataclasses.dataclass(frozen=True)
class BlockType:
  """A type: its name, the elements and bytes of a block, and what makes codes or, if they have
  none, numbers of blocks."""

  name: str
  elements: int
  bytes: int
  decode: _Decoder


def _plain(dtype: str) -> _Decoder:
  def decode(blocks: torch.Tensor) -> torch.Tensor:
    import torch

    return _as(blocks, getattr(torch, dtype)).flatten(-2)

  return decode


def _as(bytes_: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
  """Bytes as numbers of another type. Bytes of a block need not be aligned, and copies are."""
  import torch

  return bytes_.clone(memory_format=torch.contiguous_format).view(dtype)


def _halves(bytes_: torch.Tensor) -> torch.Tensor:
  """Floats of 16 bits as f32."""
  import torch

  return _as(bytes_, torch.float16).float()


def _nibbles(bytes_: torch.Tensor) -> torch.Tensor:
  """The low halves of bytes, followed by the high ones."""
  import torch

  return torch.cat([bytes_ & 15, bytes_ >> 4], -1)


def _bits(bytes_: torch.Tensor, width: int) -> torch.Tensor:
  """Numbers of `width` bits: x bytes -> 8 / width x bytes, the lowest bits of all bytes first."""
  import torch

  shifts = torch.arange(0, 8, width, dtype=torch.uint8)[:, None]
  return bytes_[..., None, :] >> shifts & (1 << width) - 1


def _of_4_bits(
  codes: torch.Tensor, scales: torch.Tensor, values: torch.Tensor | None = None
) -> Codes:
  """Codes of 0 to 15, rows x groups x elements, with scales of rows x groups. They stand for the
  code less 8, or for `values`."""
  return Codes(4, codes.shape[-1], _packed(codes), small(scales), None, values)


def _packed(codes: torch.Tensor) -> torch.Tensor:
  rows = codes.flatten(-2)
  return pairs(rows.flatten(0, -2)).reshape(*rows.shape[:-1], -1)


def _of_8_bits(codes: torch.Tensor, scales: torch.Tensor) -> Codes:
  """Codes as ints of 8 bits, rows x groups x elements, with scales of rows x groups."""
  import torch

  return Codes(8, codes.shape[-1], codes.to(torch.int8).flatten(-2), small(scales))


def _with_offset(
  bits: int, codes: torch.Tensor, scales: torch.Tensor, offsets: torch.Tensor
) -> Codes:
  """Codes of 0 and more whose elements are code * scale + offset."""
  import torch

  # A group without a scale is its offset: codes that stand for 0, and a scale of 1.
  middle = 8 if bits == 4 else 0
  is_flat = scales == 0
  codes = torch.where(is_flat[..., None], torch.full_like(codes, middle), codes)
  scales = torch.where(is_flat, torch.ones_like(scales), scales)
  zeros = (-offsets.double() / scales.double() - middle * ~is_flat).float()
  if bits == 4:
    result = _of_4_bits(codes, scales)
  else:
    result = _of_8_bits(codes, scales)
  return dataclasses.replace(result, zeros=small(zeros) if bool(zeros.any()) else None)


def _q4_0(blocks: torch.Tensor) -> Codes:
  return _of_4_bits(_nibbles(blocks[..., 2:]), _halves(blocks[..., :2])[..., 0])


def _q4_1(blocks: torch.Tensor) -> Codes:
  scales, offsets = _halves(blocks[..., :4]).unbind(-1)
  return _with_offset(4, _nibbles(blocks[..., 4:]), scales, offsets)


def _codes_of_5_bits(blocks: torch.Tensor, at: int) -> torch.Tensor:
  """Codes whose fifth bits lie at byte `at` of a block, in the order of the elements, and whose
  other ones follow."""
  import torch

  shifts = torch.arange(8, dtype=torch.uint8)
  high = (blocks[..., at : at + 4, None] >> shifts & 1).flatten(-2)
  return _nibbles(blocks[..., at + 4 :]) | high << 4


def _q5_0(blocks: torch.Tensor) -> Codes:
  import torch

  codes = _codes_of_5_bits(blocks, 2).to(torch.int8) - 16
  return _of_8_bits(codes, _halves(blocks[..., :2])[..., 0])


def _q5_1(blocks: torch.Tensor) -> Codes:
  scales, offsets = _halves(blocks[..., :4]).unbind(-1)
  return _with_offset(8, _codes_of_5_bits(blocks, 4), scales, offsets)


def _q8_0(blocks: torch.Tensor) -> Codes:
  import torch

  return _of_8_bits(blocks[..., 2:].view(torch.int8), _halves(blocks[..., :2])[..., 0])


def _numbers_of_6_bits(bytes_: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
  """The eight scales and eight offsets of a block of 256 elements, in 12 bytes: the first four of
  each have bytes of their own, whose upper bits belong to the last four."""
  import torch

  first, second, third = bytes_.unflatten(-1, (3, 4)).unbind(-2)
  scales = torch.cat([first & 63, third & 15 | (first >> 6) << 4], -1)
  offsets = torch.cat([second & 63, third >> 4 | (second >> 6) << 4], -1)
  return scales.float(), offsets.float()


def _groups_of_32(blocks: torch.Tensor) -> torch.Tensor:
  """128 bytes as eight groups of 32 codes: the low halves of 32 bytes, then their high halves."""
  return _nibbles(blocks.unflatten(-1, (4, 32))).unflatten(-1, (2, 32)).flatten(-3, -2)


def _k_scales(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
  """Scales and offsets of the groups of the types Q4_K and Q5_K, which f32 has exactly."""
  scale, least = _halves(blocks[..., :4]).unbind(-1)
  scales, offsets = _numbers_of_6_bits(blocks[..., 4:16])
  return (scale[..., None] * scales).flatten(-2), -(least[..., None] * offsets).flatten(-2)


def _q4_k(blocks: torch.Tensor) -> Codes:
  scales, offsets = _k_scales(blocks)
  return _with_offset(4, _groups_of_32(blocks[..., 16:]).flatten(-3, -2), scales, offsets)


def _q5_k(blocks: torch.Tensor) -> Codes:
  scales, offsets = _k_scales(blocks)
  codes = _groups_of_32(blocks[..., 48:]) | _bits(blocks[..., 16:48], 1) << 4
  return _with_offset(8, codes.flatten(-3, -2), scales, offsets)


def _q6_k(blocks: torch.Tensor) -> Codes:
  import torch

  low = _nibbles(blocks[..., :128].unflatten(-1, (2, 64))).flatten(-2)
  high = _bits(blocks[..., 128:192].unflatten(-1, (2, 32)), 2).flatten(-3)
  codes = (low | high << 4).to(torch.int8) - 32
  scales = blocks[..., 192:208].view(torch.int8).float() * _halves(blocks[..., 208:])
  return _of_8_bits(codes.unflatten(-1, (16, 16)).flatten(-3, -2), scales.flatten(-2))


def _q2_k(blocks: torch.Tensor) -> Codes:
  scale, least = _halves(blocks[..., 80:]).unbind(-1)
  numbers = blocks[..., :16]
  scales = scale[..., None] * (numbers & 15).float()
  offsets = -least[..., None] * (numbers >> 4).float()
  codes = _bits(blocks[..., 16:80].unflatten(-1, (2, 32)), 2).flatten(-3).unflatten(-1, (16, 16))
  return _with_offset(4, codes.flatten(-3, -2), scales.flatten(-2), offsets.flatten(-2))


def _q3_k(blocks: torch.Tensor) -> Codes:
  low = _bits(blocks[..., 32:96].unflatten(-1, (2, 32)), 2).flatten(-3)
  high = _bits(blocks[..., :32], 1).flatten(-2)
  # The ints are code - 4 with the third bit, and codes of 4 bits stand for the code less 8.
  codes = ((low | high << 2) + 4).unflatten(-1, (16, 16))
  packed = blocks[..., 96:108]
  lows, highs = _nibbles(packed[..., :8]), _bits(packed[..., 8:], 2).flatten(-2)
  scales = ((lows | highs << 4).float() - 32) * _halves(blocks[..., 108:])
  return _of_4_bits(codes.flatten(-3, -2), scales.flatten(-2))


def _iq4_values() -> torch.Tensor:
  import torch

  values = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
  return torch.tensor(values, dtype=torch.float32)


def _iq4_nl(blocks: torch.Tensor) -> Codes:
  return _of_4_bits(_nibbles(blocks[..., 2:]), _halves(blocks[..., :2])[..., 0], _iq4_values())


def _iq4_xs(blocks: torch.Tensor) -> Codes:
  import torch

  high = (blocks[..., 2:4, None] >> torch.arange(0, 8, 2, dtype=torch.uint8) & 3).flatten(-2)
  low = torch.stack([blocks[..., 4:8] & 15, blocks[..., 4:8] >> 4], -1).flatten(-2)
  scales = ((low | high << 4).float() - 32) * _halves(blocks[..., :2])
  codes = _nibbles(blocks[..., 8:].unflatten(-1, (8, 16))).flatten(-3, -2)
  return _of_4_bits(codes, scales.flatten(-2), _iq4_values())


def _mxfp4(blocks: torch.Tensor) -> Codes:
  return _of_4_bits(_nibbles(blocks[..., 1:]), powers_of_two(blocks[..., 0]), e2m1_values())


def e2m1_values() -> torch.Tensor:
  """The 16 numbers of floats of 4 bits, e2m1, by their codes."""
  import torch

  half = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
  return torch.cat([half, -half])


def powers_of_two(exponents: torch.Tensor) -> torch.Tensor:
  """Scales of 8 bits without a mantissa, e8m0, as f32. 255 is NaN."""
  import torch

  powers = torch.exp2(exponents.double() - 127).float()
  return torch.where(exponents == 255, torch.nan, powers)


# By the number that the format has for a type.
TYPES = {
  0: BlockType("F32", 1, 4, _plain("float32")),
  1: BlockType("F16", 1, 2, _plain("float16")),
  2: BlockType("Q4_0", 32, 18, _q4_0),
  3: BlockType("Q4_1", 32, 20, _q4_1),
  6: BlockType("Q5_0", 32, 22, _q5_0),
  7: BlockType("Q5_1", 32, 24, _q5_1),
  8: BlockType("Q8_0", 32, 34, _q8_0),
  10: BlockType("Q2_K", 256, 84, _q2_k),
  11: BlockType("Q3_K", 256, 110, _q3_k),
  12: BlockType("Q4_K", 256, 144, _q4_k),
  13: BlockType("Q5_K", 256, 176, _q5_k),
  14: BlockType("Q6_K", 256, 210, _q6_k),
  20: BlockType("IQ4_NL", 32, 18, _iq4_nl),
  23: BlockType("IQ4_XS", 256, 136, _iq4_xs),
  30: BlockType("BF16", 1, 2, _plain("bfloat16")),
  39: BlockType("MXFP4", 32, 17, _mxfp4),
}

# Types that the format has and that do not load.
_OTHERS = {
  9: "Q8_1",
  15: "Q8_K",
  16: "IQ2_XXS",
  17: "IQ2_XS",
  18: "IQ3_XXS",
  19: "IQ1_S",
  21: "IQ3_S",
  22: "IQ2_S",
  24: "I8",
  25: "I16",
  26: "I32",
  27: "I64",
  28: "F64",
  29: "IQ1_M",
  34: "TQ1_0",
  35: "TQ2_0",
}


def name_of(kind: int) -> str:
  """The name of a type that does not load, for a message."""
  return _OTHERS.get(kind, f"{kind}, which Husk does not know")
