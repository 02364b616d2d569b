"""Products of rows with the matrices of their experts: Triton kernels, which experts/node.py
compiles with the constants of one call; nothing imports this file while a model is exported.

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
  # All weights of the block are on their way before the first one is multiplied.
  a = _read(stack, expert, n, is_here, 0, FIRST, K, EXPERT, COLUMN, ELEMENT, BITS)
  a_scales = _read_groups(scales, expert, n, is_here, 0, FIRST, K, N, GATE, GROUP)
  a_zeros = _read_groups(zeros, expert, n, is_here, 0, FIRST, K, N, GATE, GROUP)
  if GATE != "":
    b = _read(stack, expert, N + n, is_here, 0, FIRST, K, EXPERT, COLUMN, ELEMENT, BITS)
    b_scales = _read_groups(scales, expert, N + n, is_here, 0, FIRST, K, N, GATE, GROUP)
    b_zeros = _read_groups(zeros, expert, N + n, is_here, 0, FIRST, K, N, GATE, GROUP)
  if REST > 0:
    more_a = _read(stack, expert, n, is_here, FIRST, REST, K, EXPERT, COLUMN, ELEMENT, BITS)
    more_a_scales = _read_groups(scales, expert, n, is_here, FIRST, REST, K, N, GATE, GROUP)
    more_a_zeros = _read_groups(zeros, expert, n, is_here, FIRST, REST, K, N, GATE, GROUP)
    if GATE != "":
      more_b = _read(stack, expert, N + n, is_here, FIRST, REST, K, EXPERT, COLUMN, ELEMENT, BITS)
      more_b_scales = _read_groups(scales, expert, N + n, is_here, FIRST, REST, K, N, GATE, GROUP)
      more_b_zeros = _read_groups(zeros, expert, N + n, is_here, FIRST, REST, K, N, GATE, GROUP)
  elements, square = _elements(x, scale, 0, FIRST, K)
  result = _sum(_products(a, a_scales, a_zeros, elements, zeros, values, FIRST, K, GROUP, BITS,
                          NUMBERS, x))
  if GATE != "":
    other = _sum(_products(b, b_scales, b_zeros, elements, zeros, values, FIRST, K, GROUP, BITS,
                           NUMBERS, x))
  if REST > 0:
    elements, more = _elements(x, scale, FIRST, REST, K)
    square += more
    result += _sum(_products(more_a, more_a_scales, more_a_zeros, elements, zeros, values, REST, K,
                             GROUP, BITS, NUMBERS, x))
    if GATE != "":
      other += _sum(_products(more_b, more_b_scales, more_b_zeros, elements, zeros, values, REST, K,
                              GROUP, BITS, NUMBERS, x))
  if EPS >= 0:
    factor = tl.rsqrt(square / K + EPS)
    result *= factor
    if GATE != "":
      other *= factor
  if GATE != "":
    result = _activated(result, GATE) * other
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
  # Products are added by place, and those of all places at the end.
  for place in tl.static_range(TIMES):
    row = token * TIMES + place
    expert = tl.load(experts + row).to(tl.int64) - OFFSET
    is_here = (expert >= 0) & (expert < COUNT)
    expert = tl.where(is_here, expert, 0)
    weight = tl.load(weights + row, mask=is_here, other=0.0).to(tl.float32)
    a = _read(stack, expert, n, is_here, 0, FIRST, K, EXPERT, COLUMN, ELEMENT, BITS)
    a_scales = _read_groups(scales, expert, n, is_here, 0, FIRST, K, N, "", GROUP)
    a_zeros = _read_groups(zeros, expert, n, is_here, 0, FIRST, K, N, "", GROUP)
    elements, _ = _elements(x + row * K, None, 0, FIRST, K)
    part = _products(a, a_scales, a_zeros, elements * weight, zeros, values, FIRST, K, GROUP, BITS,
                     NUMBERS, x)
    if place == 0:
      total = part
    else:
      total += part
    if REST > 0:
      a = _read(stack, expert, n, is_here, FIRST, REST, K, EXPERT, COLUMN, ELEMENT, BITS)
      a_scales = _read_groups(scales, expert, n, is_here, FIRST, REST, K, N, "", GROUP)
      a_zeros = _read_groups(zeros, expert, n, is_here, FIRST, REST, K, N, "", GROUP)
      elements, _ = _elements(x + row * K, None, FIRST, REST, K)
      part = _products(a, a_scales, a_zeros, elements * weight, zeros, values, REST, K, GROUP, BITS,
                       NUMBERS, x)
      if place == 0:
        more_total = part
      else:
        more_total += part
  result = _sum(total)
  if REST > 0:
    result += _sum(more_total)
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
    found = _numbers(codes, values, BITS, NUMBERS, x).to(tl.float32)
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
def _read(stack, expert, n, is_here, FROM: tl.constexpr, SIZE: tl.constexpr, K: tl.constexpr,
          EXPERT: tl.constexpr, COLUMN: tl.constexpr, ELEMENT: tl.constexpr, BITS: tl.constexpr):
  """The elements FROM to FROM + SIZE of columns `n`, or the bytes of their codes. Those behind a
  column are 0, and so are all unless `is_here`."""
  BYTES: tl.constexpr = SIZE if BITS == 0 else SIZE * BITS // 8
  BEGIN: tl.constexpr = FROM if BITS == 0 else FROM * BITS // 8
  ALL: tl.constexpr = K if BITS == 0 else (K * BITS + 7) // 8
  k = BEGIN + tl.arange(0, BYTES)
  addresses = stack + expert * EXPERT + (
      (n.to(tl.int64) * COLUMN)[:, None] + (k * ELEMENT)[None, :])
  if BEGIN + BYTES <= ALL:
    return tl.load(addresses, mask=is_here, other=0.0)
  else:
    return tl.load(addresses, mask=((k < ALL) & is_here)[None, :], other=0.0)


@triton.jit
def _read_groups(table, expert, n, is_here, FROM: tl.constexpr, SIZE: tl.constexpr,
                 K: tl.constexpr, N: tl.constexpr, GATE: tl.constexpr, GROUP: tl.constexpr):
  """The scales or zeros of the groups of these elements, of columns x groups, or those of whole
  columns. Anything if there is no table."""
  if table is None:
    return n
  else:
    GROUPS: tl.constexpr = K // GROUP
    SIDES: tl.constexpr = 2 if GATE != "" else 1
    if GROUPS == 1:
      g = tl.arange(0, 1)
    else:
      g = FROM // GROUP + tl.arange(0, SIZE // GROUP)
    at = expert * (SIDES * N * GROUPS) + ((n.to(tl.int64) * GROUPS)[:, None] + g[None, :])
    exists = ((g < GROUPS) & is_here)[None, :] & (n >= 0)[:, None]
    return tl.load(table + at, mask=exists, other=0.0)


@triton.jit
def _elements(x, scale, FROM: tl.constexpr, SIZE: tl.constexpr, K: tl.constexpr):
  """Elements of a row, times a norm's weight (None: 1), and the sum of their squares."""
  k = FROM + tl.arange(0, SIZE)
  if FROM + SIZE <= K:
    elements = tl.load(x + k).to(tl.float32)
  else:
    elements = tl.load(x + k, mask=k < K, other=0.0).to(tl.float32)
  square = tl.sum(elements * elements, 0)
  if scale is not None:
    elements *= tl.load(scale + k, mask=k < K, other=0.0).to(tl.float32)
  return elements, square


