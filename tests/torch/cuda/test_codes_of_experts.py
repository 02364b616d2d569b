"""The kernel of layers whose weights are codes, with a matrix for each row: stacks of a mixture of
experts. It is run by gluon_interpreter.py and compared with the products in f64. Mistakes are
planted in its text too, each of which must be detected."""

import codes_kernel_runs
import pytest
import rows_reference
import torch
from codes_kernel_runs import E4M3, INT4, TEXT, codes_of
from rows_reference import ACTIVATIONS

COUNT, OFFSET = 5, 2
CASES = {
  "int8": {},
  "int8, rows of the same element": dict(times=3),
  "int8, a gate and a norm": dict(gate="silu", norm=True, scale=True, columns=20, times=2),
  "int8, groups": dict(group=64, k=320),
  "int8, zeros": dict(zeros=torch.int8, gate="relu", columns=24),
  "int8, steps": dict(k=1100 // 16 * 16, warps=2, depth=2),
  "fp8": dict(codes=E4M3, gate="gelu_tanh", columns=9, times=2),
  "int4": INT4,
  "int4, half": dict(INT4, dtype=torch.float16, norm=True),
  "int4, zeros of floats and a gate": dict(INT4, zeros=torch.float32, gate="silu", columns=20),
  "int4, a scale for a row": dict(INT4, group=None, gate="sigmoid", columns=12, times=2),
  "sums": dict(shares=torch.bfloat16, times=4),
  "sums of two": dict(shares=torch.float32, times=2, split=4, residual=True),
  "sums of three": dict(shares=torch.float32, times=3, split=1, residual=True, k=336),
  "sums of one": dict(shares=torch.bfloat16, times=1, split=2),
  "sums, fp8": dict(shares=torch.bfloat16, times=2, codes=E4M3),
  "sums, groups and zeros": dict(
    shares=torch.bfloat16, times=4, group=64, k=320, zeros=torch.int8, residual=True
  ),
  "sums, int4": dict(INT4, shares=torch.bfloat16, times=4, k=640, depth=2),
  "sums, int4, a scale for a row": dict(INT4, shares=torch.float32, times=4, group=None),
}


def results(
  text=TEXT,
  rows=4,
  k=256,
  columns=40,
  norm=False,
  scale=False,
  residual=False,
  gate="",
  bits=8,
  codes=None,
  group=None,
  scales=torch.float32,
  zeros=None,
  times=1,
  shares=None,
  split=2,
  warps=4,
  depth=4,
  dtype=torch.bfloat16,
  element=None,
):
  """The kernel's result, and that in f64, of `rows` rows. Some numbers are of no matrix. `element`
  is the first one of each row of numbers of no matrix."""
  torch.manual_seed(0)

  def some(*shape):
    return torch.randn(*shape).to(dtype)

  kind = codes or (torch.uint8 if bits == 4 else torch.int8)
  of_matrix = columns * (2 if gate else 1)
  stack = [codes_of(of_matrix, k, bits, kind, group or k, scales, zeros) for _ in range(COUNT)]
  count = rows * times if shares else rows
  numbers = torch.randint(OFFSET, OFFSET + COUNT, (count,))
  numbers[1], numbers[-1] = OFFSET - 1, OFFSET + COUNT
  x = some(count if shares else -(-rows // times), k)
  parts = torch.rand(count).to(shares) if shares else None
  if element is not None:
    x[[1, -1] if shares else 0, 0] = element
  factors = some(k) if scale else None
  added = some(rows, columns) if residual else None
  wanted = []
  for row, number in enumerate(numbers.tolist()):
    at = row if shares else row // times
    if not OFFSET <= number < OFFSET + COUNT:
      wanted.append(torch.zeros(columns, dtype=torch.float64))
      continue
    weight = stack[number - OFFSET][3]
    matrices = weight.chunk(2) if gate else [weight]
    right = rows_reference.expected(
      x[at : at + 1], matrices, [None] * len(matrices), factors, norm, gate
    )
    wanted.append(right[0])
  right = torch.stack(wanted)
  if shares:
    right = (right * parts.double()[:, None]).view(rows, times, columns).sum(1)
    right = right if added is None else right + added.double()
  out, around = rows_reference.room(right.shape, dtype)

  def stacked(place):
    return None if stack[0][place] is None else torch.stack([one[place] for one in stack])

  warps_of_a_row = split if shares else warps
  codes_kernel_runs.launch(
    text,
    (rows, rows_reference.tiles([columns], gate, 16)),
    x,
    [(stacked(0).view(kind), stacked(1), stacked(2))],
    [columns],
    out,
    bits,
    group,
    factors=factors,
    added=added,
    experts=numbers,
    shares=parts,
    norm=norm,
    gate=gate,
    times=times,
    offset=OFFSET,
    count=COUNT,
    warps=warps_of_a_row * (1 << (times - 1).bit_length()) if shares else warps,
    depth=depth,
    split=warps_of_a_row,
  )
  rows_reference.check(around)
  return out, right


def error(text=TEXT, **options):
  return codes_kernel_runs.error(*results(text, **options))


@pytest.mark.parametrize("name", CASES)
def test_values(name):
  assert error(**CASES[name]) < 1


@pytest.mark.parametrize("case", [{}, INT4, dict(shares=torch.bfloat16, times=2)])
def test_rows_of_no_matrix_are_0(case):
  """Also if an element of theirs is no number."""
  out, right = results(**case, element=float("nan"))
  assert out[1].isfinite().all() and out[-1].isfinite().all()
  if "shares" not in case:
    assert (out[1] == 0).all() and (out[-1] == 0).all()


def test_activations():
  assert {case.get("gate", "") for case in CASES.values()} == {"", *ACTIVATIONS}


# (what is wrong, the case that finds it)
MISTAKES = [
  ("experts += token * PLACES", "experts += token", "sums"),
  ("(token // (TIMES // PLACES))", "token", "int8, rows of the same element"),
  ("out += token * N0", "out += token", "int8"),
  ("residual += token * N0", "residual += token", "sums of two"),
  ("w1 = w0 + N0 * BYTES", "w1 = w0", "int8, a gate and a norm"),
  ("s1 = s0 + N0 * GROUPS", "s1 = s0", "int8, zeros"),
  ("z1 = z0 + N0 * GROUPS", "z1 = z0", "int4, zeros of floats and a gate"),
  ("weights += expert * (OF_EXPERT * BYTES)", "weights += expert * BYTES", "int8"),
  ("scales += expert * (OF_EXPERT * GROUPS)", "scales += expert * GROUPS", "int4"),
  ("offsets += expert * (OF_EXPERT * GROUPS)", "offsets += expert", "sums, groups and zeros"),
  ("at + expert * OF_EXPERT", "at + expert", "int8"),
  ("token * PLACES + gl.minimum(part // SPLIT, PLACES - 1)", "part // SPLIT", "sums of three"),
  ("gl.minimum(part // SPLIT, PLACES - 1) * BYTES", "part // SPLIT * BYTES", "sums of three"),
  ("(place < PLACES)", "(place >= 0)", "sums of three"),
  ("k = part % SPLIT * 64 + inside", "k = part * 64 + inside", "sums"),
  ("line = part % SPLIT * 4", "line = part * 4", "sums, int4"),
  ("gl.where(is_of_stack, found * of_sums, 0.0)", "found * of_sums", "nan"),
  (".to(gl.int64) - OFFSET\n", ".to(gl.int64)\n", "int8"),
]


@pytest.mark.parametrize("right, wrong, case", MISTAKES, ids=[right for right, *_ in MISTAKES])
def test_a_mistake_is_found(right, wrong, case):
  assert TEXT.count(right) == 1
  text = TEXT.replace(right, wrong)
  try:
    if case == "nan":
      out, _ = results(text, element=float("nan"))
      assert not out[1].isfinite().all()
    else:
      assert not error(text, **CASES[case]) <= 1
  except (AssertionError, IndexError) as found:
    assert "error(" not in str(found)
