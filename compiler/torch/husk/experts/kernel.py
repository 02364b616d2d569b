"""Products of rows with the matrices of their experts, and the choice of experts: Triton kernels,
which experts/node.py and choice.py compile with the constants of one call; nothing imports this
file while a model is exported.

A *stack* has a matrix of N x K elements for each of COUNT experts. EXPERT, COLUMN and ELEMENT are
the distances of experts, of the columns of a result, and of the elements that a column multiplies.
Rows of `x` are K elements, one after another. Products are added in f32.

With a GATE, the name of an activation, a matrix has 2 N columns, and the result is the activation
of the first N products times the other N ones.

If a stack has codes (quantized/codes.py), each of BITS bits, distances are those of bytes. `scales`
and `zeros` (None: 0) have a number for each GROUP of elements of a column, `values` (or None) those
of codes of 4 bits, and NUMBERS (or "") the instructions that make floats of 16 bits of four bytes
of codes. BITS is 0 for floats.
"""

import triton
import triton.language as tl


@triton.jit
def expert_row(x, stack, scales, zeros, values, experts, scale, out, TIMES: tl.constexpr,
               OFFSET: tl.constexpr, EPS: tl.constexpr, COUNT: tl.constexpr, K: tl.constexpr,
               N: tl.constexpr, EXPERT: tl.constexpr, COLUMN: tl.constexpr, ELEMENT: tl.constexpr,
               GATE: tl.constexpr, BITS: tl.constexpr, GROUP: tl.constexpr, NUMBERS: tl.constexpr,
               BLOCK_N: tl.constexpr, FIRST: tl.constexpr, REST: tl.constexpr):
  """Program 0 is a row of the result, which is row / TIMES of `x`, program 1 a tile of BLOCK_N
  columns. `experts` (i64 or i32) has the expert of each row of the result; the stack begins with
  the expert OFFSET, and rows of experts that it does not have are 0. With EPS of 0 or more, the
  rows are those of a root mean square norm of `x`, whose weight is `scale` (None: 1).

  K elements are FIRST ones and up to REST more, which are powers of two, or REST is 0.
  """
  row = tl.program_id(0).to(tl.int64)
  expert = tl.load(experts + row).to(tl.int64) - OFFSET
  is_here = (expert >= 0) & (expert < COUNT)
  expert = tl.where(is_here, expert, 0)
  column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
  n = tl.minimum(column, N - 1)
  x += (row // TIMES) * K
  SIDES: tl.constexpr = 1 if GATE == "" else 2
  PIECES: tl.constexpr = 1 if REST == 0 else 2
  # All weights of the block are on their way before the first one is multiplied.
  read = ()
  for piece in tl.static_range(PIECES):
    for side in tl.static_range(SIDES):
      weights, of_lines, less = _read(
          stack, scales, zeros, expert, side * N + n, is_here, FIRST * piece,
          REST if piece else FIRST, K, SIDES * N, EXPERT, COLUMN, ELEMENT, BITS, GROUP)
      read = read + (weights, of_lines, less)
  sums = (0.0, 0.0)
  square = 0.0
  for piece in tl.static_range(PIECES):
    even, odd, more = _elements(x, scale, None, FIRST * piece, REST if piece else FIRST, K, BITS)
    square += more
    for _ in tl.static_range(SIDES):
      found = _products(read[0], read[1], read[2], even, odd, zeros, values, BITS, NUMBERS, x)
      read = read[3:]
      # The other side becomes the first one.
      sums = (sums[1], sums[0] + tl.sum(found, 1))
    if SIDES == 1:
      sums = (sums[1], sums[0])
  if EPS >= 0:
    factor = tl.rsqrt(square / K + EPS)
    sums = (sums[0] * factor, sums[1] * factor)
  result = sums[0]
  if GATE != "":
    result = _activated(result, GATE) * sums[1]
  tl.store(out + row * N + column, result.to(out.dtype.element_ty), mask=column < N)


@triton.jit
def experts_of_row(x, stack, scales, zeros, values, experts, weights, residual, out,
                   TIMES: tl.constexpr, OFFSET: tl.constexpr, COUNT: tl.constexpr,
                   K: tl.constexpr, N: tl.constexpr, EXPERT: tl.constexpr, COLUMN: tl.constexpr,
                   ELEMENT: tl.constexpr, BITS: tl.constexpr, GROUP: tl.constexpr,
                   NUMBERS: tl.constexpr, BLOCK_N: tl.constexpr, FIRST: tl.constexpr,
                   REST: tl.constexpr):
  """The sums of TIMES rows each of what `expert_row` computes, times their `weights`, and a
  `residual` (or None) of the shape of the result. Program 0 is a row of the result."""
  token = tl.program_id(0).to(tl.int64)
  column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
  n = tl.minimum(column, N - 1)
  PIECES: tl.constexpr = 1 if REST == 0 else 2
  # Products are added by place, and those of all places at the end.
  result = 0.0
  for piece in tl.static_range(PIECES):
    total = 0.0
    for place in tl.static_range(TIMES):
      row = token * TIMES + place
      expert = tl.load(experts + row).to(tl.int64) - OFFSET
      is_here = (expert >= 0) & (expert < COUNT)
      expert = tl.where(is_here, expert, 0)
      weight = tl.load(weights + row, mask=is_here, other=0.0).to(tl.float32)
      read, of_lines, less = _read(
          stack, scales, zeros, expert, n, is_here, FIRST * piece, REST if piece else FIRST, K, N,
          EXPERT, COLUMN, ELEMENT, BITS, GROUP)
      even, odd, _ = _elements(x + row * K, None, weight, FIRST * piece, REST if piece else FIRST,
                               K, BITS)
      total += _products(read, of_lines, less, even, odd, zeros, values, BITS, NUMBERS, x)
    result += tl.sum(total, 1)
  if residual is not None:
    result += tl.load(residual + (token * N + column), mask=column < N).to(tl.float32)
  tl.store(out + (token * N + column), result.to(out.dtype.element_ty), mask=column < N)


@triton.jit
def expert_tiles(x, stack, scales, zeros, values, ends, out, rows, COUNT: tl.constexpr,
                 COUNT_WIDTH: tl.constexpr, K: tl.constexpr, N: tl.constexpr,
                 EXPERT: tl.constexpr, COLUMN: tl.constexpr, ELEMENT: tl.constexpr,
                 GATE: tl.constexpr, BITS: tl.constexpr, GROUP: tl.constexpr,
                 NUMBERS: tl.constexpr, PRECISION: tl.constexpr, BLOCK_M: tl.constexpr,
                 BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
  """The same for rows that are sorted by expert: `ends` (i32 or i64) has the end of the rows of
  each expert. Rows behind the last end are 0. Ends that do not rise give any rows.

  Program 0 is a tile of up to BLOCK_M rows of one expert, or of those behind the last end; there
  may be more programs than tiles. Program 1 is a tile of BLOCK_N columns. COUNT_WIDTH is a power of
  two above COUNT. Numbers of codes are rounded to the type of the rows, as in eager mode.
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
    n = tl.minimum(column, N - 1)
    k = tl.arange(0, BLOCK_K)
    matrix = tl.minimum(number, COUNT - 1).to(tl.int64)
    exists = row < last
    xs = x + (row.to(tl.int64)[:, None] * K + k[None, :])
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    other = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    steps = tl.where(number < COUNT, (K + BLOCK_K - 1) // BLOCK_K, 0)
    for step in range(steps):
      at = step * BLOCK_K
      if K % BLOCK_K == 0:
        part = tl.load(xs + at, mask=exists[:, None], other=0.0)
      else:
        part = tl.load(xs + at, mask=exists[:, None] & (k < K - at)[None, :], other=0.0)
      weight = _tile(x, stack, scales, zeros, values, matrix, n, at, K, N, EXPERT, COLUMN,
                     ELEMENT, GATE, BITS, GROUP, NUMBERS, BLOCK_N, BLOCK_K)
      total = tl.dot(part, weight, total, input_precision=PRECISION)
      if GATE != "":
        weight = _tile(x, stack, scales, zeros, values, matrix, N + n, at, K, N, EXPERT, COLUMN,
                       ELEMENT, GATE, BITS, GROUP, NUMBERS, BLOCK_N, BLOCK_K)
        other = tl.dot(part, weight, other, input_precision=PRECISION)
    if GATE != "":
      total = _activated(total, GATE) * other
    at = row.to(tl.int64)[:, None] * N + column[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty),
             mask=exists[:, None] & (column < N)[None, :])


@triton.jit
def chosen_of_row(x, weights, numbers, N: tl.constexpr, K: tl.constexpr, SOFTMAX: tl.constexpr,
                  SHARE: tl.constexpr, WIDTH: tl.constexpr, K_WIDTH: tl.constexpr):
  """The K largest of N elements of a row of `x`, which is program 0, and their places, of which the
  first one counts among equal elements. NaN is larger than all numbers. With SOFTMAX, the elements
  are those of the softmax of the row. SHARE says what becomes of the K elements: "sum" divides them
  by their sum, "softmax" is their softmax, "" leaves them.

  WIDTH and K_WIDTH are powers of two, at least N and K. There is one warp.
  """
  row = tl.program_id(0).to(tl.int64)
  n = tl.arange(0, WIDTH)
  value = tl.load(x + row * N + n, mask=n < N, other=float("-inf")).to(tl.float32)
  if SOFTMAX:
    value = _shares(value)
  # The order of floats is that of ints if those below 0 are turned round. A key has the place too,
  # so that the largest one tells both.
  bits = value.to(tl.int32, bitcast=True)
  bits = tl.where(value != value, 0x7FC00000, bits ^ ((bits >> 31) & 0x7FFFFFFF))
  key = (bits.to(tl.int64) << 32) | (WIDTH - 1 - n)
  key = tl.where(n < N, key, -0x8000000000000000)
  place = tl.arange(0, K_WIDTH)
  found = tl.full((K_WIDTH,), float("-inf"), tl.float32)
  at = tl.zeros((K_WIDTH,), tl.int64)
  for number in tl.static_range(K):
    best = tl.max(key, 0)
    key = tl.where(key == best, -0x8000000000000000, key)
    bits = (best >> 32).to(tl.int32)
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    found = tl.where(place == number, bits.to(tl.float32, bitcast=True), found)
    at = tl.where(place == number, WIDTH - 1 - (best & (WIDTH - 1)), at)
  if SHARE == "sum":
    found = found / tl.sum(tl.where(place < K, found, 0.0), 0)
  elif SHARE == "softmax":
    found = _shares(found)
  tl.store(weights + row * K + place, found.to(weights.dtype.element_ty), mask=place < K)
  tl.store(numbers + row * K + place, at, mask=place < K)


@triton.jit
def _shares(x):
  """The softmax of a row."""
  x = tl.exp(x - tl.max(x, 0))
  return x / tl.sum(x, 0)


@triton.jit
def _tile(x, stack, scales, zeros, values, expert, n, at, K: tl.constexpr, N: tl.constexpr,
          EXPERT: tl.constexpr, COLUMN: tl.constexpr, ELEMENT: tl.constexpr, GATE: tl.constexpr,
          BITS: tl.constexpr, GROUP: tl.constexpr, NUMBERS: tl.constexpr, BLOCK_N: tl.constexpr,
          BLOCK_K: tl.constexpr):
  """BLOCK_K x BLOCK_N elements of a matrix, from the element `at` of its columns."""
  if BITS == 0:
    k = at + tl.arange(0, BLOCK_K)
    addresses = stack + expert * EXPERT + (n.to(tl.int64) * COLUMN)[None, :] + k[:, None] * ELEMENT
    if K % BLOCK_K == 0:
      return tl.load(addresses)
    else:
      return tl.load(addresses, mask=(k < K)[:, None], other=0.0)
  else:
    # Columns are read by rows of bytes.
    BYTES: tl.constexpr = BLOCK_K * BITS // 8
    ALL: tl.constexpr = (K * BITS + 7) // 8
    k = at * BITS // 8 + tl.arange(0, BYTES)
    addresses = stack + expert * EXPERT + (n.to(tl.int64) * COLUMN)[:, None] + k[None, :]
    if ALL % BYTES == 0:
      codes = tl.load(addresses)
    else:
      codes = tl.load(addresses, mask=(k < ALL)[None, :], other=0.0)
    found, high = _numbers(codes, values, BITS, NUMBERS, x)
    if BITS == 4:
      found = tl.reshape(tl.join(found, high), (BLOCK_N, BLOCK_K))
    found = found.to(tl.float32)
    # The groups of the tile, or the part of one.
    GROUPS: tl.constexpr = K // GROUP
    HERE: tl.constexpr = max(BLOCK_K // GROUP, 1)
    SIDES: tl.constexpr = 2 if GATE != "" else 1
    g = at // GROUP + tl.arange(0, HERE)
    place = expert * (SIDES * N * GROUPS) + (n.to(tl.int64) * GROUPS)[:, None] + g[None, :]
    exists = (g < GROUPS)[None, :] & (n >= 0)[:, None]
    found = tl.reshape(found, (BLOCK_N, HERE, BLOCK_K // HERE))
    if zeros is not None:
      found -= tl.load(zeros + place, mask=exists, other=0.0).to(tl.float32)[:, :, None]
    found *= tl.load(scales + place, mask=exists, other=0.0).to(tl.float32)[:, :, None]
    return tl.trans(tl.reshape(found, (BLOCK_N, BLOCK_K)).to(x.dtype.element_ty))


@triton.jit
def _read(stack, scales, zeros, expert, n, is_here, FROM: tl.constexpr, SIZE: tl.constexpr,
          K: tl.constexpr, COLUMNS: tl.constexpr, EXPERT: tl.constexpr, COLUMN: tl.constexpr,
          ELEMENT: tl.constexpr, BITS: tl.constexpr, GROUP: tl.constexpr):
  """The elements FROM to FROM + SIZE of columns `n` of a matrix of COLUMNS columns, or their codes,
  as columns x lines x 16 bytes, and the scales and zeros of these lines, which are anything if
  there are none. What is behind a column is 0, and so is all unless `is_here`."""
  matrix = stack + expert * EXPERT
  n = n.to(tl.int64)
  if BITS == 0:
    k = FROM + tl.arange(0, SIZE)
    addresses = matrix + ((n * COLUMN)[:, None] + (k * ELEMENT)[None, :])
    if FROM + SIZE <= K:
      weights = tl.load(addresses, mask=is_here, other=0.0)
    else:
      weights = tl.load(addresses, mask=((k < K) & is_here)[None, :], other=0.0)
    return weights, n, n
  else:
    k = _bytes(FROM, SIZE, BITS)
    addresses = matrix + ((n * COLUMN)[:, None, None] + k[None, :, :])
    if FROM + SIZE <= K:
      codes = tl.load(addresses, mask=is_here, other=0.0)
    else:
      codes = tl.load(addresses, mask=((k < K * BITS // 8) & is_here)[None, :, :], other=0.0)
    OF_A_LINE: tl.constexpr = 128 // BITS
    LINES: tl.constexpr = SIZE // OF_A_LINE
    GROUPS: tl.constexpr = K // GROUP
    line = FROM // OF_A_LINE + tl.arange(0, LINES)
    if GROUPS == 1:
      g = line * 0
    else:
      g = line // (GROUP // OF_A_LINE)
    at = expert * (COLUMNS * GROUPS) + ((n * GROUPS)[:, None] + g[None, :])
    exists = ((line < K // OF_A_LINE) & is_here)[None, :] & (n >= 0)[:, None]
    of_lines = tl.load(scales + at, mask=exists, other=0.0)
    if zeros is None:
      return codes, of_lines, n
    else:
      return codes, of_lines, tl.load(zeros + at, mask=exists, other=0.0)


@triton.jit
def _bytes(FROM: tl.constexpr, SIZE: tl.constexpr, BITS: tl.constexpr):
  """The places of the bytes of elements in a column of codes: lines x 16."""
  LINES: tl.constexpr = SIZE * BITS // 128
  line = FROM * BITS // 128 + tl.arange(0, LINES)
  return line[:, None] * 16 + tl.arange(0, 16)[None, :]


@triton.jit
def _elements(x, scale, weight, FROM: tl.constexpr, SIZE: tl.constexpr, K: tl.constexpr,
              BITS: tl.constexpr):
  """Elements of a row, times those of a norm's weight (None: 1) and a number (None: 1), and the sum
  of their squares before. Those for codes of 4 bits are the even ones and the odd ones, others are
  the first result alone."""
  if BITS == 0:
    k = FROM + tl.arange(0, SIZE)
    even = tl.load(x + k, mask=k < K, other=0.0).to(tl.float32)
    odd = even
    square = tl.sum(even * even, 0)
  elif BITS == 8:
    k = _bytes(FROM, SIZE, BITS)
    even = tl.load(x + k, mask=k < K, other=0.0).to(tl.float32)
    odd = even
    square = tl.sum(tl.sum(even * even, 1), 0)
  else:
    k = _bytes(FROM, SIZE, BITS)
    even, odd = _pairs(x, k, K)
    square = tl.sum(tl.sum(even * even + odd * odd, 1), 0)
  if scale is not None:
    if BITS == 4:
      of_even, of_odd = _pairs(scale, k, K)
      even *= of_even
      odd *= of_odd
    else:
      even *= tl.load(scale + k, mask=k < K, other=0.0).to(tl.float32)
  if weight is not None:
    even *= weight
    odd *= weight
  return even, odd, square


@triton.jit
def _pairs(x, k, K: tl.constexpr):
  """The elements 2 k and 2 k + 1 of a row."""
  if x.dtype.element_ty == tl.float32:
    even = tl.load(x + 2 * k, mask=2 * k < K, other=0.0)
    odd = tl.load(x + 2 * k + 1, mask=2 * k < K, other=0.0)
    return even, odd
  else:
    both = tl.load(x.to(tl.pointer_type(tl.int32)) + k, mask=2 * k < K, other=0)
    even = (both & 65535).to(tl.int16).to(x.dtype.element_ty, bitcast=True)
    odd = (both >> 16).to(tl.int16).to(x.dtype.element_ty, bitcast=True)
    return even.to(tl.float32), odd.to(tl.float32)


@triton.jit
def _products(weights, scale, zero, even, odd, zeros, values, BITS: tl.constexpr,
              NUMBERS: tl.constexpr, x):
  """Products of columns with the elements of a row of `x`: columns x elements, or columns x
  lines."""
  if BITS == 0:
    return weights.to(tl.float32) * even[None, :]
  else:
    if BITS == 8:
      number, _ = _numbers(weights, values, BITS, NUMBERS, x)
      sums = tl.sum(number.to(tl.float32) * even[None, :, :], 2)
      total = even
    else:
      low, high = _numbers(weights, values, BITS, NUMBERS, x)
      products = low.to(tl.float32) * even[None, :, :] + high.to(tl.float32) * odd[None, :, :]
      sums = tl.sum(products, 2)
      total = even + odd
    if zeros is not None:
      sums -= zero.to(tl.float32) * tl.sum(total, 1)[None, :]
    return sums * scale.to(tl.float32)


@triton.jit
def _numbers(codes, values, BITS: tl.constexpr, NUMBERS: tl.constexpr, x):
  """The numbers of codes, of the type of `x` if there are instructions: those of the low halves of
  bytes and those of the high ones, or twice those of bytes."""
  if BITS == 8:
    if NUMBERS == "":
      low = codes.to(tl.float32)
    else:
      low = tl.inline_asm_elementwise(NUMBERS, "=r,=r,r", [codes], dtype=x.dtype.element_ty,
                                      is_pure=True, pack=4)
    high = low
  elif values is not None:
    low = tl.load(values + (codes & 15).to(tl.int32)).to(tl.float32)
    high = tl.load(values + (codes >> 4).to(tl.int32)).to(tl.float32)
  elif NUMBERS == "":
    low = (codes & 15).to(tl.float32) - 8.0
    high = (codes >> 4).to(tl.float32) - 8.0
  else:
    low, high = tl.inline_asm_elementwise(NUMBERS, "=r,=r,=r,=r,r", [codes],
                                          dtype=(x.dtype.element_ty, x.dtype.element_ty),
                                          is_pure=True, pack=4)
  return low, high


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