@triton.jit
def _products(weights, scale, zero, elements, zeros, values, SIZE: tl.constexpr, K: tl.constexpr,
              GROUP: tl.constexpr, BITS: tl.constexpr, NUMBERS: tl.constexpr, x):
  """Products of columns with the elements of a row of `x`: columns x elements, or columns x
  groups."""
  if BITS == 0:
    return weights.to(tl.float32) * elements[None, :]
  else:
    COLUMNS: tl.constexpr = weights.shape[0]
    HERE: tl.constexpr = 1 if GROUP >= K else SIZE // GROUP
    found = _numbers(weights, values, BITS, NUMBERS, x)
    products = tl.reshape(found.to(tl.float32) * elements[None, :],
                          (COLUMNS, HERE, SIZE // HERE))
    if HERE == 1:
      if zeros is not None:
        products -= zero.to(tl.float32)[:, :, None] * elements[None, None, :]
      return tl.reshape(products * scale.to(tl.float32)[:, :, None], (COLUMNS, SIZE))
    else:
      sums = tl.sum(products, 2)
      if zeros is not None:
        of_groups = tl.sum(tl.reshape(elements, (HERE, SIZE // HERE)), 1)
        sums -= zero.to(tl.float32) * of_groups[None, :]
      return sums * scale.to(tl.float32)


@triton.jit
def _sum(products):
  return tl.sum(products, 1)


@triton.jit
def _numbers(codes, values, BITS: tl.constexpr, NUMBERS: tl.constexpr, x):
  """The numbers of codes, columns x elements, of the type of `x` if there are instructions."""
  COLUMNS: tl.constexpr = codes.shape[0]
  BYTES: tl.constexpr = codes.shape[1]
  if BITS == 8:
    if NUMBERS == "":
      return codes.to(tl.float32)
    else:
      return tl.inline_asm_elementwise(NUMBERS, "=r,=r,r", [codes], dtype=x.dtype.element_ty,
                                       is_pure=True, pack=4)
  else:
    if values is not None:
      low = tl.load(values + (codes & 15).to(tl.int32)).to(tl.float32)
      high = tl.load(values + (codes >> 4).to(tl.int32)).to(tl.float32)
    elif NUMBERS == "":
      low = (codes & 15).to(tl.float32) - 8.0
      high = (codes >> 4).to(tl.float32) - 8.0
    else:
      low, high = tl.inline_asm_elementwise(NUMBERS, "=r,=r,=r,=r,r", [codes],
                                            dtype=(x.dtype.element_ty, x.dtype.element_ty),
                                            is_pure=True, pack=4)
    return tl.reshape(tl.join(low, high), (COLUMNS, 2 * BYTES))


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
