"""Linear layers whose weights have codes (quantized/codes.py) as kernels of templates of Husk.

A layer of few rows takes the time in which its weight is read. So the templates read codes in lines
of 16 bytes, and make numbers of them in registers, as exact floats of 16 bits, by a few operations
on two codes at a time. Conversions of ints take longer.

- `husk_quantized_row` has one row. A thread multiplies the codes of a line with the row, for
  several columns of the result, so that what it reads of the row is used for all of them.
- `husk_quantized_rows` has few rows. Tensor cores multiply. Each warp has parts of its own of the
  rows of the weight (the batch of `tl.dot`), whose sums are added at the end. Codes of 4 bits make
  two tiles, of the even and the odd elements, and so do the rows.
- `husk_quantized_tiles` has up to MOST_ROWS rows. Tensor cores multiply numbers that stay in
  registers with rows in shared memory, and copies of the next tiles go on meanwhile. Scales of
  groups are multiplied with the numbers, which rounds a weight to the type of the rows, as eager
  mode does; the scale itself is not rounded. For codes of 4 bits another kernel, which is fused
  with what makes the rows, puts their even elements before the odd ones. If tiles are few, several
  blocks share the sums of one, which are added after that.

The first two multiply scales with sums, so that a weight is not rounded. What follows a layer is
fused into the kernel. All other layers compute the weight in each run (quantized/operator.py):
those with more rows, and those that `supports` refuses.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..inductor import torch_compat
from ..inductor.lines import InductorObject
from ..quantized.operator import Call, operator
from . import formats
from .target import Target

if TYPE_CHECKING:
  import torch

# The most rows of a template. With more rows it is faster to compute the weight, and then multiply.
MOST_ROWS = 1024
# The most rows of the template `husk_quantized_rows`, if the other one can have them.
_FEW_ROWS = {4: 1, 8: 16}
# The most rows of it otherwise.
_MOST_ROWS_OF_PARTS = 64


# Which layers


def supports(target: Target, call: Call) -> bool:
  """Whether a template computes a call of the operator in a program."""
  found = formats.of(call.bits, call.weight.dtype)
  if (
    found is None
    or formats.name_of(call.input.dtype) not in found.numbers
    or call.values is not None
  ):
    return False
  if target.capability < found.capability:
    return False
  k = call.input.shape[-1]
  rows = torch_compat.example_size(math.prod(call.input.shape[:-1]))
  if not isinstance(k, int) or call.scales.shape[1] * call.group != k:
    return False
  if _part(found, k, call.group) is None:
    return False
  zeros = None if call.zeros is None else call.zeros.dtype
  most = MOST_ROWS if _has_tiles(found, call.group, zeros) else _MOST_ROWS_OF_PARTS
  return 0 < rows <= most


def _has_tiles(format: formats.Format, group: int, zeros: torch.dtype | None) -> bool:
  """Whether the template of tiles can have a layer: zeros that are no ints would be rounded, and
  tiles have whole groups, or are parts of one."""
  if zeros is not None and zeros.is_floating_point:
    return False
  return _depth(format, 128, group) is not None


def _depth(format: formats.Format, bytes: int, group: int) -> int | None:
  """The bytes of a row that a tile has, at most `bytes`."""
  while bytes >= 32:
    elements = bytes * 8 // format.bits
    if elements % group == 0 or group % elements == 0:
      return bytes
    bytes //= 2
  return None


def _part(format: formats.Format, k: int, group: int) -> int | None:
  """The elements of a part of a row, with one scale, that is multiplied at once: at least 16 bytes,
  and at most 64 elements, of which a warp has several parts. None if no such part divides the
  group."""
  for part in (64, 32, 16):
    if part * format.bits >= 128 and group % part == 0 and k % part == 0:
      return part
  return None


# The tiles


@dataclasses.dataclass(frozen=True)
class Tiles:
  """A block computes `columns` columns of `rows` rows, of which it reads `depth` elements at a
  time."""

  rows: int
  columns: int
  depth: int
  stages: int
  warps: int


def tiles(target: Target, rows: int, columns: int, part: int) -> Tiles:
  """The tiles of a layer of several rows: the widest ones of which there are as many as
  multiprocessors. If there are few rows, a block has less to do, and two share a multiprocessor. On
  an H100 they took 1.02 times as long as the best of up to 20 tiles on average, for 102 layers, and
  1.29 times at most."""
  rows = max(8, 1 << (rows - 1).bit_length())
  has_few_rows = rows == 8
  wanted = target.multi_processor_count * (2 if has_few_rows else 1)
  width = 64
  while width > 16 and columns / width < 0.9 * wanted:
    width //= 2
  if part < 64:  # there is a sum for each part, so that wide tiles are short
    if width == 64 or has_few_rows and columns / 64 > 0.9 * target.multi_processor_count:
      return Tiles(rows, 64, 128, 4, 4)
    if width == 16 and rows == 16:
      return Tiles(rows, 32, 256, 4, 4)
  if width == 16:
    return Tiles(rows, 16, 512, 4 if has_few_rows else 3, 4)
  if has_few_rows:
    return Tiles(rows, width, 256, 3, 2)
  return Tiles(rows, width, 256, 4 if width == 32 else 3, 4)


@dataclasses.dataclass(frozen=True)
class SharedTiles:
  """A block computes `columns` columns of `rows` rows, of which it reads `depth` bytes of codes at
  a time; `split` blocks share the sums of a tile."""

  rows: int
  columns: int
  depth: int
  stages: int
  warps: int
  split: int


def shared_tiles(
  target: Target, format: formats.Format, rows: int, columns: int, k: int, group: int
) -> SharedTiles:
  """The tiles of `husk_quantized_tiles`, by what was measured on an H100 (tests/gpu/quantized.py):
  the largest ones if they occupy it, else such that two or more share a multiprocessor."""
  processors = target.multi_processor_count
  height = max(16, 1 << (rows - 1).bit_length())
  wide, deep, stages, warps = 64, 128, 4, 4
  if height == 64:
    has_short_groups = format.bits == 4 and group < 128
    deep, stages = (64, 4) if has_short_groups else (128, 3)
  elif height > 64:
    is_large = -(-columns // 128) * -(-rows // 256) >= 0.7 * processors
    height, wide, warps = (256, 128, 8) if is_large and rows > 128 else (128, 64, 4)
    deep, stages = 64, 3
  depth = _depth(format, deep, group)
  assert depth is not None

  def fits() -> bool:
    of_rows = height * 2 * (8 // format.bits)
    return stages * depth * (wide + of_rows) <= target.shared_memory_per_block_optin

  while stages > 2 and not fits():
    stages -= 1
  while height > 16 and not fits():
    height //= 2
  # Two blocks of few rows share a multiprocessor. The sums of more rows take longer to add.
  blocks, split = -(-columns // wide) * -(-rows // height), 1
  most = min(4, (2 if height < 64 else 1) * processors // blocks)
  step = 2 * depth * 8 // format.bits
  while 2 * split <= most and k % (split * step) == 0:
    split *= 2
  return SharedTiles(height, wide, depth, stages, warps, split)


# The templates

_ARGUMENTS = """
{% if HAS_ZEROS %}
{{def_kernel("X", "W", "S", "Z")}}
{% else %}
{{def_kernel("X", "W", "S")}}
{% endif %}
    N = {{size("W", 0)}}
