"""Operators whose own code asks about sizes, in programs with sizes that vary."""

import pytest
import torch
from export_and_compare import run
from husk.inductor.decompositions import composites
from torch import nn
from torch.export import Dim


class Distances(nn.Module):
  def forward(self, x, y):
    many = torch.cdist(x[:, :1].expand(-1, 30, -1), y, compute_mode="donot_use_mm_for_euclid_dist")
    nearest = torch.cdist(x, y).min(-1)
    return torch.cdist(x, y, p=1), torch.cdist(y, x[:1]), many, *nearest


def test_distances_of_rows_whose_number_varies(tmp_path):
  """torch.export has a program for at most 25 rows, or for more."""
  torch.manual_seed(0)
  rows, others = Dim("rows", min=1, max=64), Dim("others", min=1, max=64)
  first, *more = [
    (torch.randn(2, n, 3), torch.randn(2, m, 3)) for n, m in ((9, 4), (40, 30), (1, 26), (25, 1))
  ]
  run(tmp_path, Distances(), first, ({1: rows}, {1: others}), more, strict=None)


@pytest.mark.parametrize("rows", [4, 30])
@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("mode", [None, 1, 2])
def test_distances(rows, p, mode):
  x, y = torch.randn(2, 1, rows, 5), torch.randn(3, 7, 5)
  expected = torch.ops.aten.cdist(x, y, p, mode)
  torch.testing.assert_close(composites._cdist(x, y, p, mode), expected, rtol=1e-4, atol=1e-4)


def test_operators_are_as_before():
  for op in composites.table():
    before = dict(op.py_kernels)
    with composites.traced():
      assert op.py_kernels != before
    assert op.py_kernels == before
