"""Finds the codes and scales of a matrix of floats.

A model may compute a weight from codes in many ways: by operators of a package, by shifts and masks
on packed bytes, with interleaved or permuted columns. This module looks at numbers instead: given
the matrix and the tensors that it was made from, it looks for scales by which each element is an
int, or one of 16 values, times the scale of its group. So what it finds is right by itself."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  import torch


@dataclasses.dataclass(frozen=True)
class Codes:
  """A matrix of n x k as `husk::linear_quantized` takes it: element (j, i) is
  (value(codes[j, i]) - zeros[j, i // group]) * scales[j, i // group].

  codes: n x k ints or floats of 8 bits, whose value is the element; or n x ceil(k / 2) bytes of two
  codes of 4 bits, the first one in the low half, whose value is `values[code]`, or code - 8.
  scales, zeros: n x k / group; without `zeros` they are 0."""

  bits: int
  group: int
  codes: torch.Tensor
  scales: torch.Tensor
  zeros: torch.Tensor | None = None
  values: torch.Tensor | None = None

  @property
  def bytes(self) -> int:
    tensors = (self.codes, self.scales, self.zeros, self.values)
    return sum(one.numel() * one.element_size() for one in tensors if one is not None)


# The most values of a code of 4 bits, and the least number of elements that share a scale.
_VALUES = 16
_LEAST_GROUP = 4
# So many elements are enough to see that most scales are not those of a matrix.
_SAMPLE = 4096


def codes_of(matrix: torch.Tensor, made_from: Sequence[torch.Tensor]) -> Codes | None:
  """The codes of a matrix of n x k floats, which was computed from the tensors `made_from`, be they
  constants or results on the way; None if they cannot be found. The scales are among these tensors,
  or all 1."""
  import torch

  if matrix.numel() == 0 or not bool(torch.isfinite(matrix).all()):
    return None
  n, k = matrix.shape
  scales = [*_scales(made_from, n, k), torch.ones(n, 1, device=matrix.device)]
  for scale in scales:
    if (found := _floats(matrix, made_from, scale)) is not None:
      return found
  for scale in scales:
    if (found := _ints(matrix, scale, None)) is not None:
      return found
  for scale in scales:
    if (found := _table(matrix, scale)) is not None:
      return found
  for scale, offset in itertools.permutations(scales, 2):
    if scale.shape == offset.shape and (found := _ints(matrix, scale, offset)) is not None:
      return found
  return None


def _scales(made_from: Sequence[torch.Tensor], n: int, k: int) -> Iterator[torch.Tensor]:
  """What may be scales, as n x groups numbers, the fewest first."""
  import torch

  seen = []
  for tensor in sorted(made_from, key=lambda one: one.numel()):
    if tensor.numel() == 0 or not tensor.is_floating_point():
      continue
    for one in _as_groups(tensor, n, k):
      if not bool(torch.isfinite(one).all()) or not bool(one.any()):
        continue
      if any(one.shape == other.shape and torch.equal(one, other) for other in seen):
        continue
      seen.append(one)
      yield one


def _as_groups(tensor: torch.Tensor, n: int, k: int) -> Iterator[torch.Tensor]:
  """A tensor as n x groups numbers in f32, in the ways that its shape allows."""
  import torch

  plain = tensor.detach().to(torch.float32)
  sizes = [size for size in plain.shape if size != 1]
  flat = plain.reshape(sizes)
  if flat.dim() == 3 and flat.shape[2] == 2:  # pairs of a scale and an offset
    for part in (0, 1):
      yield from _as_groups(flat[:, :, part], n, k)
    return
  if flat.dim() > 2:
    return
  if flat.dim() == 0:
    yield flat.reshape(1, 1).expand(n, 1).contiguous()
    return
  if flat.dim() == 1:
    if flat.shape[0] == n:
      yield flat[:, None]
    if _divides(flat.shape[0], k):
      yield flat[None, :].expand(n, -1).contiguous()
    if flat.shape[0] != n and flat.shape[0] % n == 0 and _divides(flat.shape[0] // n, k):
      yield flat.reshape(n, -1)
    return
  for one in (flat, flat.T):
    rows, groups = one.shape
    if _divides(groups, k) and n % rows == 0:
      # A block of several rows may share a scale.
      yield one.repeat_interleave(n // rows, 0).contiguous()


def _divides(groups: int, k: int) -> bool:
  return groups > 0 and k % groups == 0 and (groups == 1 or k // groups >= _LEAST_GROUP)


def _grouped(matrix: torch.Tensor, groups: int) -> torch.Tensor:
  """A matrix of n x k as n x groups x the elements of a group, in f64."""
  return matrix.double().reshape(matrix.shape[0], groups, -1)


def _is_near(matrix: torch.Tensor, numbers: torch.Tensor, size: torch.Tensor) -> bool:
  """Whether numbers in f64 are those of the matrix, whose elements were rounded once or twice.
  `size` is the absolute value of what was rounded."""
  import torch

  allowed = size * torch.finfo(matrix.dtype).eps * 1.1 + 1e-38
  return bool(((matrix.double().reshape(numbers.shape) - numbers).abs() <= allowed).all())


def _floats(
  matrix: torch.Tensor, made_from: Sequence[torch.Tensor], scales: torch.Tensor
) -> Codes | None:
  """Codes that are floats of 8 bits."""
  import torch

  n, k = matrix.shape
  kinds = (
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
  )
  for tensor in made_from:
    if tensor.dtype not in kinds or tensor.numel() != n * k or tensor.dim() != 2:
      continue
    for codes in (tensor, tensor.T):
      if codes.shape != (n, k):
        continue
      numbers = _grouped(codes.float(), scales.shape[1]) * scales.double()[:, :, None]
      if _is_near(matrix, numbers, numbers.abs()):
        return Codes(8, k // scales.shape[1], codes.contiguous(), small(scales))
  return None


def _ints(matrix: torch.Tensor, scales: torch.Tensor, offsets: torch.Tensor | None) -> Codes | None:
  """Codes that are ints: an element is an int times its scale, plus an offset if there is one."""
  import torch

  groups = scales.shape[1]
  if not _is_sample_of_ints(matrix, scales, offsets):
    return None
  whole = _grouped(matrix, groups)
  scale = scales.double()[:, :, None]
  offset = torch.zeros_like(scale) if offsets is None else offsets.double()[:, :, None]
  # A group whose scale is 0 is constant.
  step = torch.where(scale == 0, torch.ones_like(scale), scale)
  numbers = torch.where(scale == 0, torch.zeros_like(whole), ((whole - offset) / step).round())
  size = (numbers * scale).abs() + offset.abs()
  if not _is_near(matrix, numbers * scale + offset, size):
    return None
  low, high = numbers.amin(2), numbers.amax(2)
  shift = torch.zeros_like(low)  # what is added to the ints of a group, so that they fit
  if float((high - low).max()) < 16:
    bits, least, most = 4, -8, 7
  elif float((high - low).max()) < 256:
    bits, least, most = 8, -128, 127
  else:
    return None
  if bool((low < least).any()) or bool((high > most).any()):
    shift = least - low
  zeros = shift
  if offsets is not None:
    zeros = shift - offset[:, :, 0] / step[:, :, 0]
  numbers = (numbers + shift[:, :, None]).reshape(matrix.shape)
  if offsets is not None:
    # A group without a scale is its offset: codes of 0 and a scale of 1.
    scales = step[:, :, 0].float()
    zero = small(zeros.float())
  else:
    zero = _small_ints(zeros)
  kept = zero if bool(zeros.any()) else None
  if bits == 4:
    return Codes(4, matrix.shape[1] // groups, pairs(numbers + 8), small(scales), kept)
  return Codes(8, matrix.shape[1] // groups, numbers.to(torch.int8), small(scales), kept)


def _is_sample_of_ints(
  matrix: torch.Tensor, scales: torch.Tensor, offsets: torch.Tensor | None
) -> bool:
  """Whether the first rows may be ints times scales, plus offsets."""
  rows = max(1, _SAMPLE // matrix.shape[1])
  if rows >= matrix.shape[0]:
    return True
  return (
    _ints(matrix[:rows], scales[:rows], None if offsets is None else offsets[:rows]) is not None
  )


def _table(matrix: torch.Tensor, scales: torch.Tensor) -> Codes | None:
  """Codes of 4 bits that stand for any 16 values."""
  import torch

  rows = max(1, _SAMPLE // matrix.shape[1])
  if rows < matrix.shape[0] and _table(matrix[:rows], scales[:rows]) is None:
    return None
  groups = scales.shape[1]
  scale = scales.double()[:, :, None]
  whole = _grouped(matrix, groups)
  ratio = torch.where(scale == 0, torch.zeros_like(whole), whole / scale.where(scale != 0, 1.0))
  # Values of one code differ by roundings only.
  near = 2.2 * torch.finfo(matrix.dtype).eps
  values: list[float] = []
  rest = torch.unique(ratio)
  while rest.numel():
    if len(values) == _VALUES:
      return None
    first = rest[0]
    same = (rest - first).abs() <= near * first.abs()
    values.append(float(rest[same].median()))
    rest = rest[~same]
  table = torch.tensor(sorted(values), dtype=torch.float64, device=matrix.device)
  between = (table[1:] + table[:-1]) / 2
  codes = torch.bucketize(ratio, between)
  table = torch.nn.functional.pad(table, (0, _VALUES - len(values))).float()
  numbers = table.double()[codes] * scale
  if not _is_near(matrix, numbers, numbers.abs() * 2):
    return None
  packed = pairs(codes.reshape(matrix.shape))
  return Codes(4, matrix.shape[1] // groups, packed, small(scales), None, table)


def pairs(codes: torch.Tensor) -> torch.Tensor:
  """Codes of 4 bits, two in a byte, the first one in its low half."""
  import torch

  codes = codes.to(torch.uint8)
  if codes.shape[1] % 2:
    codes = torch.nn.functional.pad(codes, (0, 1))
  return (codes[:, ::2] | codes[:, 1::2] << 4).contiguous()


def small(numbers: torch.Tensor) -> torch.Tensor:
  """Numbers in the smallest type that has each of them."""
  import torch

  for dtype in (torch.bfloat16, torch.float16):
    if torch.equal(numbers.to(dtype).float(), numbers):
      return numbers.to(dtype)
  return numbers.float()


def _small_ints(numbers: torch.Tensor) -> torch.Tensor:
  import torch

  fits = bool(((numbers >= -128) & (numbers <= 127)).all())
  return numbers.to(torch.int8 if fits else torch.int32)
