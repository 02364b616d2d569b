"""Where the time between the kernels of a decoder's step goes, and other ways for it.

  python tests/gpu/boundaries.py [--ways WAY,...]

The kernels are the products of one row of a decoder in bf16, without attention, with the sizes of
Qwen3 0.6B (28 layers, 2,048 wide in between, not 3,072) and of Llama 3.2 1B (16 layers).
All read their weights before they wait for the row. A way is measured as a CUDA graph, and divided
by a read of the weights:

- wait: a kernel waits for the end of the one before it (griddepcontrol.wait), as Husk's do;
- counters: it waits for a counter in memory to which each block of the kernel before it has added;
- copies: results are written 4 times, and a block reads one copy, so that blocks read other lines;
- bulk: weights are copied to shared memory by tensor maps, so that no thread has them in registers;
- tensor_cores: products are those of tensor cores, with a tenth of the instructions.

With `wait`, the times of a kernel's blocks follow, in ns after the last block of the kernel before
it has ended: when they begin, when the wait ends, when the row and its squares are there, and when
they end; each for the first block, the one in the middle, nine tenths of them, and the last."""

import argparse
import sys

import torch
import triton
import triton.language as tl
from decoder import measure, time_of_a_read
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

WAYS = ("wait", "counters", "copies", "bulk", "tensor_cores")
COPIES, STRIDE, MOST_BLOCKS = 4, 32768, 2048
# The elements of weights of a block, and its warps.
OF_A_BLOCK, WARPS = 8192, 4


@triton.jit
def now(after):
  """The time in ns, once `after` is known."""
  return tl.inline_asm_elementwise(
    "{ .reg .u32 t; mov.u32 t, $1; mov.u64 $0, %globaltimer; }",
    "=l,r", [after], dtype=tl.int64, is_pure=False, pack=1,
  )  # fmt: skip


@triton.jit
def reached(counter, count):
  """0, once a counter is at least `count`."""
  return tl.inline_asm_elementwise(
    """{ .reg .u32 t, v; .reg .pred p, q;
    mov.u32 t, %tid.x; setp.ne.u32 p, t, 0;
    @p bra DONE;
    AGAIN: ld.acquire.gpu.global.u32 v, [$1]; setp.lt.u32 q, v, $2; @q bra AGAIN;
    DONE: bar.sync 0; mov.u32 $0, 0; }""",
    "=r,l,r", [counter, count], dtype=tl.int32, is_pure=False, pack=1,
  )  # fmt: skip


@triton.jit
def by_threads(x, weights, residual, y, before, after, blocks_before, times,
               K: tl.constexpr, COLUMNS: tl.constexpr, SIDES: tl.constexpr, NORM: tl.constexpr,
               RESIDUAL: tl.constexpr, COUNTS: tl.constexpr, COPIES: tl.constexpr,
               STRIDE: tl.constexpr, TIMES: tl.constexpr):  # fmt: skip
  """A block computes COLUMNS columns. Weights of both sides stand next to each other."""
  block = tl.program_id(0)
  if TIMES:
    begin = now(block)
  tl.extra.cuda.gdc_launch_dependents()
  row, k = tl.arange(0, COLUMNS * SIDES), tl.arange(0, K)
  first = block.to(tl.int64) * (COLUMNS * SIDES * K)
  tile = tl.load(weights + first + row[:, None] * K + k[None, :])
  at_copy = block % COPIES * STRIDE
  if COUNTS:
    at_copy += tl.multiple_of(reached(before.to(tl.int64), blocks_before), 16)
  else:
    tl.extra.cuda.gdc_wait()
  if TIMES:
    waited = now(block)
  values = tl.load(x + at_copy + k, cache_modifier=".cg").to(tl.float32)
  squares = tl.sum(values * values, 0)
  if TIMES:
    has_row = now(squares.to(tl.int32, bitcast=True))
  sums = tl.sum(tile.to(tl.float32) * values[None, :], 1)
  if NORM:
    sums *= tl.rsqrt(squares / K + 1e-5)
  if SIDES == 2:
    gate, up = tl.split(tl.reshape(sums, (COLUMNS, 2)))
    sums = gate / (1.0 + tl.exp(-gate)) * up
  at = block * COLUMNS + tl.arange(0, COLUMNS)
  if RESIDUAL:
    sums += tl.load(residual + at_copy + at, cache_modifier=".cg").to(tl.float32)
  if COPIES == 1:
    tl.store(y + at, sums.to(tl.bfloat16))
  else:
    to = at[:, None] + tl.arange(0, COPIES)[None, :] * STRIDE
    tl.store(y + to, tl.broadcast_to(sums.to(tl.bfloat16)[:, None], (COLUMNS, COPIES)))
  if COUNTS:
    tl.debug_barrier()
    tl.atomic_add(after, 1, sem="release")
  if TIMES:
    end = now(tl.sum(sums, 0).to(tl.int32, bitcast=True))
    tl.store(times + block * 4, begin)
    tl.store(times + block * 4 + 1, waited)
    tl.store(times + block * 4 + 2, has_row)
    tl.store(times + block * 4 + 3, end)


