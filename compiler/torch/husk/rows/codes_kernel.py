"""Linear layers of few rows whose weights are codes of 4 or 8 bits, and products with the matrices
of experts: a kernel in Gluon.

rows/node.py compiles the text; nothing imports this file while a model is exported. The statement
that cuda/pdl.py adds uses `tl`.
"""

import triton.language as tl  # noqa: F401
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2

from .tiles import _addresses, _chosen, _finish, _place, _read


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
def _parts_of_row(WARPS):
  """The layout of WARPS x 1 x 4 x 64 numbers of a row."""
  return gl.BlockedLayout([1, 1, 1, 8], [1, 1, 4, 8], [WARPS, 1, 1, 1], [3, 2, 1, 0])


@gluon.constexpr_function
def _lines_of_row(WARPS):
  """The layout of WARPS x 2 x 4 x 64 numbers for the bytes of lines: those of the only row for two
  digits and four lines."""
  return gl.DistributedLinearLayout(
      reg_bases=[[0, 0, 0, 1], [0, 0, 0, 2], [0, 0, 0, 4], [0, 0, 0, 8]],
      lane_bases=[[0, 0, 0, 16], [0, 0, 0, 32], [0, 0, 1, 0], [0, 0, 2, 0], [0, 1, 0, 0]],
      warp_bases=[[*base, 0] for base in _warps(WARPS)], block_bases=[], shape=[WARPS, 2, 4, 64])


@gluon.constexpr_function
def _warps(WARPS):
  bases, count = [], 1
  while count < WARPS:
    bases.append([count, 0, 0])
    count *= 2
  return bases


