"""scan and map on CUDA targets: Inductor makes loops of them, which count on the GPU."""

import pytest
import torch
from cuda_numerics import close, computed
from function_module import FunctionModule
from torch._higher_order_ops.map import map as map_
from torch._higher_order_ops.scan import scan


def step(carry, row):
  return carry * 0.5 + row, (carry * row).relu()


def sums(self, x):
  return scan(step, x[0] * 0, x)


def mapped(self, x):
  factor = x.sum()
  return map_(lambda row, factor: (row.sin() + factor, row.sum()), x, factor)


def backwards_in_branch(self, x):
  def scanned(x):
    (total, _), rows = scan(
      lambda carry, row: ((carry[0] + row, carry[1] * row), {"row": row - carry[0]}),
      (x[0] * 0, torch.ones(3)),
      x,
      reverse=True,
    )
    return rows["row"] + total

  return (torch.cond(x.sum() > 0, scanned, lambda x: x - 1, (x,)),)


@pytest.mark.parametrize("function", [sums, mapped, backwards_in_branch])
def test_values(function, tmp_path):
  model = FunctionModule(function)
  shapes = ({0: torch.export.Dim("rows", min=2, max=9)},)
  runs = [{"x": torch.randn(rows, 3)} for rows in (6, 2, 9)]
  for inputs, result in zip(runs, computed(model, (runs[0]["x"],), shapes, runs, tmp_path)):
    close([*result.values()], [*model(**inputs)])
