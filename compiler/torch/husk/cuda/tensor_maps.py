"""Products of many rows, whose tiles are copied by tensor maps (the copy engine of compute
capability 9.0, TMA).

In Inductor's template each thread computes the addresses of what it copies, and the tensor cores
wait while a block begins and ends. On an H200, products of 512 to 8192 rows in bf16 took 1.17 to
1.27 times as long with it as with cuBLASLt. Here a block for each multiprocessor goes through tiles
in turns, and copies of the next tile begin while the last one is stored (`flatten`). The same
products took 0.93 to 1.19 times as long.

Each block writes the maps of both factors to scratch memory before it begins, so the template is
for products of many tiles. It is a choice beside Inductor's, and records (records.py) or the rule
(gemm_configs.py) decide. What follows a product is fused."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..inductor import torch_compat
from ..inductor.lines import InductorObject
from .target import Target
from .tiles import Tiles

NAME = "husk_tensor_maps"

# The compute capability whose products were measured. The next one multiplies by instructions that
# want another kernel.
_CAPABILITY = 90
# The least rows of a product, in the example or at the end of their range.
_LEAST_ROWS = 256
# Sizes in bytes that tensor maps can have: strides, and addresses.
_ALIGNMENT = 16

# Tiles, and the blocks of a multiprocessor: while one of two stores, the other one multiplies.
CONFIGS = (
  (Tiles(128, 256, 64, 3, 8), 1),
  (Tiles(128, 256, 64, 4, 8), 1),
  (Tiles(256, 128, 64, 3, 8), 1),
  (Tiles(256, 128, 64, 4, 8), 1),
  (Tiles(128, 128, 64, 4, 8), 1),
  (Tiles(128, 128, 64, 5, 8), 1),
  (Tiles(128, 128, 128, 3, 8), 1),
  (Tiles(128, 128, 64, 4, 4), 1),
  (Tiles(128, 128, 64, 3, 4), 2),
  (Tiles(64, 256, 64, 4, 4), 1),
  (Tiles(128, 64, 64, 4, 4), 2),
  (Tiles(64, 128, 64, 4, 4), 2),
  (Tiles(64, 128, 128, 3, 4), 1),
  (Tiles(64, 128, 128, 4, 4), 1),
)

_SOURCE = r"""
{{def_kernel("A", "B")}}
    M = {{size("A", 0)}}
    N = {{size("B", 1)}}
    K = {{size("A", 1)}}
{% if A_IN_ROWS %}
    a_map = tl.make_tensor_descriptor(A, [M, K], [{{stride("A", 0)}}, 1], [BLOCK_M, BLOCK_K])
{% else %}
    a_map = tl.make_tensor_descriptor(A, [K, M], [{{stride("A", 1)}}, 1], [BLOCK_K, BLOCK_M])
{% endif %}
{% if B_IN_ROWS %}
    b_map = tl.make_tensor_descriptor(B, [K, N], [{{stride("B", 0)}}, 1], [BLOCK_K, BLOCK_N])
{% else %}
    b_map = tl.make_tensor_descriptor(B, [N, K], [{{stride("B", 1)}}, 1], [BLOCK_N, BLOCK_K])
{% endif %}
    tall = tl.cdiv(M, BLOCK_M)
    wide = tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tall * wide, NUM_SMS, flatten=True):
        # Tiles of the same time have rows and columns in common, which a cache keeps.
        first = tile // (GROUP_M * wide) * GROUP_M
        height = tl.minimum(tall - first, GROUP_M)
        row = (first + tile % height) * BLOCK_M
        column = tile % (GROUP_M * wide) // height * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
{% if A_IN_ROWS %}
            a = a_map.load([row, k])
{% else %}
            a = a_map.load([k, row]).T
{% endif %}
{% if B_IN_ROWS %}
            b = b_map.load([k, column])
{% else %}
            b = b_map.load([column, k]).T
{% endif %}
            acc = tl.dot(a, b, acc)
{% if PARTS == 2 %}
        # Halves need fewer registers for what follows, and less shared memory.
        parts = tl.split(tl.permute(tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1)))
{% else %}
        parts = (acc,)
{% endif %}
        for part in tl.static_range(PARTS):
            sums = parts[part]
            idx_m = (row + tl.arange(0, BLOCK_M))[:, None]
            idx_n = (column + part * (BLOCK_N // PARTS) + tl.arange(0, BLOCK_N // PARTS))[None, :]
            mask = (idx_m < M) & (idx_n < N)
            {{store_output(("idx_m", "idx_n"), "sums", "mask", indent_width=12,
                           val_shape=("BLOCK_M", "BLOCK_N // PARTS"))}}
"""


def is_choice(choice: InductorObject) -> bool:
  return NAME in getattr(choice, "name", "")


@functools.cache
def _template() -> Any:
  """The template. Inductor keeps it under its name for the whole process."""
  from torch._inductor.kernel.mm_common import persistent_mm_grid
  from torch._inductor.select_algorithm import TritonTemplate

  return TritonTemplate(name=NAME, grid=persistent_mm_grid, source=_SOURCE)


def beside(target: Target, original: Callable[..., Any]) -> Callable[..., Any]:
  """InductorChoices.get_template_configs, the choices for an operator, with those of the template
  for products of matrices."""

  def get_template_configs(
    self: Any, inputs: Any, templates: Sequence[Any], name: str, *args: Any, **named: Any
  ) -> Any:
    choices = original(self, inputs, templates, name, *args, **named)
    has_templates = any(getattr(one, "name", "") == "mm" for one in templates)
    if name in ("mm", "addmm") and has_templates and suits(target, inputs):
      choices = [*choices]
      options = _options(inputs, name)
      for tiles, blocks in CONFIGS:
        _append(target, choices, options, tiles, blocks)
    return choices

  return get_template_configs


def suits(target: Target, inputs: InductorObject) -> bool:
  """Whether the template can compute a product, and is made for it: 16 bits, many rows, and factors
  whose rows or columns are dense and begin at multiples of 16 bytes."""
  if target.capability != _CAPABILITY:
    return False
  left, right = inputs.mat1mat2()
  rows = left.get_size()[0]
  if left.get_dtype().itemsize != 2 or not left.get_dtype().is_floating_point:
    return False
  if left.get_dtype() != right.get_dtype() or inputs.out_dtype() != left.get_dtype():
    return False
  with torch_compat.sizes_at(1.0):
    most_rows = torch_compat.size_hint(rows)
  if max(most_rows, torch_compat.size_hint(rows)) < _LEAST_ROWS:
    return False
  return all(_in_rows(one) is not None for one in (left, right))


def _in_rows(matrix: InductorObject) -> bool | None:
  """Whether a matrix has dense rows; False if its columns are dense, None if a tensor map cannot
  have it."""
  from torch._inductor.virtualized import V

  sizes = V.graph.sizevars
  if matrix.get_name() in V.graph.unaligned_buffers:
    return None
  (height, width), (step, stride) = matrix.get_size(), matrix.get_stride()
  unit = _ALIGNMENT // matrix.get_dtype().itemsize

  def is_aligned(value: Any) -> bool:
    return bool(sizes.statically_known_multiple_of(value, unit))

  if not is_aligned(matrix.get_layout().offset):
    return None
  if sizes.statically_known_equals(stride, 1) and is_aligned(step) and is_aligned(width):
    return True
  if sizes.statically_known_equals(step, 1) and is_aligned(stride) and is_aligned(height):
    return False
  return None


def _options(inputs: InductorObject, name: str) -> dict[str, Any]:
  """What all configurations of a product have in common."""
  from torch._inductor.kernel.mm_common import addmm_epilogue

  left, right = inputs.mat1mat2()
  options: dict[str, Any] = {
    "input_nodes": tuple(inputs.nodes()),
    "layout": inputs.output_layout(flexible=False),
    "A_IN_ROWS": _in_rows(left),
    "B_IN_ROWS": _in_rows(right),
    "GROUP_M": 8,
  }
  if name == "addmm":
    scalars = [inputs.get_scalar(each) for each in ("alpha", "beta")]
    options |= {
      "prefix_args": 1,
      "epilogue_fn": addmm_epilogue(inputs.out_dtype(), *scalars),
      "epilogue_fn_hash": str(["addmm_epilogue", inputs.out_dtype(), *scalars]),
    }
  return options


def _append(
  target: Target, choices: list[Any], options: dict[str, Any], tiles: Tiles, blocks: int
) -> None:
  before = len(choices)
  _template().maybe_append_choice(
    choices,
    BLOCK_M=tiles.m,
    BLOCK_N=tiles.n,
    BLOCK_K=tiles.k,
    PARTS=2 if blocks == 2 or tiles.m * tiles.n > 1 << 14 else 1,
    NUM_SMS=blocks * target.multi_processor_count,
    num_stages=tiles.stages,
    num_warps=tiles.warps,
    **options,
  )
  for choice in choices[before:]:
    choice.log_info["blocks"] = blocks
