"""Convolutions of images as kernels of a template of Husk: products of matrices that are never
written (implicit GEMM).

A convolution is a product whose rows are the positions of the result and whose columns are its
channels. The depth has an element for each input channel of each element of the kernel (a tap). The
template differs from that of Inductor in these points:

- Taps may have a distance (dilation). A block then leaves out rows and columns of the kernel that
  lie outside of the image for all of its positions. With dilation 36 and an image of 28 x 28, one
  of nine taps remains.
- The depth is one axis, so that a step may have channels of several taps. With three channels,
  Inductor's template multiplies 16 for each tap, of which 13 are zero.
- The depth may be split: each part is summed by a block of its own, and a kernel adds the parts in
  float32, in an order that is fixed, together with what follows the convolution. That makes enough
  blocks of a small image with many channels.

Channels are innermost in memory, in images and in kernels, so that loads are wide. The result has
its dimensions in the order in which they are in memory, as in depthwise.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import sympy

from ..inductor import torch_compat
from ..inductor.decompositions.convolution import result_sizes
from ..inductor.lines import InductorObject
from . import images
from .images import pair
from .target import Target
from .tiles import Tiles as TilesOfProduct

# The beginning of the names of the template's choices.
NAME = "husk_convolution"

# Into how many parts the depth may be split, and the most bytes of the parts.
SPLITS = (1, 2, 3, 4, 6, 8)
MOST_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True)
class Tiles(TilesOfProduct):
  """A block computes m positions of n channels, in steps of k elements of the depth, which has
  `split` parts."""

  split: int = 1


TILES = [
  Tiles(128, 256, 64, 3, 8),
  Tiles(128, 256, 64, 4, 8),
  Tiles(128, 128, 64, 3, 8),
  Tiles(128, 128, 64, 4, 8),
  Tiles(128, 128, 64, 3, 4),
  Tiles(64, 256, 64, 3, 8),
  Tiles(64, 256, 64, 4, 4),
  Tiles(256, 64, 64, 3, 8),
  Tiles(128, 64, 64, 3, 8),
  Tiles(128, 64, 64, 4, 4),
  Tiles(64, 128, 64, 4, 4),
  Tiles(64, 128, 128, 3, 4),
  Tiles(64, 64, 64, 4, 4),
  Tiles(64, 64, 64, 6, 4),
  Tiles(64, 64, 128, 3, 4),
  Tiles(64, 32, 64, 4, 4),
  Tiles(64, 32, 128, 4, 4),
  Tiles(32, 64, 64, 4, 4),
  Tiles(32, 32, 64, 4, 4),
  Tiles(32, 32, 128, 3, 4),
  Tiles(16, 64, 64, 4, 4),
  Tiles(16, 32, 128, 3, 4),
]
# Tiles for float32, and for channels that are no multiple of the steps of TILES.
SHORT_TILES = [
  Tiles(128, 128, 32, 3, 8),
  Tiles(128, 64, 32, 3, 4),
  Tiles(64, 64, 32, 3, 4),
  Tiles(32, 32, 32, 3, 4),
  Tiles(32, 32, 16, 3, 2),
]
# Tiles for few channels, whose elements are loaded one by one into registers. Most steps have more
# than one tap.
SHALLOW_TILES = [
  Tiles(128, 64, 16, 2, 4),
  Tiles(128, 64, 32, 2, 4),
  Tiles(128, 64, 64, 2, 8),
  Tiles(256, 64, 16, 2, 8),
  Tiles(128, 128, 16, 2, 8),
  Tiles(64, 64, 16, 2, 4),
  Tiles(64, 64, 32, 2, 4),
  Tiles(64, 64, 64, 2, 4),
  Tiles(64, 128, 32, 2, 4),
  Tiles(128, 32, 16, 2, 4),
  Tiles(128, 32, 32, 2, 4),
  Tiles(32, 32, 32, 2, 4),
  Tiles(256, 16, 32, 2, 8),
  Tiles(128, 16, 32, 2, 4),
  Tiles(64, 16, 32, 2, 4),
]


@dataclasses.dataclass(frozen=True)
class Problem:
  """A convolution. `height` and `width` are those of the result, `dtype` is that of the operands.
  Unknown sizes are those of the example."""

  dtype: str
  batch: int
  channels: int
  outputs: int
  height: int
  width: int
  kernel: tuple[int, int]
  stride: tuple[int, int]
  padding: tuple[int, int]
  dilation: tuple[int, int]

  @property
  def positions(self) -> int:
    return self.batch * self.height * self.width

  @property
  def depth(self) -> int:
    return math.prod(self.kernel) * self.channels

  @property
  def element_bytes(self) -> int:
    return 4 if self.dtype == "float32" else 2

  @property
  def is_shallow(self) -> bool:
    """Whether neighbouring elements of the depth cannot be loaded together."""
    return self.channels * self.element_bytes % 8 != 0


def cost(target: Target, problem: Problem, tiles: Tiles) -> float:
  """The estimated time of a convolution, in nanoseconds of an H100; infinite if the tiles do not
  fit.

  A step loads (m + n) k elements and multiplies m n k elements, and waits for its loads as in
  gemm_configs.py. Blocks that are on a multiprocessor together wait at the same time. The numbers
  are fitted to 87 problems, each in the 24 configurations that an earlier fit liked best, on an
  H100. The rule takes a configuration that needs 1.09 of the time of the best on average.
  """
  memory = (tiles.m + tiles.n) * tiles.k * tiles.stages * problem.element_bytes
  if memory > target.shared_memory_per_block_optin:
    return float("inf")
  if tiles.m * tiles.n > 128 * 32 * tiles.warps:  # accumulators that do not fit the registers
    return float("inf")
  grid = -(-problem.positions // tiles.m) * -(-problem.outputs // tiles.n) * tiles.split
  blocks = grid / target.multi_processor_count
  registers = tiles.m * tiles.n + 2048 * tiles.warps
  together = max(
    1,
    min(
      target.shared_memory_per_block_optin // memory,
      target.regs_per_multiprocessor // registers,
    ),
  )
  work = (tiles.m + tiles.n) * tiles.k + tiles.m * tiles.n * tiles.k / 180
  if problem.is_shallow:
    # An element that is loaded alone has an address and a mask of its own, and so has a position.
    work += tiles.m * (0.4 * tiles.k + 20)
  if together == 1 < blocks:
    work *= 1.33  # nothing else runs while a block begins and ends
  wait = 16384 / max(tiles.stages - 1, 0.5)
  mean, longest = (-(-depth // (tiles.k * tiles.split)) for depth in _useful_depths(problem, tiles))
  busy = math.ceil(blocks) if blocks <= together else blocks
  step = busy * work + math.ceil(blocks / together) * wait
  # Blocks that take the longest may run last.
  time = 1350 + ((mean + 1) * step + (longest - mean) / 2 * (work + wait)) / 48
  if tiles.split > 1:
    # The parts are written and read, and another kernel is launched.
    time += 2600 + 8 * tiles.split * problem.positions * problem.outputs / 2700
  return time


def _useful_depths(problem: Problem, tiles: Tiles) -> tuple[int, int]:
  """The mean and the largest depth of a block, without the rows and columns of the kernel that it
  leaves out."""
  if problem.dilation == (1, 1) or problem.channels % tiles.k:
    return problem.depth, problem.depth
  rows = min(problem.height, tiles.m // problem.width + 1)
  inside = [
    _taps_inside(problem, 0, first, first + rows - 1) for first in range(problem.height - rows + 1)
  ]
  row = _taps_inside(problem, 1, 0, problem.width - 1) * problem.channels
  return -(-sum(inside) * row // len(inside)), max(inside) * row


def _taps_inside(problem: Problem, dim: int, first: int, last: int) -> int:
  """How many rows (dim 0) or columns (dim 1) of the kernel lie inside the image for some of the
  positions from `first` to `last`."""
  size, taps = (problem.height, problem.width)[dim], problem.kernel[dim]
  step, pad, d = problem.stride[dim], problem.padding[dim], problem.dilation[dim]
  size = (size - 1) * step - 2 * pad + d * (taps - 1) + 1  # of the image
  begin = max(0, -((last * step - pad) // d))
  end = min(taps, (size - 1 + pad - first * step) // d + 1)
  return max(0, end - begin)


def candidates(target: Target, problem: Problem, most_positions: int = 0) -> list[Tiles]:
  """The tiles for a convolution, by their costs. Tiles that do not fit are left out, and numbers of
  parts that would take more than MOST_BYTES. `most_positions` are the most positions of a program
  of which the problem is an example."""
  part = 4 * problem.outputs * max(problem.positions, most_positions)
  found = []
  for tiles in _tiles(problem):
    for split in SPLITS:
      if split == 1 or split * part <= MOST_BYTES and problem.depth // (split * tiles.k) >= 4:
        each = dataclasses.replace(tiles, split=split)
        found.append((cost(target, problem, each), len(found), each))
  return [tiles for time, _, tiles in sorted(found) if time < float("inf")]


def _tiles(problem: Problem) -> list[Tiles]:
  tiles = TILES
  if problem.is_shallow:
    tiles = SHALLOW_TILES
  elif problem.dtype == "float32" or problem.channels % 64:
    tiles = TILES + SHORT_TILES
  if problem.dtype == "float32" and not torch_compat.convolutions_in_tf32():
    return [each for each in tiles if fits_registers(each.m, each.n, each.k, each.warps)]
  return tiles


def fits_registers(m: int, n: int, k: int, warps: int) -> bool:
  """Whether a tile fits the registers if tensor cores do not multiply it. A thread then has a part
  of both factors in registers, next to its sums and those of the step. With larger tiles Triton 3.6
  spills: a tile of 128 x 128 x 64 with four warps keeps 3712 bytes of a thread in memory, and on an
  H200 a product of 4096 x 4096 x 4096 took 43 times the time of cuBLAS."""
  return m * n <= 64 * 32 * warps and k <= 32


def choice_cost(target: Target, choice: InductorObject) -> float:
  """The cost of a choice of the template."""
  return cost(target, problem_of(choice), choice.log_info["tiles"])


def problem_of(choice: InductorObject) -> Problem:
  """The convolution that a choice computes, with sizes as torch_compat.size_hint tells them."""
  return choice.log_info["problem"]()


def is_choice(choice: InductorObject) -> bool:
  return NAME in getattr(choice, "name", "")


# The template

_SOURCE = r"""
{% set first = 1 if SPLIT > 1 else 0 %}
{{def_kernel("X", "W")}}
    BATCH = {{size("X", 0)}}
    IN_H = {{size("X", 2)}}
    IN_W = {{size("X", 3)}}
    OUT_H = {{size(None, first + 1)}}
    OUT_W = {{size(None, first + 2)}}
    stride_xn = {{stride("X", 0)}}
    stride_xc = {{stride("X", 1)}}
    stride_xh = {{stride("X", 2)}}
    stride_xw = {{stride("X", 3)}}

    block = tl.program_id(0).to(INDEX_DTYPE)
    position = block * BLOCK_M + tl.arange(0, BLOCK_M)
    y_w = position % OUT_W
    y_h = position // OUT_W % OUT_H
    y_n = position // OUT_W // OUT_H
    y_c = tl.program_id(1).to(INDEX_DTYPE) * BLOCK_N + tl.arange(0, BLOCK_N)
    is_image = y_n < BATCH
    is_channel = y_c < OUT_C
    # The place of the first tap.
    x_h0 = y_h * STRIDE_H - PADDING_H
    x_w0 = y_w * STRIDE_W - PADDING_W
    x_base = y_n * stride_xn + x_h0 * stride_xh + x_w0 * stride_xw
    w_base = y_c * DEPTH
    k = tl.arange(0, BLOCK_K)

