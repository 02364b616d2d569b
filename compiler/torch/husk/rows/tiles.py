"""What the kernels of layers of few rows have in common: which tile of which weight a block has,
and what becomes of its sums. kernel.py and codes_kernel.py are compiled with this text before
theirs."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def _read(addresses, k, step: gl.constexpr, K: gl.constexpr, STEP: gl.constexpr):
  """The elements of a step, whose places in the first step are `k`. Those behind a row are 0."""
  if (step + 1) * STEP <= K:
    return gl.load(addresses + step * STEP)
  else:
    return gl.load(addresses + step * STEP, mask=k < K - step * STEP, other=0)


@gluon.jit
def _place(pid, N0: gl.constexpr, N1: gl.constexpr, N2: gl.constexpr, N3: gl.constexpr,
           GATE: gl.constexpr, TILE: gl.constexpr):
  """The place of a tile among the weights: the number of its weight, the columns before this weight
  in the result, the columns of the weight, and the first one of the tile in the weight."""
  T1: gl.constexpr = (N0 + TILE - 1) // TILE
  T2: gl.constexpr = T1 + (N1 + TILE - 1) // TILE
  T3: gl.constexpr = T2 + (N2 + TILE - 1) // TILE
  number = pid * 0
  tiles = pid * 0
  before = pid * 0
  columns = before + N0
  first = pid * (TILE // 2)
  if GATE == "":
    if N1 > 0:
      number = gl.where(pid >= T1, 1, number)
      tiles = gl.where(pid >= T1, T1, tiles)
      before = gl.where(pid >= T1, N0, before)
      columns = gl.where(pid >= T1, N1, columns)
    if N2 > 0:
      number = gl.where(pid >= T2, 2, number)
      tiles = gl.where(pid >= T2, T2, tiles)
      before = gl.where(pid >= T2, N0 + N1, before)
      columns = gl.where(pid >= T2, N2, columns)
    if N3 > 0:
      number = gl.where(pid >= T3, 3, number)
      tiles = gl.where(pid >= T3, T3, tiles)
      before = gl.where(pid >= T3, N0 + N1 + N2, before)
      columns = gl.where(pid >= T3, N3, columns)
    first = (pid - tiles) * TILE
  return number, before, columns, first


@gluon.jit
def _chosen(number, one, two, three, four, GATE: gl.constexpr):
  """What the weight of that number has, of what four weights have. With a gate, it is the first."""
  if GATE == "":
    if two is not None:
      one = gl.where(number >= 1, two, one)
    if three is not None:
      one = gl.where(number >= 2, three, one)
    if four is not None:
      one = gl.where(number >= 3, four, one)
  return one


@gluon.jit
def _addresses(one, other, row, far, first, columns, SIZE: gl.constexpr, GATE: gl.constexpr,
               HALF: gl.constexpr):
  """The addresses of elements `far` into rows of SIZE elements, of which `row` is the number in the
  tile: rows of `one`, or, with a gate, the same rows of `one` and of `other`."""
  if GATE == "":
    n = gl.minimum(first + row, columns - 1).to(gl.int64)
    return one + (n * SIZE + far)
  else:
    n = gl.minimum(first + row % HALF, columns - 1).to(gl.int64)
    return gl.where(row + far * 0 < HALF, one + (n * SIZE + far), other + (n * SIZE + far))


@gluon.jit
def _finish(result, b0, b1, b2, b3, residual, out, number, before, columns, first,
            N0: gl.constexpr, N1: gl.constexpr, N2: gl.constexpr, N3: gl.constexpr,
            FIRST_ROW: gl.constexpr, ROWS: gl.constexpr, ROWS_WIDTH: gl.constexpr,
            GATE: gl.constexpr, TILE: gl.constexpr):
  """Stores a tile of sums, TILE x ROWS_WIDTH, with what follows them. `first` is its first column,
  FIRST_ROW its first row."""
  HALF: gl.constexpr = TILE // 2
  column = gl.arange(0, TILE, layout=gl.SliceLayout(1, result.type.layout))
  if GATE == "":
    column = first + column
    if b0 is not None:
      result += _bias(b0, column, N0, number == 0)[:, None]
    if b1 is not None:
      result += _bias(b1, column, N1, number == 1)[:, None]
    if b2 is not None:
      result += _bias(b2, column, N2, number == 2)[:, None]
    if b3 is not None:
      result += _bias(b3, column, N3, number == 3)[:, None]
    _store(result, residual, out + before * ROWS, first, columns, FIRST_ROW, ROWS, ROWS_WIDTH,
           TILE)
  else:
    if b0 is not None:
      result += _bias(b0, first + column % HALF, N0, column < HALF)[:, None]
    if b1 is not None:
      result += _bias(b1, first + column % HALF, N0, column >= HALF)[:, None]
    # A thread has the sums of both weights.
    pairs = gl.permute(gl.reshape(result, (2, HALF, ROWS_WIDTH)), (1, 2, 0))
    gate, up = gl.split(pairs)
    _store(_activated(gate, GATE) * up, residual, out, first, columns, FIRST_ROW, ROWS,
           ROWS_WIDTH, HALF)


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
def _store(result, residual, out, first, columns, FIRST_ROW: gl.constexpr, ROWS: gl.constexpr,
           ROWS_WIDTH: gl.constexpr, COUNT: gl.constexpr):
  """Stores COUNT columns of ROWS_WIDTH rows, from the column `first` of `columns`."""
  layout: gl.constexpr = result.type.layout
  column = first + gl.arange(0, COUNT, layout=gl.SliceLayout(1, layout))[:, None]
  row = FIRST_ROW + gl.arange(0, ROWS_WIDTH, layout=gl.SliceLayout(0, layout))[None, :]
  exists = (column < columns) & (row < ROWS)
  at = row * columns + column
  if residual is not None:
    result += gl.load(residual + at, mask=exists, other=0.0).to(gl.float32)
  gl.store(out + at, result.to(out.dtype.element_ty), mask=exists)
