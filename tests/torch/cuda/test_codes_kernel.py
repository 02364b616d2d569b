"""The kernel of linear layers of few rows whose weights are codes, over a table of shapes, run by
gluon_interpreter.py and compared with the layers in f64. Mistakes are planted in its text too, each
of which must be detected."""

import codes_kernel_runs
import pytest
import rows_reference
import torch
from codes_kernel_runs import E4M3, INT4, TEXT, codes_of
from rows_reference import ACTIVATIONS

CASES = {
  "int8": {},
  "int8, half": dict(dtype=torch.float16),
  "int8, two rows": dict(rows=2),
  "int8, eight rows": dict(rows=8, columns=(32,)),
  "int8, sixteen rows": dict(rows=16, columns=(16,)),
  "int8, nine rows and a norm": dict(rows=9, norm=True),
  "a step": dict(k=256),
  "two steps": dict(k=512, depth=1),
  "seven steps": dict(k=7 * 128, warps=2, depth=3, norm=True, scale=True, columns=(20, 7)),
  "a part of a ninth step": dict(k=8 * 64 + 48, warps=1, depth=4, norm=True, columns=(20,)),
  "less than a step": dict(k=48),
  "eight warps": dict(k=528, warps=8),
  "two weights": dict(columns=(40, 24)),
  "four weights": dict(columns=(17, 5, 32, 16)),
  "biases of some": dict(columns=(33, 16, 7, 20), bias=(False, True, False, True)),
  "a residual": dict(residual=True, columns=(21,)),
  "a residual and a bias": dict(residual=True, columns=(21,), bias=(True,), rows=12),
  **{name: dict(columns=(20, 20), gate=name) for name in ACTIVATIONS},
  "a gate with biases": dict(columns=(20, 20), gate="silu", bias=(True, True), norm=True),
  "a gate with a bias": dict(columns=(8, 8), gate="silu", bias=(False, True), rows=11),
  "a gate, a norm and its weight": dict(
    columns=(9, 9), gate="gelu_tanh", norm=True, scale=True, k=144
  ),
  "large tiles": dict(tile=32, columns=(40, 64, 7), bias=(True, False, True)),
  "large tiles and a gate": dict(tile=32, columns=(40, 40), gate="silu", rows=3),
  "int8, groups": dict(group=64, k=320),
  "int8, groups and zeros": dict(group=64, k=320, zeros=torch.int8, rows=3),
  "int8, groups and zeros, steps": dict(group=32, k=640, zeros=torch.int8, warps=1, depth=2),
  "int8, zeros": dict(zeros=torch.float32, rows=2),
  "fp8": dict(codes=E4M3, rows=2),
  "fp8, steps": dict(codes=E4M3, k=600 // 16 * 16, warps=1, depth=3),
  "fp8, groups": dict(codes=E4M3, k=320, group=64, norm=True),
  "fp8, half": dict(codes=E4M3, dtype=torch.float16, norm=True, scale=True),
  "int4": INT4,
  "int4, half": dict(INT4, dtype=torch.float16, norm=True, scale=True),
  "int4, a scale for a row": dict(INT4, group=None, rows=3),
  "int4, groups of 64": dict(INT4, group=64, k=320, rows=2),
  "int4, groups of 128": dict(INT4, group=128, k=640, rows=5, columns=(20, 7), warps=2),
  "int4, a group that ends in a step": dict(INT4, group=96, k=480, warps=2),
  "int4, a part of a step": dict(INT4, k=32 * 21, warps=2, depth=2),
  "int4, two rows": dict(INT4, k=32 * 21, warps=2, depth=2, rows=2),
  "int4, less than a step": dict(INT4, k=32),
  "int4, many steps": dict(INT4, k=1312, warps=1, depth=3, norm=True, columns=(20,)),
  "int4, zeros of a row": dict(INT4, k=640, zeros=torch.int8, columns=(20, 12)),
  "int4, a row with zeros of floats": dict(INT4, k=640, zeros=torch.float32, columns=(20, 12)),
  "int4, zeros": dict(INT4, zeros=torch.float32, rows=2),
  "int4, zeros of weights": dict(INT4, zeros=torch.int8, columns=(20, 12), rows=7, norm=True),
  "int4, eight rows": dict(INT4, rows=8, norm=True, scale=True, k=320),
  "int4, a gate": dict(INT4, rows=3, columns=(24, 24), gate="silu", norm=True, scale=True),
  "int4, large tiles": dict(INT4, tile=32, columns=(40, 64, 7), bias=(True, False, True)),
  "int4, a residual": dict(INT4, residual=True, columns=(21,), rows=6),
}


def results(
  text=TEXT,
  rows=1,
  k=256,
  columns=(40,),
  bias=(),
  norm=False,
  scale=False,
  residual=False,
  gate="",
  bits=8,
  codes=None,
  group=None,
  scales=torch.float32,
  zeros=None,
  tile=16,
  warps=4,
  depth=4,
  dtype=torch.bfloat16,
  element=None,
  size=1.0,
):
  """The kernel's result, and that in f64. `element` is the first one of all rows, whose others
  are multiplied with `size`."""
  torch.manual_seed(0)

  def some(*shape):
    return torch.randn(*shape).to(dtype)

  kind = codes or (torch.uint8 if bits == 4 else torch.int8)
  x = some(rows, k) * (torch.arange(rows) % 3 + 1)[:, None].to(dtype)
  x *= size
  if element is not None:
    x[:, 0] = element
  weights = [codes_of(count, k, bits, kind, group or k, scales, zeros) for count in columns]
  bias = bias or (False,) * len(columns)
  # With more than two rows, scales of groups are multiplied with numbers.
  is_rounded = rows > 2 and ((group or k) < k or zeros is not None)
  if is_rounded:
    weights = [(*parts, weight.to(dtype)) for *parts, weight in weights]
  biases = [some(count) if has else None for count, has in zip(columns, bias)]
  factors = some(k) if scale else None
  added = some(rows, columns[0]) if residual else None
  matrices = [weight for *_, weight in weights]
  right = rows_reference.expected(x, matrices, biases, factors, norm, gate, added)
  out, around = rows_reference.room(right.shape, dtype)

  codes_kernel_runs.launch(
    text,
    rows_reference.tiles(columns, gate, tile),
    x,
    [(one.view(kind), *others) for one, *others in weights],
    columns,
    out,
    bits,
    group,
    factors=factors,
    biases=biases,
    added=added,
    norm=norm,
    rows=rows,
    gate=gate,
    is_rounded=is_rounded,
    tile=tile,
    warps=warps,
    depth=depth,
  )
  rows_reference.check(around)
  return out, right


def error(text=TEXT, **options):
  return codes_kernel_runs.error(*results(text, **options))


@pytest.mark.parametrize("name", CASES)
def test_values(name):
  assert error(**CASES[name]) < 1


@pytest.mark.parametrize("case", [{}, INT4], ids=["int8", "int4"])
@pytest.mark.parametrize("element", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite(case, element):
  """Ints have none, but the unit of a row does."""
  out, _ = results(**case, element=element)
  assert not out.isfinite().any()


@pytest.mark.parametrize("case", [{}, INT4], ids=["int8", "int4"])
def test_an_element_that_is_larger_than_all_others(case):
  assert error(**case, element=1000.0) < 1


@pytest.mark.parametrize("case", [{}, INT4], ids=["int8", "int4"])
def test_a_row_of_zeros(case):
  out, _ = results(**case, size=0.0)
  assert (out == 0).all()


# (what is wrong, the case that finds it)
MISTAKES = [
  ("gl.minimum(first + row, columns - 1)", "gl.minimum(row, columns - 1)", "int8"),
  ("gl.where(number >= 2, three, one)", "gl.where(number >= 2, two, one)", "four weights"),
  ("number == 3", "number == 2", "biases of some"),
  ("mask=k < K - step * STEP", "mask=k < K", "a part of a ninth step"),
  ("mask=line < BYTES // 16 - step * SPLIT * 4", "mask=line < 0", "int4, a part of a step"),
  ("mask=exists & (j < BYTES - step * STEP)", "mask=exists", "int4, two rows"),
  ("m % 4 + part * 0", "m % 2 + part * 0", "int4, zeros"),
  ("byte[None, None, None, :] // 16", "byte[None, None, None, :] // 32", "int4"),
  ("HALVES * part + half].store(digits)", "half].store(digits)", "int4, many steps"),
  ("HALVES * part + half].store(factors", "half].store(factors", "fp8, steps"),
  ("slice(step % 4, 1, 2)", "slice(0, 1, 2)", "int4, many steps"),
  ("step[None, None, :, None] * SPLIT", "step[None, None, :, None] * 4", "seven steps"),
  ("(value + 128) >> 8", "value >> 8", "int8"),
  ("1.0, 256.0 if", "1.0, 128.0 if", "int8"),
  ("unit = largest * (1.0 / 32512.0)", "unit = largest * (1.0 / 65536.0)", "int8"),
  ("result *= 1.0 / 16.0", "result *= 1.0 / 8.0", "int4"),
  ("total += values * values", "total += values", "int4, many steps"),
  ("(at < ROWS)", "(at < ROWS - 1)", "int4, zeros"),
  ("at = m // 4", "at = m // 2", "int4, zeros"),
  ("(-zero.to(gl.float32))", "zero.to(gl.float32)", "int4, zeros of weights"),
  ("at = gl.minimum(8 * p + m, ROWS - 1)", "at = gl.minimum(m, ROWS - 1)", "int8, sixteen rows"),
  ("(step * SPLIT * 4 + line) // OF_A_GROUP", "line // OF_A_GROUP", "int4, many steps"),
  ("GROUP * BITS // 128", "2 * GROUP * BITS // 128", "int4, a group that ends in a step"),
  ("factors = factors[1:]", "factors = factors", "int4, many steps"),
  ("found -= zero *", "found += zero *", "int4, zeros"),
  ("zeros = zeros[1:]", "zeros = zeros", "int8, groups and zeros, steps"),
  ("out + before * ROWS", "out + before", "int4, zeros of weights"),
  ("(column < columns) & (row < ROWS)", "column < columns", "int8, two rows"),
  ("COLUMNS * p, ROWS, BYTES", "0, ROWS, BYTES", "int8, nine rows and a norm"),
  ("total += other * other", "total += one * other", "int4, eight rows"),
  ("column % HALF, N0, column >= HALF", "column % HALF, N0, column < HALF", "a gate with a bias"),
  ("row + far * 0 < HALF", "row + far * 0 < HALF - 1", "silu"),
  ("mma_v2(numbers[1], elements[1], sums)", "mma_v2(numbers[0], elements[1], sums)", "int4"),
  ("step + DEPTH < STEPS:\n        codes", "step + DEPTH + 1 < STEPS:\n        codes", "two steps"),
]


@pytest.mark.parametrize("right, wrong, case", MISTAKES, ids=[right for right, *_ in MISTAKES])
def test_a_mistake_is_found(right, wrong, case):
  assert TEXT.count(right) == 1
  try:
    assert not error(TEXT.replace(right, wrong), **CASES[case]) <= 1
  except (AssertionError, IndexError) as found:
    assert "error(" not in str(found)
