"""Scaled-dot-product attention that never writes its scores: two Triton kernels.

`attention/launch.py` compiles their text with the constants of one call; nothing imports this file
while a model is exported. Names: a *query* is a row of q, a *key* a row of k and of v, a *head* one
of k's and v's heads. GROUP heads of q share a head of k. They are next to each other in a tile, so
that k and v are read once for all of them: row r of a head's queries is query r // GROUP of its
q-head r % GROUP.

Scores are in units of log2: `factor` is the scale times log2(e), so that exp2 replaces exp.
"""

import triton
import triton.language as tl


@triton.jit
def attention(q, k, v, table, mask, sinks, k_scale, v_scale, out, lse, husk_asserts,
              factor: tl.constexpr, CAP: tl.constexpr, queries, keys, ahead,
              q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
              mask_batch, mask_head, mask_row, mask_column,
              k_scale_batch, k_scale_head, k_scale_row, v_scale_batch, v_scale_head, v_scale_row,
              table_batch, out_batch, out_head, out_row, out_split, lse_split,
              HEADS: tl.constexpr, GROUP: tl.constexpr, CAUSAL: tl.constexpr, SPLITS: tl.constexpr,
              PAGE: tl.constexpr, PAGES: tl.constexpr, ASSERT: tl.constexpr,
              SIZE: tl.constexpr, FIRST: tl.constexpr, REST: tl.constexpr,
              V_SIZE: tl.constexpr, V_FIRST: tl.constexpr, V_REST: tl.constexpr,
              PRECISION: tl.constexpr, CACHE: tl.constexpr,
              BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
  """A block makes BLOCK_M rows of one head of one batch, which `_place` chooses by program 0.

  The elements of a row are dense. The strides `*_batch`, `*_head`, `*_row` and `mask_column` are
  counted in elements. With CAUSAL, query i sees the keys 0 to i + ahead. `mask` (bool, float or
  None) has one number for each query and key. `sinks` (or None) has a score for each head of q,
  with which each row begins, without a value. With CAP, which is in units of log2 (0: none), a
  score x is CAP * tanh(x / CAP) before the mask. `k_scale` and `v_scale` (or None) have a number
  for each key and head, with which its row of k, or of v, is multiplied: then k and v are codes of
  8 bits. `lse` (or None) gets the logarithm of the sum of the exponentials; it is dense, with a row
  for each batch and head of q.

  With `table` (i64, or None), k, v and their scales are PAGES pages of PAGE rows, a multiple of
  BLOCK_N: a batch has the pages whose numbers are in its row of the table, `table_batch` elements
  after the row before it. A page that there is not is page 0, and ASSERT goes to `husk_asserts`
  then (None: nothing is checked). Without a table, PAGE is 0.

  CACHE is the number of bytes of k and v that the device's cache is assumed to keep.

  A row of q has SIZE elements. It is read as FIRST elements and, if these are not enough, REST
  more, both powers of two. A row of v is read the same way.

  Program 1 is one of SPLITS parts of the keys. With one part, `out` is the result. With more, `out`
  gets an f32 result of each part and `lse` its weight in units of log2, `out_split` and `lse_split`
  elements apart, for `attention_joined`.
  """
  held: tl.constexpr = CACHE // ((SIZE + V_SIZE) * (k.dtype.element_ty.primitive_bitwidth // 8))
  block, pair = _place(tl.cdiv(queries * GROUP, BLOCK_M), keys, CAUSAL, held)
  batch = (pair // HEADS).to(tl.int64)
  head = pair % HEADS
  last = queries * GROUP - 1
  rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
  row = tl.minimum(rows, last)     # rows after the last read the last row, and are not stored
  query = row // GROUP
  q_head_of = (head * GROUP + row % GROUP).to(tl.int64)

  q_at = q_head_of * q_head + query.to(tl.int64) * q_row
  q_first = _tile(q + batch * q_batch, q_at, row, 0, 0, FIRST, SIZE, False)
  q_rest = q_first
  if REST > 0:
    q_rest = _tile(q + batch * q_batch, q_at, row, 0, FIRST, REST, SIZE, False)
  k += head.to(tl.int64) * k_head
  v += head.to(tl.int64) * v_head
  if k_scale is not None:
    k_scale += head.to(tl.int64) * k_scale_head
    v_scale += head.to(tl.int64) * v_scale_head
  if table is not None:
    table += batch * table_batch
  else:
    k += batch * k_batch
    v += batch * v_batch
    if k_scale is not None:
      k_scale += batch * k_scale_batch
      v_scale += batch * v_scale_batch
  mask_at = row
  if mask is not None:
    mask += batch * mask_batch
    mask_at = q_head_of * mask_head + query.to(tl.int64) * mask_row

  # The keys from `begin` to `end` are those of this part that some row of this block sees. Before
  # `whole`, a multiple of BLOCK_N, all rows see them.
  begin, end, whole = 0, keys, keys
  if CAUSAL:
    end = tl.minimum(keys, tl.minimum(block * BLOCK_M + BLOCK_M - 1, last) // GROUP + 1 + ahead)
    whole = tl.minimum(keys, block * BLOCK_M // GROUP + 1 + ahead)
  if SPLITS > 1:
    part = tl.cdiv(tl.cdiv(keys, SPLITS), BLOCK_N) * BLOCK_N
    begin = tl.program_id(1) * part
    end = tl.minimum(end, begin + part)
    whole = tl.minimum(whole, end)
  whole = tl.maximum(whole // BLOCK_N * BLOCK_N, begin)

  top = tl.full([BLOCK_M], float("-inf"), tl.float32)
  total = tl.zeros([BLOCK_M], tl.float32)
  if sinks is not None:
    if tl.program_id(1) == 0:
      top = tl.load(sinks + q_head_of).to(tl.float32) * 1.4426950408889634
      total += 1.0
  first = tl.zeros([BLOCK_M, V_FIRST], tl.float32)
  rest = total
  if V_REST > 0:
    rest = tl.zeros([BLOCK_M, V_REST], tl.float32)
  # One loop over all keys, since each loop waits for its first loads. Two loops with a mask, whose
  # loads are wider without bounds, and with f32, which would have too few registers in one loop.
  # Pages are whole tiles, all of which all rows see unless a mask hides some.
  last_key = query + ahead
  two: tl.constexpr = mask is not None or k.dtype.element_ty.primitive_bitwidth == 32
  all_whole: tl.constexpr = PAGE > 0 and not CAUSAL
  if two or all_whole:
    first, rest, top, total = _over(first, rest, top, total, begin, whole, whole, "all",
                                    q_first, q_rest, k, v, table, mask, mask_at, last_key, factor,
                                    CAP, keys, k_batch, k_row, v_batch, v_row, mask_column,
                                    k_scale, v_scale, k_scale_batch, k_scale_row,
                                    v_scale_batch, v_scale_row, husk_asserts,
                                    PAGE, PAGES, ASSERT, CAUSAL, SIZE, FIRST, REST,
                                    V_SIZE, V_FIRST, V_REST, PRECISION, BLOCK_N)
    begin = whole
  if not all_whole:
    first, rest, top, total = _over(first, rest, top, total, begin, end, whole,
                                    "some" if two else "both",
                                    q_first, q_rest, k, v, table, mask, mask_at, last_key, factor,
                                    CAP, keys, k_batch, k_row, v_batch, v_row, mask_column,
                                    k_scale, v_scale, k_scale_batch, k_scale_row,
                                    v_scale_batch, v_scale_row, husk_asserts,
                                    PAGE, PAGES, ASSERT, CAUSAL, SIZE, FIRST, REST,
                                    V_SIZE, V_FIRST, V_REST, PRECISION, BLOCK_N)

  # A row that sees no key gives zeros.
  share = 1.0 / tl.where(total == 0.0, 1.0, total)
  stored = rows <= last
  out += batch * out_batch
  if SPLITS > 1:
    out += tl.program_id(1).to(tl.int64) * out_split
  out_at = q_head_of * out_head + query.to(tl.int64) * out_row
  _store(out, out_at, stored, first * share[:, None], 0, V_FIRST, V_SIZE)
  if V_REST > 0:
    _store(out, out_at, stored, rest * share[:, None], V_FIRST, V_REST, V_SIZE)
  if lse is not None:
    weight = top + tl.log2(total)
    at = (batch * HEADS * GROUP + q_head_of) * queries + query
    if SPLITS > 1:
      tl.store(lse + tl.program_id(1).to(tl.int64) * lse_split + at, weight, stored)
    else:
      tl.store(lse + at, weight * 0.6931471805599453, stored)


@triton.jit
def _place(blocks, keys, CAUSAL: tl.constexpr, HELD: tl.constexpr):
  """(block of a head, head among the heads of all batches) of program 0. With CAUSAL the later
  blocks of a head take longer. The later blocks of several heads come first, so that short blocks
  are left for the end; these heads have at most HELD keys together."""
  at = tl.program_id(0)
  if not CAUSAL:
    return at % blocks, at // blocks
  held = tl.maximum(HELD // tl.maximum(keys, 1), 1)
  section = at // blocks // held
  heads = tl.minimum(held, tl.num_programs(0) // blocks - section * held)
  at -= section * held * blocks
  return blocks - 1 - at // heads, section * held + at % heads


@triton.jit
def _over(first, rest, top, total, begin, end, whole, SEEN: tl.constexpr, q_first, q_rest, k, v,
          table, mask, mask_at, last_key, factor: tl.constexpr, CAP: tl.constexpr, keys,
          k_batch, k_row, v_batch, v_row, mask_column,
          k_scale, v_scale, k_scale_batch, k_scale_row, v_scale_batch, v_scale_row, husk_asserts,
          PAGE: tl.constexpr, PAGES: tl.constexpr, ASSERT: tl.constexpr,
          CAUSAL: tl.constexpr, SIZE: tl.constexpr, FIRST: tl.constexpr, REST: tl.constexpr,
          V_SIZE: tl.constexpr, V_FIRST: tl.constexpr, V_REST: tl.constexpr,
          PRECISION: tl.constexpr, BLOCK_N: tl.constexpr):
  """Loops over the keys from `begin` to `end`. `top` is the largest score of each row so far,
  `total` the sum of the exponentials of scores minus `top`, `first` and `rest` the sum of these
  exponentials times v. SEEN says which rows see the keys if `mask` is ignored: "all" rows, only
  "some" rows, or all rows the keys before `whole` ("both"). A row sees no key after `last_key` if
  CAUSAL."""
  BOUNDED: tl.constexpr = SEEN != "all"
  inside = tl.arange(0, BLOCK_N)
  for start in tl.range(begin, end, BLOCK_N):
    far = tl.cast(start, tl.int64)
    left = keys - start
    page = far * 0
    if table is not None:
      page = _page(table + far // PAGE, husk_asserts, PAGES, ASSERT)
    k_from = _rows_of(k, page, far, k_batch, k_row, PAGE)
    v_from = _rows_of(v, page, far, v_batch, v_row, PAGE)
    k_tile = _tile(k_from, inside * k_row, inside, left, 0, FIRST, SIZE, BOUNDED)
    scores = tl.dot(q_first, tl.trans(_numbers(k_tile, q_first)), input_precision=PRECISION)
    if REST > 0:
      k_tile = _tile(k_from, inside * k_row, inside, left, FIRST, REST, SIZE, BOUNDED)
      scores = tl.dot(q_rest, tl.trans(_numbers(k_tile, q_first)), scores,
                      input_precision=PRECISION)
    if k_scale is not None:
      scale_from = _rows_of(k_scale, page, far, k_scale_batch, k_scale_row, PAGE)
      scores *= _scale(scale_from, inside * k_scale_row, inside, left, BOUNDED)[None, :]

    of_scores: tl.constexpr = factor if CAP == 0 else 1.0     # the factors that scores still lack
    unit: tl.constexpr = of_scores if mask is None else 1.0
    if CAP > 0:
      scores = _capped(scores * factor, CAP)
    if mask is not None:
      at = mask + far * mask_column + mask_at[:, None] + (inside * mask_column)[None, :]
      mask_tile = tl.load(at, mask=(inside < left)[None, :], other=0) if BOUNDED else tl.load(at)
      if mask.dtype.element_ty == tl.int1:
        scores = tl.where(mask_tile, scores * of_scores, float("-inf"))
      else:
        scores = scores * of_scores + mask_tile.to(tl.float32) * 1.4426950408889634
    if SEEN == "some":
      scores = _seen(scores, inside, left, last_key - start, CAUSAL)
    elif SEEN == "both":
      if start >= whole:
        scores = _seen(scores, inside, left, last_key - start, CAUSAL)

    new_top = tl.maximum(top, tl.max(scores, 1) * unit)
    base = tl.where(new_top == float("-inf"), 0.0, new_top)     # 0 in a row that has seen no key
    exponentials = tl.exp2(scores * unit - base[:, None])
    shrunk = tl.exp2(top - base)
    total = total * shrunk + tl.sum(exponentials, 1)
    if v_scale is not None:
      scale_from = _rows_of(v_scale, page, far, v_scale_batch, v_scale_row, PAGE)
      exponentials *= _scale(scale_from, inside * v_scale_row, inside, left, BOUNDED)[None, :]
    v_tile = _tile(v_from, inside * v_row, inside, left, 0, V_FIRST, V_SIZE, BOUNDED)
    v_tile = _numbers(v_tile, q_first)
    first = tl.dot(exponentials.to(v_tile.dtype), v_tile, first * shrunk[:, None],
                   input_precision=PRECISION)
    if V_REST > 0:
      v_tile = _numbers(_tile(v_from, inside * v_row, inside, left,
                              V_FIRST, V_REST, V_SIZE, BOUNDED), q_first)
      rest = tl.dot(exponentials.to(v_tile.dtype), v_tile, rest * shrunk[:, None],
                    input_precision=PRECISION)
    top = new_top
  return first, rest, top, total


@triton.jit
def _page(at, husk_asserts, PAGES: tl.constexpr, ASSERT: tl.constexpr):
  """The number of a page. Page 0 replaces one that there is not, which is an error."""
  page = tl.load(at)
  exists = (page >= 0) & (page < PAGES)
  if husk_asserts is not None:
    tl.store(husk_asserts, ASSERT, exists == 0)
  return tl.where(exists, page, 0)


@triton.jit
def _rows_of(base, page, start, page_stride, row_stride, PAGE: tl.constexpr):
  """Where the rows of a tile are that begins with row `start`. With pages these are rows of one
  page, so that they follow each other in memory as they do without."""
  if PAGE == 0:
    return base + start * row_stride
  else:
    return base + page * page_stride + start % PAGE * row_stride


@triton.jit
def _capped(scores, CAP: tl.constexpr):
  """CAP * tanh(scores / CAP), for scores and CAP in units of log2."""
  return CAP - 2.0 * CAP / (1.0 + tl.exp2(scores * (2.8853900817779268 / CAP)))


@triton.jit
def _numbers(tile, like):
  """A tile of numbers or of codes in the type of `like`, which has each code exactly."""
  if tile.dtype == like.dtype:
    return tile
  else:
    return tile.to(tl.float32).to(like.dtype)


@triton.jit
def _scale(base, at, row, limit, BOUNDED: tl.constexpr):
  """The scales of a tile of keys; 0 for keys from `limit` on if BOUNDED."""
  if BOUNDED:
    return tl.load(base + at, mask=row < limit, other=0.0)
  else:
    return tl.load(base + at)


@triton.jit
def _seen(scores, inside, left, last, CAUSAL: tl.constexpr):
  """The scores of keys that exist and, with CAUSAL, are not after `last`; -inf for other keys."""
  seen = (inside < left)[None, :]
  if CAUSAL:
    seen = seen & (inside[None, :] <= last[:, None])
  return tl.where(seen, scores, float("-inf"))


@triton.jit
def _tile(base, row_at, row, limit, FROM: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr,
          BOUNDED: tl.constexpr):
  """Elements FROM to FROM + WIDTH of rows. Elements from SIZE on are 0, and if BOUNDED, those of
  rows from `limit` on."""
  column = FROM + tl.arange(0, WIDTH)
  at = base + row_at[:, None] + column[None, :]
  if BOUNDED:
    there = (row < limit)[:, None]
    if FROM + WIDTH > SIZE:
      there = there & (column < SIZE)[None, :]
    return tl.load(at, mask=there, other=0.0)
  elif FROM + WIDTH > SIZE:
    return tl.load(at, mask=(column < SIZE)[None, :], other=0.0)
  else:
    return tl.load(at)


@triton.jit
def _store(base, row_at, stored, value, FROM: tl.constexpr, WIDTH: tl.constexpr,
           SIZE: tl.constexpr):
  column = FROM + tl.arange(0, WIDTH)
  tl.store(base + row_at[:, None] + column[None, :], value.to(base.dtype.element_ty),
           mask=stored[:, None] & (column < SIZE)[None, :])


@triton.jit
def attention_joined(parts, weights, out, lse, rows, queries, out_batch, out_head, out_row,
                     HEADS: tl.constexpr, SPLITS: tl.constexpr, SPLITS_WIDTH: tl.constexpr,
                     SIZE: tl.constexpr, WIDTH: tl.constexpr):
  """Joins the results of `attention` for SPLITS parts of the keys. A block makes one of `rows`
  (batches x HEADS x queries; HEADS are those of q). SPLITS_WIDTH and WIDTH are powers of two that
  are at least SPLITS and SIZE, the elements of a row."""
  row = tl.program_id(0).to(tl.int64)
  split = tl.arange(0, SPLITS_WIDTH)
  column = tl.arange(0, WIDTH)
  weight = tl.load(weights + split * tl.cast(rows, tl.int64) + row, mask=split < SPLITS,
                   other=float("-inf"))
  top = tl.max(weight, 0)
  share = tl.exp2(weight - tl.where(top == float("-inf"), 0.0, top))
  total = tl.sum(share, 0)
  at = (split * tl.cast(rows, tl.int64) + row) * SIZE
  part = tl.load(parts + at[:, None] + column[None, :],
                 mask=(split < SPLITS)[:, None] & (column < SIZE)[None, :], other=0.0)
  joined = tl.sum(part * share[:, None], 0) / tl.where(total == 0.0, 1.0, total)
  query = row % queries
  head = row // queries % HEADS
  batch = row // queries // HEADS
  at = batch * out_batch + head * out_head + query * out_row + column
  tl.store(out + at, joined.to(out.dtype.element_ty), mask=column < SIZE)
  if lse is not None:
    tl.store(lse + row, (top + tl.log2(total)) * 0.6931471805599453)
