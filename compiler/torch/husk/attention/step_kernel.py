"""Attention of one new token of each sequence to a cache that does not have its key yet: a Triton
kernel. attention/step_launch.py compiles its text with the constants of one call, like kernel.py,
whose words it shares: a *head* is one of k's and v's heads, and GROUP heads of q share it.

The kernel turns queries and the new key by their positions (rotary embedding), writes the new key
and value to the cache, and takes them from where the projections left them. So a step needs no
kernel for any of this. Few keys are read by one block, and many by several, the last of which to
end joins their results. On an H200 that took as long as a kernel for it, 2.5 us.
"""

import triton
import triton.language as tl


@triton.jit
def _read_tile(k, v, table, start, end, position, k_batch, k_row, v_batch, v_row,
               CAPACITY: tl.constexpr, PAGES: tl.constexpr, WINDOW: tl.constexpr,
               SIZE: tl.constexpr, V_SIZE: tl.constexpr, BLOCK_N: tl.constexpr):
  """BLOCK_N rows of the cache from `start` on, those of keys and those of values, and which of them
  are there: those before `end` but the one at `position`. The others are zeros."""
  inside = tl.arange(0, BLOCK_N)
  column = tl.arange(0, SIZE)
  v_column = tl.arange(0, V_SIZE)
  far = tl.cast(start, tl.int64)
  there = (inside < end - start) & (inside != position - start)
  k_at, v_at = inside * k_row, inside * v_row
  if table is None:
    k_first, v_first = k + far * k_row, v + far * v_row
  elif WINDOW == 0:
    # A tile begins at a multiple of its size, and has rows of one page.
    page = tl.load(table + far // CAPACITY, mask=start < end, other=-1)
    there = there & (page >= 0) & (page < PAGES)
    k_first = k + page * k_batch + far % CAPACITY * k_row
    v_first = v + page * v_batch + far % CAPACITY * v_row
  else:
    page = tl.load(table + (far + inside) // CAPACITY, mask=there, other=0)
    there = there & (page >= 0) & (page < PAGES)
    k_first, v_first = k, v
    k_at = page * k_batch + (far + inside) % CAPACITY * k_row
    v_at = page * v_batch + (far + inside) % CAPACITY * v_row
  k_tile = tl.load(k_first + k_at[:, None] + column[None, :], mask=there[:, None], other=0.0)
  v_tile = tl.load(v_first + v_at[:, None] + v_column[None, :], mask=there[:, None], other=0.0)
  return k_tile, v_tile, there


@triton.jit
def _capped(scores, CAP: tl.constexpr):
  """CAP * tanh(scores / CAP), for scores and CAP in units of log2; the scores if CAP is 0."""
  if CAP == 0:
    return scores
  else:
    return CAP - 2.0 * CAP / (1.0 + tl.exp2(scores * (2.8853900817779268 / CAP)))


@triton.jit
def attention_step(q, k, v, new_k, new_v, cosine, sine, positions, table, mask, sinks, out, parts,
                   weights, counters, husk_asserts, factor: tl.constexpr, CAP: tl.constexpr, keys,
                   q_batch, q_head, k_batch, k_head, k_row, v_batch, v_head, v_row,
                   new_k_batch, new_k_head, new_v_batch, new_v_head,
                   cosine_batch, sine_batch, position_batch, table_batch,
                   mask_batch, mask_head, mask_column,
                   out_batch, out_head, HEADS: tl.constexpr, GROUP: tl.constexpr,
                   GROUP_WIDTH: tl.constexpr, CAPACITY: tl.constexpr, PAGES: tl.constexpr,
                   FROM_END: tl.constexpr, ASSERT: tl.constexpr,
                   BOUND: tl.constexpr, WINDOW: tl.constexpr,
                   SPLITS: tl.constexpr, SPLITS_WIDTH: tl.constexpr, LEAST: tl.constexpr,
                   SIZE: tl.constexpr, V_SIZE: tl.constexpr, PRECISION: tl.constexpr,
                   BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
  """Program 0 is a head of a batch, program 1 one of SPLITS parts of the keys. A part has LEAST
  keys or more, so few keys have fewer parts.

  Each batch has one query, at the position `positions` (i64). The rows of the cache (`k` and `v`)
  at this position become `new_k`, turned, and `new_v`. The first `keys` of its CAPACITY rows are
  read. With FROM_END, a position below 0 counts from CAPACITY. A position that the cache does not
  have is not written; ASSERT goes to `husk_asserts` then (None: nothing is checked).
  With `table` (i64, or None), the cache is in PAGES pages of CAPACITY rows: a batch has those whose
  numbers are in its row of the table, and all their rows are read. Positions beyond the table are
  not written, and rows of pages that the cache does not have are not seen.
  `cosine` and `sine` (or None) have a number for each element: element d of a row x becomes
  x[d] * cosine[d] + y[d] * sine[d], where y is the second half of x, negative, and then its first
  half. SIZE and V_SIZE are powers of two.

  With BOUND, the query sees the keys up to its position, and of these the last WINDOW if that is
  not 0. `mask` (bool, float or None) has a number for each head of q and key besides. `sinks` and
  CAP are those of attention/kernel.py.

  With more than one part, each writes an f32 result to `parts` and its weight, in units of log2, to
  `weights`, both as parts x batches x heads of q. `counters` has an i32 for each batch and head,
  which is 0 before and after.
  """
  # The successors of this kernel start early.
  pair = tl.program_id(0)
  batch = (pair // HEADS).to(tl.int64)
  head = (pair % HEADS).to(tl.int64)
  place = tl.load(positions + batch * position_batch)
  k += head * k_head
  v += head * v_head
  if table is None:
    k += batch * k_batch
    v += batch * v_batch
  else:
    table += batch * table_batch
  position = place
  if FROM_END:
    position = tl.where(place < 0, place + CAPACITY, place)
  exists = (position >= 0) & (position < (CAPACITY if table is None else keys))
  is_wrong = exists == 0
  new_page = position * 0
  if table is not None:
    new_page = tl.load(table + position // CAPACITY, mask=exists, other=0)
    is_wrong = (new_page < 0) | (new_page >= PAGES)
    exists = exists & (is_wrong == 0)

  # The keys from `begin` to `end` are those of this part, the first one of `used`.
  begin = position * 0
  end = begin + keys
  if BOUND:
    end = tl.minimum(end, tl.maximum(place + 1, 0))
    if WINDOW > 0:
      begin = tl.minimum(tl.maximum(place + 1 - WINDOW, 0), end)
  if SPLITS > 1:
    count = (end - begin).to(tl.int32)
    of_part = tl.maximum(tl.cdiv(tl.cdiv(count, SPLITS), BLOCK_N) * BLOCK_N, LEAST)
    begin += tl.program_id(1) * of_part
    end = tl.minimum(end, begin + of_part)

  # The first keys are read before the wait: steps before this one have written them.
  k_tile, v_tile, there = _read_tile(
      k, v, table, begin, end, position, k_batch, k_row, v_batch, v_row, CAPACITY, PAGES, WINDOW,
      SIZE, V_SIZE, BLOCK_N)

  # The wait for the preceding kernel stands here.
  used = 1
  if SPLITS > 1:
    used = tl.maximum(tl.cdiv(count, of_part), 1)
    if tl.program_id(1) >= used:
      return
  if husk_asserts is not None:
    tl.store(husk_asserts, ASSERT, is_wrong)
  rows = tl.arange(0, BLOCK_M)
  row = head * GROUP + tl.minimum(rows, GROUP - 1)     # rows after the last one are not stored
  column = tl.arange(0, SIZE)
  v_column = tl.arange(0, V_SIZE)
  q += batch * q_batch
  new_k += batch * new_k_batch + head * new_k_head
  if cosine is None:
    query = tl.load(q + row[:, None] * q_head + column[None, :])
    key = tl.load(new_k + column)
  else:
    half = SIZE // 2
    other = tl.where(column < half, column + half, column - half)
    cosines = tl.load(cosine + batch * cosine_batch + column).to(tl.float32)
    sines = tl.load(sine + batch * sine_batch + column).to(tl.float32)
    sines = tl.where(column < half, -sines, sines)
    first = tl.load(q + row[:, None] * q_head + column[None, :]).to(tl.float32)
    second = tl.load(q + row[:, None] * q_head + other[None, :]).to(tl.float32)
    query = (first * cosines[None, :] + second * sines[None, :]).to(q.dtype.element_ty)
    key = tl.load(new_k + column).to(tl.float32) * cosines
    key += tl.load(new_k + other).to(tl.float32) * sines
  key = key.to(k.dtype.element_ty)
  value = tl.load(new_v + batch * new_v_batch + head * new_v_head + v_column)

  # Each part leaves the row of the new key out of the keys that it reads, so any may write it.
  is_first = tl.program_id(1) == 0
  at = tl.where(exists, position, 0)
  if table is not None:
    at = at % CAPACITY
    k_new = k + new_page * k_batch
    v_new = v + new_page * v_batch
  else:
    k_new = k
    v_new = v
  tl.store(k_new + at * k_row + column, key, mask=(column >= 0) & exists & is_first)
  tl.store(v_new + at * v_row + v_column, value, mask=(v_column >= 0) & exists & is_first)

  # The first part begins with the new key, if it is among the keys that are read and seen.
  is_here = exists & (position < keys) & is_first
  if BOUND:
    is_here = is_here & (place >= 0)
  top = _capped(tl.sum(query.to(tl.float32) * key.to(tl.float32)[None, :], 1) * factor, CAP)
  mask_at = row
  if mask is not None:
    mask += batch * mask_batch
    mask_at = row * mask_head
    seen_at = mask + mask_at + position * mask_column
    is_read = (rows >= 0) & is_here
    if mask.dtype.element_ty == tl.int1:
      top = tl.where(tl.load(seen_at, mask=is_read, other=0), top, float("-inf"))
    else:
      top += tl.load(seen_at, mask=is_read, other=0.0).to(tl.float32) * 1.4426950408889634
  top = tl.where(is_here, top, float("-inf"))
  total = tl.where(top == float("-inf"), 0.0, 1.0)
  result = total[:, None] * value.to(tl.float32)[None, :]

  inside = tl.arange(0, BLOCK_N)
  for start in tl.range(begin, end, BLOCK_N):
    # The next rows are on their way while these are computed with.
    next_k, next_v, next_there = _read_tile(
        k, v, table, start + BLOCK_N, end, position, k_batch, k_row, v_batch, v_row, CAPACITY,
        PAGES, WINDOW, SIZE, V_SIZE, BLOCK_N)
    far = tl.cast(start, tl.int64)
    scores = tl.dot(query, tl.trans(k_tile), input_precision=PRECISION) * factor
    scores = _capped(scores, CAP)
    seen = there[None, :]
    if mask is not None:
      tile_at = mask + far * mask_column + mask_at[:, None] + (inside * mask_column)[None, :]
      mask_tile = tl.load(tile_at, mask=there[None, :], other=0)
      if mask.dtype.element_ty == tl.int1:
        seen = seen & mask_tile
      else:
        scores += mask_tile.to(tl.float32) * 1.4426950408889634
    scores = tl.where(seen, scores, float("-inf"))
    new_top = tl.maximum(top, tl.max(scores, 1))
    base = tl.where(new_top == float("-inf"), 0.0, new_top)     # 0 in a row that has seen no key
    exponentials = tl.exp2(scores - base[:, None])
    shrunk = tl.exp2(top - base)
    total = total * shrunk + tl.sum(exponentials, 1)
    result = tl.dot(exponentials.to(v_tile.dtype), v_tile, result * shrunk[:, None],
                    input_precision=PRECISION)
    top = new_top
    k_tile, v_tile, there = next_k, next_v, next_there

  if sinks is not None:
    # The sink is a score of the first part without a value.
    sink = tl.load(sinks + row).to(tl.float32) * 1.4426950408889634
    sink = tl.where(is_first, sink, float("-inf"))
    new_top = tl.maximum(top, sink)
    base = tl.where(new_top == float("-inf"), 0.0, new_top)
    shrunk = tl.exp2(top - base)
    total = total * shrunk + tl.exp2(sink - base)
    result *= shrunk[:, None]
    top = new_top

  # A row that sees no key gives zeros.
  result *= (1.0 / tl.where(total == 0.0, 1.0, total))[:, None]
  stored = rows < GROUP
  out += batch * out_batch
  if used == 1:
    tl.store(out + row[:, None] * out_head + v_column[None, :], result.to(out.dtype.element_ty),
             mask=stored[:, None])
  if SPLITS > 1:
    if used > 1:
      heads = tl.num_programs(0).to(tl.int64) * GROUP
      parts_at = batch * HEADS * GROUP + row
      own = tl.program_id(1) * heads
      tl.store(parts + (own + parts_at)[:, None] * V_SIZE + v_column[None, :], result,
               mask=stored[:, None])
      tl.store(weights + own + parts_at, top + tl.log2(total), mask=stored)
      # The results of all threads are in memory before the count, and are read after it.
      tl.debug_barrier()
      before = tl.atomic_add(counters + pair, 1, sem="acq_rel")
      tl.debug_barrier()
      if before == used - 1:
        tl.store(counters + pair, 0)
        split = tl.arange(0, SPLITS_WIDTH)
        member = tl.arange(0, GROUP_WIDTH)
        at_rows = batch * HEADS * GROUP + head * GROUP + tl.minimum(member, GROUP - 1)
        there_2 = (split < used)[:, None] & (member < GROUP)[None, :]
        at_2 = split[:, None] * heads + at_rows[None, :]
        weight = tl.load(weights + at_2, mask=there_2, other=float("-inf"), cache_modifier=".cg")
        part = tl.load(parts + at_2[:, :, None] * V_SIZE + v_column[None, None, :],
                       mask=there_2[:, :, None], other=0.0, cache_modifier=".cg")
        most = tl.max(weight, 0)
        share = tl.exp2(weight - tl.where(most == float("-inf"), 0.0, most)[None, :])
        sum_of_shares = tl.sum(share, 0)
        share *= (1.0 / tl.where(sum_of_shares == 0.0, 1.0, sum_of_shares))[None, :]
        joined = tl.sum(part * share[:, :, None], 0)
        out_row = head * GROUP + member
        tl.store(out + out_row[:, None] * out_head + v_column[None, :],
                 joined.to(out.dtype.element_ty), mask=(member < GROUP)[:, None])
