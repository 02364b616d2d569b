"""Products whose factors both have 8 bits: `aten::_int_mm`, `aten::_scaled_mm`, and
`husk::scaled_blocks` (inductor/decompositions/blocks.py).

Inductor's templates have tiles for factors of 16 bits, and take as long as a product in bf16 or
several times as long. Here the columns of a tile are the rows of the instruction of a tensor core,
of which it has 64 at least, and the rows of the product its columns, of which it can have 8. Both
factors are read along k, so the second one must be a matrix n x k that is transposed, as weights
are; other products keep Inductor's kernels. What follows is fused, scales of rows among it.

Sums of fp8 in a tensor core have fewer bits than a float. Where the caller asks for more
(`use_fast_accum=False`), or blocks have scales, the sums of 128 products are added in f32."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..inductor import torch_compat
from ..inductor.decompositions import blocks
from ..inductor.lines import InductorObject
from .target import Target

if TYPE_CHECKING:
  import torch

# A step multiplies so many elements of each row of both factors.
_DEPTH = 128

_SOURCE = r"""
{% if SCALED_COLUMNS %}
{{def_kernel("A", "B", "S", "T")}}
{% else %}
{{def_kernel("A", "B")}}
{% endif %}
    M = {{size("A", 0)}}
    N = {{size("B", 0)}}
    # Blocks that run at the same time have rows and columns in common, which a cache keeps.
    pid = tl.program_id(0).to(INDEX_DTYPE)
    tall = tl.cdiv(M, ROWS)
    wide = tl.cdiv(N, COLUMNS)
    first = pid // (8 * wide) * 8
    height = tl.minimum(tall - first, 8)
    begin = pid % (8 * wide) // height * COLUMNS
    n = begin + tl.arange(0, COLUMNS)
    m = (first + pid % height) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, DEPTH)
    column = tl.minimum(n, N - 1).to(tl.int64)
    row = (m % M).to(tl.int64)
    b_base = B + (column[:, None] * K + k[None, :])
    a_base = A + (row[None, :] * K + k[:, None])
{% if SCALED_COLUMNS %}
    s_base = S + row
{% if SCALED_COLUMNS % COLUMNS == 0 %}
    t_base = T + begin // SCALED_COLUMNS * (K // DEPTH)
{% else %}
    t_base = T + (column // SCALED_COLUMNS * (K // DEPTH))[:, None]
{% endif %}
{% endif %}
    sums = tl.zeros((COLUMNS, ROWS), dtype=SUM)
    for step in range(0, K // DEPTH):
        a = tl.load(a_base + step * DEPTH)
        b = tl.load(b_base + step * DEPTH)
{% if SCALED_COLUMNS %}
        sums += tl.dot(b, a) * (tl.load(s_base)[None, :] * tl.load(t_base + step))
        s_base += M
{% elif IS_EXACT %}
        sums += tl.dot(b, a)
{% else %}
        sums = tl.dot(b, a, sums, out_dtype=SUM)
{% endif %}
    idx_m = m[None, :]
    idx_n = n[:, None]
    mask = (idx_m < M) & (idx_n < N)
    {{store_output(("idx_m", "idx_n"), "sums", "mask", val_shape=("COLUMNS", "ROWS"))}}
"""


@dataclasses.dataclass(frozen=True)
class Tiles:
  rows: int
  columns: int
  stages: int
  warps: int


# By what was measured on an H100, the largest first. With scales of blocks a thread has the sums of
# a step, too.
_TILES = (Tiles(256, 128, 4, 8), Tiles(128, 128, 3, 4), Tiles(64, 128, 4, 4), Tiles(64, 64, 4, 4))
_TILES_IN_TWO = (Tiles(128, 128, 3, 8), Tiles(64, 128, 4, 4), Tiles(64, 64, 4, 4))


def tiles(target: Target, rows: int, columns: int, in_two: bool = False) -> Tiles:
  """The tiles of a product: the largest ones that occupy the GPU. `in_two`: whether sums of steps
  are added to others."""
  chosen = None
  for chosen in _TILES_IN_TWO if in_two else _TILES:
    count = -(-columns // chosen.columns) * -(-rows // chosen.rows)
    if rows > chosen.rows // 2 and count >= 0.9 * target.multi_processor_count:
      break
  assert chosen is not None
  height = min(chosen.rows, max(16, 1 << (rows - 1).bit_length()))
  of_a_stage = (height + chosen.columns) * _DEPTH
  stages = min(chosen.stages, target.shared_memory_per_block_optin // of_a_stage)
  return dataclasses.replace(chosen, rows=height, stages=max(2, stages))


@functools.cache
def _template(sum: str) -> Any:
  """The template for a type of sums. Inductor keeps it under its name for the whole process."""
  from torch._inductor.select_algorithm import SymbolicGridFn, TritonTemplate

  @SymbolicGridFn
  def grid(m: Any, n: Any, meta: Any, *, cdiv: Any) -> tuple[Any, Any, Any]:
    return (cdiv(n, meta["COLUMNS"]) * cdiv(m, meta["ROWS"]), 1, 1)

  source = _SOURCE.replace("SUM", f"tl.{sum}")
  return TritonTemplate(name=f"husk_eight_bits_{sum}", grid=grid, source=source)


def lowerings(target: Target) -> dict[Any, Callable[..., Any]]:
  """Inductor's lowerings by operator."""
  import torch
  from torch._inductor import lowering
  from torch._inductor.kernel import mm

  del mm  # importing it registers Inductor's lowerings
  aten = torch.ops.aten
  scaled, of_ints = aten._scaled_mm.default, aten._int_mm.default
  return {
    blocks.operator(): functools.partial(_scaled_blocks, target),
    of_ints: functools.partial(_of_ints, target, lowering.lowerings[of_ints]),
    scaled: functools.partial(_scaled, target, lowering.lowerings[scaled]),
  }


def _of_ints(
  target: Target,
  original: Callable[..., Any],
  a: InductorObject,
  b: InductorObject,
  **rest: Any,
) -> InductorObject:
  import torch

  columns = _columns(a, b)
  if columns is None:
    return original(a, b, **rest)
  return _product(target, a, columns, torch.int32)


def _scaled(
  target: Target,
  original: Callable[..., Any],
  a: InductorObject,
  b: InductorObject,
  a_scale: InductorObject,
  b_scale: InductorObject,
  bias: InductorObject | None = None,
  result_scale: InductorObject | None = None,
  out_dtype: torch.dtype | None = None,
  use_fast_accum: bool = False,
) -> InductorObject:
  """A product in fp8 with a scale for each tensor, or for each row of a and each column of b."""
  import torch
  from torch._inductor.lowering import lowerings as table
  from torch._inductor.virtualized import V

  m, n = a.get_size()[0], b.get_size()[1]
  equal = V.graph.sizevars.statically_known_equals

  def is_known(scale: InductorObject, of_rows: Sequence[Any]) -> bool:
    sizes = scale.get_size()
    is_one = all(equal(size, 1) for size in sizes)
    known = is_one or (len(sizes) == 2 and all(map(equal, sizes, of_rows)))
    return known and scale.get_dtype() == torch.float32

  columns = _columns(a, b) if is_known(a_scale, (m, 1)) and is_known(b_scale, (1, n)) else None
  if columns is None or result_scale is not None or not target.capability >= 89:
    return original(a, b, a_scale, b_scale, bias, result_scale, out_dtype, use_fast_accum)
  aten = torch.ops.aten
  result = _product(target, a, columns, torch.float32, is_exact=not use_fast_accum)
  for scale in (a_scale, b_scale):
    result = table[aten.mul.Tensor](result, scale)
  if bias is not None:
    result = table[aten.add.Tensor](result, bias)
  return table[torch.ops.prims.convert_element_type.default](result, out_dtype or a.get_dtype())


def _columns(a: InductorObject, b: InductorObject) -> InductorObject | None:
  """The second factor, n x k in memory without gaps; None if it lies there otherwise, or if k is no
  multiple of the depth of a step."""
  import sympy
  import torch
  from torch._inductor import ir
  from torch._inductor.lowering import lowerings as table
  from torch._inductor.virtualized import V

  k, n = map(sympy.sympify, b.get_size())
  sizes = V.graph.sizevars
  if not (n.is_number and k.is_number and k % _DEPTH == 0):
    return None
  if sizes.statically_known_equals(a.get_size()[0], 0):
    return None
  columns = ir.ExternKernel.realize_input(table[torch.ops.aten.permute.default](b, [1, 0]))
  if not ir.is_storage_and_layout(columns):
    return None
  strides = columns.get_stride()
  is_dense = sizes.statically_known_equals(strides[1], 1) and sizes.statically_known_equals(
    strides[0], k
  )
  return columns if is_dense else None


def _scaled_blocks(
  target: Target,
  a: InductorObject,
  a_scales: InductorObject,
  b: InductorObject,
  b_scales: InductorObject,
  columns: int,
  dtype: torch.dtype,
) -> InductorObject:
  import torch
  from torch._inductor.lowering import lowerings as table

  # Threads of neighbouring rows read scales of neighbouring places.
  of_steps = table[torch.ops.aten.permute.default](a_scales, [1, 0])
  result = _product(target, a, b, torch.float32, scales=(of_steps, b_scales), columns=columns)
  return table[torch.ops.prims.convert_element_type.default](result, dtype)


def _product(
  target: Target,
  a: InductorObject,
  b: InductorObject,
  dtype: torch.dtype,
  is_exact: bool = False,
  scales: Sequence[InductorObject] = (),
  columns: int = 0,
) -> InductorObject:
  """The sums of a product of m x k with n x k, of which blocks of `columns` columns have scales."""
  from torch._inductor import ir

  nodes = [
    ir.ExternKernel.require_contiguous(ir.ExternKernel.realize_input(one))
    for one in (a, b, *scales)
  ]
  (rows, k), n = a.get_size(), int(b.get_size()[0])
  chosen = tiles(target, torch_compat.size_hint(rows), n, is_exact or bool(scales))
  shape: list[Any] = [rows, n]
  layout = ir.FixedLayout(a.get_device(), dtype, shape, ir.FlexibleLayout.contiguous_strides(shape))
  choices: list[Any] = []
  _template("float32" if dtype.is_floating_point else "int32").maybe_append_choice(
    choices,
    input_nodes=tuple(nodes),
    layout=layout,
    K=int(k),
    DEPTH=_DEPTH,
    SCALED_COLUMNS=columns,
    IS_EXACT=is_exact,
    ROWS=chosen.rows,
    COLUMNS=chosen.columns,
    num_stages=chosen.stages,
    num_warps=chosen.warps,
  )
  return torch_compat.selected("husk_eight_bits", choices, nodes, layout)
