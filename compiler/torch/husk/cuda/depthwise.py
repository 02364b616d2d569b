"""Depthwise convolutions of images as kernels of a template of Husk.

A depthwise convolution multiplies as many numbers as it loads, so tensor cores do not help, and
what counts is how often an element of the image is loaded and converted. A thread computes several
results that are neighbours in a row (COLUMNS), and uses each element for all of them. Channels are
innermost in memory, so that loads are wide. The elements of a kernel are read with the channels
innermost too; unless there are few, a copy makes that order in each run, so that the model's
constants stay as they are. What follows the convolution (a bias, a batch norm, an activation) is
fused into the kernel. For that the result of the template has its dimensions in the order in which
they are in memory: batch, rows, columns, channels. The kernels after it go over memory in order,
and with another order Inductor finds no data that they share, as with its own convolutions.

A channel may have several results, and the elements of a kernel may have a distance (dilation).

As a sum of terms in a kernel of Inductor's (inductor/decompositions/convolution.py), each of the 49
terms of a 7 x 7 kernel computed again what was before it, and the result was not in the order that
a layer norm reads. Triton took up to seven seconds to compile one of them.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from ..inductor import torch_compat
from ..inductor.decompositions.convolution import result_sizes
from ..inductor.lines import InductorObject
from . import images
from .images import pair
from .target import Target

# The beginning of the names of the template's choices.
NAME = "husk_depthwise"

# Elements of a kernel that are read in the order that the model has them in.
_MOST_IN_PLACE = 9


@dataclasses.dataclass(frozen=True)
class Tiles:
  """A block computes the results of `strips` strips of `columns` neighbours in a row, for
  `channels` channels."""

  strips: int
  channels: int
  columns: int
  warps: int


TILES = [
  Tiles(16, 64, 4, 4),
  Tiles(8, 64, 4, 2),
  Tiles(8, 64, 4, 4),
  Tiles(16, 64, 2, 4),
  Tiles(16, 32, 4, 4),
  Tiles(8, 32, 4, 2),
  Tiles(8, 32, 4, 1),
  Tiles(16, 32, 2, 2),
  Tiles(8, 32, 2, 1),
  Tiles(4, 64, 2, 1),
  Tiles(16, 32, 1, 2),
  Tiles(8, 32, 1, 1),
]


@dataclasses.dataclass(frozen=True)
class Problem:
  """A depthwise convolution: the sizes of its result, the sizes and the strides of its kernel."""

  batch: int
  channels: int
  height: int
  width: int
  kernel: tuple[int, int]
  stride: tuple[int, int]


def cost(target: Target, problem: Problem, tiles: Tiles) -> float:
  """The estimated time of a convolution in units of its own, the time of a load. A thread loads the
  elements of a row of its strip one after another, and the warps of a scheduler take turns. The
  weights of both, and of the products, are those with which 20 convolutions in two formats took the
  least time on an H100 (tests/gpu/depthwise.py): 1.06 of the best tile's, and 1.11 with weights of
  other convolutions."""
  strips = problem.batch * problem.height * -(-problem.width // tiles.columns)
  blocks = -(-strips // tiles.strips) * -(-problem.channels // tiles.channels)
  elements = tiles.strips * tiles.channels // (32 * tiles.warps)
  taps = problem.kernel[1]
  # A dilation changes where the elements lie, and hardly how many there are.
  loaded = len(loaded_columns(tiles.columns, taps, problem.stride[1], 1))
  row = loaded * elements + 0.02 * tiles.columns * taps * elements
  warps = -(-blocks // target.multi_processor_count) * tiles.warps / 4
  return row + 0.93 * warps


def choice_cost(target: Target, choice: InductorObject) -> float:
  """The cost of a choice of the template."""
  tiles = tiles_of(choice)
  return cost(target, problem_of(choice), tiles)


def tiles_of(choice: InductorObject) -> Tiles:
  info = choice.log_info
  return Tiles(*(int(info[name]) for name in ("STRIPS", "CHANNELS", "COLUMNS", "num_warps")))


def problem_of(choice: InductorObject) -> Problem:
  """The convolution that a choice computes."""
  batch, height, width, channels = map(torch_compat.size_hint, choice.layout.size)
  info = choice.log_info
  return Problem(batch, channels, height, width, info["kernel"], info["stride"])


def is_choice(choice: InductorObject) -> bool:
  return NAME in getattr(choice, "name", "")


# The template

_SOURCE = r"""
{{def_kernel("X", "W")}}
    BATCH = {{size("X", 0)}}
    IN_H = {{size("X", 2)}}
    IN_W = {{size("X", 3)}}
    OUT_H = {{size(None, 1)}}
    OUT_W = {{size(None, 2)}}
    OUT_C = {{size(None, 3)}}
    stride_xn = {{stride("X", 0)}}
    stride_xc = {{stride("X", 1)}}
    stride_xh = {{stride("X", 2)}}
    stride_xw = {{stride("X", 3)}}
    stride_wh = {{stride("W", 0)}}
    stride_ww = {{stride("W", 1)}}
    stride_wc = {{stride("W", 2)}}

    # A strip is COLUMNS results that are neighbours in a row.
    IN_ROW = (OUT_W + COLUMNS - 1) // COLUMNS
    strip = tl.program_id(0).to(INDEX_DTYPE) * STRIPS + tl.arange(0, STRIPS)
    y_w = strip % IN_ROW * COLUMNS
    y_h = strip // IN_ROW % OUT_H
    y_n = strip // IN_ROW // OUT_H
    y_c = tl.program_id(1).to(INDEX_DTYPE) * CHANNELS + tl.arange(0, CHANNELS)
    is_channel = y_c < OUT_C
    x_base = X + (y_n * stride_xn)[:, None] + (y_c // RESULTS_OF_CHANNEL * stride_xc)[None, :]
    w_base = W + y_c * stride_wc

{% for j in range(COLUMNS) %}
    sum{{j}} = tl.zeros((STRIPS, CHANNELS), dtype=tl.float32)
{% endfor %}
    for i in range(KERNEL_H):
        x_h = y_h * STRIDE_H - PADDING_H + i * DILATION_H
        is_row = (y_n < BATCH) & (x_h >= 0) & (x_h < IN_H)
{% for tap in range(KERNEL_W) %}
        w{{tap}} = tl.load(w_base + i * stride_wh + {{tap}} * stride_ww, mask=is_channel, other=0.0)
        w{{tap}} = w{{tap}}.to(tl.float32)[None, :]
{% endfor %}
{% for column in LOADED %}
        x_w = y_w * STRIDE_W - PADDING_W + {{column}}
        is_pixel = is_row & (x_w >= 0) & (x_w < IN_W)
        x = tl.load(
            x_base + (x_h * stride_xh + x_w * stride_xw)[:, None],
            mask=is_pixel[:, None] & is_channel[None, :],
            other=0.0,
        ).to(tl.float32)
{% for j in range(COLUMNS) %}
{% set at = column - j * STRIDE_W %}
{% if 0 <= at < KERNEL_W * DILATION_W and at % DILATION_W == 0 %}
        sum{{j}} += x * w{{at // DILATION_W}}
{% endif %}
{% endfor %}
{% endfor %}

    # The results of a strip become neighbours in one tile.
{% if COLUMNS == 1 %}
    result = sum0
{% elif COLUMNS == 2 %}
    result = tl.join(sum0, sum1)
{% else %}
    result = tl.reshape(
        tl.join(tl.join(sum0, sum2), tl.join(sum1, sum3)), (STRIPS, CHANNELS, COLUMNS)
    )
{% endif %}
{% if COLUMNS > 1 %}
    result = tl.reshape(tl.permute(result, (0, 2, 1)), (STRIPS * COLUMNS, CHANNELS))
{% endif %}
    number = tl.arange(0, STRIPS * COLUMNS)
    strip = tl.program_id(0).to(INDEX_DTYPE) * STRIPS + number // COLUMNS
    idx_y_w = strip % IN_ROW * COLUMNS + number % COLUMNS
    idx_y_h = strip // IN_ROW % OUT_H
    idx_y_n = strip // IN_ROW // OUT_H
    mask = ((idx_y_n < BATCH) & (idx_y_w < OUT_W))[:, None] & is_channel[None, :]
    idx_n = idx_y_n[:, None]
    idx_c = y_c[None, :]
    idx_h = idx_y_h[:, None]
    idx_w = idx_y_w[:, None]
    {{store_output(("idx_n", "idx_h", "idx_w", "idx_c"), "result", "mask",
                   val_shape=("RESULTS", "CHANNELS"))}}
"""


@functools.cache
def _template() -> Any:
  """The template. Inductor keeps it under its name for the whole process."""
  from torch._inductor.select_algorithm import SymbolicGridFn, TritonTemplate

  @SymbolicGridFn
  def grid(n: Any, h: Any, w: Any, c: Any, meta: Any, *, cdiv: Any) -> tuple[Any, Any, Any]:
    strips = n * h * cdiv(w, meta["COLUMNS"])
    return (cdiv(strips, meta["STRIPS"]), cdiv(c, meta["CHANNELS"]), 1)

  return TritonTemplate(name=NAME, grid=grid, source=_SOURCE)


def loaded_columns(columns: int, taps: int, stride: int, dilation: int) -> tuple[int, ...]:
  """The columns of the image that `columns` neighbours in a row need, from the first one on."""
  return tuple(sorted({j * stride + tap * dilation for j in range(columns) for tap in range(taps)}))


# The lowering


def lowering(otherwise: images.Lowering) -> images.Lowering:
  """A lowering of convolutions, which makes depthwise ones of images kernels of the template.
  `otherwise` lowers the others."""
  return images.lowering(_templated, otherwise)


def _templated(call: images.Convolution) -> Any:
  from torch._inductor.virtualized import V

  sizes = call.weight.get_size()
  if (
    call.is_of_images
    and call.groups > 1
    and V.graph.sizevars.statically_known_equals(sizes[1], 1)
    and V.graph.sizevars.statically_known_multiple_of(sizes[0], call.groups)
  ):
    return _convolved(
      call.x,
      call.weight,
      pair(call.stride),
      pair(call.padding),
      pair(call.dilation),
      call.groups,
    )
  return None


def _convolved(
  x: InductorObject,
  weight: InductorObject,
  stride: tuple[int, int],
  padding: tuple[int, int],
  dilation: tuple[int, int],
  groups: int,
) -> Any:
  import torch
  from torch._inductor import ir
  from torch._inductor.lowering import lowerings as table

  aten = torch.ops.aten
  kernel = (int(weight.get_size()[2]), int(weight.get_size()[3]))
  outputs = int(weight.get_size()[0])
  x.realize()
  x = ir.ExternKernel.require_channels_last(x)
  # Dimensions of a kernel: rows, columns, channels.
  weight = table[aten.permute.default](table[aten.squeeze.dim](weight, 1), [1, 2, 0])
  if kernel[0] * kernel[1] > _MOST_IN_PLACE:
    weight = ir.ExternKernel.require_contiguous(ir.ExternKernel.copy_input(weight))
  else:
    weight = ir.ExternKernel.realize_input(weight)
  n, _, height, width = x.get_size()
  size = [
    n,
    *result_sizes((height, width), kernel, stride, padding, dilation),
    outputs,
  ]
  strides = ir.FlexibleLayout.contiguous_strides(size)
  layout = ir.FixedLayout(x.get_device(), x.get_dtype(), size, strides)
  choices: list[Any] = []
  for tiles in TILES:
    before = len(choices)
    _template().maybe_append_choice(
      choices,
      input_nodes=(x, weight),
      layout=layout,
      KERNEL_H=kernel[0],
      KERNEL_W=kernel[1],
      STRIDE_H=stride[0],
      STRIDE_W=stride[1],
      PADDING_H=padding[0],
      PADDING_W=padding[1],
      DILATION_H=dilation[0],
      DILATION_W=dilation[1],
      RESULTS_OF_CHANNEL=outputs // groups,
      LOADED=loaded_columns(tiles.columns, kernel[1], stride[1], dilation[1]),
      STRIPS=tiles.strips,
      CHANNELS=tiles.channels,
      COLUMNS=tiles.columns,
      RESULTS=tiles.strips * tiles.columns,
      num_stages=1,
      num_warps=tiles.warps,
    )
    for choice in choices[before:]:
      choice.log_info.update(
        STRIPS=tiles.strips,
        CHANNELS=tiles.channels,
        COLUMNS=tiles.columns,
        kernel=kernel,
        stride=stride,
        padding=padding,
      )
  result = torch_compat.selected(NAME, choices, [x, weight], layout)
  return table[aten.permute.default](result, [0, 3, 1, 2])
