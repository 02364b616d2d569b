"""Finds codes and scales of matrices, however they were made."""

import pytest
import torch
from husk.quantized import codes
from husk.quantized.operator import numbers

FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def random(*shape, seed=0):
  return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def ints(low, high, *shape, seed=1):
  return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


def found(matrix, *made_from):
  """The codes of a matrix, whose numbers are those of the matrix up to the rounding of its type."""
  result = codes.codes_of(matrix, made_from)
  assert result is not None
  right = numbers(
    result.codes, result.scales, result.zeros, result.values, result.bits, result.group
  )
  # An offset is larger than the sum with it may be.
  eps = torch.finfo(matrix.dtype).eps
  largest = float(matrix.abs().max()) if result.zeros is not None else 0
  torch.testing.assert_close(right.to(matrix.dtype), matrix, rtol=2 * eps, atol=4 * eps * largest)
  return result


@pytest.mark.parametrize("dtype", FLOATS)
def test_ints_with_scales(dtype):
  for low, high, bits in ((-8, 8, 4), (-128, 128, 8), (-2, 2, 4)):
    for group in (8, 32, 64):
      scales = (random(24, 64 // group) * 0.1 + 0.01).to(dtype)
      plain = ints(low, high, 24, 64).to(dtype)
      matrix = plain * scales.repeat_interleave(group, 1)
      for scale_tensor in (scales, scales.T, scales[:, :, None]):
        result = found(matrix, plain, scale_tensor)
        assert (result.bits, result.group, result.zeros) == (bits, group, None)
        assert result.scales.dtype == dtype


def test_scales_of_a_row_of_all_and_of_none():
  plain = ints(-128, 128, 24, 64).float()
  assert found(plain * random(24, 1), plain, random(24, 1)).group == 64
  assert found(plain * 0.03, plain, torch.tensor(0.03)).group == 64
  assert torch.equal(found(plain, plain).scales.float(), torch.ones(24, 1))


def test_zeros_and_offsets():
  scales = random(24, 2) * 0.1 + 0.01
  zeros = ints(0, 16, 24, 2)
  plain = ints(0, 16, 24, 64)
  wide = scales.repeat_interleave(32, 1)
  result = found((plain - zeros.repeat_interleave(32, 1)) * wide, scales, zeros)
  assert result.bits == 4 and result.zeros is not None and result.zeros.dtype == torch.int8
  # Unsigned codes of 8 bits with a zero in the middle need no zeros as signed ones.
  bytes_ = ints(0, 256, 24, 64, seed=2)
  assert found((bytes_ - 128) * wide, scales).zeros is None
  assert found((bytes_ - 40) * wide, scales).zeros is not None
  offsets = random(24, 2, seed=4) - 0.5
  for dtype in (torch.float32, torch.bfloat16):
    matrix = (plain * wide + offsets.repeat_interleave(32, 1)).to(dtype)
    assert found(matrix, scales, offsets).zeros.is_floating_point()
  pairs = torch.stack([scales.T, offsets.T], 2)  # as aten::_weight_int4pack_mm has them
  assert found(plain * wide + offsets.repeat_interleave(32, 1), pairs).bits == 4


def test_groups_without_a_scale_are_constant():
  scales, offsets = random(8, 2), random(8, 2, seed=3)
  scales[3, 1] = 0
  plain = ints(0, 16, 8, 64)
  wide = scales.repeat_interleave(32, 1)
  found(plain * wide, scales)
  found(plain * wide + offsets.repeat_interleave(32, 1), scales, offsets)


def test_tables():
  values = torch.sort(torch.randn(16, generator=torch.Generator().manual_seed(2))).values
  scales = random(24, 4) + 0.1
  picked = values[ints(0, 16, 24, 64)]
  for dtype in FLOATS:
    matrix = (picked * scales.repeat_interleave(16, 1)).to(dtype)
    result = found(matrix, scales)
    assert result.bits == 4 and result.values is not None


@pytest.mark.parametrize("dtype", (torch.float8_e4m3fn, torch.float8_e5m2))
def test_floats_of_8_bits(dtype):
  plain = torch.randn(128, 64, generator=torch.Generator().manual_seed(2)).to(dtype)
  for scales in (random(128, 1), torch.tensor(0.25), random(128, 2)):
    wide = scales.expand(128, 1) if scales.dim() == 0 else scales
    matrix = plain.float() * wide.repeat_interleave(64 // wide.shape[1], 1)
    assert found(matrix, plain, scales).codes.dtype == dtype
    assert found(matrix, plain.T, scales).codes.is_contiguous()
  blocks = random(2, 2)
  matrix = plain.float() * blocks.repeat_interleave(64, 0).repeat_interleave(32, 1)
  assert found(matrix, plain, blocks).group == 32


def test_scales_on_the_way_to_the_matrix():
  """Scales of scales, as in the formats that quantize them again."""
  inner, outer = ints(1, 64, 24, 8), random(24, 1)
  scales = inner * outer
  plain = ints(-8, 8, 24, 64)
  result = found(plain * scales.repeat_interleave(8, 1), inner, outer, scales)
  assert (result.bits, result.group) == (4, 8)


def test_no_codes():
  scales = random(24, 2)
  assert codes.codes_of(torch.randn(24, 64), [scales]) is None
  assert codes.codes_of(ints(-300, 300, 24, 64) * scales.repeat_interleave(32, 1), [scales]) is None
  assert codes.codes_of(torch.full((24, 64), float("nan")), [scales]) is None
  assert codes.codes_of(torch.empty(0, 64), []) is None


def test_an_odd_number_of_codes():
  matrix = ints(-8, 8, 5, 7).float()
  result = found(matrix)
  assert result.codes.shape == (5, 4) and result.bytes == 5 * 4 + 5 * 2
