"""Linear layers of few rows whose weights are codes of 4 or 8 bits: a kernel in Gluon.

rows/node.py compiles the text; nothing imports this file while a model is exported. The statement
that cuda/pdl.py adds uses `tl`. rows/unpacking.py has the instructions of PTX.

A line is 16 bytes of codes of one row of a weight, which a thread reads at once. In an instruction
of tensor cores, the four threads of a quad have elements of four lines of the same row, and the
products of these lines are added. If each line has a scale of its own, each line has columns of its
own in the rows instead: a row of `x` is four columns of the second factor, the first of which has
the elements of the first line and zeros for the other lines, and so on. So the product has a sum
for each line.

The order of elements within four bytes of codes is 0, 2, 1, 3, for the codes and for the rows.
"""

import triton.language as tl  # noqa: F401
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2


@gluon.constexpr_function
def _lines_of_weights(TILE, WARPS):
  """The layout of WARPS x TILE x 64 bytes: a thread has a line of each eighth row."""
  rows, count = [], 8
  while count < TILE:
    rows.append([0, count, 0])
    count *= 2
  return gl.DistributedLinearLayout(
      reg_bases=[[0, 0, 1], [0, 0, 2], [0, 0, 4], [0, 0, 8], *rows],
      lane_bases=[[0, 0, 16], [0, 0, 32], [0, 1, 0], [0, 2, 0], [0, 4, 0]],
      warp_bases=_warps(WARPS), block_bases=[], shape=[WARPS, TILE, 64])


@gluon.constexpr_function
def _lines_of_rows(WARPS):
  """The layout of WARPS x 8 x 64 numbers for the bytes of lines: a thread has those of a line."""
  return gl.DistributedLinearLayout(
      reg_bases=[[0, 0, 1], [0, 0, 2], [0, 0, 4], [0, 0, 8]],
      lane_bases=[[0, 0, 16], [0, 0, 32], [0, 1, 0], [0, 2, 0], [0, 4, 0]],
      warp_bases=_warps(WARPS), block_bases=[], shape=[WARPS, 8, 64])


@gluon.constexpr_function
def _warps(WARPS):
  bases, count = [], 1
  while count < WARPS:
    bases.append([count, 0, 0])
    count *= 2
  return bases


