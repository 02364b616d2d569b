"""The kernels of linear layers of few rows (few_rows.py): which tiles they take, their source, and
their lowering. Codes become numbers as in formats.py."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from ..inductor import torch_compat
from ..inductor.lines import InductorObject
from . import formats, pdl
from .target import Target

# The most bytes of the weights that a thread reads at once (codes of 4 bits: half as many), and the
# most elements of a row; the elements that a block should read. On an H200, six layers with the
# sizes of Llama 3.2 1B took 227 us with 256 bytes a thread, and 216 with these and one column of
# each side of a gate; then 219 with 64 bytes in the last product. With four times as many codes of
# 4 bits in a thread, a layer took three times as long.
_OF_WEIGHTS = 128
_OF_A_ROW = 64
_OF_A_BLOCK = 1 << 13
# The most warps of a block, and of one with several columns.
MOST_WARPS = 16
_WARPS_OF_COLUMNS = 8
# The bytes of codes that a thread reads as one word.
LINE = 16

# Activations of a gate, as Triton's expressions of the float x.
GATES = {
  "silu": "x / (1.0 + tl.exp(-x))",
  "gelu_tanh": (
    "x / (1.0 + tl.exp(-1.5957691216057308 * x * (1.0 + 0.044715 * x * x)))"  # 2 sqrt(2 / pi)
  ),
  "relu": "tl.maximum(x, 0.0)",
  "sigmoid": "1.0 / (1.0 + tl.exp(-x))",
}


# The source


def warps(k: int, columns: int, itemsize: int) -> int:
  """The warps of a block of so many columns of k elements, of `itemsize` bytes if they are
  floats, of one if they are codes."""
  by_row = -(-k // (32 * _OF_A_ROW))
  by_weights = -(-k * columns * itemsize // (32 * _OF_WEIGHTS))
  return 1 << (max(1, by_row, by_weights) - 1).bit_length()


def columns_of_block(target: Target, k: int, sides: int, itemsize: int, columns: int) -> int:
  """The columns of a block, each of which is one of each side: two columns of weights at least, so
  that the block reads more of the weights than of the rows. A gate has small blocks."""
  count = 1 << max(2 // sides, _OF_A_BLOCK // (sides * sides * k)).bit_length() - 1
  while count > 1 and warps(k, count * sides, itemsize) > _WARPS_OF_COLUMNS:
    count //= 2
  while count > 1 and columns // count < 2 * target.multi_processor_count:
    count //= 2
  return count


def pieces_of_row(size: int, least: int) -> list[tuple[int, int]]:
  """The parts of a row of some size, by (begin, size). Their sizes are powers of 2, `least` or
  more, so that the last one may end behind the row."""
  pieces, begin = [], 0
  while begin < size:
    of_piece = max(least, 1 << (size - begin).bit_length() - 1)
    pieces.append((begin, of_piece))
    begin += of_piece
  return pieces


@dataclasses.dataclass(frozen=True)
class _Kind:
  """What a template is made for: the sizes of the weights, and what the launch computes. `codes` is
  the place of the kind of codes in formats.FORMATS, `dtype` that of the rows."""

  k: int
  columns: tuple[int, ...]
  has_bias: tuple[bool, ...]
  has_norm: bool
  has_scale: bool
  gate: str
  rows: int
  dtype: str
  codes: int | None = None
  group: int = 0
  has_zeros: bool = False

  @property
  def names(self) -> list[str]:
    """The names of the operands."""
    places = range(len(self.columns))
    return [
      "X",
      *(["G"] if self.has_scale else []),
      *(f"{letter}{place}" for letter in self.letters for place in places),
      *(f"B{place}" for place in places if self.has_bias[place]),
    ]

  @property
  def letters(self) -> str:
    """The letters of what each weight has: its elements, scales and zeros."""
    return "W" if self.codes is None else "WSZ" if self.has_zeros else "WS"

  @property
  def sides(self) -> list[int]:
    """The places of the weights that a block reads: both, if there is a gate."""
    return [0, 1] if self.gate else [0]

  @property
  def text(self) -> str:
    """A name for it."""
    parts = [
      self.dtype,
      str(self.k),
      *(f"{count}{'b' * has}" for count, has in zip(self.columns, self.has_bias)),
      "norm" * self.has_norm,
      "scale" * self.has_scale,
      self.gate,
      "" if self.codes is None else formats.FORMATS[self.codes].dtype,
      str(self.group or ""),
      "zeros" * self.has_zeros,
      str(self.rows),
    ]
    return "_".join(filter(None, parts))


def _source(kind: _Kind) -> str:
  """The text of the template."""
  names = ", ".join(f'"{name}"' for name in kind.names)
  of_weights, of_row = (_floats, _row_of_floats) if kind.codes is None else (_codes, _row_of_codes)
  lines = [
    "pid = tl.program_id(0).to(INDEX_DTYPE)",
    "first = pid * COLUMNS",
    "begin = first * 0",
    f"count = begin + {kind.columns[0]}",
    *(f"{letter.lower()}{side} = {letter}{side}" for letter in kind.letters for side in kind.sides),
    *([] if kind.gate else _choice_of_weight(kind)),
    "inside = first + tl.arange(0, COLUMNS)",
    "n = tl.minimum(inside, count - 1).to(tl.int64)",
    *of_weights(kind),
    *_biases(kind),
    pdl.PLACE,
  ]
  for row in range(kind.rows):
    lines += of_row(kind, row)
    lines += _end_of_row(kind, row)
  results = [
    f"result = tl.where(row == {row}, result_{row}[None, :], result)" for row in range(kind.rows)
  ]
  lines += [
    "row = tl.arange(0, ROWS)[:, None]",
    "result = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)",
    *results,
    f"mask = (row < {kind.rows}) & (inside < count)[None, :]",
  ]
  if len(kind.columns) == 1 or kind.gate:
    lines += ["idx_m = row", "idx_n = inside[None, :]"]
  else:
    lines += ["idx_m = row * 0", f"idx_n = begin * {kind.rows} + row * count + inside[None, :]"]
  lines.append(
    '{{store_output(("idx_m", "idx_n"), "result", "mask", val_shape=("ROWS", "COLUMNS"))}}'
  )
  return f"{{{{def_kernel({names})}}}}\n" + "".join(f"    {line}\n" for line in lines)


def _choice_of_weight(kind: _Kind) -> Iterator[str]:
  """The weight of a block: `begin` and `count` are the first of its columns in the result and their
  number, `first` is the first one of the block."""
  has_biases = any(kind.has_bias)
  if has_biases:
    yield f"bias = B{kind.has_bias.index(True)}"
    yield f"has_bias = (first >= 0) == {kind.has_bias[0]}"
  before, blocks = kind.columns[0], f"tl.cdiv({kind.columns[0]}, COLUMNS)"
  for place, count in list(enumerate(kind.columns))[1:]:
    yield f"is_here = pid >= {blocks}"
    for letter in kind.letters:
      yield f"{letter.lower()}0 = tl.where(is_here, {letter}{place}, {letter.lower()}0)"
    yield f"first = tl.where(is_here, (pid - ({blocks})) * COLUMNS, first)"
    yield f"begin = tl.where(is_here, {before}, begin)"
    yield f"count = tl.where(is_here, {count}, count)"
    if has_biases:
      if kind.has_bias[place]:
        yield f"bias = tl.where(is_here, B{place}, bias)"
      yield f"has_bias = tl.where(is_here, {kind.has_bias[place]}, has_bias)"
    before += count
    blocks += f" + tl.cdiv({count}, COLUMNS)"


def _biases(kind: _Kind) -> Iterator[str]:
  """The biases of the columns of a block."""
  for side in kind.sides:
    if kind.gate and kind.has_bias[side]:
      yield f"b{side} = tl.load(B{side} + n).to(tl.float32)"
    elif not kind.gate and any(kind.has_bias):
      yield "b0 = tl.load(bias + n, mask=has_bias & (n >= 0), other=0.0).to(tl.float32)"


def _end_of_row(kind: _Kind, row: int) -> Iterator[str]:
  """What becomes of the sums of a row."""
  if kind.has_norm:
    yield f"factor = tl.rsqrt(square / {kind.k} + EPS)"
  for side in kind.sides:
    if kind.codes is not None and kind.group == kind.k:
      yield f"sum{side} *= f{side}"
    if kind.has_norm:
      yield f"sum{side} *= factor"
    if kind.has_bias[side] if kind.gate else any(kind.has_bias):
      yield f"sum{side} += b{side}"
  if kind.gate:
    yield "x = sum0"
    yield f"sum0 = ({GATES[kind.gate]}) * sum1"
  yield f"result_{row} = sum0"


# Floats


def _mask(kind: _Kind, number: int, shape: str = "") -> str:
  """The mask of the loads of a piece, if it ends behind the row."""
  begin, size = pieces_of_row(kind.k, 128)[number]
  return f", mask=(k{number} < {kind.k}){shape}, other=0.0" if begin + size > kind.k else ""


def _floats(kind: _Kind) -> Iterator[str]:
  """The reads of the weights of a block."""
  yield "column = n[:, None] * K"
  for number, (begin, size) in enumerate(pieces_of_row(kind.k, 128)):
    yield f"k{number} = {begin} + tl.arange(0, {size})"
    for side in kind.sides:
      address = f"w{side} + (column + k{number}[None, :])"
      yield f"w{side}_{number} = tl.load({address}{_mask(kind, number, '[None, :]')})"


def _row_of_floats(kind: _Kind, row: int) -> Iterator[str]:
  """The sums of a row of the input."""
  for number in range(len(pieces_of_row(kind.k, 128))):
    mask, added = _mask(kind, number), "+" if number else ""
    yield f"x = tl.load(X + ({row * kind.k} + k{number}){mask}).to(tl.float32)"
    if kind.has_norm:
      yield f"square {added}= tl.sum(x * x, 0)"
    if kind.has_scale:
      yield f"x *= tl.load(G + k{number}{mask}).to(tl.float32)"
    for side in kind.sides:
      yield f"sum{side} {added}= tl.sum(w{side}_{number}.to(tl.float32) * x[None, :], 1)"


# Codes


def _format(kind: _Kind) -> formats.Format:
  assert kind.codes is not None
  return formats.FORMATS[kind.codes]


def _lines(kind: _Kind) -> list[tuple[int, int]]:
  """The pieces of a column, by (begin, size) in lines."""
  return pieces_of_row(kind.k // _format(kind).of_a_line, 1)


def _codes(kind: _Kind) -> Iterator[str]:
  """The reads of the codes of a block, and of their scales and zeros."""
  found = _format(kind)
  has_groups = kind.group < kind.k
  yield f"column = n[:, None, None] * {kind.k * found.bits // 8}"
  if has_groups:
    yield f"groups = n[:, None] * {kind.k // kind.group}"
  for number, (begin, size) in enumerate(_lines(kind)):
    yield f"line{number} = {begin} + tl.arange(0, {size})"
    yield f"k{number} = line{number}[:, None] * {LINE} + tl.arange(0, {LINE})[None, :]"
    if has_groups:
      yield f"at = groups + (line{number} // {kind.group // found.of_a_line})[None, :]"
    for side in kind.sides:
      yield f"w{side}_{number} = tl.load(w{side} + (column + k{number}[None, :, :]))"
      if has_groups:
        yield f"f{side}_{number} = tl.load(s{side} + at)"
        if kind.has_zeros:
          yield f"z{side}_{number} = tl.load(z{side} + at)"
  if not has_groups:
    for side in kind.sides:
      yield f"f{side} = tl.load(s{side} + n).to(tl.float32)"
      if kind.has_zeros:
        yield f"z{side}_0 = tl.load(z{side} + n)[:, None]"


def _row_of_codes(kind: _Kind, row: int) -> Iterator[str]:
  """The sums of a row of the input."""
  found = _format(kind)
  numbers = found.call(kind.dtype)
  has_groups = kind.group < kind.k
  parts = ["even", "odd"] if found.bits == 4 else ["x"]
  for number in range(len(_lines(kind))):
    added = "+" if number else ""
    if found.bits == 4:
      yield f"x = tl.load(X.to(tl.pointer_type(tl.int32)) + ({row * kind.k // 2} + k{number}))"
      yield f"even, odd = {formats.pairs(kind.dtype)}"
    else:
      yield f"x = tl.load(X + ({row * kind.k} + k{number}))"
    for part in parts:
      yield f"{part} = {part}.to(tl.float32)"
    if kind.has_norm:
      squares = " + ".join(f"{part} * {part}" for part in parts)
      yield f"square {added}= tl.sum(tl.sum({squares}, 1), 0)"
    if kind.has_scale and found.bits == 4:
      yield f"x = tl.load(G.to(tl.pointer_type(tl.int32)) + k{number})"
      yield f"even_scale, odd_scale = {formats.pairs(kind.dtype)}"
      for part in parts:
        yield f"{part} *= {part}_scale.to(tl.float32)"
    elif kind.has_scale:
      yield f"x *= tl.load(G + k{number}).to(tl.float32)"
    if kind.has_zeros:
      yield f"total = tl.sum({' + '.join(parts)}, 1)[None, :]"
    for side in kind.sides:
      yield f"w = w{side}_{number}"
      if found.bits == 4:
        yield f"low, high = {numbers}"
        products = "low.to(tl.float32) * even[None, :, :] + high.to(tl.float32) * odd[None, :, :]"
      else:
        yield f"w = {numbers}"
        products = "w.to(tl.float32) * x[None, :, :]"
      yield f"product = tl.sum({products}, 2)"
      if kind.has_zeros:
        yield f"product -= z{side}_{number if has_groups else 0}.to(tl.float32) * total"
      if has_groups:
        yield f"product *= f{side}_{number}.to(tl.float32)"
      yield f"sum{side} {added}= tl.sum(product, 1)"


@functools.cache
def _template(kind: _Kind) -> Any:
  """A template. Inductor keeps it under its name for the whole process."""
  from torch._inductor.select_algorithm import SymbolicGridFn, TritonTemplate

  @SymbolicGridFn
  def grid(m: Any, n: Any, meta: Any) -> tuple[Any, Any, Any]:
    return (meta["BLOCKS"], 1, 1)

  return TritonTemplate(name=f"husk_few_rows_{kind.text}", grid=grid, source=_source(kind))


# The lowering


def lowered(
  target: Target,
  input: InductorObject,
  weights: Sequence[InductorObject],
  scales: Sequence[InductorObject],
  zeros: Sequence[InductorObject],
  biases: Sequence[InductorObject | None],
  norm: InductorObject | None,
  eps: float,
  gate: str,
  bits: int,
  group: int,
) -> InductorObject:
  import torch
  from torch._inductor import ir
  from torch._inductor.lowering import lowerings as table

  aten = torch.ops.aten
  *outer, k = map(int, input.get_size())
  rows = math.prod(outer)
  columns = tuple(int(weight.get_size()[0]) for weight in weights)
  kind = _Kind(
    k,
    columns,
    tuple(bias is not None for bias in biases),
    eps >= 0,
    norm is not None,
    gate,
    rows,
    formats.name_of(input.get_dtype()),
    formats.place_of_format(bits, weights[0].get_dtype()) if bits else None,
    group,
    bool(zeros),
  )
  flat = [
    table[aten.reshape.default](input, [rows, k]),
    *([norm] if norm is not None else []),
    *weights,
    *scales,
    *zeros,
    *(bias for bias in biases if bias is not None),
  ]
  nodes = [ir.ExternKernel.require_contiguous(ir.ExternKernel.realize_input(one)) for one in flat]
  # Lines of 16 bytes are read as one word, which begins at a multiple of 16 bytes.
  nodes = [
    one if one.get_layout().offset == 0 else ir.ExternKernel.copy_input(one) for one in nodes
  ]
  is_single = bool(gate) or len(weights) == 1
  shape: list[Any] = [rows, columns[0]] if is_single else [1, rows * sum(columns)]
  layout = ir.FixedLayout(
    input.get_device(), input.get_dtype(), shape, ir.FlexibleLayout.contiguous_strides(shape)
  )
  itemsize, sides = weights[0].get_dtype().itemsize, len(kind.sides)
  wide = columns[:1] if gate else columns
  width = columns_of_block(target, k, sides, itemsize, sum(wide))
  choices: list[Any] = []
  _template(kind).maybe_append_choice(
    choices,
    input_nodes=tuple(nodes),
    layout=layout,
    K=k,
    ROWS=1 << (rows - 1).bit_length(),
    COLUMNS=width,
    EPS=eps,
    BLOCKS=sum(-(-count // width) for count in wide),
    num_stages=1,
    num_warps=warps(k, width * sides, itemsize),
  )
  result = torch_compat.selected("husk_few_rows", choices, nodes, layout)
  wanted = [*outer, columns[0]] if is_single else [rows * sum(columns)]
  return table[aten.reshape.default](result, wanted)
