"""How matrix products become Triton kernels, and with which tiles: chosen by a rule, since nothing can be measured.

"templates": Inductor's tiled templates, one kernel each, which take in what follows them element by element. "fused":
ordinary kernels with `tl.dot` (`triton.native_matmul`), which take in what comes before as well: fewer kernels, but
what comes before is computed anew in every column of tiles. What the second cannot do (one row, convolutions) the
first does.
"""

import dataclasses

WAYS = {"templates": {}, "fused": {"triton.native_matmul": True}}


def options(way):
  """Inductor's options for a way."""
  if way not in WAYS:
    raise ValueError(f"products={way!r}: give one of {', '.join(map(repr, WAYS))}")
  return WAYS[way]


@dataclasses.dataclass(frozen=True)
class Problem:
  """`batch` products of m x k and k x n, of elements of so many bytes. Sizes that are not known are those of the
  example."""

  m: int
  n: int
  k: int
  batch: int
  bytes: int


@dataclasses.dataclass(frozen=True)
class Tiles:
  m: int
  n: int
  k: int
  stages: int
  warps: int


def cost(target, problem, tiles):
  """Less is better; infinite what does not fit. The rounds of blocks over the multiprocessors, weighted by a block's
  work: each step loads (m + n) k elements and multiplies m n k, the latter about 64 times cheaper a unit, and has a
  fixed cost that more stages hide."""
  if (tiles.m + tiles.n) * tiles.k * tiles.stages * problem.bytes > target.shared_memory_per_block_optin:
    return float("inf")
  if tiles.m * tiles.n > 128 * 32 * tiles.warps:     # accumulators that do not fit the registers
    return float("inf")
  blocks = -(-problem.m // tiles.m) * -(-problem.n // tiles.n) * problem.batch
  rounds = -(-blocks // target.multi_processor_count)
  step = (tiles.m + tiles.n) * tiles.k + tiles.m * tiles.n * tiles.k / 64 + 2048 / tiles.stages
  return rounds * -(-problem.k // tiles.k) * step


def pick_template(target, choices):
  """The best of several templates, of equals the first. What has no tiles comes last."""

  def rank(index):
    problem, tiles = _template(choices[index])
    return (float("inf") if tiles is None else cost(target, problem, tiles), index)

  return choices[min(range(len(choices)), key=rank)]


def fits(target, choice):
  """Whether the target has room for a template, as far as its tiles tell."""
  problem, tiles = _template(choice)
  return tiles is not None and cost(target, problem, tiles) < float("inf")


def _template(choice):
  """(Problem, Tiles) of a template, as far as it has them."""
  from . import versions
  info = getattr(choice, "log_info", None) or {}
  try:
    m, k, n = (int(part) for part in str(info["tile_shape"]).strip("()").split(","))
    tiles = Tiles(m, n, k, int(info["num_stages"]), int(info["num_warps"]))
    # An addmm has its bias first.
    one, other = [node for node in choice.input_nodes if len(node.get_size()) >= 2][-2:]
    rows, inner, columns = (versions.size_hint(size) for size in (*one.get_size()[-2:], other.get_size()[-1]))
    batch = 1
    for size in one.get_size()[:-2]:
      batch *= versions.size_hint(size)
  except (KeyError, ValueError):
    return None, None
  return Problem(rows, columns, inner, batch, one.get_dtype().itemsize), tiles


# Tiles that Inductor's list of fused products lacks: few rows, as in decoding.
_FEW_ROWS = [Tiles(16, 32, 128, 3, 2), Tiles(16, 64, 64, 4, 4), Tiles(16, 64, 128, 3, 4), Tiles(16, 128, 64, 4, 4)]


def ordered(target, tuner):
  """The configurations of a kernel, best first. Of a kernel that is no product, in Inductor's order."""
  meta = tuner.triton_meta
  if not meta.get("native_matmul"):
    return list(tuner.configs or ())
  hints = tuner.size_hints
  element = {"fp32": 4, "fp16": 2, "bf16": 2, "i8": 1, "u8": 1}
  sizes = [element.get(kind.lstrip("*"), 4) for kind in meta["signature"].values() if kind.startswith("*")]
  problem = Problem(hints["y"], hints["x"], hints["r0_"], hints.get("z", 1), max(sizes))
  candidates = list(tuner.configs or ())
  candidates += [config for config in (_config(candidates[0], tiles) for tiles in _FEW_ROWS) if config is not None]

  def rank(index):
    config = candidates[index]
    kwargs = config.kwargs
    # A persistent kernel has its whole k in one step.
    tiles = Tiles(kwargs["YBLOCK"], kwargs["XBLOCK"], kwargs.get("R0_BLOCK", hints["r0_"]), config.num_stages,
                  config.num_warps)
    return cost(target, problem, tiles), index

  return [candidates[index] for index in sorted(range(len(candidates)), key=rank)]


def _config(like, tiles):
  """A configuration with these tiles and the other settings of `like`."""
  import copy
  config = copy.deepcopy(like)
  config.kwargs.update(YBLOCK=tiles.m, XBLOCK=tiles.n)
  if "R0_BLOCK" in config.kwargs:
    config.kwargs["R0_BLOCK"] = tiles.k
  config.num_warps, config.num_stages = tiles.warps, tiles.stages
  return config
