"""What a language model keeps of keys and of values: floats, or codes of 8 bits with a scale for
each position and head.

A step writes codes and scales where it would write floats. What it reads is `codes * scales`, by
which attention recognises them (attention/codes.py), so no floats of the cache are in memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

# The types by the names that `export(cache=...)` takes.
KINDS = {
  "float32": torch.float32,
  "bfloat16": torch.bfloat16,
  "float16": torch.float16,
  "bf16": torch.bfloat16,
  "int8": torch.int8,
  "fp8": torch.float8_e4m3fn,
}
# The largest code of a type: the largest number of a position and head becomes that code.
_LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}


def is_rounded(dtype: torch.dtype | None) -> bool:
  """Whether a cache of this type has codes and scales."""
  return dtype in _LARGEST


@dataclasses.dataclass(frozen=True)
class Kept:
  """The keys, or the values, of a layer: rows x heads x positions x numbers. `scales` is
  f32[rows, heads, positions] if the numbers are codes. A row is a slot, or a page."""

  numbers: torch.Tensor
  scales: torch.Tensor | None = None

  def write(self, step: Any, new: torch.Tensor) -> None:
    """Writes the positions of a step (rows x heads x positions x numbers)."""
    new = new.transpose(1, 2)
    where = step.places()
    # `buffer[...] = ` would ask whether the chunk has one token, and the program excluded it.
    put = torch.ops.aten.index_put_
    if self.scales is None:
      put(self.numbers, where, new.to(self.numbers.dtype))
      return
    codes, scales = rounded(new, self.numbers.dtype)
    put(self.scales, where, scales)
    put(self.numbers, where, codes)

  def read(self, step: Any, dtype: torch.dtype) -> torch.Tensor:
    """The positions that a step sees."""
    numbers = step.read(self.numbers)
    if self.scales is None:
      return numbers.to(dtype)
    scales = step.read(self.scales)
    return (numbers.to(torch.float32) * scales.unsqueeze(-1)).to(dtype)


def rounded(numbers: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
  """Codes of the type `dtype` and scales (f32), one for each row of the last dimension."""
  numbers = numbers.float()
  # A row of zeros has a scale that is not zero, by which nothing is divided.
  largest = numbers.abs().amax(-1).clamp(min=2.0**-100)
  codes = numbers * (_LARGEST[dtype] / largest).unsqueeze(-1)
  if dtype == torch.int8:
    codes = codes.round()
  return codes.to(dtype), largest * (1 / _LARGEST[dtype])
