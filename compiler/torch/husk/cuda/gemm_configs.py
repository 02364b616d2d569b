"""The Triton kernels of matrix products and their tiles, chosen by a rule that measures nothing.

The set "templates" has Inductor's tiled templates. Each product becomes a kernel, into which the
elementwise operations after it are fused. The set "fused" has ordinary kernels with `tl.dot`
(`triton.native_matmul`), into which the operations before the product are fused too. That gives
fewer kernels, but the operations before the product are computed again for every column of tiles.
Products that "fused" does not support (one row, convolutions) are made by templates.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from .. import dtypes
from ..inductor import torch_compat
from ..inductor.lines import InductorObject
from . import convolution, depthwise, tensor_maps
from .target import Target
from .tiles import Tiles

# A triton.Config.
Config = Any

# Inductor's options of each set.
SETS: dict[str, dict[str, Any]] = {"templates": {}, "fused": {"triton.native_matmul": True}}


def options(gemm_set: str) -> dict[str, Any]:
  """Inductor's options for a set of kernels."""
  if gemm_set not in SETS:
    raise ValueError(f"products={gemm_set!r}: give one of {', '.join(map(repr, SETS))}")
  return SETS[gemm_set]


@dataclasses.dataclass(frozen=True)
class Problem:
  """`batch` products of m x k and k x n. An element has `bytes` bytes. Unknown sizes are those of
  the example. `on_tensor_cores` is False for products of f32 without tf32."""

  m: int
  n: int
  k: int
  batch: int
  bytes: int
  on_tensor_cores: bool = True


