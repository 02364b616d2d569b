"""Operators whose own code asks about sizes, in programs with sizes that vary."""

import pytest
import torch
from export_and_compare import run
from husk.inductor import element_counts
from husk.inductor.decompositions import any_sizes, composites
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


def near(op, *args, **kwargs):
  """Compares the function that is traced with the operator."""
  found, expected = any_sizes.table()[op](*args, **kwargs), op(*args, **kwargs)
  torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_covariances():
  cov, x = torch.ops.aten.cov.default, torch.randn(3, 6)
  counts, weights = torch.tensor([1, 3, 0, 2, 1, 1]), torch.rand(6)
  for rows in (x, x[0], x[:1], torch.randint(-5, 9, (2, 6)), torch.complex(x, x.flip(0))):
    near(cov, rows)
    near(torch.ops.aten.corrcoef.default, rows)
    for correction in (0, 2):
      near(cov, rows, correction=correction, fweights=counts)
      near(cov, rows, correction=correction, aweights=weights)
      near(cov, rows, correction=correction, fweights=counts, aweights=weights)
  near(cov, x, correction=9)


def test_gradients_of_samples():
  gradient, x = torch.ops.aten.gradient, torch.randn(5, 4, 6)
  near(gradient.scalarint, x)
  near(gradient.scalarint, x, spacing=0.5, dim=-1, edge_order=2)
  near(gradient.scalararray, x, spacing=2, dim=[0, 2], edge_order=2)
  near(gradient.array, x, dim=[2, 0])
  near(gradient.scalarrayint, x[0, 0], spacing=[0.3], dim=0)
  near(gradient.scalarrayarray, x, spacing=[0.3, 2], dim=[1, -1])
  near(gradient.scalarint, torch.complex(x, x.flip(0)), dim=1)


def test_products_of_all_pairs():
  for left, right in (((2, 3), (4, 5)), ((3,), (2, 4)), ((2, 3, 2), (5,)), ((), (2, 2))):
    near(torch.ops.aten.kron.default, torch.randn(left), torch.randn(right))


def test_places_along_a_dimension():
  take, x = torch.ops.aten.take_along_dim.default, torch.randn(3, 4, 5)
  near(take, x, torch.randint(0, 60, (2, 7)))
  near(take, x, x.argsort(1), 1)
  near(take, x, torch.randint(0, 4, (1, 2, 5)), -2)
  near(take, x[:1], torch.randint(0, 4, (3, 2, 1)), 1)
  with pytest.raises(RuntimeError, match="indices have 1 dimensions, and the tensor 3"):
    any_sizes.table()[take](x, torch.tensor([1]), 0)


def test_powers_of_all_elements():
  vander, x = torch.ops.aten.vander.default, torch.randn(4)
  for values in (x, torch.tensor([1, -2, 3]), torch.complex(x, -x)):
    near(vander, values)
    near(vander, values, 1, True)
    near(vander, values, 5)
    near(torch.ops.aten.linalg_vander.default, values.repeat(2, 3, 1), N=3)


@pytest.mark.parametrize("aligned", [False, True])
def test_places_of_samples(aligned):
  grid = torch.ops.aten.affine_grid_generator.default
  near(grid, torch.randn(2, 2, 3), [2, 3, 4, 5], aligned)
  near(grid, torch.randn(2, 2, 3), [2, 1, 1, 3], aligned)
  near(grid, torch.randn(1, 3, 4), [1, 3, 4, 5, 1], aligned)


class OfSamples(nn.Module):
  def forward(self, x):
    return (
      torch.cov(x.mT),
      torch.corrcoef(x),
      *torch.gradient(x, spacing=0.5),
      torch.kron(x, x[:2]),
      torch.vander(x[:, 0], 3),
      x.take_along_dim(x.argsort(0), 0),
      nn.functional.affine_grid(x[None, :2, :3], [1, 1, x.shape[0], 4], align_corners=False),
    )


def test_all_sizes_of_operators_that_consist_of_others(tmp_path):
  first, *more = [(torch.randn(n, 4),) for n in (8, 3, 13)]
  run(tmp_path, OfSamples(), first, ({0: Dim("n", min=3, max=64)},), more)


class OfElementCounts(nn.Module):
  def forward(self, x):
    n = x.shape[0]
    return (
      torch.linspace(-1, x[0, 0], n),
      torch.linspace(0, 3, steps=n - 2, dtype=torch.float64),
      torch.logspace(-1, 2, n, base=2.0),
      *(window(n) for window in (torch.bartlett_window, torch.blackman_window)),
      torch.kaiser_window(n - 2, False, beta=5.0),
      torch.bartlett_window(n - 2, periodic=False),
      torch.fft.fftfreq(n, 0.5),
      torch.fft.rfftfreq(n),
    )


def test_results_whose_number_of_elements_varies(tmp_path):
  first, *more = [(torch.randn(n, 4),) for n in (8, 3, 13)]
  run(tmp_path, OfElementCounts(), first, ({0: Dim("n", min=3, max=64)},), more)


def test_functions_with_numbers_of_elements_are_as_before():
  before = torch.linspace, torch.fft.fftfreq
  with element_counts.traced():
    assert torch.equal(torch.linspace(0, 1, 5), before[0](0, 1, 5))
    assert torch.linspace(0, 9, 4, dtype=torch.int64).tolist() == [0, 3, 6, 9]
  assert (torch.linspace, torch.fft.fftfreq) == before
