"""Products of rows with the matrices of their experts: Triton kernels, which experts/node.py
compiles with the constants of one call; nothing imports this file while a model is exported.

A *stack* has a matrix of N x K elements for each of COUNT experts. EXPERT, COLUMN and ELEMENT are
the distances of experts, of the columns of a result, and of the elements that a column multiplies.
Rows of `x` are K elements, one after another. Products are added in f32.

With a GATE, the name of an activation, a matrix has 2 N columns, and the result is the activation
of the first N products times the other N ones.
"""

import triton
import triton.language as tl


@triton.jit
def expert_row(x, stack, experts, scale, out, TIMES: tl.constexpr, OFFSET: tl.constexpr,
               EPS: tl.constexpr, COUNT: tl.constexpr, K: tl.constexpr, N: tl.constexpr,
               EXPERT: tl.constexpr, COLUMN: tl.constexpr, ELEMENT: tl.constexpr,
               GATE: tl.constexpr, BLOCK_N: tl.constexpr, FIRST: tl.constexpr, REST: tl.constexpr):
  """Program 0 is a row of the result, which is row / TIMES of `x`, program 1 a tile of BLOCK_N
  columns. `experts` (i64 or i32) has the expert of each row of the result; the stack begins with the
  expert OFFSET, and rows of experts that it does not have are 0. With EPS of 0 or more, the rows
  are those of a root mean square norm of `x`, whose weight is `scale` (None: 1).

  K elements are FIRST ones and up to REST more, which are powers of two, or REST is 0.
  """
  row = tl.program_id(0).to(tl.int64)
  expert = tl.load(experts + row).to(tl.int64) - OFFSET
  is_here = (expert >= 0) & (expert < COUNT)
  column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
  n = tl.minimum(column, N - 1).to(tl.int64) * COLUMN
  matrix = stack + tl.where(is_here, expert, 0) * EXPERT
  x += (row // TIMES) * K
  # All weights of the block are on their way before the first one is multiplied.
  k = tl.arange(0, FIRST)
  a = tl.load(matrix + (n[:, None] + k[None, :] * ELEMENT), mask=is_here, other=0.0)
  if GATE != "":
    b = tl.load(matrix + N * COLUMN + (n[:, None] + k[None, :] * ELEMENT), mask=is_here, other=0.0)
  if REST > 0:
    more = FIRST + tl.arange(0, REST)
    exists = ((more < K) & is_here)[None, :]
    more_a = tl.load(matrix + (n[:, None] + more[None, :] * ELEMENT), mask=exists, other=0.0)
    if GATE != "":
      more_b = tl.load(matrix + N * COLUMN + (n[:, None] + more[None, :] * ELEMENT), mask=exists,
                       other=0.0)
  values = tl.load(x + k).to(tl.float32)
  square = tl.sum(values * values, 0)
  if scale is not None:
    values *= tl.load(scale + k).to(tl.float32)
  result = tl.sum(a.to(tl.float32) * values[None, :], 1)
  if GATE != "":
    other = tl.sum(b.to(tl.float32) * values[None, :], 1)
  if REST > 0:
    values = tl.load(x + more, mask=more < K, other=0.0).to(tl.float32)
    square += tl.sum(values * values, 0)
    if scale is not None:
      values *= tl.load(scale + more, mask=more < K, other=0.0).to(tl.float32)
    result += tl.sum(more_a.to(tl.float32) * values[None, :], 1)
    if GATE != "":
      other += tl.sum(more_b.to(tl.float32) * values[None, :], 1)
  if EPS >= 0:
    factor = tl.rsqrt(square / K + EPS)
    result *= factor
    if GATE != "":
      other *= factor
  if GATE != "":
    result = _activated(result, GATE) * other
  tl.store(out + row * N + column, result.to(out.dtype.element_ty), mask=column < N)


@triton.jit
def experts_of_row(x, stack, experts, weights, residual, out, TIMES: tl.constexpr,
                   OFFSET: tl.constexpr, COUNT: tl.constexpr, K: tl.constexpr, N: tl.constexpr,
                   EXPERT: tl.constexpr, COLUMN: tl.constexpr, ELEMENT: tl.constexpr,
                   BLOCK_N: tl.constexpr, FIRST: tl.constexpr, REST: tl.constexpr):
  """The sums of TIMES rows each of what `expert_row` computes, times their `weights`, and a
  `residual` (or None) of the shape of the result. Program 0 is a row of the result."""
  token = tl.program_id(0).to(tl.int64)
  column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
  n = tl.minimum(column, N - 1).to(tl.int64) * COLUMN
  k = tl.arange(0, FIRST)
  total = tl.zeros((BLOCK_N, FIRST), dtype=tl.float32)
  if REST > 0:
    more = FIRST + tl.arange(0, REST)
    more_total = tl.zeros((BLOCK_N, REST), dtype=tl.float32)
  for place in tl.static_range(TIMES):
    row = token * TIMES + place
    expert = tl.load(experts + row).to(tl.int64) - OFFSET
    is_here = (expert >= 0) & (expert < COUNT)
    weight = tl.load(weights + row, mask=is_here, other=0.0).to(tl.float32)
    matrix = stack + tl.where(is_here, expert, 0) * EXPERT
    a = tl.load(matrix + (n[:, None] + k[None, :] * ELEMENT), mask=is_here, other=0.0)
    values = tl.load(x + (row * K + k), mask=is_here, other=0.0).to(tl.float32) * weight
    total += a.to(tl.float32) * values[None, :]
    if REST > 0:
      exists = (more < K) & is_here
      a = tl.load(matrix + (n[:, None] + more[None, :] * ELEMENT), mask=exists[None, :], other=0.0)
      values = tl.load(x + (row * K + more), mask=exists, other=0.0).to(tl.float32) * weight
      more_total += a.to(tl.float32) * values[None, :]
  result = tl.sum(total, 1)
  if REST > 0:
    result += tl.sum(more_total, 1)
  if residual is not None:
    result += tl.load(residual + (token * N + column), mask=column < N).to(tl.float32)
  tl.store(out + (token * N + column), result.to(out.dtype.element_ty), mask=column < N)


@triton.jit
def expert_tiles(x, stack, ends, out, rows, COUNT: tl.constexpr, COUNT_WIDTH: tl.constexpr,
                 K: tl.constexpr, N: tl.constexpr, EXPERT: tl.constexpr, COLUMN: tl.constexpr,
                 ELEMENT: tl.constexpr, GATE: tl.constexpr, PRECISION: tl.constexpr,
                 BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
  """The same for rows that are sorted by expert: `ends` (i32 or i64) has the end of the rows of
  each expert. Rows behind the last end are 0. Ends that do not rise give any rows.

  Program 0 is a tile of up to BLOCK_M rows of one expert, or of those behind the last end; there
  may be more programs than tiles. Program 1 is a tile of BLOCK_N columns. COUNT_WIDTH is a power of
  two above COUNT.
  """
  program = tl.program_id(0)
  expert = tl.arange(0, COUNT_WIDTH)
  # The rows behind the last end are those of one more expert.
  end = tl.load(ends + expert, mask=expert < COUNT, other=2147483647).to(tl.int64)
  end = tl.minimum(tl.maximum(end, 0), rows).to(tl.int32)
  begin = tl.load(ends + (expert - 1), mask=(expert > 0) & (expert <= COUNT), other=0).to(tl.int64)
  begin = tl.minimum(tl.maximum(begin, 0), rows).to(tl.int32)
  begin = tl.where(expert > COUNT, end, begin)
  tiles = (tl.maximum(end - begin, 0) + BLOCK_M - 1) // BLOCK_M
  before = tl.cumsum(tiles, 0) - tiles
  is_here = (before <= program) & (program < before + tiles)
  first = tl.sum(tl.where(is_here, begin + (program - before) * BLOCK_M, 0), 0)
  last = tl.sum(tl.where(is_here, end, 0), 0)
  number = tl.sum(tl.where(is_here, expert, 0), 0)
  if first < last:
    row = first + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    n = tl.minimum(column, N - 1).to(tl.int64) * COLUMN
    k = tl.arange(0, BLOCK_K)
    matrix = stack + tl.minimum(number, COUNT - 1).to(tl.int64) * EXPERT
    exists = row < last
    xs = x + (row.to(tl.int64)[:, None] * K + k[None, :])
    a = matrix + (n[None, :] + k[:, None] * ELEMENT)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    other = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    steps = tl.where(number < COUNT, (K + BLOCK_K - 1) // BLOCK_K, 0)
    for step in range(steps):
      left = K - step * BLOCK_K
      if K % BLOCK_K == 0:
        part = tl.load(xs + step * BLOCK_K, mask=exists[:, None], other=0.0)
        weight = tl.load(a + step * BLOCK_K * ELEMENT)
      else:
        part = tl.load(xs + step * BLOCK_K, mask=exists[:, None] & (k < left)[None, :], other=0.0)
        weight = tl.load(a + step * BLOCK_K * ELEMENT, mask=(k < left)[:, None], other=0.0)
      total = tl.dot(part, weight, total, input_precision=PRECISION)
      if GATE != "":
        if K % BLOCK_K == 0:
          weight = tl.load(a + (N * COLUMN + step * BLOCK_K * ELEMENT))
        else:
          weight = tl.load(a + (N * COLUMN + step * BLOCK_K * ELEMENT), mask=(k < left)[:, None],
                           other=0.0)
        other = tl.dot(part, weight, other, input_precision=PRECISION)
    if GATE != "":
      total = _activated(total, GATE) * other
    at = row.to(tl.int64)[:, None] * N + column[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty),
             mask=exists[:, None] & (column < N)[None, :])


@triton.jit
def _activated(x, ACTIVATION: tl.constexpr):
  if ACTIVATION == "silu":
    return x / (1.0 + tl.exp(-x))
  elif ACTIVATION == "gelu_tanh":
    return x / (1.0 + tl.exp(-1.5957691216057308 * x * (1.0 + 0.044715 * x * x)))
  elif ACTIVATION == "relu":
    return tl.maximum(x, 0.0)
  else:
    tl.static_assert(ACTIVATION == "sigmoid")
    return 1.0 / (1.0 + tl.exp(-x))
