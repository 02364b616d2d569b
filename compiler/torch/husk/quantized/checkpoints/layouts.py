"""How checkpoints of safetensors store weights of few bits: a row for each layout. A row says which
tensors a weight has, checks what their headers say, and makes codes of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..codes import Codes, pairs, small
from . import packed
from .errors import CheckpointError
from .gguf_blocks import e2m1_values, powers_of_two
from .tensor_files import StoredTensor, TensorFiles

if TYPE_CHECKING:
  import torch

FLOATS = ("F32", "F16", "BF16")
FLOATS8 = ("F8_E4M3", "F8_E5M2")

# A weight's shape: rows and columns of a matrix, or those of a stack of matrices.
Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Scheme:
  """What a configuration says about a weight.

  layout: the row of LAYOUTS.
  bits: of a code.
  group: the columns that share a scale, 0 for all of a row.
  block: the rows and columns that share a scale, if they are blocks.
  zero_offset: what is added to a stored zero.
  activations: how the layer rounds its input, if it does, as the configuration describes it."""

  layout: str
  bits: int = 4
  group: int = 0
  block: tuple[int, int] | None = None
  zero_offset: int = 0
  activations: Mapping[str, Any] | None = None


@dataclasses.dataclass(frozen=True)
class Weight:
  """A weight as codes. `order`: the column of the input that each column is for, if they are not in
  the same order. `is_transposed`: the model has the matrices of a stack transposed;
  `may_be_transposed`: models have them either way."""

  codes: Codes
  order: torch.Tensor | None = None
  is_transposed: bool = False
  may_be_transposed: bool = False


@dataclasses.dataclass(frozen=True)
class Fields:
  """The tensors of one weight by the last part of their names, such as "qweight". `base` is the
  first part."""

  base: str
  stored: Mapping[str, StoredTensor]
  files: TensorFiles

  def has(self, field: str) -> bool:
    return field in self.stored

  def fail(self, field: str, reason: str) -> None:
    raise CheckpointError(f"{self.stored[field].name!r} of {self.stored[field].path} {reason}")

  def expect(self, field: str, dtypes: tuple[str, ...], *shapes: Shape) -> None:
    """Raises if a tensor has another dtype, or none of some shapes."""
    tensor = self.stored[field]
    if tensor.dtype not in dtypes:
      self.fail(field, f"has the dtype {tensor.dtype}, not {' or '.join(dtypes)}")
    if tensor.shape not in shapes:
      wanted = " or ".join(str(list(shape)) for shape in shapes)
      self.fail(field, f"has the shape {list(tensor.shape)}, not {wanted}")

  def read(self, field: str) -> torch.Tensor:
    return self.files.read(self.stored[field].name)

  def numbers(self, field: str) -> torch.Tensor:
    """Scales in f32, which must be finite."""
    import torch

    found = self.read(field)
    found = powers_of_two(found) if found.dtype == torch.uint8 else found.float()
    if not bool(torch.isfinite(found).all()):
      self.fail(field, "has scales that are NaN or infinite")
    return found


def _group(fields: Fields, scheme: Scheme, field: str, columns: int) -> int:
  """The columns that share a scale, which must divide a row."""
  group = scheme.group or columns
  if group < 1 or columns % group:
    fields.fail(field, f"is a weight of {columns} columns, which groups of {group} do not divide")
  return group


def _words(count: int, bits: int) -> int:
  """The words of 32 bits that codes take."""
  return -(-count * bits // 32)


# GPTQ


def _check_gptq(fields: Fields, scheme: Scheme, shape: Shape) -> None:
  n, k = shape
  group = _group(fields, scheme, "qweight", k)
  for count, what in ((k, "columns"), (n, "rows")):
    if count * scheme.bits % 32:
      fields.fail("qweight", f"is a weight of {count} {what}, which fill no words of 32 bits")
  fields.expect("qweight", ("I32",), (_words(k, scheme.bits), n))
  fields.expect("qzeros", ("I32",), (k // group, _words(n, scheme.bits)))
  fields.expect("scales", FLOATS, (k // group, n))
  if fields.has("g_idx"):
    fields.expect("g_idx", ("I32", "I64"), (k,))


def _read_gptq(fields: Fields, scheme: Scheme, shape: Shape) -> Weight:
  n, k = shape
  bits, group = scheme.bits, scheme.group or k
  zeros = packed.unpacked(fields.read("qzeros"), bits, n).T
  order = _order(fields, "g_idx", k, group)
  words = fields.read("qweight").T
  if order is None:
    codes = packed.matrix_of_words(words, bits, k)
  else:
    codes = packed.matrix(packed.unpacked(words, bits, k)[:, order], bits)
  found = _with_zeros(bits, group, codes, fields.numbers("scales").T, zeros, scheme.zero_offset)
  return Weight(found, order)


def _with_zeros(
  bits: int,
  group: int,
  codes: torch.Tensor,
  scales: torch.Tensor,
  zeros: torch.Tensor,
  zero_offset: int = 0,
) -> Codes:
  """Codes as `packed.matrix` has them, with zeros as unsigned numbers."""
  import torch

  shifted = zeros.to(torch.int32) + (zero_offset - (1 << bits - 1))
  return Codes(
    8 if bits == 8 else 4, group, codes, small(scales.contiguous()), _small_zeros(shifted)
  )


def _small_zeros(zeros: torch.Tensor) -> torch.Tensor | None:
  """Zeros in the smallest type that has them; None if all are 0."""
  import torch

  if not bool(zeros.any()):
    return None
  fits = bool(((zeros >= -128) & (zeros <= 127)).all())
  return zeros.to(torch.int8 if fits else torch.int32).contiguous()


def _order(fields: Fields, field: str, columns: int, group: int) -> torch.Tensor | None:
  """The columns in the order of their groups, if a tensor of groups has another one."""
  import torch

  if not fields.has(field):
    return None
  groups = fields.read(field).long()
  if bool((groups == -1).all()):  # compressed-tensors: no order was set
    return None
  if bool((groups < 0).any()) or bool((groups >= columns // group).any()):
    fields.fail(field, f"names groups that are not 0 to {columns // group - 1}")
  if not bool((groups.bincount(minlength=columns // group) == group).all()):
    fields.fail(field, f"has groups that have not {group} columns each")
  order = groups.argsort(stable=True)
  return None if torch.equal(order, torch.arange(columns)) else order


# AWQ

# The column of eight that each half of a byte of a word has, the lowest ones first.
_AWQ_COLUMNS = (0, 2, 4, 6, 1, 3, 5, 7)


def _check_awq(fields: Fields, scheme: Scheme, shape: Shape) -> None:
  n, k = shape
  group = _group(fields, scheme, "qweight", k)
  if n % 8:
    fields.fail("qweight", f"is a weight of {n} rows, which are no multiple of 8")
  fields.expect("qweight", ("I32",), (k, n // 8))
  fields.expect("qzeros", ("I32",), (k // group, n // 8))
  fields.expect("scales", FLOATS, (k // group, n))


def _read_awq(fields: Fields, scheme: Scheme, shape: Shape) -> Weight:
  import torch

  n, k = shape
  places = torch.tensor(_AWQ_COLUMNS).argsort()

  def codes_of(field: str) -> torch.Tensor:
    codes = packed.unpacked(fields.read(field), 4, n)
    return codes.unflatten(-1, (-1, 8))[..., places].flatten(-2).T

  codes = pairs(codes_of("qweight"))
  group = scheme.group or k
  return Weight(_with_zeros(4, group, codes, fields.numbers("scales").T, codes_of("qzeros")))


# compressed-tensors

_ZERO_DTYPES = ("I8", "U8", "I32")


def _scale_shapes(scheme: Scheme, n: int, k: int) -> tuple[Shape, ...]:
  """The shapes that scales of a matrix may have."""
  if scheme.block:
    rows, columns = scheme.block
    return ((-(-n // rows), -(-k // columns)),)
  if scheme.group:
    return ((n, k // scheme.group),)
  return ((n, 1), (n,), (1,), (), (1, 1))


def _check_packed(fields: Fields, scheme: Scheme, shape: Shape) -> None:
  n, k = shape
  group = _group(fields, scheme, "weight_packed", k)
  fields.expect("weight_packed", ("I32",), (n, _words(k, scheme.bits)))
  fields.expect("weight_scale", FLOATS, *_scale_shapes(scheme, n, k))
  if fields.has("weight_zero_point"):
    if fields.stored["weight_zero_point"].dtype == "I32":
      fields.expect("weight_zero_point", ("I32",), (_words(n, scheme.bits), k // group))
    else:
      fields.expect("weight_zero_point", ("I8",), *_scale_shapes(scheme, n, k))
  if fields.has("weight_g_idx"):
    fields.expect("weight_g_idx", ("I32", "I64"), (k,))


def _read_packed(fields: Fields, scheme: Scheme, shape: Shape) -> Weight:
  import torch

  n, k = shape
  bits, group = scheme.bits, scheme.group or k
  if fields.has("weight_shape") and fields.read("weight_shape").tolist() != [n, k]:
    fields.fail("weight_shape", f"is not the shape of the weight, {[n, k]}")
  order = _order(fields, "weight_g_idx", k, group)
  words = fields.read("weight_packed")
  if order is None:
    codes = packed.matrix_of_words(words, bits, k)
  else:
    codes = packed.matrix(packed.unpacked(words, bits, k)[:, order], bits)
  scales = fields.numbers("weight_scale").reshape(-1, k // group).expand(n, -1)
  half = 1 << bits - 1
  zeros = torch.full_like(scales, half, dtype=torch.int32)
  if fields.has("weight_zero_point"):
    stored = fields.read("weight_zero_point")
    if stored.dtype == torch.int32:
      zeros = packed.unpacked(stored.T, bits, n).T
    else:
      zeros = _zeros_in_range(fields, stored, -half, half - 1).reshape(scales.shape) + half
  return Weight(_with_zeros(bits, group, codes, scales, zeros), order)


def _zeros_in_range(fields: Fields, zeros: torch.Tensor, least: int, most: int) -> torch.Tensor:
  import torch

  zeros = zeros.to(torch.int32)
  if bool((zeros < least).any()) or bool((zeros > most).any()):
    fields.fail("weight_zero_point", f"has zero points that are not {least} to {most}")
  return zeros


def _check_plain(fields: Fields, scheme: Scheme, shape: Shape) -> None:
  """Weights of 8 bits that are not packed, with any scales."""
  n, k = shape
  if not scheme.block:
    _group(fields, scheme, "weight", k)
  fields.expect("weight", ("I8", *FLOATS8), (n, k))
  shapes = _scale_shapes(scheme, n, k)
  fields.expect(_scale_field(fields), (*FLOATS, "F8_E8M0"), *shapes)
  if fields.has("weight_zero_point"):
    fields.expect("weight_zero_point", (*_ZERO_DTYPES, *FLOATS8), *shapes)
  if fields.has("weight_g_idx"):
    fields.expect("weight_g_idx", ("I32", "I64"), (k,))


def _scale_field(fields: Fields) -> str:
  return "weight_scale" if fields.has("weight_scale") else "weight_scale_inv"


def _read_plain(fields: Fields, scheme: Scheme, shape: Shape) -> Weight:
  import torch

  n, k = shape
  field = _scale_field(fields)
  scales, group = _spread(fields, field, fields.numbers(field), scheme, n, k)
  codes, order = fields.read("weight"), None
  if codes.dtype == torch.int8:
    order = _order(fields, "weight_g_idx", k, group)
    codes = codes if order is None else codes[:, order].contiguous()
  elif bool(codes.float().isnan().any()):
    fields.fail("weight", "has codes that are NaN")
  zeros = None
  if fields.has("weight_zero_point"):
    stored = fields.read("weight_zero_point").float().reshape(-1, scales.shape[1])
    zeros = _small_zeros(_zeros_in_range(fields, stored.expand(n, -1), -128, 127))
  return Weight(Codes(8, group, codes, small(scales), zeros), order)


def _spread(
  fields: Fields, field: str, scales: torch.Tensor, scheme: Scheme, n: int, k: int
) -> tuple[torch.Tensor, int]:
  """Scales as rows x groups, and the columns of a group. Groups are as large as they can be if each
  lies in one block and they divide a row."""
  if not scheme.block:
    group = scheme.group or k
    return scales.reshape(-1, k // group).expand(n, -1).contiguous(), group
  rows, columns = scheme.block
  group = math.gcd(k, columns) if k > columns else k
  if group < _LEAST_GROUP and group < k:
    fields.fail(field, f"has blocks of {columns} columns, which do not divide the {k} of a row")
  spread = scales.repeat_interleave(rows, 0)[:n]
  return spread.repeat_interleave(max(1, columns // group), 1)[:, : k // group], group


# Fewer columns with a scale are as large as floats.
_LEAST_GROUP = 8


def _check_fp4(fields: Fields, scheme: Scheme, shape: Shape) -> None:
  """Floats of 4 bits in bytes, with a scale for each 16 or 32 columns."""
  n, k = shape
  weight = _first(fields, "weight_packed", "weight")
  group = _group(fields, scheme, weight, k)
  fields.expect(weight, ("U8",), (n, k // 2))
  dtypes = ("U8", "F8_E8M0") if group == _MX_GROUP else ("F8_E4M3",)
  fields.expect("weight_scale", dtypes, (n, k // group))
  for field in ("weight_global_scale", "weight_scale_2"):
    if fields.has(field):
      fields.expect(field, ("F32",), (1,), ())


def _first(fields: Fields, *names: str) -> str:
  return next(name for name in names if fields.has(name))


_MX_GROUP = 32


def _read_fp4(fields: Fields, scheme: Scheme, shape: Shape) -> Weight:
  scales = fields.numbers("weight_scale")
  if fields.has("weight_global_scale"):
    whole = fields.numbers("weight_global_scale").reshape(())
    if float(whole) == 0:
      fields.fail("weight_global_scale", "is 0, by which scales are divided")
    scales = scales / whole
  if fields.has("weight_scale_2"):
    scales = scales * fields.numbers("weight_scale_2").reshape(())
  codes = fields.read(_first(fields, "weight_packed", "weight"))
  return Weight(Codes(4, scheme.group, codes, small(scales), None, e2m1_values()))


# MXFP4 of stacks of experts


def _check_mxfp4(fields: Fields, scheme: Scheme, shape: Shape) -> None:
  """The matrices have a row for each output; those of the model may be transposed."""
  *count, rows, columns = shape
  ways = [(rows, columns), (columns, rows)] if count else [(rows, columns)]
  blocks = [(*count, n, k // scheme.group, scheme.group // 2) for n, k in ways]
  fields.expect("blocks", ("U8",), *blocks)
  stored = fields.stored["blocks"].shape
  fitting = [k for (_, k), one in zip(ways, blocks, strict=True) if one == stored]
  if all(k % scheme.group for k in fitting):
    _group(fields, scheme, "blocks", fitting[0])
  fields.expect("scales", ("U8", "F8_E8M0"), stored[:-1])


def _read_mxfp4(fields: Fields, scheme: Scheme, shape: Shape) -> Weight:
  scales = fields.numbers("scales")
  codes = fields.read("blocks").flatten(-2)
  return Weight(
    Codes(4, scheme.group, codes, small(scales), None, e2m1_values()), may_be_transposed=True
  )


@dataclasses.dataclass(frozen=True)
class Layout:
  """A row: the last parts of the names of the tensors that a weight has and may have, the mark
  before them, and which of them tells that there is a weight; functions that check headers and that
  read."""

  marker: str
  needed: tuple[str, ...]
  optional: tuple[str, ...]
  check: Callable[[Fields, Scheme, Shape], None]
  read: Callable[[Fields, Scheme, Shape], Weight]
  mark: str = "."

  def name_of(self, base: str, field: str) -> str:
    """The name of a tensor. That of a checkpoint of one layer has no first part."""
    return f"{base}{self.mark}{field}" if base else field

  @property
  def is_known_by_dtype(self) -> bool:
    """Whether other tensors may have the name of the marker, too."""
    return self.marker in ("weight", "blocks")


_SCALE_OF_ALL = ("weight_zero_point", "weight_g_idx", "weight_shape")

LAYOUTS = {
  "gptq": Layout("qweight", ("qzeros", "scales"), ("g_idx",), _check_gptq, _read_gptq),
  "awq": Layout("qweight", ("qzeros", "scales"), (), _check_awq, _read_awq),
  "packed": Layout("weight_packed", ("weight_scale",), _SCALE_OF_ALL, _check_packed, _read_packed),
  "plain": Layout("weight", ("weight_scale",), _SCALE_OF_ALL, _check_plain, _read_plain),
  "inverse": Layout("weight", ("weight_scale_inv",), (), _check_plain, _read_plain),
  "nvfp4": Layout(
    "weight_packed", ("weight_scale", "weight_global_scale"), (), _check_fp4, _read_fp4
  ),
  "mxfp4": Layout("weight_packed", ("weight_scale",), (), _check_fp4, _read_fp4),
  "modelopt-nvfp4": Layout("weight", ("weight_scale", "weight_scale_2"), (), _check_fp4, _read_fp4),
  "mxfp4-stack": Layout("blocks", ("scales",), (), _check_mxfp4, _read_mxfp4, mark="_"),
}
