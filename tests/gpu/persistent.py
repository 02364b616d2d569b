"""A chain of linear layers as a graph of kernels, and as one persistent kernel.

  python tests/gpu/persistent.py [--layers 16]

The layers are those of one row of a decoder with the sizes of Llama 3.2 1B in bf16, without
attention: the norm and the products of queries, keys and values, the product behind attention with
its residual, the norm and the gate, and the last product with its residual. A row has the
microseconds of all layers in a CUDA graph, and what they are divided by a read of the weights:

- kernels that wait for the one before them, with full edges and with programmatic ones;
- the same, which read their weights before they wait, as Husk's own do (cuda/few_rows.py);
- the same, each of which asks for the first megabytes of the next one's weights in the L2 cache;
- one kernel for all layers. Each block goes through its tiles of all layers, a fixed list. It reads
  the weights of the next tile while it computes one, and waits for a counter in memory where a
  layer begins. `ahead` is how many tiles before their turn weights are asked for in the L2
  cache; 1 is not at all.

The results of all are compared; the order of sums is not the same."""

import argparse
import sys

import torch
import triton
import triton.language as tl
from decoder import measure, time_of_a_read

WIDTH, QKV, BETWEEN = 2048, 3072, 8192
# The first elements of what a layer computes, in one buffer: its input, queries with keys and
# values, the gated product, and the sum behind attention.
X, Q, GATED, SUM, ALL = 0, 2048, 5120, 13312, 15360
# The products of a layer. A row has the elements of a row of the weight, the columns, the weights
# side by side, whether there is a norm, whether there is a residual, and where the input, the
# residual and the result begin.
PRODUCTS = (
  (WIDTH, QKV, 1, True, False, X, X, Q),
  (WIDTH, WIDTH, 1, False, True, Q, X, SUM),
  (WIDTH, BETWEEN, 2, True, False, SUM, X, GATED),
  (BETWEEN, WIDTH, 1, False, True, GATED, SUM, X),
)
OF_A_LAYER = sum(k * columns * sides for k, columns, sides, *_ in PRODUCTS)
PROCESSORS = 132


@triton.jit
def ask(address):
  """Asks for the line of 128 bytes at an address in the L2 cache."""
  return tl.inline_asm_elementwise(
    "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
    "=r,l",
    [address],
    dtype=tl.int32,
    is_pure=False,
    pack=1,
  )


@triton.jit
def silu(x):
  return x / (1.0 + tl.exp(-x))


@triton.jit
def product(
  x,
  weights,
  residual,
  y,
  following,
  bytes_of_following,
  K: tl.constexpr,
  COLUMNS: tl.constexpr,
  SIDES: tl.constexpr,
  NORM: tl.constexpr,
  RESIDUAL: tl.constexpr,
  EDGES: tl.constexpr,
  EARLY: tl.constexpr,
  LINES: tl.constexpr,
):
  """A block computes COLUMNS columns. Weights of both sides stand next to each other."""
  if EDGES:
    tl.extra.cuda.gdc_launch_dependents()
  if EDGES and not EARLY:
    tl.extra.cuda.gdc_wait()
  block = tl.program_id(0)
  row, k = tl.arange(0, COLUMNS * SIDES), tl.arange(0, K)
  first = block.to(tl.int64) * (COLUMNS * SIDES * K)
  tile = tl.load(weights + first + row[:, None] * K + k[None, :])
  if LINES > 0:
    line = (block * LINES + tl.arange(0, LINES)) * 128
    ask(following.to(tl.int64) + tl.where(line < bytes_of_following, line, 0))
  if EARLY:
    tl.extra.cuda.gdc_wait()
  values = tl.load(x + k).to(tl.float32)
  sums = tl.sum(tile.to(tl.float32) * values[None, :], 1)
  if NORM:
    sums *= tl.rsqrt(tl.sum(values * values, 0) / K + 1e-5)
  if SIDES == 2:
    gate, up = tl.split(tl.reshape(sums, (COLUMNS, 2)))
    sums = silu(gate) * up
  at = block * COLUMNS + tl.arange(0, COLUMNS)
  if RESIDUAL:
    sums += tl.load(residual + at).to(tl.float32)
  tl.store(y + at, sums.to(tl.bfloat16))