@gluon.jit
def few_rows_codes(x, scale, w0, w1, w2, w3, s0, s1, s2, s3, z0, z1, z2, z3, b0, b1, b2, b3,
                   residual, experts, shares, out, EPS: gl.constexpr, K: gl.constexpr,
                   N0: gl.constexpr, N1: gl.constexpr, N2: gl.constexpr, N3: gl.constexpr,
                   ROWS: gl.constexpr, GATE: gl.constexpr, BITS: gl.constexpr, GROUP: gl.constexpr,
                   NUMBERS: gl.constexpr, ORDER: gl.constexpr, SCALED: gl.constexpr,
                   IN_DIGITS: gl.constexpr, TIMES: gl.constexpr, OFFSET: gl.constexpr,
                   COUNT: gl.constexpr, TILE: gl.constexpr, WARPS: gl.constexpr,
                   DEPTH: gl.constexpr, SPLIT: gl.constexpr):
  """Program 0 is a tile of TILE rows of the weights, as in `few_rows`, whose parameters of the same
  names mean the same.

  A weight has K * BITS / 8 bytes in a row, a multiple of 16. `s0` to `s3` are the scales of groups
  of GROUP elements, `z0` to `z3` are None, or the zeros, which are subtracted from codes. A group
  is a row, or whole lines. With codes of 4 bits, `x` and `scale` are pairs of elements, as ints.

  A line is 16 bytes of codes of one row of a weight, which a thread reads at once. In an
  instruction of tensor cores, the four threads of a quad have elements of four lines of a row, and
  the instruction adds the products of all of them. If lines have scales and there are one or two
  rows, each line therefore has columns of its own in the second factor: a column has the elements
  of `x` that belong to one line, and zeros for the other three. With more rows, numbers are
  multiplied with their scales before, which rounds them.

  IN_DIGITS is for one row and codes that are ints. The row becomes ints of 15 bits with one unit
  for each warp, and their two digits of 8 bits are two columns. So tensor cores multiply codes of
  8 bits as they are in memory, and their sums are exact.

  Otherwise NUMBERS are the instructions that make numbers of four bytes of codes, with scales and
  zeros if these are multiplied before. The order of elements within four bytes of codes is 0, 2, 1,
  3 then. ORDER are the instructions that put elements of the rows in this order, and SCALED does
  that with the product of two rows.

  A warp computes 64 bytes of each SPLIT * 64 of a row, which are a step; without experts, SPLIT is
  WARPS. DEPTH steps are on their way at a time.

  With `experts`, `w0` is a stack of COUNT matrices, with 2 N0 rows each if there is a gate, and a
  result has the matrix of its number in `experts`, less OFFSET; a number of no matrix makes it 0.
  Program 0 is then a row of `out`, program 1 a tile. Such a row is computed of the row
  program / TIMES of `x`. With `shares`, it is the sum of the products of TIMES rows of `x`, which
  have a number, a share that multiplies them, and SPLIT warps each.
  """
  product: gl.constexpr = gl.NVMMADistributedLayout(
      version=[2, 0], warps_per_cta=[WARPS, 1, 1], instr_shape=[1, 16, 8])
  left: gl.constexpr = gl.DotOperandLayout(0, product, 16)
  right: gl.constexpr = gl.DotOperandLayout(1, product, 16)
  lines: gl.constexpr = _lines_of_weights(TILE, WARPS)
  lines_of_rows: gl.constexpr = _lines_of_rows(WARPS)
  here: gl.constexpr = gl.SliceLayout(0, product)
  BYTES: gl.constexpr = K * BITS // 8
  STEP: gl.constexpr = SPLIT * 64
  STEPS: gl.constexpr = (BYTES + STEP - 1) // STEP
  HALF: gl.constexpr = TILE // 2
  GROUPS: gl.constexpr = K // GROUP
  # The rows that are multiplied with a matrix each, and are added, and the columns of a matrix.
  PLACES: gl.constexpr = 1 if shares is None else TIMES
  OF_EXPERT: gl.constexpr = N0 if GATE == "" else 2 * N0
  # Whether lines have scales, whether each line has a sum of its own, the rows that eight columns
  # are, and how often those make up all rows.
  HAS_GROUPS: gl.constexpr = GROUPS > 1 or z0 is not None
  BY_LINE: gl.constexpr = HAS_GROUPS and ROWS <= 2
  COLUMNS: gl.constexpr = 2 if BY_LINE else 8
  PARTS: gl.constexpr = (ROWS + COLUMNS - 1) // COLUMNS

  pid = gl.program_id(0 if experts is None else 1)
  number, before, columns, first_column = _place(pid, N0, N1, N2, N3, GATE, TILE)
  if experts is not None:
    token = gl.program_id(0).to(gl.int64)
    experts += token * PLACES
    x += (token // (TIMES // PLACES)) * (PLACES * BYTES)
    out += token * N0
    if residual is not None:
      residual += token * N0
    if GATE != "":
      w1 = w0 + N0 * BYTES
      s1 = s0 + N0 * GROUPS
      if z0 is not None:
        z1 = z0 + N0 * GROUPS
  w = _chosen(number, w0, w1, w2, w3, GATE)
  s = _chosen(number, s0, s1, s2, s3, GATE)

  # The codes of the first steps.
  part = gl.arange(0, WARPS, layout=gl.SliceLayout(1, gl.SliceLayout(2, lines)))[:, None, None]
  row = gl.arange(0, TILE, layout=gl.SliceLayout(0, gl.SliceLayout(2, lines)))[None, :, None]
  inside = gl.arange(0, 64, layout=gl.SliceLayout(0, gl.SliceLayout(1, lines)))[None, None, :]
  k = part % SPLIT * 64 + inside
  weights = _addresses(w, w1, row, k, first_column, columns, BYTES, GATE, HALF)
  is_here = None
  if experts is not None:
    expert, is_here = _expert(experts, part, SPLIT, PLACES, OFFSET, COUNT)
    weights += expert * (OF_EXPERT * BYTES)
  codes = ()
  for step in gl.static_range(0, min(DEPTH, STEPS)):
    codes = codes + (_read_codes(weights, k, is_here, step, BYTES, STEP),)

  # The scales and zeros of the first steps, or the scales of whole rows.
  row = gl.arange(0, TILE, layout=gl.SliceLayout(1, here))
  of_rows = row
  factors = ()
  zeros = ()
  if HAS_GROUPS:
    # Sums of lines have scales, or the numbers of lines.
    of_lines: gl.constexpr = product if BY_LINE else gl.SliceLayout(
        3, gl.reshape(codes[0], (WARPS, TILE, 4, 16)).type.layout)
    part = gl.arange(0, WARPS, layout=gl.SliceLayout(1, gl.SliceLayout(2, of_lines)))
    place = gl.arange(0, TILE, layout=gl.SliceLayout(0, gl.SliceLayout(2, of_lines)))
    column = gl.arange(0, 8 if BY_LINE else 4,
                       layout=gl.SliceLayout(0, gl.SliceLayout(1, of_lines)))[None, None, :]
    place = place[None, :, None]
    part = part[:, None, None]
    line = part % SPLIT * 4 + column % 4
    scales = _addresses(s, s1, place, line * 0, first_column, columns, GROUPS, GATE, HALF)
    offsets = scales
    if z0 is not None:
      z = _chosen(number, z0, z1, z2, z3, GATE)
      offsets = _addresses(z, z1, place, line * 0, first_column, columns, GROUPS, GATE, HALF)
    has_scales = None
    if experts is not None:
      expert, has_scales = _expert(experts, part, SPLIT, PLACES, OFFSET, COUNT)
      scales += expert * (OF_EXPERT * GROUPS)
      offsets += expert * (OF_EXPERT * GROUPS)
    for step in gl.static_range(0, min(DEPTH, STEPS)):
      factors = factors + (_read_group(scales, line, has_scales, step, BITS, BYTES, SPLIT, GROUP),)
      if z0 is not None:
        zeros = zeros + (_read_group(offsets, line, has_scales, step, BITS, BYTES, SPLIT, GROUP),)
  elif experts is None:
    of_rows = gl.load(_addresses(s, s1, row, row * 0, first_column, columns, 1, GATE, HALF))

  of_warps: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, product))
  if experts is not None:
    # The sum of a warp is multiplied with its share, and with the scales of whole rows.
    part = gl.arange(0, WARPS, layout=of_warps)[:, None]
    expert, is_of_stack = _expert(experts, part, SPLIT, PLACES, OFFSET, COUNT)
    of_sums = gl.full((WARPS, 1), 1.0, gl.float32, gl.SliceLayout(2, product))
    if shares is not None:
      at = token * PLACES + gl.minimum(part // SPLIT, PLACES - 1)
      of_sums = gl.load(shares + at, mask=is_of_stack, other=0.0).to(gl.float32)
    if not HAS_GROUPS:
      place = gl.arange(0, TILE, layout=gl.SliceLayout(0, gl.SliceLayout(2, product)))[None, :]
      at = _addresses(s, s1, place, part * 0, first_column, columns, 1, GATE, HALF)
      of_sums *= gl.load(at + expert * OF_EXPERT, mask=is_of_stack, other=0.0).to(gl.float32)

  # The weight of the norm of one row.
  of_norm = ()
  if ROWS == 1:
    if scale is not None:
      of_norm = _read_row(scale, BYTES, WARPS, STEPS, SPLIT, PLACES)

  # The wait for the preceding kernel stands here.
  part = gl.arange(0, WARPS, layout=gl.SliceLayout(1, gl.SliceLayout(2, lines_of_rows)))
  part = part[:, None, None]
  m = gl.arange(0, 8, layout=gl.SliceLayout(0, gl.SliceLayout(2, lines_of_rows)))[None, :, None]
  inside = gl.arange(0, 64, layout=gl.SliceLayout(0, gl.SliceLayout(1, lines_of_rows)))
  inside = inside[None, None, :]
  j = part * 64 + inside
  if IN_DIGITS:
    ones = gl.full((WARPS, TILE, 64), 1, gl.int8, left)
    nothing = gl.full((WARPS, TILE, 8), 0, gl.int32, product)
  else:
    ones = gl.full((WARPS, TILE, 64), 1.0, out.dtype.element_ty, left)
    nothing = gl.full((WARPS, TILE, 8), 0.0, gl.float32, product)
  none = nothing.to(gl.float32) if BY_LINE else nothing
  sums = ()
  squares = ()
  shared = ()
  added = row
  if ROWS == 1:
    loaded = _read_row(x, BYTES, WARPS, STEPS, SPLIT, PLACES)
    if residual is not None:
      added = gl.load(residual + gl.minimum(first_column + row, columns - 1))
    shared, squares, unit = _share_row(loaded, of_norm, IN_DIGITS, WARPS, STEPS, ORDER, SCALED,
                                       BITS, out)
    sums = (none,)
  else:
    for p in gl.static_range(0, PARTS):
      sums = sums + (none,)
      if EPS >= 0:
        squares = squares + (
            _squares_of_rows(x, COLUMNS * p, ROWS, BYTES, COLUMNS, WARPS, ORDER, BITS, out),)
  own_lines = _own_lines(WARPS, gl.int8 if IN_DIGITS else gl.int16)
  BATCH: gl.constexpr = max(1, 4 // PARTS)
  for first in gl.static_range(0, STEPS, BATCH):
    rows = ()
    for step in gl.static_range(first, min(first + BATCH, STEPS)):
      for p in gl.static_range(0, PARTS if ROWS > 1 else 0):
        if BY_LINE:
          # The columns of a row that is not there, and those of other lines, are zeros.
          at = m // 4
          exists = (inside // 16 == m % 4 + part * 0) & (at < ROWS)
          loaded = gl.load(x + (at * BYTES + j + step * STEP),
                           mask=exists & (j < BYTES - step * STEP), other=0)
        else:
          at = gl.minimum(8 * p + m, ROWS - 1)
          loaded = _read(x + (at * BYTES + j), j, step, BYTES, STEP)
        rows = rows + (loaded,)
    for step in gl.static_range(first, min(first + BATCH, STEPS)):
      if HAS_GROUPS and not BY_LINE:
        zero = zeros[0] if z0 is not None else None
        numbers = _scaled_numbers(codes[0], factors[0], zero, NUMBERS, BITS, left, out)
      elif IN_DIGITS:
        numbers = _ints(codes[0], BITS, left)
      else:
        numbers = _numbers(codes[0], NUMBERS, BITS, left, out)
      codes = codes[1:]
      if step + DEPTH < STEPS:
        codes = codes + (_read_codes(weights, k, is_here, step + DEPTH, BYTES, STEP),)
      later = ()
      for p in gl.static_range(0, PARTS):
        if ROWS == 1:
          elements = _read_shared(shared, step, own_lines, BY_LINE, IN_DIGITS, 8 // BITS, WARPS,
                                  right, out)
        else:
          elements = _elements(rows[0], scale, m * 0 + j, step, BYTES, STEP, ORDER, SCALED, BITS,
                               right, out)
          rows = rows[1:]
        # Steps have sums of their own, since a product that adds to another one waits for it.
        found = _products(numbers, elements, nothing)
        if BY_LINE:
          found = found.to(gl.float32)
          if z0 is not None:
            zero = zeros[0].to(gl.float32) * (16.0 if IN_DIGITS and BITS == 4 else 1.0)
            found -= zero * _products((ones, ones), elements, nothing).to(gl.float32)
          found *= factors[0].to(gl.float32)
        later = later + (sums[p] + found,)
      sums = later
      if HAS_GROUPS:
        factors = factors[1:]
        if step + DEPTH < STEPS:
          factors = factors + (
              _read_group(scales, line, has_scales, step + DEPTH, BITS, BYTES, SPLIT, GROUP),)
        if z0 is not None:
          zeros = zeros[1:]
          if step + DEPTH < STEPS:
            zeros = zeros + (
                _read_group(offsets, line, has_scales, step + DEPTH, BITS, BYTES, SPLIT, GROUP),)

  if ROWS == 1:
    # The sums of digits, of lines, and of warps, which take the squares along.
    column = gl.arange(0, 8, layout=gl.SliceLayout(0, gl.SliceLayout(1, product)))[None, None, :]
    weight = gl.where(column < 4, 1.0, 256.0 if IN_DIGITS else 0.0)
    if not BY_LINE:
      weight = gl.where(column % 4 == 0, weight, 0.0)
    found = gl.sum(sums[0].to(gl.float32) * weight, 2)
    if IN_DIGITS:
      found *= gl.convert_layout(unit, of_warps)[:, None]
    if experts is not None:
      found = gl.where(is_of_stack, found * of_sums, 0.0)
    squares = gl.convert_layout(squares, of_warps)[:, None] + found * 0.0
    found = gl.sum(gl.join(found, squares), 0)
    of_two = gl.arange(0, 2, layout=gl.SliceLayout(0, found.type.layout))[None, :]
    squares = gl.sum(gl.where(of_two == 1, found, 0.0), 1)
    found = gl.sum(gl.where(of_two == 0, found, 0.0), 1)
    result = gl.convert_layout(found, gl.SliceLayout(1, here))
    if IN_DIGITS and BITS == 4:
      result *= 1.0 / 16.0
    if not BY_LINE and experts is None:
      result *= of_rows.to(gl.float32)
    if EPS >= 0:
      result *= gl.rsqrt(gl.convert_layout(squares, gl.SliceLayout(1, here)) / K + EPS)
    if residual is not None:
      result += added.to(gl.float32)
    _finish(result[:, None], b0, b1, b2, b3, None, out, number, before, columns, first_column, N0,
            N1, N2, N3, 0, ROWS, 1, GATE, TILE)
  else:
    for p in gl.static_range(0, PARTS):
      # The sums of all warps and lines, TILE x COLUMNS.
      result = gl.sum(sums[p], 0)
      if BY_LINE:
        result = gl.sum(gl.reshape(result, (TILE, 2, 4)), 2)
        result = gl.convert_layout(result, here)
      elif not HAS_GROUPS:
        result *= of_rows.to(gl.float32)[:, None]
      if EPS >= 0:
        factor = gl.rsqrt(gl.sum(squares[p], 1) / K + EPS)
        result *= gl.convert_layout(factor, gl.SliceLayout(0, here))[None, :]
      _finish(result, b0, b1, b2, b3, residual, out, number, before, columns, first_column, N0, N1,
              N2, N3, COLUMNS * p, ROWS, COLUMNS, GATE, TILE)


@gluon.jit
def _expert(experts, part, SPLIT: gl.constexpr, PLACES: gl.constexpr, OFFSET: gl.constexpr,
            COUNT: gl.constexpr):
  """The matrices of the places of warps `part`, and whether the stack has them."""
  place = part // SPLIT
  expert = gl.load(experts + gl.minimum(place, PLACES - 1)).to(gl.int64) - OFFSET
  is_here = (expert >= 0) & (expert < COUNT) & (place < PLACES)
  return gl.where(is_here, expert, 0), is_here


@gluon.jit
def _read_codes(addresses, k, is_here, step: gl.constexpr, K: gl.constexpr, STEP: gl.constexpr):
  """As `_read`, but all are 0 where not `is_here`, unless that is None."""
  if is_here is None:
    return _read(addresses, k, step, K, STEP)
  else:
    return gl.load(addresses + step * STEP, mask=is_here & (k < K - step * STEP), other=0)


@gluon.jit
def _read_group(addresses, line, is_here, step: gl.constexpr, BITS: gl.constexpr,
                BYTES: gl.constexpr, SPLIT: gl.constexpr, GROUP: gl.constexpr):
  """What the groups of lines have, as `_read_codes`. `line` are the numbers of the lines of the
  first step."""
  OF_A_GROUP: gl.constexpr = GROUP * BITS // 128
  at = (step * SPLIT * 4 + line) // OF_A_GROUP
  if is_here is not None:
    exists = is_here & (line < BYTES // 16 - step * SPLIT * 4)
    return gl.load(addresses + at, mask=exists, other=0)
  elif (step + 1) * SPLIT * 64 <= BYTES:
    return gl.load(addresses + at)
  else:
    return gl.load(addresses + at, mask=line < BYTES // 16 - step * SPLIT * 4, other=0)


@gluon.jit
def _numbers(codes, NUMBERS: gl.constexpr, BITS: gl.constexpr, left: gl.constexpr, out):
  """The numbers of codes: those of the low halves of bytes and of the high ones, or of bytes."""
  if BITS == 4:
    low, high = gl.inline_asm_elementwise(
        NUMBERS, "=r,=r,=r,=r,r", [codes], dtype=(out.dtype.element_ty, out.dtype.element_ty),
        is_pure=True, pack=4)
    return gl.convert_layout(low, left), gl.convert_layout(high, left)
  else:
    number = gl.inline_asm_elementwise(
        NUMBERS, "=r,=r,r", [codes], dtype=out.dtype.element_ty, is_pure=True, pack=4)
    return (gl.convert_layout(number, left),)


@gluon.jit
def _scaled_numbers(codes, factor, zero, NUMBERS: gl.constexpr, BITS: gl.constexpr,
                    left: gl.constexpr, out):
  """The numbers of codes less the zeros of their lines, times their scales, of which `rest` is what
  the dtype of numbers cannot hold. A number is rounded once."""
  WARPS: gl.constexpr = codes.shape[0]
  TILE: gl.constexpr = codes.shape[1]
  lines = gl.reshape(codes, (WARPS, TILE, 4, 16))
  factor = factor.to(gl.float32)
  scale = factor.to(out.dtype.element_ty)
  rest = (factor - scale.to(gl.float32)).to(out.dtype.element_ty)
  inputs = [lines, scale[:, :, :, None], rest[:, :, :, None]]
  if zero is not None:
    inputs = [lines, scale[:, :, :, None], rest[:, :, :, None],
              (-zero.to(gl.float32)).to(out.dtype.element_ty)[:, :, :, None]]
  if BITS == 4:
    low, high = gl.inline_asm_elementwise(
        NUMBERS, "=r,=r,=r,=r,r,r,r,r,r" + (",r,r" if zero is not None else ""), inputs,
        dtype=(out.dtype.element_ty, out.dtype.element_ty), is_pure=True, pack=4)
    return (gl.convert_layout(gl.reshape(low, (WARPS, TILE, 64)), left),
            gl.convert_layout(gl.reshape(high, (WARPS, TILE, 64)), left))
  else:
    number = gl.inline_asm_elementwise(
        NUMBERS, "=r,=r,r,r,r,r,r" + (",r,r" if zero is not None else ""), inputs,
        dtype=out.dtype.element_ty, is_pure=True, pack=4)
    return (gl.convert_layout(gl.reshape(number, (WARPS, TILE, 64)), left),)


@gluon.jit
def _elements(rows, scale, j, step: gl.constexpr, BYTES: gl.constexpr, STEP: gl.constexpr,
              ORDER: gl.constexpr, SCALED: gl.constexpr, BITS: gl.constexpr, right: gl.constexpr,
              out):
  """The elements of the rows, times those of the weight of the norm."""
  if scale is None:
    elements = _ordered(rows, ORDER, BITS, out)
  else:
    factors = _read(scale + j, j, step, BYTES, STEP)
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
    return gl.inline_asm_elementwise(
        ORDER, "=r,=r,=r,=r,r,r,r,r", [rows],
        dtype=(out.dtype.element_ty, out.dtype.element_ty), is_pure=True, pack=4)
  else:
    return (gl.inline_asm_elementwise(
        ORDER, "=r,=r,r,r", [rows], dtype=out.dtype.element_ty, is_pure=True, pack=4),)


@gluon.jit
def _ints(codes, BITS: gl.constexpr, left: gl.constexpr):
  """Codes as ints of 8 bits; those of 4 bits less 8, times 16."""
  if BITS == 4:
    low, high = gl.inline_asm_elementwise(
        "{ .reg .b32 a; shl.b32 a, $2, 4; lop3.b32 $0, a, 0xf0f0f0f0, 0x80808080, 0x6a; "
        "lop3.b32 $1, $2, 0xf0f0f0f0, 0x80808080, 0x6a; }", "=r,=r,r", [codes],
        dtype=(gl.int8, gl.int8), is_pure=True, pack=4)
    return gl.convert_layout(low, left), gl.convert_layout(high, left)
  else:
    return (gl.convert_layout(codes, left),)


@gluon.jit
def _read_row(row, BYTES: gl.constexpr, WARPS: gl.constexpr, STEPS: gl.constexpr,
              SPLIT: gl.constexpr, PLACES: gl.constexpr):
  """The numbers of a row, in parts of four steps. A warp reads those of its own lines."""
  layout: gl.constexpr = _parts_of_row(WARPS)
  part = gl.arange(0, WARPS, layout=gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, layout))))
  step = gl.arange(0, 4, layout=gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(3, layout))))
  inside = gl.arange(0, 64, layout=gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, layout))))
  part = part[:, None, None, None]
  j = (step[None, None, :, None] * SPLIT + part % SPLIT) * 64 + inside[None, None, None, :]
  rows = row + (gl.minimum(part // SPLIT, PLACES - 1) * BYTES + j)
  found = ()
  for first in gl.static_range(0, STEPS, 4):
    found = found + (_read(rows, j, first // 4, BYTES, 4 * SPLIT * 64),)
  return found


@gluon.jit
def _share_row(row, of_norm, IN_DIGITS: gl.constexpr, WARPS: gl.constexpr, STEPS: gl.constexpr,
               ORDER: gl.constexpr, SCALED: gl.constexpr, BITS: gl.constexpr, out):
  """Puts the elements of a row, times those of the weight of the norm, into shared memory: in the
  order of codes, or as ints of two digits of 8 bits. Returns that, the sums of the squares of the
  elements that each warp has, and the unit of its ints."""
  plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [3, 2, 1, 0])
  layout: gl.constexpr = _parts_of_row(WARPS)
  COUNT: gl.constexpr = (STEPS + 3) // 4
  DIGITS: gl.constexpr = 2 if IN_DIGITS else 1
  kind: gl.constexpr = gl.int8 if IN_DIGITS else out.dtype.element_ty
  HALVES: gl.constexpr = 8 // BITS
  # Each part is memory of its own, so that no store waits for another one.
  shared = ()
  for _part in gl.static_range(0, HALVES * COUNT):
    shared = shared + (gl.allocate_shared_memory(kind, [WARPS, DIGITS, 4, 64], plain),)
  total = gl.full((WARPS, 1, 4, 64), 0.0, gl.float32, layout)
  # The bits of 1e-30, since the unit of a row of zeros must not be 0. The bits of NaN are a larger
  # int than those of all numbers.
  largest = gl.full((WARPS, 1, 4, 64), 0x0DA24260, gl.int32, layout)
  rows = ()
  for part in gl.static_range(0, COUNT):
    if IN_DIGITS:
      elements = _plain(row[part], BITS, out)
    else:
      elements = _ordered(row[part], ORDER, BITS, out)
    factors = elements
    if len(of_norm) > 0:
      if IN_DIGITS:
        factors = _plain(of_norm[part], BITS, out)
      else:
        factors = _scaled(row[part], of_norm[part], SCALED, BITS, out)
    for half in gl.static_range(0, HALVES):
      values = elements[half].to(gl.float32)
      total += values * values
      if IN_DIGITS:
        if len(of_norm) > 0:
          values *= factors[half].to(gl.float32)
        rows = rows + (values,)
        largest = gl.maximum(largest, values.to(gl.int32, bitcast=True) & 0x7FFFFFFF)
      else:
        shared[HALVES * part + half].store(factors[half])
  squares = gl.sum(gl.sum(gl.sum(total, 3), 2), 1)
  unit = squares
  if IN_DIGITS:
    largest = gl.max(gl.max(gl.max(largest, 3), 2), 1).to(gl.float32, bitcast=True)
    # The ints are at most 127 * 256.
    unit = largest * (1.0 / 32512.0)
    factor = (1.0 / unit)[:, None, None, None]
    for part in gl.static_range(0, COUNT):
      for half in gl.static_range(0, HALVES):
        # The last bits of such a float are an int, the nearest one.
        value = (rows[HALVES * part + half] * factor + 12582912.0).to(gl.int32, bitcast=True)
        digits = gl.join(value.to(gl.int8), ((value + 128) >> 8).to(gl.int8))
        digits = gl.permute(gl.reshape(digits, (WARPS, 4, 64, 2)), (0, 3, 1, 2))
        shared[HALVES * part + half].store(digits)
  return shared, squares, unit


@gluon.jit
def _plain(rows, BITS: gl.constexpr, out):
  """The elements of rows: those of pairs, or the elements themselves."""
  if BITS == 4:
    return gl.inline_asm_elementwise(
        "prmt.b32 $0, $2, $3, 0x5410; prmt.b32 $1, $2, $3, 0x7632;", "=r,=r,r,r", [rows],
        dtype=(out.dtype.element_ty, out.dtype.element_ty), is_pure=True, pack=2)
  else:
    return (rows,)


@gluon.jit
def _own_lines(WARPS: gl.constexpr, kind: gl.constexpr):
  """For two digits and four lines, the bytes of all lines: ones for those of the line itself."""
  layout: gl.constexpr = _lines_of_row(WARPS)
  digit = gl.arange(0, 2, layout=gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, layout))))
  line = gl.arange(0, 4, layout=gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(3, layout))))
  byte = gl.arange(0, 64, layout=gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, layout))))
  place = byte[None, None, None, :] // 16 + digit[None, :, None, None] * 0
  return gl.where(place == line[None, None, :, None], -1, 0).to(kind)