{% if not WHOLE %}
    steps = (DEPTH + BLOCK_K - 1) // BLOCK_K
{% elif DILATION_H == 1 and DILATION_W == 1 %}
    begin_h = 0
    begin_w = 0
    columns = KERNEL_W
    steps = KERNEL_H * KERNEL_W * (IN_C // BLOCK_K)
{% else %}
    # The rows and columns of the kernel that lie inside the image for some position of the block.
    row = block * BLOCK_M // OUT_W
    last_row = tl.minimum(block * BLOCK_M + BLOCK_M, BATCH * OUT_H * OUT_W) - 1
    last_row = last_row // OUT_W
    is_one = row // OUT_H == last_row // OUT_H
    low = tl.where(is_one, row % OUT_H, 0)
    high = tl.where(is_one, last_row % OUT_H, OUT_H - 1)
    begin_h = tl.maximum((PADDING_H - high * STRIDE_H + DILATION_H - 1) // DILATION_H, 0)
    end_h = tl.minimum((IN_H - 1 + PADDING_H - low * STRIDE_H) // DILATION_H + 1, KERNEL_H)
    begin_w = tl.maximum((PADDING_W - (OUT_W - 1) * STRIDE_W + DILATION_W - 1) // DILATION_W, 0)
    end_w = tl.minimum((IN_W - 1 + PADDING_W) // DILATION_W + 1, KERNEL_W)
    columns = tl.maximum(end_w - begin_w, 1)
    steps = tl.maximum(end_h - begin_h, 0) * columns * (IN_C // BLOCK_K)
{% endif %}
{% if SPLIT > 1 %}
    part = tl.program_id(2).to(INDEX_DTYPE)
    per_part = (steps + SPLIT - 1) // SPLIT
    begin = part * per_part
    end = tl.minimum(begin + per_part, steps)
{% else %}
    begin = 0
    end = steps
{% endif %}

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(begin, end):
{% if WHOLE %}
        # A step has channels of one tap.
        tap = step // (IN_C // BLOCK_K)
        c = step % (IN_C // BLOCK_K) * BLOCK_K
        i = begin_h + tap // columns
        j = begin_w + tap % columns
        x_h = x_h0 + i * DILATION_H
        x_w = x_w0 + j * DILATION_W
        is_pixel = is_image & (x_h >= 0) & (x_h < IN_H) & (x_w >= 0) & (x_w < IN_W)
        shift = i * DILATION_H * stride_xh + j * DILATION_W * stride_xw + c * stride_xc
        x = tl.load(
            X + (x_base[:, None] + (k * stride_xc)[None, :] + shift),
            mask=is_pixel[:, None],
            other=0.0,
        )
        d = (i * KERNEL_W + j) * IN_C + c
{% if OUT_C % BLOCK_N %}
        w = tl.load(
            W + (k[:, None] + w_base[None, :] + d), mask=is_channel[None, :], other=0.0
        )
{% else %}
        w = tl.load(W + (k[:, None] + w_base[None, :] + d))
{% endif %}
{% else %}
        d = step * BLOCK_K + k
        tap = d // IN_C
        i = tap // KERNEL_W
        j = tap % KERNEL_W
        x_h = x_h0[:, None] + (i * DILATION_H)[None, :]
        x_w = x_w0[:, None] + (j * DILATION_W)[None, :]
        shift = i * DILATION_H * stride_xh + j * DILATION_W * stride_xw + d % IN_C * stride_xc
        is_pixel = (x_h >= 0) & (x_h < IN_H) & (x_w >= 0) & (x_w < IN_W)
        x = tl.load(
            X + (x_base[:, None] + shift[None, :]),
            mask=is_pixel & is_image[:, None] & (d < DEPTH)[None, :],
            other=0.0,
        )
        w = tl.load(
            W + (d[:, None] + w_base[None, :]),
            mask=(d < DEPTH)[:, None] & is_channel[None, :],
            other=0.0,
        )
{% endif %}
        acc = tl.dot(x, w, acc, input_precision=PRECISION)

    mask = is_image[:, None] & is_channel[None, :]
    idx_n = y_n[:, None]
    idx_h = y_h[:, None]
    idx_w = y_w[:, None]
    idx_c = y_c[None, :]
{% if SPLIT > 1 %}
    {{store_output(("part", "idx_n", "idx_h", "idx_w", "idx_c"), "acc", "mask",
                   val_shape=("BLOCK_M", "BLOCK_N"))}}
{% else %}
    {{store_output(("idx_n", "idx_h", "idx_w", "idx_c"), "acc", "mask",
                   val_shape=("BLOCK_M", "BLOCK_N"))}}
{% endif %}
"""


@functools.cache
def _template() -> Any:
  """The template. Inductor keeps it under its name for the whole process."""
  from torch._inductor.select_algorithm import SymbolicGridFn, TritonTemplate

  @SymbolicGridFn
  def grid(*arguments: Any, cdiv: Any) -> tuple[Any, Any, Any]:
    *_, n, h, w, c, meta = arguments
    return (cdiv(n * h * w, meta["BLOCK_M"]), cdiv(c, meta["BLOCK_N"]), meta["SPLIT"])

  return TritonTemplate(name=NAME, grid=grid, source=_SOURCE)


# The lowering

# Whether a problem has the template.
Takes = Callable[[Target, Problem], bool]
# Returns the tiles for a problem of several, of which the first one is the best by the rule.
Pick = Callable[[Problem, Sequence[Tiles]], Tiles]


def lowering(
  target: Target, takes: Takes, pick: Pick, otherwise: Callable[..., Any]
) -> Callable[..., Any]:
  """A lowering of convolutions, which makes those of images that the template `takes` its kernels.
  `otherwise` lowers the others."""
  return images.lowering(
    functools.partial(_templated, target, takes, pick),
    functools.partial(_without_template, otherwise),
  )


def _templated(target: Target, takes: Takes, pick: Pick, call: images.Convolution) -> Any:
  import torch
  from torch._inductor.virtualized import V

  x, weight = call.x, call.weight
  if not call.is_of_images:
    return None
  sizes = weight.get_size()
  dilation = _useful(sizes[2:], pair(call.dilation))
  sides = [pair(values) for values in (call.stride, call.padding, dilation)]
  if (
    call.groups == 1
    and x.get_device().type == "cuda"
    and x.get_dtype() in (torch.float16, torch.bfloat16, torch.float32)
    and V.graph.sizevars.statically_known_equals(sizes[1], x.get_size()[1])
    and not _is_product([int(size) for size in sizes[2:]], *sides[:2])
    and takes(target, _problem(x, weight, *sides))
  ):
    return _convolved(target, pick, x, weight, *sides)
  return None


def _without_template(
  otherwise: images.Lowering,
  x: InductorObject,
  weight: InductorObject,
  bias: InductorObject | None,
  stride: Sequence[int],
  padding: Sequence[int],
  dilation: Sequence[int],
  *rest: Any,
) -> Any:
  sizes = weight.get_size()
  if len(sizes) == 4:
    dilation = _useful(sizes[2:], pair(dilation))  # Inductor's template has none
  return with_products_in_tf32(otherwise, x, weight, bias, stride, padding, dilation, *rest)


def _is_product(kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> bool:
  """Whether a convolution is a product of matrices, which Inductor makes of it."""
  return set(kernel) == {1} and set(stride) == {1} and set(padding) == {0}


def _useful(kernel: Sequence[Any], dilation: Sequence[int]) -> tuple[int, int]:
  """The dilation, without that of a side with one tap."""
  return pair([1 if taps == 1 else d for taps, d in zip(kernel, dilation)])


def _problem(
  x: InductorObject,
  weight: InductorObject,
  stride: tuple[int, int],
  padding: tuple[int, int],
  dilation: tuple[int, int],
) -> Problem:
  """A convolution with sizes as torch_compat.size_hint tells them."""
  outputs, channels, *kernel = (int(size) for size in weight.get_size())
  sides = result_sizes(x.get_size()[2:], kernel, stride, padding, dilation)
  batch, height, width = map(torch_compat.size_hint, [x.get_size()[0], *sides])
  dtype = str(x.get_dtype()).removeprefix("torch.")
  return Problem(
    dtype, batch, channels, outputs, height, width, pair(kernel), stride, padding, dilation
  )


def suits(target: Target, problem: Problem) -> bool:
  """The rule whether the template is taken in place of Inductor's. On an H100 ResNet-50 takes 0.76
  of the time with it for one image. For eight images, where each layer has tiles for most
  multiprocessors, it takes 1.2 of the time, though each layer alone is faster."""
  tiles = -(-problem.positions // 64) * -(-problem.outputs // 64)
  return (
    problem.dilation != (1, 1) or problem.is_shallow or tiles < 0.4 * target.multi_processor_count
  )


def _convolved(
  target: Target,
  pick: Pick,
  x: InductorObject,
  weight: InductorObject,
  stride: tuple[int, int],
  padding: tuple[int, int],
  dilation: tuple[int, int],
) -> Any:
  import torch
  from torch._inductor import ir
  from torch._inductor.lowering import lowerings as table

  aten = torch.ops.aten
  weight_of_model = weight
  outputs, channels, *kernel = (int(size) for size in weight.get_size())
  depth = channels * math.prod(kernel)
  x.realize()
  x = ir.ExternKernel.require_channels_last(x)
  weight = table[aten.permute.default](weight, [0, 2, 3, 1])
  weight = ir.ExternKernel.require_contiguous(weight)
  weight = ir.ExternKernel.realize_input(table[aten.view.default](weight, [outputs, depth]))
  n, _, *image = x.get_size()
  size = [n, *result_sizes(image, kernel, stride, padding, dilation), outputs]

  def problem() -> Problem:
    return _problem(x, weight_of_model, stride, padding, dilation)

  found = candidates(target, problem(), _largest(math.prod(size[:3])))
  split = pick(problem(), found).split
  whole = [split, *size] if split > 1 else size
  layout = ir.FixedLayout(
    x.get_device(),
    torch.float32 if split > 1 else x.get_dtype(),
    whole,
    ir.FlexibleLayout.contiguous_strides(whole),
  )
  choices: list[Any] = []
  for tiles in found:
    if tiles.split != split:
      continue
    before = len(choices)
    _template().maybe_append_choice(
      choices,
      input_nodes=(x, weight),
      layout=layout,
      BLOCK_M=tiles.m,
      BLOCK_N=tiles.n,
      BLOCK_K=tiles.k,
      SPLIT=split,
      WHOLE=channels % tiles.k == 0,
      IN_C=channels,
      OUT_C=outputs,
      DEPTH=depth,
      KERNEL_H=kernel[0],
      KERNEL_W=kernel[1],
      STRIDE_H=stride[0],
      STRIDE_W=stride[1],
      PADDING_H=padding[0],
      PADDING_W=padding[1],
      DILATION_H=dilation[0],
      DILATION_W=dilation[1],
      PRECISION=_precision(channels),
      num_stages=tiles.stages,
      num_warps=tiles.warps,
    )
    for choice in choices[before:]:
      choice.log_info.update(problem=problem, tiles=tiles)
  result = torch_compat.selected(NAME, choices, [x, weight], layout)
  if split > 1:
    result = _added(result, split, size, x.get_dtype())
  return table[aten.permute.default](result, [0, 3, 1, 2])


def with_products_in_tf32(
  original: Callable[..., Any], x: InductorObject, weight: InductorObject, *rest: Any
) -> Any:
  """Inductor's lowering of a convolution, which makes a product of matrices of a kernel with one
  tap, if channels are innermost. The product is in tf32 if the convolution would be."""
  in_tf32 = is_in_tf32(x, weight)
  with torch_compat.products_in_tf32() if in_tf32 else contextlib.nullcontext():
    return original(x, weight, *rest)


def is_in_tf32(x: InductorObject, weight: InductorObject) -> bool:
  """Whether the products of a convolution are in tf32."""
  import torch

  channels = sympy.sympify(weight.get_size()[1])

  return (
    x.get_dtype() == torch.float32
    and torch_compat.convolutions_in_tf32()
    and bool(channels.is_Integer)
    and int(channels) > 3
  )


def _precision(channels: int) -> str:
  """Triton's precision of products of f32, in quotes. cuDNN does not use tf32 for images of one to
  three channels, even if it may, so these have three products in tf32 in place of one."""
  if not torch_compat.convolutions_in_tf32():
    return repr("ieee")
  return repr("tf32" if channels > 3 else "tf32x3")


def _largest(size: Any) -> int:
  """The largest value of an expression of sizes; 0 if it has no bound, since such sizes have no
  memory that is planned in advance."""
  from torch._inductor.virtualized import V

  upper = V.graph.sizevars.shape_env.bound_sympy(size).upper
  return int(upper) if upper.is_finite and upper.is_Integer else 0


def _added(parts: InductorObject, split: int, size: Sequence[Any], dtype: Any) -> Any:
  """The sum of the parts of the depth."""
  from torch._inductor import ir
  from torch._inductor.virtualized import ops

  load = parts.make_loader()

  def element(index: Sequence[Any]) -> Any:
    total = load([0, *index])
    for part in range(1, split):
      total = ops.add(total, load([part, *index]))
    return ops.to_dtype(total, dtype)

  return ir.Pointwise.create(
    device=parts.get_device(), dtype=dtype, inner_fn=element, ranges=list(size)
  )