"""

_ROW = (
  _ARGUMENTS
  + r"""
    GROUPS: tl.constexpr = K // GROUP
    first = tl.program_id(0).to(tl.int64) * COLUMNS
    lane = tl.arange(0, 16)
{% for c in range(COLUMNS) %}
    n{{c}} = tl.minimum(first + {{c}}, N - 1)
    w{{c}} = W + n{{c}} * (K // PER_BYTE)
    s{{c}} = S + n{{c}} * GROUPS
{% if HAS_ZEROS %}
    z{{c}} = Z + n{{c}} * GROUPS
{% endif %}
    sum{{c}} = tl.zeros((LINES,), dtype=tl.float32)
{% endfor %}
    for start in range(0, K // LINE, LINES):
        line = start + tl.arange(0, LINES)
        place = line[:, None] * 16 + lane[None, :]
{% if IS_EVEN %}
        inside = None
        is_line = None
{% else %}
        is_line = line < K // LINE
        inside = is_line[:, None]
{% endif %}
{% if PER_BYTE == 2 %}
        x = tl.load(X.to(tl.pointer_type(tl.int32)) + place, mask=inside)
        even, odd = PAIRS
        even = even.to(tl.float32)
        odd = odd.to(tl.float32)
{% else %}
        x = tl.load(X + place, mask=inside).to(tl.float32)
{% endif %}
{% if HAS_ZEROS %}
        total = TOTAL
{% endif %}
{% if GROUP < K %}
        group = line // (GROUP // LINE)
{% endif %}
{% for c in range(COLUMNS) %}
        w = tl.load(w{{c}} + place, mask=inside)
{% if PER_BYTE == 2 %}
        low, high = NUMBERS
        product = tl.sum(low.to(tl.float32) * even, 1) + tl.sum(high.to(tl.float32) * odd, 1)
{% else %}
        product = tl.sum(NUMBERS.to(tl.float32) * x, 1)
{% endif %}
{% if GROUP < K %}
{% if HAS_ZEROS %}
        product -= tl.load(z{{c}} + group, mask=is_line).to(tl.float32) * total
{% endif %}
        sum{{c}} += product * tl.load(s{{c}} + group, mask=is_line).to(tl.float32)
{% else %}
{% if HAS_ZEROS %}
        product -= tl.load(z{{c}}).to(tl.float32) * total
{% endif %}
        sum{{c}} += product
{% endif %}
{% endfor %}
    number = tl.arange(0, COLUMNS)
    result = tl.zeros((COLUMNS,), dtype=tl.float32)
{% for c in range(COLUMNS) %}
    total{{c}} = tl.sum(sum{{c}}, 0)
{% if GROUP == K %}
    total{{c}} *= tl.load(s{{c}}).to(tl.float32)
{% endif %}
    result = tl.where(number == {{c}}, total{{c}}, result)
{% endfor %}
    idx_n = (tl.program_id(0).to(INDEX_DTYPE) * COLUMNS + number)[None, :]
    idx_m = tl.zeros((1, 1), dtype=INDEX_DTYPE)
    result = result[None, :]
    mask = idx_n < N
    {{store_output(("idx_m", "idx_n"), "result", "mask", val_shape=("1", "COLUMNS"))}}
"""
)

_ROWS = (
  _ARGUMENTS
  + r"""
    M = {{size("X", 0)}}
    GROUPS: tl.constexpr = K // GROUP
    BYTES: tl.constexpr = PART // PER_BYTE
    n = tl.program_id(0).to(INDEX_DTYPE) * COLUMNS + tl.arange(0, COLUMNS)
    m = tl.program_id(1).to(INDEX_DTYPE) * ROWS + tl.arange(0, ROWS)
    is_row = (m < M)[None, :, None]
    byte = tl.arange(0, BYTES)
    column = tl.minimum(n, N - 1).to(tl.int64)
    w_base = W + column[:, None, None] * (K // PER_BYTE)
    s_base = S + column[None, :] * GROUPS
{% if HAS_ZEROS %}
    z_base = Z + column[None, :] * GROUPS
{% endif %}
{% if PER_BYTE == 2 %}
    x_base = X.to(tl.pointer_type(tl.int32)) + m.to(tl.int64)[None, :, None] * (K // 2)
{% else %}
    x_base = X + m.to(tl.int64)[None, :, None] * K
{% endif %}
    sums = tl.zeros((PARTS, COLUMNS, ROWS), dtype=tl.float32)
{% if HAS_ZEROS and GROUP == K %}
    totals = tl.zeros((PARTS, ROWS), dtype=tl.float32)
{% endif %}
    for start in range(0, K // PART, PARTS):
        part = start + tl.arange(0, PARTS)
{% if IS_EVEN %}
        w_mask = None
        x_mask = is_row
        s_mask = None
{% else %}
        is_part = part < K // PART
        w_mask = is_part[None, :, None]
        x_mask = is_part[:, None, None] & is_row
        s_mask = is_part[:, None]
{% endif %}
        place = part * BYTES
        w = tl.load(w_base + (place[None, :, None] + byte[None, None, :]), mask=w_mask)
        w = tl.permute(w, (1, 0, 2))
        x = tl.load(x_base + (place[:, None, None] + byte[None, None, :]), mask=x_mask, other=0)
{% if GROUP < K %}
        product = tl.zeros((PARTS, COLUMNS, ROWS), dtype=tl.float32)
{% else %}
        product = sums
{% endif %}
{% if PER_BYTE == 2 %}
        even, odd = PAIRS
        low, high = NUMBERS
        product = tl.dot(low, tl.permute(even, (0, 2, 1)), product)
        product = tl.dot(high, tl.permute(odd, (0, 2, 1)), product)
{% else %}
        product = tl.dot(NUMBERS, tl.permute(x, (0, 2, 1)), product)
{% endif %}
{% if HAS_ZEROS %}
        total = TOTALS
{% endif %}
{% if GROUP < K %}
        group = (part // (GROUP // PART))[:, None]
{% if HAS_ZEROS %}
        zeros = tl.load(z_base + group, mask=s_mask).to(tl.float32)
        product -= zeros[:, :, None] * total[:, None, :]
{% endif %}
        sums += product * tl.load(s_base + group, mask=s_mask).to(tl.float32)[:, :, None]
{% else %}
        sums = product
{% if HAS_ZEROS %}
        totals += total
{% endif %}
{% endif %}
    result = tl.sum(sums, 0)
{% if GROUP == K %}
{% if HAS_ZEROS %}
    result -= tl.load(Z + column).to(tl.float32)[:, None] * tl.sum(totals, 0)[None, :]
{% endif %}
    result *= tl.load(S + column).to(tl.float32)[:, None]
{% endif %}
    idx_m = m[None, :]
    idx_n = n[:, None]
    mask = (idx_m < M) & (idx_n < N)
    {{store_output(("idx_m", "idx_n"), "result", "mask", val_shape=("COLUMNS", "ROWS"))}}
"""
)

_TILES = (
  _ARGUMENTS
  + r"""
    M = {{size("X", -2)}}
    GROUPS: tl.constexpr = K // GROUP
    BYTES: tl.constexpr = K // PER_BYTE
    LENGTH: tl.constexpr = BYTES // SPLIT
    n = tl.program_id(0).to(INDEX_DTYPE) * COLUMNS + tl.arange(0, COLUMNS)
    m = tl.program_id(1).to(INDEX_DTYPE) * ROWS + tl.arange(0, ROWS)
    byte = tl.arange(0, DEPTH)
    column = tl.minimum(n, N - 1).to(tl.int64)
    w_base = W + (column[:, None] * BYTES + byte[None, :])
    x_base = X + ((m % M).to(tl.int64)[None, :] * BYTES + byte[:, None])
{% if PER_BYTE == 2 %}
    odd_base = x_base + (M * BYTES)
{% endif %}
    s_base = S + column * GROUPS
{% if HAS_ZEROS %}
    z_base = Z + column * GROUPS
{% endif %}
    sums = tl.zeros((COLUMNS, ROWS), dtype=tl.float32)
    first = tl.program_id(2) * LENGTH
    for start in range(first, first + LENGTH, DEPTH):
{% if IS_EVEN %}
        w_mask = None
        x_mask = None
        none = None
{% else %}
        w_mask = (byte < BYTES - start)[None, :]
        x_mask = (byte < BYTES - start)[:, None]
        none = 0.0
{% endif %}
        w = tl.load(w_base + start, mask=w_mask, other=none)
{% if GROUP < K or HAS_ZEROS %}
{% if GROUPS_OF_TILE > 1 %}
        group = start * PER_BYTE // GROUP + tl.arange(0, GROUPS_OF_TILE)
{% if IS_EVEN %}
        s_mask = None
{% else %}
        s_mask = (group < GROUPS)[None, :]
{% endif %}
        factor = tl.load(s_base[:, None] + group[None, :], mask=s_mask, other=none)
{% else %}
        group = start * PER_BYTE // GROUP
        factor = tl.load(s_base + group)[:, None]
{% endif %}
        factor = factor.to(tl.float32)
        scale = factor.to(KIND)
        rest = (factor - scale.to(tl.float32)).to(KIND)
{% if HAS_ZEROS %}
{% if GROUPS_OF_TILE > 1 %}
        zero = tl.load(z_base[:, None] + group[None, :], mask=s_mask, other=none)
{% else %}
        zero = tl.load(z_base + group)[:, None]
{% endif %}
        zero = (-zero.to(tl.float32)).to(KIND)
{% endif %}
{% if GROUPS_OF_TILE > 1 %}
        shape: tl.constexpr = (COLUMNS, GROUPS_OF_TILE, DEPTH // GROUPS_OF_TILE)
        scale = tl.broadcast_to(scale[:, :, None], shape).reshape(COLUMNS, DEPTH)
        rest = tl.broadcast_to(rest[:, :, None], shape).reshape(COLUMNS, DEPTH)
{% if HAS_ZEROS %}
        zero = tl.broadcast_to(zero[:, :, None], shape).reshape(COLUMNS, DEPTH)
{% endif %}
{% endif %}
{% endif %}
        x = tl.load(x_base + start, mask=x_mask, other=none)
{% if PER_BYTE == 2 %}
        odd = tl.load(odd_base + start, mask=x_mask, other=none)
        low, high = FACTORS
        sums = tl.dot(low, x, sums)
        sums = tl.dot(high, odd, sums)
{% else %}
        numbers = FACTORS
        sums = tl.dot(numbers, x, sums)
{% endif %}
{% if GROUP == K and not HAS_ZEROS %}
    sums *= tl.load(s_base).to(tl.float32)[:, None]
{% endif %}
    idx_m = m[None, :]
    idx_n = n[:, None]
    mask = (idx_m < M) & (idx_n < N)
{% if SPLIT > 1 %}
    idx_m += tl.program_id(2) * M
{% endif %}
    {{store_output(("idx_m", "idx_n"), "sums", "mask", val_shape=("COLUMNS", "ROWS"))}}
"""
)


def _source(text: str, format: formats.Format, kind: str, factors: str) -> str:
  """The source of a template for a kind of codes and a dtype of inputs. `factors` computes what a
  tile of codes stands for."""
  if format.bits == 4:
    total = "tl.sum(even, 1) + tl.sum(odd, 1)"
    totals = "tl.sum(even.to(tl.float32), 2) + tl.sum(odd.to(tl.float32), 2)"
  else:
    total, totals = "tl.sum(x, 1)", "tl.sum(x.to(tl.float32), 2)"
  for name, replacement in {
    "NUMBERS": format.call(kind),
    "FACTORS": factors,
    "KIND": formats.TRITON[kind],
    "PAIRS": formats.pairs(kind),
    "TOTALS": totals,
    "TOTAL": total,
  }.items():
    text = text.replace(f"= {name}\n", f"= {replacement}\n").replace(f"({name}", f"({replacement}")
  return text


_TEXTS = {"row": _ROW, "rows": _ROWS, "tiles": _TILES}


@functools.cache
def _template(name: str, format: int, kind: str, is_scaled: bool, has_zeros: bool) -> Any:
  """A template. Inductor keeps it under its name for the whole process."""
  from torch._inductor.select_algorithm import SymbolicGridFn, TritonTemplate

  @SymbolicGridFn
  def grid(m: Any, n: Any, meta: Any, *, cdiv: Any) -> tuple[Any, Any, Any]:
    split = meta.get("SPLIT", 1)
    return (cdiv(n, meta["COLUMNS"]), cdiv(m // split, meta["ROWS"]), split)

  codes = formats.FORMATS[format]
  factors = codes.scaled_call(kind, has_zeros) if is_scaled else codes.call(kind)
  variant = "_scaled" * is_scaled + "_zeros" * has_zeros
  return TritonTemplate(
    name=f"husk_quantized_{name}_{codes.dtype}_{kind}{variant}",
    grid=grid,
    source=_source(_TEXTS[name], codes, kind, factors),
  )


# The lowering


def lowerings(target: Target) -> dict[Any, Callable[..., Any]]:
  """Inductor's lowerings by operator."""
  return {operator(): functools.partial(_lowered, target)}


def _lowered(target: Target, *arguments: InductorObject) -> InductorObject:
  import torch
  from torch._inductor import ir
  from torch._inductor.lowering import lowerings as table
  from torch._inductor.utils import sympy_product
  from torch._inductor.virtualized import V

  call: Any = Call(*arguments)
  assert call.values is None and call.residual is None and call.activation == "none"
  aten = torch.ops.aten
  *outer, k = call.input.get_size()
  rows, k, n = sympy_product(outer), int(k), int(call.weight.get_size()[0])
  x = _rows_in_memory(table[aten.reshape.default](call.input, [rows, k]))
  nodes = [
    ir.ExternKernel.require_contiguous(ir.ExternKernel.realize_input(one))
    for one in (call.weight, call.scales, call.zeros)
    if one is not None
  ]
  found = formats.of(call.bits, call.weight.get_dtype())
  assert found is not None
  count = torch_compat.size_hint(rows)
  zeros = None if call.zeros is None else call.zeros.get_dtype()
  split = 1
  if V.graph.sizevars.statically_known_equals(rows, 1):
    name, sizes = "row", _of_a_row(found, k)
  elif count > _FEW_ROWS[found.bits] and _has_tiles(found, call.group, zeros):
    chosen = shared_tiles(target, found, count, n, k, call.group)
    name, sizes, split = "tiles", _of_tiles(chosen, found, k, call.group), chosen.split
    if found.bits == 4:
      x = _even_before_odd(x)
  else:
    part = _part(found, k, call.group)
    assert part is not None
    name, sizes = "rows", _of_rows(tiles(target, count, n, part), part, k)
  shape: list[Any] = [split * rows, n]
  layout = ir.FixedLayout(
    x.get_device(),
    x.get_dtype() if split == 1 else torch.float32,
    shape,
    ir.FlexibleLayout.contiguous_strides(shape),
  )
  is_scaled = name == "tiles" and (call.group < k or zeros is not None)
  kind = formats.name_of(x.get_dtype())
  choices: list[Any] = []
  _template(
    name, formats.FORMATS.index(found), kind, is_scaled, is_scaled and zeros is not None
  ).maybe_append_choice(
    choices,
    input_nodes=(x, *nodes),
    layout=layout,
    K=k,
    GROUP=call.group,
    PER_BYTE=8 // call.bits,
    HAS_ZEROS=call.zeros is not None,
    **sizes,
  )
  result = torch_compat.selected("husk_quantized", choices, [x, *nodes], layout)
  if split > 1:
    parts = table[aten.reshape.default](result, [split, rows, n])
    result = table[aten.sum.dim_IntList](parts, [0])
    result = table[torch.ops.prims.convert_element_type.default](result, x.get_dtype())
  if call.bias is not None:
    result = table[aten.add.Tensor](result, call.bias)
  return table[aten.reshape.default](result, [*outer, n])


# The copies that `_even_before_odd` has made for each graph, by the name of the memory, the dtype
# and the sizes of the rows.
_made: weakref.WeakKeyDictionary[Any, dict[tuple[str, ...], InductorObject]] = (
  weakref.WeakKeyDictionary()
)


def _even_before_odd(rows: InductorObject) -> InductorObject:
  """The even elements of all rows, and then the odd ones. Layers that share rows share the copy."""
  import torch
  from torch._inductor import ir
  from torch._inductor.lowering import lowerings as table
  from torch._inductor.virtualized import V

  copies = _made.setdefault(V.graph, {})
  m, k = rows.get_size()
  name = rows.get_name()
  key = (name, str(rows.get_dtype()), str(m), str(k))
  # Rows that a step has written since are others, and parts of rows have the same name.
  if key not in copies or name in V.graph.mutated_buffers:
    aten = torch.ops.aten
    halves = table[aten.reshape.default](ir.TensorBox(ir.StorageBox(rows)), [m, k // 2, 2])
    halves = table[aten.permute.default](halves, [2, 0, 1])
    copy = table[aten.clone.default](halves, memory_format=torch.contiguous_format)
    copies[key] = ir.ExternKernel.require_contiguous(ir.ExternKernel.realize_input(copy))
  return copies[key]


def _rows_in_memory(input: InductorObject) -> InductorObject:
  """Rows without gaps, and a copy of them if they do not begin where their memory begins: pairs of
  elements are read as one word, which must not begin in the middle of another."""
  from torch._inductor import ir

  rows = ir.ExternKernel.require_contiguous(ir.ExternKernel.realize_input(input))
  return rows if rows.get_layout().offset == 0 else ir.ExternKernel.copy_input(rows)


def _of_a_row(format: formats.Format, k: int) -> dict[str, Any]:
  """The sizes of a block of the template of one row: two warps, each of whose threads reads a line
  of two columns at a time."""
  lines = min(64, 1 << (k // format.of_a_line - 1).bit_length())
  return {
    "LINE": format.of_a_line,
    "LINES": lines,
    "IS_EVEN": k // format.of_a_line % lines == 0,
    "COLUMNS": 2,
    "ROWS": 1,
    "num_stages": 1,
    "num_warps": max(1, lines // 32),
  }


def _of_rows(tiles: Tiles, part: int, k: int) -> dict[str, Any]:
  """The sizes of a block of the template of several rows."""
  parts = min(tiles.depth // part, 1 << (k // part - 1).bit_length())
  return {
    "PART": part,
    "PARTS": parts,
    "IS_EVEN": k // part % parts == 0,
    "COLUMNS": tiles.columns,
    "ROWS": tiles.rows,
    "num_stages": tiles.stages,
    "num_warps": min(tiles.warps, parts),
  }


def _of_tiles(tiles: SharedTiles, format: formats.Format, k: int, group: int) -> dict[str, Any]:
  """The sizes of a block of the template of tiles."""
  bytes = k * format.bits // 8
  return {
    "ROWS": tiles.rows,
    "COLUMNS": tiles.columns,
    "DEPTH": tiles.depth,
    "SPLIT": tiles.split,
    "GROUPS_OF_TILE": max(1, tiles.depth * 8 // format.bits // group),
    "IS_EVEN": bytes // tiles.split % tiles.depth == 0,
    "num_stages": tiles.stages,
    "num_warps": tiles.warps,
  }
