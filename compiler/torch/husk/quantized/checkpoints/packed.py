"""Codes of 2, 3, 4 and 8 bits that checkpoints pack into words, as unsigned bytes and as the codes
of `husk::linear_quantized`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..codes import pairs

if TYPE_CHECKING:
  import torch


def unpacked(words: torch.Tensor, bits: int, count: int) -> torch.Tensor:
  """The first `count` codes of each row of words, as bytes. A row is one string of bits, the lowest
  ones first."""
  import torch

  bytes_ = words.contiguous().view(torch.uint8)
  if bits == 3:  # eight codes in three bytes
    bytes_ = torch.nn.functional.pad(bytes_, (0, -bytes_.shape[-1] % 3))
    parts = bytes_.unflatten(-1, (-1, 3)).to(torch.int32)
    joined = parts[..., 0] | parts[..., 1] << 8 | parts[..., 2] << 16
    shifts = torch.arange(0, 24, 3, dtype=torch.int32)
    codes = (joined[..., None] >> shifts & 7).to(torch.uint8)
  else:
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8)
    codes = bytes_[..., None] >> shifts & (1 << bits) - 1
  return codes.flatten(-2)[..., :count]


def matrix(codes: torch.Tensor, bits: int) -> torch.Tensor:
  """Unsigned codes, n x k, as the operators take them, which read them as the code less half of the
  number of codes."""
  import torch

  if bits == 8:
    return (codes ^ 128).view(torch.int8)
  return pairs(codes + (8 - (1 << bits - 1)))


def matrix_of_words(words: torch.Tensor, bits: int, count: int) -> torch.Tensor:
  """`matrix` of the first `count` codes of each row of words."""
  import torch

  if bits == 4:  # a byte has its two codes in the same order
    return words.contiguous().view(torch.uint8)[:, : -(-count // 2)].contiguous()
  return matrix(unpacked(words, bits, count), bits)