@triton.jit
def layer_of_tiles(
  weights,
  tile,
  at,
  first,
  end,
  last,
  buffer,
  counters,
  FROM: tl.constexpr,
  STEP: tl.constexpr,
  SIDES: tl.constexpr,
  NORM: tl.constexpr,
  TO: tl.constexpr,
  ADDED: tl.constexpr,
  ROWS: tl.constexpr,
  AHEAD: tl.constexpr,
):
  """The tiles of a block from `at` to `end`. A tile is ROWS times 2,048 elements in a row; four of
  these are a column if STEP is not 0. ADDED is where the residual begins; -1: there is none."""
  blocks = tl.num_programs(0)
  k = tl.arange(0, 2048)
  four = tl.arange(0, 4)
  group = tl.arange(0, ROWS // 4)
  inside = (group[:, None, None] * 4 + four[None, :, None]) * 2048 + k[None, None, :]
  tries = 0
  # A counter that is lost makes a wrong result, and not a kernel that never ends.
  while (tl.atomic_add(counters, 0, sem="acquire") < blocks) & (tries < 20000):
    tries += 1
  quarters = tl.arange(0, 4 if STEP > 0 else 1)
  values = tl.load(buffer + FROM + quarters[:, None] * STEP + k[None, :], cache_modifier=".cg").to(
    tl.float32
  )
  if NORM:
    factor = tl.rsqrt(tl.sum(tl.sum(values * values, 1), 0) / 2048 + 1e-5)
  while at < end:
    following = tl.load(
      weights + tl.minimum(at + blocks, last).to(tl.int64) * (ROWS * 2048) + inside
    )
    if AHEAD > 1:
      far = tl.minimum(at + AHEAD * blocks, last).to(tl.int64) * (ROWS * 4096)
      ask(weights.to(tl.int64) + far + tl.arange(0, ROWS * 32).to(tl.int64) * 128)
    sums = tl.sum(tile.to(tl.float32) * values[None, :, :], 2)
    if NORM:
      sums *= factor
    if STEP > 0:
      of_4 = (at - first) * (ROWS // 4) + group
      result = tl.sum(sums, 1)
      result += tl.load(buffer + ADDED + of_4, cache_modifier=".cg").to(tl.float32)
      tl.store(buffer + TO + of_4, result.to(tl.bfloat16))
    elif SIDES == 2:
      gate, up = tl.split(tl.reshape(sums, (ROWS // 4, 2, 2)))
      of_2 = (at - first) * (ROWS // 2) + group[:, None] * 2 + tl.arange(0, 2)[None, :]
      tl.store(buffer + TO + of_2, (silu(gate) * up).to(tl.bfloat16))
    else:
      of_1 = (at - first) * ROWS + group[:, None] * 4 + four[None, :]
      if ADDED >= 0:
        sums += tl.load(buffer + ADDED + of_1, cache_modifier=".cg").to(tl.float32)
      tl.store(buffer + TO + of_1, sums.to(tl.bfloat16))
    tile = following
    at += blocks
  tl.debug_barrier()
  tl.atomic_add(counters + 1, 1, sem="release")
  return tile, at


@triton.jit
def persistent(
  weights,
  buffer,
  counters,
  layers,
  X: tl.constexpr,
  Q: tl.constexpr,
  GATED: tl.constexpr,
  SUM: tl.constexpr,
  ROWS: tl.constexpr,
  AHEAD: tl.constexpr,
):
  """All layers. `counters` are 0 but for the first one, which is the number of blocks."""
  END_0: tl.constexpr = 3072 // ROWS
  END_1: tl.constexpr = END_0 + 2048 // ROWS
  END_2: tl.constexpr = END_1 + 16384 // ROWS
  END_3: tl.constexpr = END_2 + 8192 // ROWS
  k = tl.arange(0, 2048)
  row = tl.arange(0, ROWS // 4)[:, None, None] * 4 + tl.arange(0, 4)[None, :, None]
  at = tl.program_id(0)
  last = layers * END_3 - 1
  tile = tl.load(weights + at.to(tl.int64) * (ROWS * 2048) + row * 2048 + k[None, None, :])
  for layer in range(layers):
    first = layer * END_3
    tile, at = layer_of_tiles(
      weights,
      tile,
      at,
      first,
      first + END_0,
      last,
      buffer,
      counters + layer * 4,
      X,
      0,
      1,
      True,
      Q,
      -1,
      ROWS,
      AHEAD,
    )
    tile, at = layer_of_tiles(
      weights,
      tile,
      at,
      first + END_0,
      first + END_1,
      last,
      buffer,
      counters + layer * 4 + 1,
      Q,
      0,
      1,
      False,
      SUM,
      X,
      ROWS,
      AHEAD,
    )
    tile, at = layer_of_tiles(
      weights,
      tile,
      at,
      first + END_1,
      first + END_2,
      last,
      buffer,
      counters + layer * 4 + 2,
      SUM,
      0,
      2,
      True,
      GATED,
      -1,
      ROWS,
      AHEAD,
    )
    tile, at = layer_of_tiles(
      weights,
      tile,
      at,
      first + END_2,
      first + END_3,
      last,
      buffer,
      counters + layer * 4 + 3,
      GATED,
      2048,
      1,
      False,
      X,
      SUM,
      ROWS,
      AHEAD,
    )


def chain(weights, buffer, layers, edges, early, megabytes):
  """Launches the kernels of all layers. A block reads 16 KB, or 32 KB of long rows."""
  begin = 0
  sizes = [k * columns * sides for k, columns, sides, *_ in PRODUCTS] * layers
  for number, size in enumerate(sizes):
    k, columns, sides, norm, residual, x, added, y = PRODUCTS[number % 4]
    of_block = max(1, (8192 if k == WIDTH else 16384) // (k * sides))
    blocks = columns // of_block
    following = min(2 * sizes[(number + 1) % len(sizes)], int(megabytes * 2**20))
    product[(blocks,)](
      buffer[x:],
      weights[begin:],
      buffer[added:],
      buffer[y:],
      weights[(begin + size) % len(weights) :],
      following,
      K=k,
      COLUMNS=of_block,
      SIDES=sides,
      NORM=norm,
      RESIDUAL=residual,
      EDGES=edges,
      EARLY=early,
      LINES=triton.next_power_of_2(-(-following // (128 * blocks))) if megabytes else 0,
      num_warps=2 if k == WIDTH else 4,
      launch_pdl=edges,
    )
    begin += size


def in_one(weights, buffer, counters, layers, of_processor, rows, warps, ahead):
  """Launches the persistent kernel, all of whose blocks run at the same time."""
  blocks = PROCESSORS * of_processor
  counters.zero_()
  counters[:1].fill_(blocks)
  persistent[(blocks,)](
    weights,
    buffer,
    counters,
    layers,
    X=X,
    Q=Q,
    GATED=GATED,
    SUM=SUM,
    ROWS=rows,
    AHEAD=ahead,
    num_warps=warps,
    maxnreg=min(255, 65536 // (of_processor * warps * 32) // 8 * 8),
  )


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--layers", type=int, default=16)
  layers = parser.parse_args().layers
  torch.manual_seed(0)
  weights = (torch.randn(layers * OF_A_LAYER, device="cuda") * 0.02).bfloat16()
  buffer = torch.zeros(ALL, device="cuda", dtype=torch.bfloat16)
  counters = torch.zeros(layers * 4 + 1, device="cuda", dtype=torch.int32)
  x = torch.randn(WIDTH, device="cuda").bfloat16()
  ways = {
    "kernels, full edges": lambda: chain(weights, buffer, layers, False, False, 0),
    "kernels, programmatic edges": lambda: chain(weights, buffer, layers, True, False, 0),
    "kernels, weights first": lambda: chain(weights, buffer, layers, True, True, 0),
  }
  for megabytes in (1, 4, 16):
    ways[f"weights first, {megabytes} MB of the next"] = lambda megabytes=megabytes: chain(
      weights, buffer, layers, True, True, megabytes
    )
  for how in ((1, 16, 16), (2, 8, 8), (2, 4, 4), (4, 4, 4)):
    for ahead in (1, 2, 4):
      ways["persistent, {} x {} rows, {} warps, ahead {}".format(*how, ahead)] = (
        lambda how=how, ahead=ahead: in_one(weights, buffer, counters, layers, *how, ahead)
      )
  reads = time_of_a_read(2 * weights.numel())
  print(f"{torch.cuda.get_device_name()}: a read of the weights {reads:.1f} us")
  right = None
  for name, launch in ways.items():
    buffer.zero_()
    buffer[:WIDTH] = x
    launch()
    result = buffer[:WIDTH].float()
    right = result if right is None else right
    error = float((result - right).norm() / right.norm())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
      launch()
    took = measure(graph.replay, count=10, rounds=4)
    print(f"{name:48} {took:8.1f} us, {took / reads:.2f} of it, differs by {error:.0e}", flush=True)
  return 0


if __name__ == "__main__":
  sys.exit(main())