@gluon.jit
def _read_shared(shared, step: gl.constexpr, exists, BY_LINE: gl.constexpr,
                 IN_DIGITS: gl.constexpr, HALVES: gl.constexpr, WARPS: gl.constexpr,
                 right: gl.constexpr, out):
  """The only row in a step for eight columns, of two digits and four lines. If BY_LINE, a column
  has the elements of its line only, where `exists` has ones."""
  found = ()
  for half in gl.static_range(0, HALVES):
    values = shared[HALVES * (step // 4) + half].slice(step % 4, 1, 2).load(
        _lines_of_row(WARPS))
    if IN_DIGITS:
      values = gl.inline_asm_elementwise(
          "and.b32 $0, $1, $2;" if BY_LINE else "mov.b32 $0, $1;", "=r,r,r", [values, exists],
          dtype=gl.int8, is_pure=True, pack=4)
    else:
      values = gl.inline_asm_elementwise(
          "and.b32 $0, $2, $4; and.b32 $1, $3, $5;" if BY_LINE else
          "mov.b32 $0, $2; mov.b32 $1, $3;", "=r,=r,r,r,r,r", [values, exists],
          dtype=out.dtype.element_ty, is_pure=True, pack=4)
    values = gl.reshape(values, (WARPS, 8, 64))
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
def _squares_of_rows(x, first: gl.constexpr, ROWS: gl.constexpr, BYTES: gl.constexpr,
                     COLUMNS: gl.constexpr, WARPS: gl.constexpr, ORDER: gl.constexpr,
                     BITS: gl.constexpr, out):
  """Squares of the elements of COLUMNS rows, whose sums along a row are those of all squares. Here
  no element is read by two threads."""
  SIZE: gl.constexpr = 256 * WARPS
  layout: gl.constexpr = gl.BlockedLayout([1, 8], [1, 32], [1, WARPS], [1, 0])
  row = gl.arange(0, COLUMNS, layout=gl.SliceLayout(1, layout))[:, None]
  j = gl.arange(0, SIZE, layout=gl.SliceLayout(0, layout))[None, :] + row * 0
  rows = x + (gl.minimum(first + row, ROWS - 1) * BYTES + j)
  total = gl.full((COLUMNS, SIZE), 0.0, gl.float32, layout)
  for step in gl.static_range(0, (BYTES + SIZE - 1) // SIZE):
    elements = _ordered(_read(rows, j, step, BYTES, SIZE), ORDER, BITS, out)
    one = elements[0].to(gl.float32)
    total += one * one
    if BITS == 4:
      other = elements[1].to(gl.float32)
      total += other * other
  return total
