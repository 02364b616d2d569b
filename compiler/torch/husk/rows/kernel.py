"""Linear layers of few rows whose weights are floats of 16 bits: a kernel in Gluon.

rows/node.py compiles the text; nothing imports this file while a model is exported. The statement
that cuda/pdl.py adds uses `tl`.
"""

import triton.language as tl  # noqa: F401
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2

from .tiles import _addresses, _chosen, _finish, _place, _read


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

  pid = gl.program_id(0)
  number, before, columns, first_column = _place(pid, N0, N1, N2, N3, GATE, TILE)
  w = _chosen(number, w0, w1, w2, w3, GATE)

  # The addresses of the first elements of the weights.
  part = gl.arange(0, WARPS, layout=gl.SliceLayout(1, gl.SliceLayout(2, left)))[:, None, None]
  row = gl.arange(0, TILE, layout=gl.SliceLayout(0, gl.SliceLayout(2, left)))[None, :, None]
  inside = gl.arange(0, WIDTH, layout=gl.SliceLayout(0, gl.SliceLayout(1, left)))[None, None, :]
  k = part * WIDTH + inside
  weights = _addresses(w, w1, row, k, first_column, columns, K, GATE, HALF)
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
  _finish(result, b0, b1, b2, b3, residual, out, number, before, columns, first_column, N0, N1, N2,
          N3, 0, ROWS, ROWS_WIDTH, GATE, TILE)


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
