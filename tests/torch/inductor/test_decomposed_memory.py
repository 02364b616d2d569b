"""Operators whose results depend on where the elements of a tensor lie in memory."""

import export_and_compare
import pytest
import torch
from cuda_numerics import computed
from function_module import FunctionModule


def _fill(self, x, index):
  rows = x.t().index_fill(0, index, 2.0)
  columns = (x[:, 1:] * 2).t().index_fill(-1, index, x[0, 0])
  every_other = x[:, ::2].index_fill(0, index, 1.0), x[0, ::2].index_fill(0, index[:1], 1.0)
  one = x[0, 1:4:3].index_fill(0, index[:1], 1.0)  # its stride is 3
  return rows, columns, *every_other, one


def _views(self, x, index):
  return x[1:].as_strided((2, 2), (1, 3)), (x * 2)[1:, 1:].as_strided((2,), (1,))


@pytest.mark.parametrize("function", [_fill, _views])
def test_on_hosts(function, tmp_path):
  export_and_compare.run(tmp_path, function, (torch.randn(3, 4), torch.tensor([0, 2])))


def test_on_cuda(tmp_path):
  def function(self, x, index):
    return *_fill(self, x, index), *_views(self, x, index)

  model, x, index = FunctionModule(function), torch.randn(3, 4), torch.tensor([0, 2])
  (results,) = computed(model, (x, index), None, [{"x": x, "index": index}], tmp_path)
  for one, other in zip(results.values(), model(x, index), strict=True):
    torch.testing.assert_close(one, other)