@gluon.jit
def end_of(sums, squares, residual, y, pid, K: gl.constexpr, COLUMNS: gl.constexpr,
           SIDES: gl.constexpr, NORM: gl.constexpr, RESIDUAL: gl.constexpr,
           WARPS: gl.constexpr):  # fmt: skip
  """What the two kernels below make of the sums of a block."""
  if NORM:
    sums *= gl.rsqrt(squares / K + 1e-5)
  if SIDES == 2:
    pairs: gl.constexpr = gl.BlockedLayout([1, 2], [32, 1], [WARPS, 1], [1, 0])
    gate, up = gl.split(gl.convert_layout(gl.reshape(sums, (COLUMNS, 2)), pairs))
    sums = gate / (1.0 + gl.exp(-gate)) * up
  at = pid * COLUMNS + gl.arange(0, COLUMNS, layout=sums.type.layout)
  if RESIDUAL:
    sums += gl.load(residual + at).to(gl.float32)
  gl.store(y + at, sums.to(gl.bfloat16))


@gluon.jit
def by_bulk_copies(x, weights, residual, y, K: gl.constexpr, COLUMNS: gl.constexpr,
                   SIDES: gl.constexpr, NORM: gl.constexpr, RESIDUAL: gl.constexpr,
                   WARPS: gl.constexpr):  # fmt: skip
  """Lines of 128 bytes of the weights are copied by one instruction."""
  LINES: gl.constexpr = COLUMNS * SIDES * K // 64
  lines: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [WARPS, 1], [1, 0])
  tile = gl.allocate_shared_memory(gl.bfloat16, [LINES, 64], weights.layout)
  barrier = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
  mbarrier.init(barrier, count=1)
  fence_async_shared()
  tl.extra.cuda.gdc_launch_dependents()
  pid = gl.program_id(0)
  mbarrier.expect(barrier, LINES * 128)
  tma.async_copy_global_to_shared(weights, [pid * LINES, 0], barrier, tile)
  tl.extra.cuda.gdc_wait()
  nothing = gl.reshape(gl.zeros([LINES, 64], gl.bfloat16, lines), (COLUMNS * SIDES, K))
  whole: gl.constexpr = nothing.type.layout
  values = gl.load(x + gl.arange(0, K, layout=gl.SliceLayout(0, whole))).to(gl.float32)
  squares = gl.sum(values * values, 0)
  mbarrier.wait(barrier, 0)
  w = gl.reshape(tile.load(lines), (COLUMNS * SIDES, K)).to(gl.float32)
  sums = gl.sum(w * values[None, :], 1)
  end_of(sums, squares, residual, y, pid, K, COLUMNS, SIDES, NORM, RESIDUAL, WARPS)


@gluon.constexpr_function
def doubled(first, end, at):
  """The bases of a layout from `first` to `end` in the dimension `at` of three."""
  bases = []
  while first < end:
    bases.append([first if i == at else 0 for i in range(3)])
    first *= 2
  return bases


