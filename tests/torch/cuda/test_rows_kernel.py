"""The kernel of linear layers of 2 to 16 rows over a table of shapes, run by gluon_interpreter.py
and compared with the layers in f64. Mistakes are planted in its text too, each of which must be
detected."""

import pathlib

import gluon_interpreter
import pytest
import rows_reference
import torch
from husk import rows
from husk.launches import call
from rows_reference import ACTIVATIONS

TEXT = call.module_text(pathlib.Path(rows.__file__).parent / "kernel.py")
CASES = {
  "one weight": {},
  "two rows": dict(rows=2),
  "eight rows": dict(rows=8, columns=(32,)),
  "nine rows": dict(rows=9),
  "sixteen rows": dict(rows=16, columns=(16,)),
  "a step": dict(k=128),
  "two steps": dict(k=256),
  "four steps": dict(k=512, columns=(16,)),
  "seven steps": dict(k=7 * 128, norm=True, scale=True, columns=(20, 7)),
  "a part of a ninth step": dict(k=8 * 128 + 40, norm=True, columns=(20,)),
  "a part of a step": dict(k=200),
  "less than a step": dict(k=40),
  "eight warps": dict(k=520, warps=8),
  "wide": dict(k=300 // 8 * 8, width=128),
  "two weights": dict(columns=(40, 24)),
  "three weights": dict(columns=(33, 16, 7)),
  "four weights": dict(columns=(17, 5, 32, 16)),
  "a bias": dict(bias=(True,)),
  "biases of some": dict(columns=(33, 16, 7, 20), bias=(False, True, False, True)),
  "biases of others": dict(columns=(33, 16, 7), bias=(True, False, True)),
  "a norm": dict(norm=True),
  "a norm with a weight": dict(norm=True, scale=True, columns=(20, 12), k=200),
  "a residual": dict(residual=True, columns=(21,)),
  "a residual and a bias": dict(residual=True, columns=(21,), bias=(True,), rows=12),
  **{name: dict(columns=(20, 20), gate=name) for name in ACTIVATIONS},
  "a gate with biases": dict(columns=(20, 20), gate="silu", bias=(True, True), norm=True),
  "a gate with a bias": dict(columns=(8, 8), gate="silu", bias=(False, True), rows=11),
  "a gate, a norm and its weight": dict(
    columns=(9, 9), gate="gelu_tanh", norm=True, scale=True, k=136
  ),
  "large tiles": dict(tile=32, columns=(40, 64, 7), bias=(True, False, True), rows=13),
  "large tiles and a gate": dict(tile=32, columns=(40, 40), gate="silu", bias=(True, True)),
  "bf16": dict(dtype=torch.bfloat16, columns=(40, 24), norm=True, scale=True),
}


def error(
  text=TEXT,
  rows=5,
  k=64,
  columns=(40,),
  bias=(),
  norm=False,
  scale=False,
  residual=False,
  gate="",
  tile=16,
  warps=4,
  width=32,
  dtype=torch.float16,
):
  """The error of the kernel's result, divided by its norm and the distance of numbers of its
  dtype."""
  torch.manual_seed(0)

  def some(*shape):
    return torch.randn(*shape).to(dtype)

  x, weights = some(rows, k), [some(count, k) / k**0.5 for count in columns]
  bias = bias or (False,) * len(columns)
  biases = [some(count) if has else None for count, has in zip(columns, bias)]
  factors = some(k) if scale else None
  added = some(rows, columns[0]) if residual else None
  right = rows_reference.expected(x, weights, biases, factors, norm, gate, added)
  out, around = rows_reference.room(right.shape, dtype)
  gluon_interpreter.launch(
    text,
    "few_rows",
    rows_reference.tiles(columns, gate, tile),
    [
      x,
      factors,
      *rows_reference.padded(weights),
      *rows_reference.padded(biases),
      added,
      out,
      1e-3 if norm else -1.0,
      k,
      *rows_reference.padded(columns, 0),
      rows,
      8 if rows <= 8 else 16,
      gate,
      tile,
      warps,
      width,
    ],
  )
  rows_reference.check(around)
  return float((out.double() - right).norm() / right.norm()) / torch.finfo(dtype).eps


@pytest.mark.parametrize("name", CASES)
def test_values(name):
  assert error(**CASES[name]) < 1


# (what is wrong, the case that finds it)
MISTAKES = [
  ("first = (pid - tiles) * TILE", "first = pid * TILE", "two weights"),
  ("gl.where(number >= 2, three, one)", "gl.where(number >= 2, two, one)", "three weights"),
  ("number == 3", "number == 2", "biases of some"),
  ("mask=k < K - step * STEP", "mask=k < K", "a part of a step"),
  ("out + before * ROWS", "out + before", "two weights"),
  ("(column < columns) & (row < ROWS)", "column < columns", "two rows"),
  ("squares += _squares(x1)", "squares = _squares(x1)", "a norm with a weight"),
  ("column % HALF, N0, column >= HALF", "column % HALF, N0, column < HALF", "a gate with a bias"),
  ("row + far * 0 < HALF", "row + far * 0 < HALF - 1", "silu"),
  ("mma_v2(a1, x1, sums)", "mma_v2(a0, x1, sums)", "two steps"),
  ("a2 = _read(weights, k, first + 6", "a2 = _read(weights, k, first + 5", "seven steps"),
]


@pytest.mark.parametrize("right, wrong, case", MISTAKES, ids=[case for *_, case in MISTAKES])
def test_a_mistake_is_found(right, wrong, case):
  assert TEXT.count(right) == 1
  try:
    assert not error(TEXT.replace(right, wrong), **CASES[case]) <= 1
  except (AssertionError, IndexError) as found:
    assert "error(" not in str(found)
