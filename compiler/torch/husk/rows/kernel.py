"""Linear layers of a few rows, whose weights are floats of 16 bits: a kernel in Gluon.

rows/node.py compiles the text; nothing imports this file while a model is exported. The statement
that cuda/pdl.py adds uses `tl`.
"""

import triton.language as tl  # noqa: F401
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2


@gluon.jit
def few_rows(x, scale, w0, w1, w2, w3, b0, b1, b2, b3, residual, out, EPS: gl.constexpr,
             K: gl.constexpr, N0: gl.constexpr, N1: gl.constexpr, N2: gl.constexpr,
             N3: gl.constexpr, ROWS: gl.constexpr, ROWS_WIDTH: gl.constexpr, GATE: gl.constexpr,
             TILE: gl.constexpr, WARPS: gl.constexpr, WIDTH: gl.constexpr):
  """Program 0 is a tile of TILE rows of the weights, which are columns of the result. A tile is of
  one weight. With a GATE, the name of an activation, half of it are rows of `w0`, the other half
  the same rows of `w1`, and the result is the activation of the first products times the second
  ones.

  `x` has ROWS rows of K elements, one after another, and K is a multiple of 8; a weight `w0` to
  `w3` has N0 to N3 rows of K elements; those that are not there are None. `b0` to `b3` are biases,
  or None. With EPS of 0 or more, the rows are those of a root mean square norm of `x`, whose weight
  is `scale` (None: 1). `residual` (None: 0) has the shape of the result and is added to it.

  `out` has ROWS rows of N0 elements. With several weights and no GATE, it has so many rows of each
  weight, one weight after another.

  ROWS_WIDTH is 8 or 16, TILE 16 or 32. A warp computes WIDTH elements of each WARPS * WIDTH of a
  row.
  """
  product: gl.constexpr = gl.NVMMADistributedLayout(
      version=[2, 0], warps_per_cta=[WARPS, 1, 1], instr_shape=[1, 16, 8])
  # A thread has 8 elements in sequence of a row, which are one load.
  left: gl.constexpr = gl.DotOperandLayout(0, product, 8)
  right: gl.constexpr = gl.DotOperandLayout(1, product, 8)
  STEP: gl.constexpr = WARPS * WIDTH
  HALF: gl.constexpr = TILE // 2

  # The weight of this tile, and its place among the weights: its number, the tiles and the columns
  # before it, and its columns.
  T1: gl.constexpr = (N0 + TILE - 1) // TILE
  T2: gl.constexpr = T1 + (N1 + TILE - 1) // TILE
  T3: gl.constexpr = T2 + (N2 + TILE - 1) // TILE
  pid = gl.program_id(0)
  w = w0
  number = pid * 0
  tiles = pid * 0
  before = pid * 0
  columns = before + N0
  if GATE == "":
    if w1 is not None:
      w = gl.where(pid >= T1, w1, w)
      number = gl.where(pid >= T1, 1, number)
      tiles = gl.where(pid >= T1, T1, tiles)
      before = gl.where(pid >= T1, N0, before)
      columns = gl.where(pid >= T1, N1, columns)
    if w2 is not None:
      w = gl.where(pid >= T2, w2, w)
      number = gl.where(pid >= T2, 2, number)
      tiles = gl.where(pid >= T2, T2, tiles)
      before = gl.where(pid >= T2, N0 + N1, before)
      columns = gl.where(pid >= T2, N2, columns)
    if w3 is not None:
      w = gl.where(pid >= T3, w3, w)
      number = gl.where(pid >= T3, 3, number)
      tiles = gl.where(pid >= T3, T3, tiles)
      before = gl.where(pid >= T3, N0 + N1 + N2, before)
      columns = gl.where(pid >= T3, N3, columns)

  # The addresses of the first elements of the weights.
  part = gl.arange(0, WARPS, layout=gl.SliceLayout(1, gl.SliceLayout(2, left)))[:, None, None]
  row = gl.arange(0, TILE, layout=gl.SliceLayout(0, gl.SliceLayout(2, left)))[None, :, None]
  inside = gl.arange(0, WIDTH, layout=gl.SliceLayout(0, gl.SliceLayout(1, left)))[None, None, :]
  k = part * WIDTH + inside
  if GATE == "":
    n = gl.minimum((pid - tiles) * TILE + row, columns - 1).to(gl.int64)
    weights = w + (n * K + k)
  else:
    n = gl.minimum(pid * HALF + row % HALF, columns - 1).to(gl.int64)
    weights = gl.where(row + k * 0 < HALF, w0 + (n * K + k), w1 + (n * K + k))
  # Four steps of the weights are on their way at a time, so that a block that waits for its rows
  # has asked for much.
  a0, a1, a2, a3 = _read_4(weights, k, 0, K, STEP)

  # The wait for the preceding kernel stands here.
  part = gl.arange(0, WARPS, layout=gl.SliceLayout(1, gl.SliceLayout(2, right)))[:, None, None]
  inside = gl.arange(0, WIDTH, layout=gl.SliceLayout(0, gl.SliceLayout(2, right)))[None, :, None]
  m = gl.arange(0, ROWS_WIDTH, layout=gl.SliceLayout(0, gl.SliceLayout(1, right)))[None, None, :]
  j = part * WIDTH + inside
  rows = x + (gl.minimum(m, ROWS - 1) * K + j)
  sums = gl.full((WARPS, TILE, ROWS_WIDTH), 0.0, gl.float32, product)
  squares = gl.full((WARPS, ROWS_WIDTH), 0.0, gl.float32, gl.SliceLayout(1, right))
  for first in gl.static_range(0, (K + STEP - 1) // STEP, 4):
    x0, x1, x2, x3 = _read_4(rows, j, first, K, STEP)
    if EPS >= 0:
      squares += _squares(x0)
      if (first + 1) * STEP < K:
        squares += _squares(x1)
      if (first + 2) * STEP < K:
        squares += _squares(x2)
      if (first + 3) * STEP < K:
        squares += _squares(x3)
    if scale is not None:
      s0, s1, s2, s3 = _read_4(scale + j, j, first, K, STEP)
      x0 *= s0
      x1 *= s1
      x2 *= s2
      x3 *= s3
    sums = mma_v2(a0, x0, sums)
    if (first + 4) * STEP < K:
      a0 = _read(weights, k, first + 4, K, STEP)
    if (first + 1) * STEP < K:
      sums = mma_v2(a1, x1, sums)
    if (first + 5) * STEP < K:
      a1 = _read(weights, k, first + 5, K, STEP)
    if (first + 2) * STEP < K:
      sums = mma_v2(a2, x2, sums)
    if (first + 6) * STEP < K:
      a2 = _read(weights, k, first + 6, K, STEP)
    if (first + 3) * STEP < K:
      sums = mma_v2(a3, x3, sums)
    if (first + 7) * STEP < K:
      a3 = _read(weights, k, first + 7, K, STEP)

  # The sums of all warps, TILE x ROWS_WIDTH.
  here: gl.constexpr = gl.SliceLayout(0, product)
  result = gl.sum(sums, 0)
  if EPS >= 0:
    factor = gl.rsqrt(gl.sum(squares, 0) / K + EPS)
    result *= gl.convert_layout(factor, gl.SliceLayout(0, here))[None, :]
  column = gl.arange(0, TILE, layout=gl.SliceLayout(1, here))
  if GATE == "":
    column = (pid - tiles) * TILE + column
    if b0 is not None:
      result += _bias(b0, column, N0, number == 0)[:, None]
    if b1 is not None:
      result += _bias(b1, column, N1, number == 1)[:, None]
    if b2 is not None:
      result += _bias(b2, column, N2, number == 2)[:, None]
    if b3 is not None:
      result += _bias(b3, column, N3, number == 3)[:, None]
    _store(result, residual, out + before * ROWS, (pid - tiles) * TILE, columns, ROWS, ROWS_WIDTH,
           TILE, WARPS)
  else:
    if b0 is not None:
      result += _bias(b0, pid * HALF + column % HALF, N0, column < HALF)[:, None]
    if b1 is not None:
      result += _bias(b1, pid * HALF + column % HALF, N0, column >= HALF)[:, None]
    # A thread has the sums of both weights.
    pairs = gl.permute(gl.reshape(result, (2, HALF, ROWS_WIDTH)), (1, 2, 0))
    gate, up = gl.split(pairs)
    _store(_activated(gate, GATE) * up, residual, out, pid * HALF, columns, ROWS, ROWS_WIDTH,
           HALF, WARPS)


@gluon.jit
def _read(addresses, k, step: gl.constexpr, K: gl.constexpr, STEP: gl.constexpr):
  """The elements of a step, whose places in the first step are `k`. Those behind a row are 0."""
  if (step + 1) * STEP <= K:
    return gl.load(addresses + step * STEP)
  else:
    return gl.load(addresses + step * STEP, mask=k < K - step * STEP, other=0.0)


@gluon.jit
def _read_4(addresses, k, first: gl.constexpr, K: gl.constexpr, STEP: gl.constexpr):
  """The elements of four steps. Those of steps behind a row are no ones, and nobody reads them."""
  x0 = _read(addresses, k, first, K, STEP)
  x1 = x0
  x2 = x0
  x3 = x0
  if (first + 1) * STEP < K:
    x1 = _read(addresses, k, first + 1, K, STEP)
  if (first + 2) * STEP < K:
    x2 = _read(addresses, k, first + 2, K, STEP)
  if (first + 3) * STEP < K:
    x3 = _read(addresses, k, first + 3, K, STEP)
  return x0, x1, x2, x3


@gluon.jit
def _squares(b):
  """The sums of squares of the elements of each row that a warp has."""
  values = b.to(gl.float32)
  return gl.sum(values * values, 1)


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
def _store(result, residual, out, first, columns, ROWS: gl.constexpr, ROWS_WIDTH: gl.constexpr,
           COUNT: gl.constexpr, WARPS: gl.constexpr):
  """Stores COUNT columns of all rows, from the column `first` of `columns`."""
  layout: gl.constexpr = gl.BlockedLayout([1, 1], [COUNT, 32 // COUNT], [1, WARPS], [0, 1])
  column = first + gl.arange(0, COUNT, layout=gl.SliceLayout(1, layout))[:, None]
  row = gl.arange(0, ROWS_WIDTH, layout=gl.SliceLayout(0, layout))[None, :]
  exists = (column < columns) & (row < ROWS)
  at = row * columns + column
  result = gl.convert_layout(result, layout)
  if residual is not None:
    result += gl.load(residual + at, mask=exists, other=0.0).to(gl.float32)
  gl.store(out + at, result.to(out.dtype.element_ty), mask=exists)
