"""Quantiles: the decompositions against the operators, and programs with sizes that vary."""

import pytest
import torch
from export_and_compare import run
from husk.inductor.decompositions import quantile
from torch import nn
from torch.export import Dim

OPERATORS = {
  operator: quantile.table()[getattr(torch.ops.aten, operator.__name__).default]
  for operator in (torch.quantile, torch.nanquantile)
}
INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def values(*shape):
  torch.manual_seed(0)
  x = torch.randn(*shape).mul(4).round()
  x.view(-1)[::17] = float("nan")
  return x


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("q", [0.0, 0.3, 0.5, 1.0, torch.tensor(0.6), torch.tensor([0.1, 0.5, 1])])
@pytest.mark.parametrize("dim", [None, 0, 1, -1])
@pytest.mark.parametrize("keepdim", [False, True])
def test_values(operator, interpolation, q, dim, keepdim):
  for x in (values(5, 6, 7), torch.randn(3, 1), torch.full((2, 2), float("nan"))):
    if isinstance(q, torch.Tensor):
      q = q.to(x.dtype)
    expected = operator(x, q, dim, keepdim, interpolation=interpolation)
    result = OPERATORS[operator](x, q, dim, keepdim, interpolation=interpolation)
    torch.testing.assert_close(result, expected, equal_nan=True, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("keepdim", [False, True])
def test_a_tensor_without_dimensions(keepdim):
  x, q = torch.tensor(2.5), torch.tensor([0.2, 0.7])
  for one in (0.2, q):
    for dim in (None, 0):
      expected = torch.quantile(x, one, dim, keepdim)
      torch.testing.assert_close(OPERATORS[torch.quantile](x, one, dim, keepdim), expected)


def test_what_eager_mode_refuses():
  for words in ({"q": 1.5}, {"q": 0.5, "interpolation": "cubic"}):
    with pytest.raises(RuntimeError):
      torch.quantile(torch.ones(3), **words)
    with pytest.raises(ValueError, match=r"quantile\(\) "):
      OPERATORS[torch.quantile](torch.ones(3), **words)


class Quantiles(nn.Module):
  def forward(self, x, q):
    x = torch.where(x.abs() > 7, float("nan"), x)
    middle = x.nanquantile(0.5, dim=0, interpolation="midpoint")
    return torch.quantile(x, 0.3), torch.quantile(x, q, dim=1, keepdim=True), middle


def test_sizes_vary(tmp_path):
  rows, columns = Dim("rows", min=1, max=64), Dim("columns", min=1, max=64)
  q = torch.tensor([0.1, 0.45, 1.0])
  torch.manual_seed(1)
  first, *others = [(torch.randn(*s) * 4, q) for s in ((7, 9), (3, 20), (12, 1), (1, 5))]
  run(tmp_path, Quantiles(), first, ({0: rows, 1: columns}, None), others, strict=None)
