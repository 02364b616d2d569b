"""The template of `husk::scaled_blocks` (inductor/decompositions/blocks.py): products in fp8 with a scale for each
block of columns.

Tensor cores multiply a block of both matrices, and the sums in f32 are multiplied with the scales
of the block and added. The columns of a tile are the rows of the instruction, of which it has 64 at
least, and the rows of the product its columns, of which it can have 8."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..inductor import torch_compat
from ..inductor.decompositions.blocks import operator
from ..inductor.lines import InductorObject
from .target import Target

if TYPE_CHECKING:
  import torch

_SOURCE = r"""
{{def_kernel("A", "S", "B", "T")}}
    M = {{size("A", 0)}}
    N = {{size("B", 0)}}
    BLOCKS: tl.constexpr = K // BLOCK
    n = tl.program_id(0).to(INDEX_DTYPE) * COLUMNS + tl.arange(0, COLUMNS)
    m = tl.program_id(1).to(INDEX_DTYPE) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, BLOCK)
    column = tl.minimum(n, N - 1).to(tl.int64)
    row = (m % M).to(tl.int64)
    b_base = B + (column[:, None] * K + k[None, :])
    a_base = A + (row[None, :] * K + k[:, None])
    s_base = S + row * BLOCKS
{% if SCALED_COLUMNS % COLUMNS == 0 %}
    t_base = T + (tl.program_id(0) * COLUMNS // SCALED_COLUMNS) * BLOCKS
{% else %}
    t_base = T + (column // SCALED_COLUMNS) * BLOCKS
{% endif %}
    sums = tl.zeros((COLUMNS, ROWS), dtype=tl.float32)
    for block in range(0, BLOCKS):
        a = tl.load(a_base + block * BLOCK)
        b = tl.load(b_base + block * BLOCK)
        s = tl.load(s_base + block)[None, :]
        t = tl.load(t_base + block)
{% if SCALED_COLUMNS % COLUMNS != 0 %}
        t = t[:, None]
{% endif %}
        sums += tl.dot(b, a) * (s * t)
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


def tiles(target: Target, rows: int, columns: int, block: int) -> Tiles:
  """The tiles of a product: the largest ones that occupy the GPU."""
  height = min(128, max(16, 1 << (rows - 1).bit_length()))
  wide = 64
  if height == 128:
    if -(-columns // 128) * -(-rows // 128) >= target.multi_processor_count:
      wide = 128
    elif -(-columns // 64) * -(-rows // 128) < target.multi_processor_count:
      height = 64
  warps = 8 if height * wide > 8192 else 4
  of_a_stage = (height + wide) * block
  return Tiles(
    height, wide, max(2, min(4, target.shared_memory_per_block_optin // of_a_stage)), warps
  )


@functools.cache
def _template() -> Any:
  """The template. Inductor keeps it under its name for the whole process."""
  from torch._inductor.select_algorithm import SymbolicGridFn, TritonTemplate

  @SymbolicGridFn
  def grid(m: Any, n: Any, meta: Any, *, cdiv: Any) -> tuple[Any, Any, Any]:
    return (cdiv(n, meta["COLUMNS"]), cdiv(m, meta["ROWS"]), 1)

  return TritonTemplate(name="husk_scaled_blocks", grid=grid, source=_SOURCE)


def lowerings(target: Target) -> dict[Any, Callable[..., Any]]:
  """Inductor's lowerings by operator."""
  return {operator(): functools.partial(_lowered, target)}


def _lowered(
  target: Target,
  a: InductorObject,
  a_scales: InductorObject,
  b: InductorObject,
  b_scales: InductorObject,
  columns: int,
  dtype: torch.dtype,
) -> InductorObject:
  from torch._inductor import ir

  nodes = [
    ir.ExternKernel.require_contiguous(ir.ExternKernel.realize_input(one))
    for one in (a, a_scales, b, b_scales)
  ]
  (rows, k), n = a.get_size(), int(b.get_size()[0])
  block = int(k) // int(a_scales.get_size()[1])
  chosen = tiles(target, torch_compat.size_hint(rows), n, block)
  shape: list[Any] = [rows, n]
  layout = ir.FixedLayout(a.get_device(), dtype, shape, ir.FlexibleLayout.contiguous_strides(shape))
  choices: list[Any] = []
  _template().maybe_append_choice(
    choices,
    input_nodes=tuple(nodes),
    layout=layout,
    K=int(k),
    BLOCK=block,
    SCALED_COLUMNS=columns,
    ROWS=chosen.rows,
    COLUMNS=chosen.columns,
    num_stages=chosen.stages,
    num_warps=chosen.warps,
  )
  return torch_compat.selected("husk_scaled_blocks", choices, nodes, layout)
