"""The kernel of attention/kernel.py for many queries on compute capability 9.0, in Gluon: the warps
of a block share the work.

One warp group copies tiles of q, k and v to shared memory, and two others make 64 rows each of the
result. The groups synchronise only at barriers in shared memory, so that the products of one group
overlap with the exponentials of the other, and the first copies of the next tile overlap with
writing the result of this one. There are as many blocks as multiprocessors, which make all tiles in
turns.

`attention/launch.py` compiles the text; nothing imports this file while a model is exported. Names
and units are those of attention/kernel.py. The statements that cuda/pdl.py adds use `tl`.
"""

import triton.language as tl  # noqa: F401
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
  fence_async_shared,
  mbarrier,
  warpgroup_mma,
  warpgroup_mma_wait,
)


@gluon.jit
def attention_hopper(q, k, v, out, lse, factor: gl.constexpr, queries, keys, ahead, pairs,
                     q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
                     out_batch, out_head, out_row,
                     HEADS: gl.constexpr, GROUP: gl.constexpr, CAUSAL: gl.constexpr,
                     SIZE: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr,
                     REGISTERS: gl.constexpr):
  """The blocks, of which there may be any number, make tiles of 128 rows of the `pairs`, which are
  the heads of k of all batches (`_sections`). Addresses and strides of q, k and v are multiples of
  16 bytes; SIZE, the elements of a row of each, is a power of two. A tile of k or v has BLOCK_N
  keys, and STAGES tiles of each are in shared memory. A thread that computes has REGISTERS.

  The barriers in order, of which the first four kinds have one for each stage: a tile of k was
  copied, a tile of v was copied, a tile of k may be overwritten, a tile of v may be overwritten.
  Then one for each of the two computing groups: its rows of q were copied, they may be overwritten.
  """
  kind: gl.constexpr = q.dtype.element_ty
  rows: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, SIZE], kind)
  tile: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_N, SIZE], kind)
  q_rows = gl.allocate_shared_memory(kind, [2, 64, SIZE], rows)
  k_tiles = gl.allocate_shared_memory(kind, [STAGES, BLOCK_N, SIZE], tile)
  v_tiles = gl.allocate_shared_memory(kind, [STAGES, BLOCK_N, SIZE], tile)
  barriers = gl.allocate_shared_memory(gl.int64, [4 * STAGES + 4, 1], mbarrier.MBarrierLayout())
  for i in gl.static_range(2 * STAGES):
    mbarrier.init(barriers.index(i), count=128)     # each copying thread arrives after its copies
    mbarrier.init(barriers.index(2 * STAGES + i), count=2)
  for i in gl.static_range(2):
    mbarrier.init(barriers.index(4 * STAGES + i), count=128)
    mbarrier.init(barriers.index(4 * STAGES + 2 + i), count=1)
  gl.warp_specialize([
      (_compute, (0, out, lse, factor, queries, keys, ahead, pairs, out_batch, out_head, out_row,
                  q_rows, k_tiles, v_tiles, barriers, HEADS, GROUP, CAUSAL, SIZE, BLOCK_N, STAGES)),
      (_compute, (1, out, lse, factor, queries, keys, ahead, pairs, out_batch, out_head, out_row,
                  q_rows, k_tiles, v_tiles, barriers, HEADS, GROUP, CAUSAL, SIZE, BLOCK_N, STAGES)),
      (_bring, (q, k, v, queries, keys, ahead, pairs, q_batch, q_head, q_row, k_batch, k_head,
                k_row, v_batch, v_head, v_row, q_rows, k_tiles, v_tiles, barriers,
                HEADS, GROUP, CAUSAL, SIZE, BLOCK_N, STAGES)),
  ], [4, 4], [REGISTERS, 504 - 2 * REGISTERS])     # 3 * 168: 384 threads share 65,536 registers