@gluon.jit
def few_rows_codes(x, scale, w0, w1, w2, w3, s0, s1, s2, s3, z0, z1, z2, z3, b0, b1, b2, b3,
                   residual, out, EPS: gl.constexpr, K: gl.constexpr, N0: gl.constexpr,
                   N1: gl.constexpr, N2: gl.constexpr, N3: gl.constexpr, ROWS: gl.constexpr,
                   GATE: gl.constexpr, BITS: gl.constexpr, GROUP: gl.constexpr,
                   NUMBERS: gl.constexpr, ORDER: gl.constexpr, SCALED: gl.constexpr,
                   TILE: gl.constexpr, WARPS: gl.constexpr, DEPTH: gl.constexpr):
  """Program 0 is a tile of TILE rows of the weights, as in kernel.py, whose parameters of the same
  names mean the same.

  A weight has K * BITS / 8 bytes in a row, a multiple of 16. `s0` to `s3` are the scales of groups
  of GROUP elements, `z0` to `z3` are None or what is subtracted from codes; a group is a row, or
  whole lines. With codes of 4 bits, `x` and `scale` are pairs of elements, as ints.

  NUMBERS are the instructions that make numbers of four bytes of codes, ORDER those that put
  elements of the rows in the same order, and SCALED does that with the product of two.

  A warp computes 64 bytes of each WARPS * 64 of a row, which are a step. DEPTH steps are on their
  way at a time.
  """
  product: gl.constexpr = gl.NVMMADistributedLayout(
      version=[2, 0], warps_per_cta=[WARPS, 1, 1], instr_shape=[1, 16, 8])
  left: gl.constexpr = gl.DotOperandLayout(0, product, 16)
  right: gl.constexpr = gl.DotOperandLayout(1, product, 16)
  lines: gl.constexpr = _lines_of_weights(TILE, WARPS)
  lines_of_rows: gl.constexpr = _lines_of_rows(WARPS)
  here: gl.constexpr = gl.SliceLayout(0, product)
  BYTES: gl.constexpr = K * BITS // 8
  STEP: gl.constexpr = WARPS * 64
  STEPS: gl.constexpr = (BYTES + STEP - 1) // STEP
  HALF: gl.constexpr = TILE // 2
  GROUPS: gl.constexpr = K // GROUP
  # Whether each line has a sum of its own; the rows that eight columns are; and how often those
  # make up all rows.
  BY_LINE: gl.constexpr = GROUPS > 1 or z0 is not None
  COLUMNS: gl.constexpr = 2 if BY_LINE else 8
  PARTS: gl.constexpr = (ROWS + COLUMNS - 1) // COLUMNS

  # The weight of this tile, and its place among the weights: its number, the tiles and the columns
  # before it, and its columns.
  T1: gl.constexpr = (N0 + TILE - 1) // TILE
  T2: gl.constexpr = T1 + (N1 + TILE - 1) // TILE
  T3: gl.constexpr = T2 + (N2 + TILE - 1) // TILE
  pid = gl.program_id(0)
  number = pid * 0
  tiles = pid * 0
  before = pid * 0
  columns = before + N0
  w = w0
  s = s0
  z = z0
  if GATE == "":
    w = _chosen(pid, w0, w1, w2, w3, T1, T2, T3)
    s = _chosen(pid, s0, s1, s2, s3, T1, T2, T3)
    if z0 is not None:
      z = _chosen(pid, z0, z1, z2, z3, T1, T2, T3)
    if w1 is not None:
      number = gl.where(pid >= T1, 1, number)
      tiles = gl.where(pid >= T1, T1, tiles)
      before = gl.where(pid >= T1, N0, before)
      columns = gl.where(pid >= T1, N1, columns)
    if w2 is not None:
      number = gl.where(pid >= T2, 2, number)
      tiles = gl.where(pid >= T2, T2, tiles)
      before = gl.where(pid >= T2, N0 + N1, before)
      columns = gl.where(pid >= T2, N2, columns)
    if w3 is not None:
      number = gl.where(pid >= T3, 3, number)
      tiles = gl.where(pid >= T3, T3, tiles)
      before = gl.where(pid >= T3, N0 + N1 + N2, before)
      columns = gl.where(pid >= T3, N3, columns)
  first_column = pid * HALF if GATE != "" else (pid - tiles) * TILE

  # The codes of the first steps.
  part = gl.arange(0, WARPS, layout=gl.SliceLayout(1, gl.SliceLayout(2, lines)))[:, None, None]
  row = gl.arange(0, TILE, layout=gl.SliceLayout(0, gl.SliceLayout(2, lines)))[None, :, None]
  inside = gl.arange(0, 64, layout=gl.SliceLayout(0, gl.SliceLayout(1, lines)))[None, None, :]
  k = part * 64 + inside
  weights = _addresses(w, w1, row, k, first_column, columns, BYTES, GATE, HALF)
  codes = ()
  for step in gl.static_range(0, min(DEPTH, STEPS)):
    codes = codes + (_read(weights + step * STEP, k, step, BYTES, STEP),)

  # The scales of the first steps, or those of whole rows.
  part = gl.arange(0, WARPS, layout=gl.SliceLayout(1, gl.SliceLayout(2, product)))[:, None, None]
  row = gl.arange(0, TILE, layout=gl.SliceLayout(0, gl.SliceLayout(2, product)))[None, :, None]
  column = gl.arange(0, 8, layout=gl.SliceLayout(0, gl.SliceLayout(1, product)))[None, None, :]
  line = part * 4 + column % 4
  factors = ()
  zeros = ()
  if BY_LINE:
    scales = _addresses(s, s1, row, line * 0, first_column, columns, GROUPS, GATE, HALF)
    offsets = scales
    if z0 is not None:
      offsets = _addresses(z, z1, row, line * 0, first_column, columns, GROUPS, GATE, HALF)
    for step in gl.static_range(0, min(DEPTH, STEPS)):
      factors = factors + (_read_group(scales, line, step, BITS, BYTES, WARPS, GROUP),)
      if z0 is not None:
        zeros = zeros + (_read_group(offsets, line, step, BITS, BYTES, WARPS, GROUP),)
  row = gl.arange(0, TILE, layout=gl.SliceLayout(1, here))
  of_rows = row
  if not BY_LINE:
    of_rows = gl.load(_addresses(s, s1, row, row * 0, first_column, columns, 1, GATE, HALF))

  # The weight of the norm of one row.
  of_norm = ()
  if ROWS == 1:
    if scale is not None:
      of_norm = _read_row(scale, BYTES, WARPS, STEPS)

  # The wait for the preceding kernel stands here.
  part = gl.arange(0, WARPS, layout=gl.SliceLayout(1, gl.SliceLayout(2, lines_of_rows)))
  part = part[:, None, None]
  m = gl.arange(0, 8, layout=gl.SliceLayout(0, gl.SliceLayout(2, lines_of_rows)))[None, :, None]
  inside = gl.arange(0, 64, layout=gl.SliceLayout(0, gl.SliceLayout(1, lines_of_rows)))
  inside = inside[None, None, :]
  j = part * 64 + inside
  ones = gl.full((WARPS, TILE, 64), 1.0, out.dtype.element_ty, left)
  none = gl.full((WARPS, TILE, 8), 0.0, gl.float32, product)
  sums = ()
  squares = ()
  shared = ()
  if ROWS == 1:
    sums = (none,)
    shared, total = _share_row(_read_row(x, BYTES, WARPS, STEPS), of_norm, EPS, WARPS, STEPS,
                               ORDER, SCALED, BITS, out)
    squares = (total,)
  else:
    for p in gl.static_range(0, PARTS):
      sums = sums + (none,)
      if EPS >= 0:
        squares = squares + (
            _squares(x, COLUMNS * p, ROWS, BYTES, COLUMNS, WARPS, ORDER, BITS, out),)
  exists = gl.where((inside // 16 == m + part * 0) if BY_LINE else (m + j * 0 < 1), -1, 0).to(gl.int16)
  BATCH: gl.constexpr = max(1, 4 // PARTS)
  for first in gl.static_range(0, STEPS, BATCH):
    rows = ()
    for step in gl.static_range(first, min(first + BATCH, STEPS)):
      for p in gl.static_range(0, PARTS if ROWS > 1 else 0):
        if BY_LINE:
          # The columns of a row that is not there, and those of other lines, are zeros.
          at = 2 * p + m // 4
          is_here = (inside // 16 == m % 4 + part * 0) & (at < ROWS)
          loaded = gl.load(x + (at * BYTES + j + step * STEP),
                           mask=is_here & (j < BYTES - step * STEP), other=0)
        else:
          at = gl.minimum(8 * p + m, ROWS - 1)
          loaded = _read(x + (at * BYTES + j + step * STEP), j, step, BYTES, STEP)
        rows = rows + (loaded,)
    for step in gl.static_range(first, min(first + BATCH, STEPS)):
      numbers = _numbers(codes[0], NUMBERS, BITS, left, out)
      codes = codes[1:]
      if step + DEPTH < STEPS:
        codes = codes + (_read(weights + (step + DEPTH) * STEP, k, step + DEPTH, BYTES, STEP),)
      later = ()
      for p in gl.static_range(0, PARTS):
        if ROWS == 1:
          elements = _read_shared(shared, step, exists, BITS, lines_of_rows, right, out)
        else:
          elements = _elements(rows[0], scale, m * 0 + j, step, BYTES, STEP, ORDER, SCALED, BITS,
                               right, out)
          rows = rows[1:]
        if BY_LINE:
          found = _products(numbers, elements, none)
          if z0 is not None:
            found -= zeros[0].to(gl.float32) * _products((ones, ones), elements, none)
          later = later + (sums[p] + found * factors[0].to(gl.float32),)
        else:
          later = later + (_products(numbers, elements, sums[p]),)
      sums = later
      if BY_LINE:
        factors = factors[1:]
        if step + DEPTH < STEPS:
          factors = factors + (
              _read_group(scales, line, step + DEPTH, BITS, BYTES, WARPS, GROUP),)
        if z0 is not None:
          zeros = zeros[1:]
          if step + DEPTH < STEPS:
            zeros = zeros + (_read_group(offsets, line, step + DEPTH, BITS, BYTES, WARPS, GROUP),)

  for p in gl.static_range(0, PARTS):
    # The sums of all warps and lines, TILE x COLUMNS.
    result = gl.sum(sums[p], 0)
    if BY_LINE:
      result = gl.sum(gl.reshape(result, (TILE, 2, 4)), 2)
      result = gl.convert_layout(result, here)
    else:
      result *= of_rows.to(gl.float32)[:, None]
    if EPS >= 0:
      if ROWS == 1:
        total = gl.sum(gl.sum(gl.sum(squares[p], 2), 1), 0)
        result *= gl.rsqrt(total / K + EPS)
      else:
        factor = gl.rsqrt(gl.sum(squares[p], 1) / K + EPS)
        result *= gl.convert_layout(factor, gl.SliceLayout(0, here))[None, :]
    if GATE == "":
      column = first_column + row
      if b0 is not None:
        result += _bias(b0, column, N0, number == 0)[:, None]
      if b1 is not None:
        result += _bias(b1, column, N1, number == 1)[:, None]
      if b2 is not None:
        result += _bias(b2, column, N2, number == 2)[:, None]
      if b3 is not None:
        result += _bias(b3, column, N3, number == 3)[:, None]
      _store(result, residual, out + before * ROWS, first_column, columns, COLUMNS * p, ROWS,
             COLUMNS, TILE, WARPS)
    else:
      if b0 is not None:
        result += _bias(b0, first_column + row % HALF, N0, row < HALF)[:, None]
      if b1 is not None:
        result += _bias(b1, first_column + row % HALF, N0, row >= HALF)[:, None]
      # A thread has the sums of both weights.
      pairs = gl.permute(gl.reshape(result, (2, HALF, COLUMNS)), (1, 2, 0))
      gate, up = gl.split(pairs)
      _store(_activated(gate, GATE) * up, residual, out, first_column, columns, COLUMNS * p, ROWS,
             COLUMNS, HALF, WARPS)


@gluon.jit
def _chosen(pid, one, two, three, four, T1: gl.constexpr, T2: gl.constexpr, T3: gl.constexpr):
  """What the weight of a tile has, of what four weights have."""
  if two is not None:
    one = gl.where(pid >= T1, two, one)
  if three is not None:
    one = gl.where(pid >= T2, three, one)
  if four is not None:
    one = gl.where(pid >= T3, four, one)
  return one


@gluon.jit
def _addresses(one, other, row, far, first, columns, SIZE: gl.constexpr, GATE: gl.constexpr,
               HALF: gl.constexpr):
  """The addresses of numbers `far` into rows of SIZE numbers: rows of `one`, or, with a gate, the
  same rows of `one` and of `other`."""
  if GATE == "":
    n = gl.minimum(first + row, columns - 1).to(gl.int64)
    return one + (n * SIZE + far)
  else:
    n = gl.minimum(first + row % HALF, columns - 1).to(gl.int64)
    return gl.where(row + far * 0 < HALF, one + (n * SIZE + far), other + (n * SIZE + far))


@gluon.jit
def _read(addresses, k, step: gl.constexpr, BYTES: gl.constexpr, STEP: gl.constexpr):
  """The numbers of a step, whose places in the first step are `k`. Those behind a row are 0."""
  if (step + 1) * STEP <= BYTES:
    return gl.load(addresses)
  else:
    return gl.load(addresses, mask=k < BYTES - step * STEP, other=0)


@gluon.jit
def _read_group(addresses, line, step: gl.constexpr, BITS: gl.constexpr, BYTES: gl.constexpr,
                WARPS: gl.constexpr, GROUP: gl.constexpr):
  """What the groups of lines have. `line` are the numbers of the lines of the first step."""
  OF_A_GROUP: gl.constexpr = GROUP * BITS // 128
  at = addresses + (step * WARPS * 4 + line) // OF_A_GROUP
  if (step + 1) * WARPS * 64 <= BYTES:
    return gl.load(at)
  else:
    return gl.load(at, mask=line < BYTES // 16 - step * WARPS * 4, other=0)


@gluon.jit
def _numbers(codes, NUMBERS: gl.constexpr, BITS: gl.constexpr, left: gl.constexpr,
             out):
  """The numbers of codes: those of the low halves of bytes and of the high ones, or of bytes."""
  if BITS == 4:
    low, high = gl.inline_asm_elementwise(NUMBERS, "=r,=r,=r,=r,r", [codes], dtype=(out.dtype.element_ty, out.dtype.element_ty),
                                          is_pure=True, pack=4)
    return gl.convert_layout(low, left), gl.convert_layout(high, left)
  else:
    number = gl.inline_asm_elementwise(NUMBERS, "=r,=r,r", [codes], dtype=out.dtype.element_ty, is_pure=True,
                                       pack=4)
    return (gl.convert_layout(number, left),)


@gluon.jit
def _elements(rows, scale, j, step: gl.constexpr, BYTES: gl.constexpr, STEP: gl.constexpr,
              ORDER: gl.constexpr, SCALED: gl.constexpr, BITS: gl.constexpr, right: gl.constexpr,
              out):
  """The elements of the rows, times those of the weight of the norm."""
  if scale is None:
    elements = _ordered(rows, ORDER, BITS, out)
  else:
    factors = _read(scale + (j + step * STEP), j, step, BYTES, STEP)
    elements = _scaled(rows, factors, SCALED, BITS, out)
  if BITS == 4:
    return (gl.convert_layout(gl.permute(elements[0], (0, 2, 1)), right),
            gl.convert_layout(gl.permute(elements[1], (0, 2, 1)), right))
  else:
    return (gl.convert_layout(gl.permute(elements[0], (0, 2, 1)), right),)


@gluon.jit
def _ordered(rows, ORDER: gl.constexpr, BITS: gl.constexpr, out):
  """The elements of rows in the order of codes."""
  if BITS == 4:
    return gl.inline_asm_elementwise(ORDER, "=r,=r,=r,=r,r,r,r,r", [rows], dtype=(out.dtype.element_ty, out.dtype.element_ty),
                                     is_pure=True, pack=4)
  else:
    return (gl.inline_asm_elementwise(ORDER, "=r,=r,r,r", [rows], dtype=out.dtype.element_ty, is_pure=True,
                                      pack=4),)


@gluon.jit
def _read_row(row, BYTES: gl.constexpr, WARPS: gl.constexpr, STEPS: gl.constexpr):
  """The numbers of a row, in parts of four steps. A warp reads those of its own lines."""
  layout: gl.constexpr = gl.BlockedLayout([1, 1, 8], [1, 4, 8], [WARPS, 1, 1], [2, 1, 0])
  part = gl.arange(0, WARPS, layout=gl.SliceLayout(1, gl.SliceLayout(2, layout)))[:, None, None]
  step = gl.arange(0, 4, layout=gl.SliceLayout(0, gl.SliceLayout(2, layout)))[None, :, None]
  inside = gl.arange(0, 64, layout=gl.SliceLayout(0, gl.SliceLayout(1, layout)))[None, None, :]
  j = (step * WARPS + part) * 64 + inside
  found = ()
  for first in gl.static_range(0, STEPS, 4):
    found = found + (
        _read(row + (j + first * WARPS * 64), j, first // 4, BYTES, 4 * WARPS * 64),)
  return found


@gluon.jit
def _share_row(row, of_norm, EPS: gl.constexpr, WARPS: gl.constexpr, STEPS: gl.constexpr,
               ORDER: gl.constexpr, SCALED: gl.constexpr, BITS: gl.constexpr, out):
  """Puts the elements of a row in the order of codes, times those of the weight of the norm, into
  shared memory. Returns that and the squares of all elements."""
  plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [2, 1, 0])
  COUNT: gl.constexpr = (STEPS + 3) // 4
  shared = (gl.allocate_shared_memory(out.dtype.element_ty, [WARPS, 4 * COUNT, 64], plain),)
  if BITS == 4:
    shared = shared + (
        gl.allocate_shared_memory(out.dtype.element_ty, [WARPS, 4 * COUNT, 64], plain),)
  total = row[0].to(gl.float32) * 0.0
  for part in gl.static_range(0, COUNT):
    elements = _ordered(row[part], ORDER, BITS, out)
    if EPS >= 0:
      for half in gl.static_range(0, len(shared)):
        values = elements[half].to(gl.float32)
        total += values * values
    if len(of_norm) > 0:
      elements = _scaled(row[part], of_norm[part], SCALED, BITS, out)
    for half in gl.static_range(0, len(shared)):
      shared[half].slice(4 * part, 4, 1).store(elements[half])
  return shared, total


@gluon.jit
def _read_shared(shared, step: gl.constexpr, exists, BITS: gl.constexpr, lines: gl.constexpr,
                 right: gl.constexpr, out):
  """The elements of the only row in a step, where `exists` has ones."""
  found = ()
  for half in gl.static_range(0, len(shared)):
    values = shared[half].slice(step, 1, 1).load(lines)
    values = gl.inline_asm_elementwise(
        "and.b32 $0, $2, $4; and.b32 $1, $3, $5;", "=r,=r,r,r,r,r", [values, exists],
        dtype=out.dtype.element_ty, is_pure=True, pack=4)
    found = found + (gl.convert_layout(gl.permute(values, (0, 2, 1)), right),)
  return found


@gluon.jit
def _scaled(rows, factors, SCALED: gl.constexpr, BITS: gl.constexpr, out):
  """The products of the elements of rows and of the weight of the norm in the order of codes."""
  if BITS == 4:
    return gl.inline_asm_elementwise(
        SCALED, "=r,=r,=r,=r,r,r,r,r,r,r,r,r", [rows, factors],
        dtype=(out.dtype.element_ty, out.dtype.element_ty), is_pure=True, pack=4)
  else:
    return (gl.inline_asm_elementwise(
        SCALED, "=r,=r,r,r,r,r", [rows, factors], dtype=out.dtype.element_ty, is_pure=True,
        pack=4),)


@gluon.jit
def _products(numbers, elements, sums):
  sums = mma_v2(numbers[0], elements[0], sums)
  if len(elements) == 2:
    sums = mma_v2(numbers[1], elements[1], sums)
  return sums


@gluon.jit
def _squares(x, first: gl.constexpr, ROWS: gl.constexpr, BYTES: gl.constexpr,
             COLUMNS: gl.constexpr, WARPS: gl.constexpr, ORDER: gl.constexpr, BITS: gl.constexpr,
             out):
  """Squares of the elements of COLUMNS rows, or of the only row, whose sums along a row are those of
  all squares. Here no element is read by two threads."""
  COUNT: gl.constexpr = 1 if ROWS == 1 else COLUMNS
  SIZE: gl.constexpr = 256 * WARPS
  layout: gl.constexpr = gl.BlockedLayout([1, 8], [1, 32], [1, WARPS], [1, 0])
  row = gl.arange(0, COUNT, layout=gl.SliceLayout(1, layout))[:, None]
  j = gl.arange(0, SIZE, layout=gl.SliceLayout(0, layout))[None, :] + row * 0
  rows = x + (gl.minimum(first + row, ROWS - 1) * BYTES + j)
  total = gl.full((COUNT, SIZE), 0.0, gl.float32, layout)
  for step in gl.static_range(0, (BYTES + SIZE - 1) // SIZE):
    elements = _ordered(_read(rows + step * SIZE, j, step, BYTES, SIZE), ORDER, BITS, out)
    one = elements[0].to(gl.float32)
    total += one * one
    if BITS == 4:
      other = elements[1].to(gl.float32)
      total += other * other
  return total


@gluon.jit
def _bias(bias, column, COLUMNS: gl.constexpr, is_here):
  """The elements of a bias; 0 unless `is_here`."""
  return gl.load(bias + column, mask=(column < COLUMNS) & is_here, other=0.0).to(gl.float32)


@gluon.jit
def _activated(x, ACTIVATION: gl.constexpr):
  if ACTIVATION == "silu":
    return x / (1.0 + gl.exp(-x))
  elif ACTIVATION == "gelu_tanh":
    return x / (1.0 + gl.exp(-1.5957691216057308 * x * (1.0 + 0.044715 * x * x)))
  elif ACTIVATION == "relu":
    return gl.maximum(x, 0.0)
  else:
    gl.static_assert(ACTIVATION == "sigmoid")
    return 1.0 / (1.0 + gl.exp(-x))


@gluon.jit
def _store(result, residual, out, first, columns, first_row: gl.constexpr, ROWS: gl.constexpr,
           ROWS_HERE: gl.constexpr, COUNT: gl.constexpr, WARPS: gl.constexpr):
  """Stores COUNT columns of ROWS_HERE rows, from the column `first` of `columns`."""
  layout: gl.constexpr = gl.BlockedLayout([1, 1], [COUNT, 32 // COUNT], [1, WARPS], [0, 1])
  column = first + gl.arange(0, COUNT, layout=gl.SliceLayout(1, layout))[:, None]
  row = first_row + gl.arange(0, ROWS_HERE, layout=gl.SliceLayout(0, layout))[None, :]
  exists = (column < columns) & (row < ROWS)
  at = row * columns + column
  result = gl.convert_layout(result, layout)
  if residual is not None:
    result += gl.load(residual + at, mask=exists, other=0.0).to(gl.float32)
  gl.store(out + at, result.to(out.dtype.element_ty), mask=exists)