@gluon.constexpr_function
def lines_of_weights(WARPS, OF_WARP):
  return gl.DistributedLinearLayout(
    reg_bases=[[0, 0, 1], [0, 0, 2], [0, 0, 4], *doubled(32, OF_WARP, 2)],
    lane_bases=[[0, 0, 8], [0, 0, 16], [0, 1, 0], [0, 2, 0], [0, 4, 0]],
    warp_bases=doubled(1, WARPS, 0), block_bases=[], shape=[WARPS, 8, OF_WARP],
  )  # fmt: skip


@gluon.jit
def by_tensor_cores(x, weights, residual, y, K: gl.constexpr, SIDES: gl.constexpr,
                    NORM: gl.constexpr, RESIDUAL: gl.constexpr, WARPS: gl.constexpr):  # fmt: skip
  """A block has eight rows of weights, and a warp a part of each. All rows of the first factor are
  the row, so that a second product has its squares."""
  tl.extra.cuda.gdc_launch_dependents()
  OF_WARP: gl.constexpr = K // WARPS
  lines: gl.constexpr = lines_of_weights(WARPS, OF_WARP)
  product: gl.constexpr = gl.NVMMADistributedLayout(
    version=[2, 0], warps_per_cta=[WARPS, 1, 1], instr_shape=[1, 16, 8]
  )
  left: gl.constexpr = gl.DotOperandLayout(0, product, 8)
  right: gl.constexpr = gl.DotOperandLayout(1, product, 8)
  pid = gl.program_id(0)
  part = gl.arange(0, WARPS, layout=gl.SliceLayout(1, gl.SliceLayout(2, lines)))[:, None, None]
  n = gl.arange(0, 8, layout=gl.SliceLayout(0, gl.SliceLayout(2, lines)))[None, :, None]
  k = gl.arange(0, OF_WARP, layout=gl.SliceLayout(0, gl.SliceLayout(1, lines)))[None, None, :]
  w = gl.load(weights + pid.to(gl.int64) * (8 * K) + n * K + (part * OF_WARP + k))
  tl.extra.cuda.gdc_wait()
  values = gl.load(x + part * OF_WARP + k + n * 0)
  rows = gl.reshape(gl.permute(gl.join(values, values), (0, 3, 1, 2)), (WARPS, 16, OF_WARP))
  rows = gl.convert_layout(rows, left)
  zero = gl.full((WARPS, 16, 8), 0.0, gl.float32, product)
  row = gl.arange(0, 16, layout=gl.SliceLayout(0, gl.SliceLayout(2, product)))[None, :, None]
  found = mma_v2(rows, gl.convert_layout(gl.permute(w, (0, 2, 1)), right), zero)
  squares = mma_v2(rows, gl.convert_layout(gl.permute(values, (0, 2, 1)), right), zero)
  found = gl.sum(gl.where(row == 0, found, 0.0), 1)
  squares = gl.sum(gl.where(row == 0, squares, 0.0), 1)
  sums, total = gl.split(gl.sum(gl.join(found, squares), 0))
  end_of(sums, total, residual, y, pid, K, 8 // SIDES, SIDES, NORM, RESIDUAL, WARPS)


def products_of(width, qkv, heads, between):
  """The products of a layer: the elements of a row of the weight, the columns, the weights side by
  side, whether there is a norm, whether there is a residual, and where the input, the residual and
  the result begin in one buffer; and the elements of the buffer."""
  q, gated = width, width + qkv
  behind = gated + between
  return (
    (width, qkv, 1, True, False, 0, 0, q),
    (heads, width, 1, False, True, q, 0, behind),
    (width, between, 2, True, False, behind, 0, gated),
    (between, width, 1, False, True, gated, behind, 0),
  )


class Chain:
  """The kernels of all layers. `between` is a power of two, as all sizes of blocks are."""

  def __init__(self, layers, *sizes):
    self.products = products_of(*sizes) * layers
    counts = [k * columns * sides for k, columns, sides, *_ in self.products]
    all_weights = (torch.randn(sum(counts), device="cuda") * 0.02).bfloat16()
    self.weights = all_weights.split(counts)
    self.buffer = torch.zeros(COPIES * STRIDE, device="cuda", dtype=torch.bfloat16)
    self.row = torch.randn(sizes[0], device="cuda").bfloat16()
    self.counters = torch.zeros(32 * (len(counts) + 1), device="cuda", dtype=torch.int32)
    self.times = torch.zeros(len(counts), MOST_BLOCKS, 4, device="cuda", dtype=torch.int64)
    self.layout = gl.NVMMASharedLayout(128, 16, 2)
    self.read = time_of_a_read(2 * sum(counts))

  def launch(self, way, times=False):
    if way == "counters":
      self.counters.zero_()
    blocks_before = 0
    for number, product in enumerate(self.products):
      k, columns, sides, norm, residual, x, added, y = product
      of_block = max(1, OF_A_BLOCK // (k * sides))
      x, added, y = (self.buffer[at:] for at in (x, added, y))
      weights, blocks = self.weights[number], columns // of_block
      flags = {"K": k, "SIDES": sides, "NORM": norm, "RESIDUAL": residual}
      if way == "bulk":
        lines = [of_block * sides * k // 64, 64]
        maps = TensorDescriptor.from_tensor(weights.view(-1, 64), lines, self.layout)
        by_bulk_copies[(blocks,)](x, maps, added, y, **flags, COLUMNS=of_block, WARPS=WARPS,
                                  num_warps=WARPS, launch_pdl=True)  # fmt: skip
      elif way == "tensor_cores":
        warps = min(16, k // 256)
        by_tensor_cores[(columns * sides // 8,)](x, weights, added, y, **flags, WARPS=warps,
                                                 num_warps=warps, launch_pdl=True)  # fmt: skip
      else:
        by_threads[(blocks,)](
          x, weights, added, y, self.counters[32 * number :], self.counters[32 * number + 32 :],
          blocks_before, self.times[number], **flags, COLUMNS=of_block, COUNTS=way == "counters",
          COPIES=COPIES if way == "copies" else 1, STRIDE=STRIDE, TIMES=times, num_warps=WARPS,
          launch_pdl=True,
        )  # fmt: skip
      blocks_before = blocks

  def graph(self, *how):
    """A graph of a way, and the result of its first run."""
    self.buffer.zero_()
    self.buffer.view(COPIES, STRIDE)[:, : len(self.row)] = self.row
    self.launch(*how)
    result = self.buffer[: len(self.row)].float()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
      self.launch(*how)
    return graph, result

  def timeline(self):
    """For each product of a layer, the text of the times of its blocks."""
    graph, _ = self.graph("wait", True)
    self.times.zero_()
    graph.replay()
    torch.cuda.synchronize()
    rows = []
    for before, these in zip(self.times[8:].cpu(), self.times[9:].cpu()):
      end = before[:, 3].max()
      after = (these[these[:, 3] > 0] - end).double()
      levels = torch.tensor((0, 0.5, 0.9, 1), dtype=torch.float64)
      rows.append(torch.quantile(after, levels, dim=0).T)
    for place, name in enumerate(("behind attention", "gate", "last", "q, k, v")):
      mean = torch.stack(rows[place::4]).mean(0).tolist()
      parts = [
        f"{what} {' '.join(f'{each:.0f}' for each in row)}"
        for what, row in zip(("begin", "waited", "row", "end"), mean)
      ]
      print(f"  {name:17} {'; '.join(parts)}", flush=True)


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--ways", default=",".join(WAYS))
  ways = parser.parse_args().ways.split(",")
  print(torch.cuda.get_device_name())
  torch.manual_seed(0)
  for name, sizes in {
    "Qwen3 0.6B": (28, 1024, 4096, 2048, 2048),
    "Llama 3.2 1B": (16, 2048, 3072, 2048, 8192),
  }.items():
    chain = Chain(*sizes)
    print(f"{name}: a read of the weights {chain.read:.1f} us", flush=True)
    right = None
    for way in ways:
      graph, result = chain.graph(way)
      right = result if right is None else right
      error = float((result - right).norm() / right.norm())
      took = measure(graph.replay, rounds=4)
      print(
        f"{way:13} {took:7.1f} us, {took / chain.read:.2f} of it, "
        f"{took / len(chain.products):.2f} us a kernel, differs by {error:.0e}",
        flush=True,
      )
      if way == "wait":
        chain.timeline()
  return 0


if __name__ == "__main__":
  sys.exit(main())