@gluon.jit
def _sections(tiles_of_head, pairs, CAUSAL: gl.constexpr):
  """(heads of a section, number of sections). A section is made by all blocks together in some
  turns.

  With CAUSAL the later tiles of a head take longer. So in a section the later tiles of all its
  heads come first, and every other turn assigns tiles to the blocks backwards: the block with the
  longest tile of one turn has the shortest of the next. After two turns all blocks have the same
  work. The heads of a section are so few that the cache keeps their k and v. The last section also
  has the remaining heads."""
  if not CAUSAL:
    return pairs, 1
  heads = gl.maximum(2 * gl.num_programs(0) // gl.maximum(tiles_of_head, 1), 1)
  return heads, gl.maximum(pairs // heads, 1)


@gluon.jit
def _turns(tiles_of_head, pairs, CAUSAL: gl.constexpr):
  """The number of turns."""
  heads, sections = _sections(tiles_of_head, pairs, CAUSAL)
  blocks = gl.num_programs(0)
  last = pairs - (sections - 1) * heads
  return ((sections - 1) * gl.cdiv(heads * tiles_of_head, blocks)
          + gl.cdiv(last * tiles_of_head, blocks))


@gluon.jit
def _place(turn, tiles_of_head, pairs, CAUSAL: gl.constexpr):
  """(whether this block makes a tile in a turn, the tile of a head, the head among the heads of all
  batches)."""
  if not CAUSAL:
    at = turn * gl.num_programs(0) + gl.program_id(0)
    some = gl.maximum(tiles_of_head, 1)
    return at < pairs * tiles_of_head, at % some, at // some
  heads, sections = _sections(tiles_of_head, pairs, CAUSAL)
  blocks = gl.num_programs(0)
  turns = gl.maximum(gl.cdiv(heads * tiles_of_head, blocks), 1)
  section = gl.minimum(turn // turns, sections - 1)
  if section == sections - 1:
    heads = pairs - section * heads
    before = pairs - heads
  else:
    before = section * heads
  turn -= section * turns
  at = gl.program_id(0)
  at = turn * blocks + gl.where(turn % 2 == 1, blocks - 1 - at, at)
  some = gl.maximum(heads, 1)
  return at < heads * tiles_of_head, tiles_of_head - 1 - at // some, before + at % some


@gluon.jit
def _range(tile, queries, keys, ahead, GROUP: gl.constexpr, CAUSAL: gl.constexpr,
           BLOCK_N: gl.constexpr):
  """(the number of blocks of keys that some row of a tile sees, the number of keys in whole blocks
  that all its rows see)."""
  end, whole = keys, keys
  if CAUSAL:
    end = gl.minimum(keys, gl.minimum(tile * 128 + 127, queries * GROUP - 1) // GROUP + 1 + ahead)
    whole = gl.minimum(keys, tile * 128 // GROUP + 1 + ahead)
  return gl.cdiv(end, BLOCK_N), whole // BLOCK_N * BLOCK_N


@gluon.jit
def _next(stage, phase, STAGES: gl.constexpr):
  """The stage after a stage, and the parity of the number of times that its barriers were
  passed."""
  stage += 1
  again = stage == STAGES
  return gl.where(again, 0, stage), gl.where(again, phase ^ 1, phase)


@gluon.jit
def _bring(q, k, v, queries, keys, ahead, pairs, q_batch, q_head, q_row, k_batch, k_head, k_row,
           v_batch, v_head, v_row, q_rows, k_tiles, v_tiles, barriers,
           HEADS: gl.constexpr, GROUP: gl.constexpr, CAUSAL: gl.constexpr, SIZE: gl.constexpr,
           BLOCK_N: gl.constexpr, STAGES: gl.constexpr):
  """The third warp group copies tiles to shared memory."""
  layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // SIZE, SIZE // 8], [4, 1], [1, 0])
  inside = gl.arange(0, BLOCK_N, gl.SliceLayout(1, layout))
  tiles_of_head = gl.cdiv(queries * GROUP, 128)
  stage = 0
  phase = 1     # everything may be overwritten at first
  turn_phase = 1
  for turn in range(_turns(tiles_of_head, pairs, CAUSAL)):
    mine, tile, pair = _place(turn, tiles_of_head, pairs, CAUSAL)
    if mine:
      count, _ = _range(tile, queries, keys, ahead, GROUP, CAUSAL, BLOCK_N)
      batch = (pair // HEADS).to(gl.int64)
      head = pair % HEADS
      for half in gl.static_range(2):
        row = tile * 128 + half * 64 + gl.arange(0, 64, gl.SliceLayout(1, layout))
        # Rows after the last are copies of the last row, and are not stored.
        row = gl.minimum(row, queries * GROUP - 1)
        at = ((head * GROUP + row % GROUP).to(gl.int64) * q_head
              + (row // GROUP).to(gl.int64) * q_row)
        mbarrier.wait(barriers.index(4 * STAGES + 2 + half), turn_phase)
        _copy(q_rows.index(half), q + batch * q_batch, at, row, 64, SIZE, layout)
        async_copy.mbarrier_arrive(barriers.index(4 * STAGES + half), increment_count=False)
      k_at = k + batch * k_batch + head.to(gl.int64) * k_head
      v_at = v + batch * v_batch + head.to(gl.int64) * v_head
      for i in range(count):
        far = (i * BLOCK_N).to(gl.int64)
        left = keys - i * BLOCK_N
        mbarrier.wait(barriers.index(2 * STAGES + stage), phase)
        _copy(k_tiles.index(stage), k_at + far * k_row, inside * k_row, inside, left, SIZE, layout)
        async_copy.mbarrier_arrive(barriers.index(stage), increment_count=False)
        mbarrier.wait(barriers.index(3 * STAGES + stage), phase)
        _copy(v_tiles.index(stage), v_at + far * v_row, inside * v_row, inside, left, SIZE, layout)
        async_copy.mbarrier_arrive(barriers.index(STAGES + stage), increment_count=False)
        stage, phase = _next(stage, phase, STAGES)
      turn_phase ^= 1


@gluon.jit
def _copy(to, base, row_at, row, limit, SIZE: gl.constexpr, layout: gl.constexpr):
  """Begins to copy rows of SIZE elements. If `limit` is less than the number of rows, rows from
  `limit` on become zeros."""
  column = gl.arange(0, SIZE, gl.SliceLayout(0, layout))
  at = base + row_at[:, None] + column[None, :]
  if limit < row.shape[0]:
    async_copy.async_copy_global_to_shared(
        to, at, mask=(row < limit)[:, None] & (column >= 0)[None, :])
  else:
    async_copy.async_copy_global_to_shared(to, at)


@gluon.jit
def _compute(WHICH: gl.constexpr, out, lse, factor: gl.constexpr, queries, keys, ahead, pairs,
             out_batch, out_head, out_row, q_rows, k_tiles, v_tiles, barriers,
             HEADS: gl.constexpr, GROUP: gl.constexpr, CAUSAL: gl.constexpr, SIZE: gl.constexpr,
             BLOCK_N: gl.constexpr, STAGES: gl.constexpr):
  """The other two warp groups compute one half each, WHICH, of the rows of each tile."""
  kind: gl.constexpr = out.dtype.element_ty
  of_scores: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
  of_result: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, SIZE, 16])
  of_stores: gl.constexpr = gl.BlockedLayout([1, 8], [256 // SIZE, SIZE // 8], [4, 1], [1, 0])
  tiles_of_head = gl.cdiv(queries * GROUP, 128)
  last = queries * GROUP - 1
  inside = gl.arange(0, BLOCK_N, gl.SliceLayout(0, of_scores))
  q_tile = q_rows.index(WHICH)
  nothing = gl.full([64, BLOCK_N], 0.0, gl.float32, of_scores)
  stage = 0
  phase = 0
  turn_phase = 0
  for turn in range(_turns(tiles_of_head, pairs, CAUSAL)):
    mine, tile, pair = _place(turn, tiles_of_head, pairs, CAUSAL)
    if mine:
      count, whole = _range(tile, queries, keys, ahead, GROUP, CAUSAL, BLOCK_N)
      first = tile * 128 + WHICH * 64
      query = gl.minimum(first + gl.arange(0, 64, gl.SliceLayout(1, of_scores)), last) // GROUP
      # The number of keys that a row sees.
      sees = gl.minimum(keys, query + 1 + ahead) if CAUSAL else keys + 0 * query
      top = gl.full([64], float("-inf"), gl.float32, gl.SliceLayout(1, of_scores))
      total = gl.full([64], 0.0, gl.float32, gl.SliceLayout(1, of_scores))
      result = gl.full([64, SIZE], 0.0, gl.float32, of_result)
      mbarrier.wait(barriers.index(4 * STAGES + WHICH), turn_phase)
      for i in range(count):
        mbarrier.wait(barriers.index(stage), phase)
        fence_async_shared()     # products read shared memory by another path than copies write
        scores = warpgroup_mma(q_tile, k_tiles.index(stage).permute((1, 0)), nothing,
                               use_acc=False, is_async=True)
        scores = warpgroup_mma_wait(0, deps=[scores])
        mbarrier.arrive(barriers.index(2 * STAGES + stage), count=1)
        if i * BLOCK_N >= whole:
          scores = gl.where(inside[None, :] < (sees - i * BLOCK_N)[:, None], scores, float("-inf"))

        new_top = gl.maximum(top, gl.max(scores, 1) * factor)
        base = gl.where(new_top == float("-inf"), 0.0, new_top)     # 0 in a row that saw no key
        exponentials = gl.exp2(scores * factor - base[:, None])
        shrunk = gl.exp2(top - base)
        total = total * shrunk + gl.sum(exponentials, 1)
        top = new_top
        result = result * gl.convert_layout(shrunk, gl.SliceLayout(1, of_result))[:, None]
        exponentials = gl.convert_layout(exponentials.to(kind),
                                         gl.DotOperandLayout(0, of_result, 2))

        mbarrier.wait(barriers.index(STAGES + stage), phase)
        fence_async_shared()
        result = warpgroup_mma(exponentials, v_tiles.index(stage), result, is_async=True)
        result = warpgroup_mma_wait(0, deps=[result])
        mbarrier.arrive(barriers.index(3 * STAGES + stage), count=1)
        stage, phase = _next(stage, phase, STAGES)
      mbarrier.arrive(barriers.index(4 * STAGES + 2 + WHICH), count=1)

      share = 1.0 / gl.where(total == 0.0, 1.0, total)     # a row that sees no key gives zeros
      result = result * gl.convert_layout(share, gl.SliceLayout(1, of_result))[:, None]
      batch = (pair // HEADS).to(gl.int64)
      row = first + gl.arange(0, 64, gl.SliceLayout(1, of_stores))
      column = gl.arange(0, SIZE, gl.SliceLayout(0, of_stores))
      at = ((pair % HEADS * GROUP + row % GROUP).to(gl.int64) * out_head
            + (row // GROUP).to(gl.int64) * out_row)
      gl.store(out + batch * out_batch + at[:, None] + column[None, :],
               gl.convert_layout(result.to(kind), of_stores),
               mask=(row <= last)[:, None] & (column >= 0)[None, :])
      if lse is not None:
        row = first + gl.arange(0, 64, gl.SliceLayout(1, of_scores))
        at = (batch * HEADS * GROUP + pair % HEADS * GROUP + row % GROUP) * queries + row // GROUP
        gl.store(lse + at, (top + gl.log2(total)) * 0.6931471805599453, mask=row <= last)
      turn_phase ^= 1