def cost(target: Target, problem: Problem, tiles: Tiles) -> float:
  """The estimated time of a product in units of its own; infinite if the tiles do not fit.

  The cost is the number of rounds of blocks over the multiprocessors, times the work of a block.
  A step loads (m + n) k elements and multiplies m n k elements. A multiplication costs about a 64th
  of a load. The latency of a load is divided by the number of steps whose loads are under way,
  which is one less than the number of stages. On an H200 a product of 128 x 3072 and 3072 x 768
  took 2.6 times as long in tiles with two stages as in tiles with five.

  Without tensor cores the multiplications hide the loads. A thread multiplies for each of its sums,
  and reads factors from shared memory, which costs as much as 128 multiplications. On an H200 a
  product of 4096 x 4096 x 4096 took 2.8, 5.0, 8.9 and 10 times as long as in cuBLAS, in four of the
  tiles below, for which this rule says 3, 5, 9 and 9.
  """
  elements = (tiles.m + tiles.n) * tiles.k * tiles.stages
  if elements * problem.bytes > target.shared_memory_per_block_optin:
    return float("inf")
  if tiles.m * tiles.n > 128 * 32 * tiles.warps:  # accumulators that do not fit the registers
    return float("inf")
  if not problem.on_tensor_cores and not convolution.fits_registers(
    tiles.m, tiles.n, tiles.k, tiles.warps
  ):
    return float("inf")
  blocks = -(-problem.m // tiles.m) * -(-problem.n // tiles.n) * problem.batch
  rounds = -(-blocks // target.multi_processor_count)
  loads = (tiles.m + tiles.n) * tiles.k
  if problem.on_tensor_cores:
    step = loads + tiles.m * tiles.n * tiles.k / 64 + 16384 / max(tiles.stages - 1, 0.5)
  else:
    step = loads + tiles.k * (tiles.m * tiles.n / 32 + 128 * tiles.warps)
  return rounds * -(-problem.k // tiles.k) * step


def _cost_of_maps(target: Target, problem: Problem, tiles: Tiles) -> float:
  """The same for the template of tensor maps, whose blocks write their maps before they begin. On
  an H200, what the rule chooses for 119 products takes 1.06 times as long as the best on average,
  and 1.20 times without this template."""
  return 0.95 * cost(target, problem, tiles) + 100_000


def slowdowns(target: Target, choices: Sequence[InductorObject]) -> list[float]:
  """How much slower each template is than the best one by their costs. If none has a cost, all are
  equal."""
  costs = [_template_cost(target, choice) for choice in choices]
  least = min(costs)
  return [1.0 if cost == least else cost / max(least, 1e-9) for cost in costs]


def ranked(target: Target, choices: Sequence[InductorObject]) -> list[InductorObject]:
  """The templates by their costs; several with one cost keep their order. Templates without tiles
  come last."""
  costs = [_template_cost(target, choice) for choice in choices]
  return [choices[index] for index in sorted(range(len(choices)), key=costs.__getitem__)]


def fits(target: Target, choice: InductorObject) -> bool:
  """Whether the target has enough memory for a template, as far as its tiles tell."""
  return _template_cost(target, choice) < float("inf")


def _template_cost(target: Target, choice: InductorObject) -> float:
  """The cost of a template; infinite if it has no tiles."""
  if depthwise.is_choice(choice):
    return depthwise.choice_cost(target, choice)
  if convolution.is_choice(choice):
    return convolution.choice_cost(target, choice)
  info = getattr(choice, "log_info", None) or {}
  try:
    m, k, n = (int(part) for part in str(info["tile_shape"]).strip("()").split(","))
    tiles = Tiles(m, n, k, int(info["num_stages"]), int(info["num_warps"]))
    is_convolution = "convolution" in getattr(choice, "name", "")
    problem = _convolution(choice, tiles) if is_convolution else _product(choice)
  except (KeyError, ValueError):
    return float("inf")
  if tensor_maps.is_choice(choice):
    return _cost_of_maps(target, problem, tiles)
  return cost(target, problem, tiles)


def _product(choice: InductorObject) -> Problem:
  """The product that a template computes."""
  # The last two matrices are the factors: the bias of an addmm comes before them.
  left, right = [node for node in choice.input_nodes if len(node.get_size()) >= 2][-2:]
  *batches, rows, depth = map(torch_compat.size_hint, left.get_size())
  columns = torch_compat.size_hint(right.get_size()[-1])
  return Problem(
    rows,
    columns,
    depth,
    math.prod(batches),
    left.get_dtype().itemsize,
    _is_on_tensor_cores(choice, left),
  )


def _is_on_tensor_cores(choice: InductorObject, factor: InductorObject) -> bool:
  import torch

  return factor.get_dtype() != torch.float32 or choice.log_info.get("allow_tf32") == "True"


def _convolution(choice: InductorObject, tiles: Tiles) -> Problem:
  """The products that a template of a convolution computes, one for each group. A tile has results
  of several images, and a step multiplies input channels of one element of the kernel."""
  image, weight = choice.input_nodes[:2]
  outputs, channels, *kernel = map(torch_compat.size_hint, weight.get_size())
  batch, _, *positions = map(torch_compat.size_hint, choice.layout.size)
  groups = torch_compat.size_hint(image.get_size()[1]) // channels
  depth = math.prod(kernel) * -(-channels // tiles.k) * tiles.k
  return Problem(
    batch * math.prod(positions),
    outputs // groups,
    depth,
    groups,
    image.get_dtype().itemsize,
    _is_on_tensor_cores(choice, image),
  )


# Tiles for few results and many channels, as in the last layers of an image network, which
# Inductor's list of convolutions lacks. On an H200 they are the best for most layers of a ResNet.
CONVOLUTIONS = [
  Tiles(16, 32, 128, 3, 4),
  Tiles(16, 64, 64, 4, 4),
  Tiles(32, 32, 64, 4, 4),
  Tiles(32, 32, 128, 3, 4),
  Tiles(32, 64, 64, 4, 4),
  Tiles(64, 32, 64, 4, 4),
  Tiles(64, 64, 64, 4, 4),
]


# Tiles of products in f32 without tensor cores, in place of those of Inductor. A thread has up to
# 64 sums in large tiles, and up to 32 with what they have lost in small ones (rounding.py). The
# products of a step are one chain of additions, whose error grows with its length: steps of 16 have
# at most the error of cuBLAS.
WITHOUT_TENSOR_CORES = [
  Tiles(128, 64, 16, 3, 4),
  Tiles(64, 128, 16, 3, 4),
  Tiles(64, 64, 16, 4, 4),
  Tiles(64, 32, 16, 3, 2),
  Tiles(32, 64, 16, 3, 2),
  Tiles(32, 32, 16, 3, 2),
  Tiles(16, 64, 16, 3, 2),
  Tiles(16, 32, 16, 3, 1),
]


# Tiles for few rows, as in decoding, which Inductor's list of fused products lacks.
_FEW_ROWS = [
  Tiles(16, 32, 128, 3, 2),
  Tiles(16, 64, 64, 4, 4),
  Tiles(16, 64, 128, 3, 4),
  Tiles(16, 128, 64, 4, 4),
]
# Bytes of the elements that are multiplied, by Triton's name.
_ELEMENT_BYTES = {
  dtypes.TRITON[name]: dtypes.BYTES[name] for name in ("f32", "f16", "bf16", "i8", "u8")
}


def ordered(target: Target, tuner: InductorObject) -> list[Config]:
  """The configurations of a product's CachingAutotuner, best first."""
  meta = tuner.triton_meta
  hints = tuner.size_hints
  sizes = [
    _ELEMENT_BYTES.get(kind.lstrip("*"), 4)
    for kind in meta["signature"].values()
    if kind.startswith("*")
  ]
  problem = Problem(
    hints["y"],
    hints["x"],
    hints["r0_"],
    hints.get("z", 1),
    max(sizes),
    max(sizes) < 4 or torch_compat.are_products_in_tf32(),
  )
  candidates = list(tuner.configs or ())
  if problem.on_tensor_cores:
    candidates += [_config(candidates[0], tiles) for tiles in _FEW_ROWS]
  elif "R0_BLOCK" in candidates[0].kwargs:  # a persistent kernel has its whole k in one step
    candidates = [_config(candidates[0], tiles) for tiles in WITHOUT_TENSOR_CORES]

  def rank(index: int) -> tuple[float, int]:
    config = candidates[index]
    sizes = config.kwargs
    tiles = Tiles(
      sizes["YBLOCK"],
      sizes["XBLOCK"],
      sizes.get("R0_BLOCK", hints["r0_"]),
      config.num_stages,
      config.num_warps,
    )
    return cost(target, problem, tiles), index

  return [candidates[index] for index in sorted(range(len(candidates)), key=rank)]


def _config(base: Config, tiles: Tiles) -> Config:
  """A configuration with these tiles and the other settings of `base`."""
  config = copy.deepcopy(base)
  config.kwargs.update(YBLOCK=tiles.m, XBLOCK=tiles.n)
  if "R0_BLOCK" in config.kwargs:
    config.kwargs["R0_BLOCK"] = tiles.k
  config.num_warps, config.num_stages = tiles.warps, tiles.stages
  return config
