"""Histograms of the host, against PyTorch."""

import math

import pytest
import torch
from host_ops import INVALID_ARGUMENT, INVALID_INPUT, UNSUPPORTED, close, layouts, like, refused

ATEN = torch.ops.aten


def near(got, expected):
  close(got, expected, 1e-5, 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("density", [False, True])
def test_histogram(pack, dtype, density):
  values = torch.randn(40, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
  values[3, 2] = 1.0
  weights = values.abs() + 1
  edges = torch.tensor([-1.0, -0.5, 0.1, 1.0], dtype=dtype)
  for x in layouts(values):
    for weight in (None, weights):
      for bins, limits in ((1, None), (7, None), (4, [-1.0, 1.0]), (4, [1.0, 1.0])):
        expected = torch.histogram(x, bins, range=limits, weight=weight, density=density)
        got = [like(one) for one in expected]
        pack("aten::histogram.bin_ct", x, bins, limits, weight, density, *got)
        for one, other in zip(got, expected):
          near(one, other)
      expected = torch.histogram(x, edges, weight=weight, density=density)
      got = [like(one) for one in expected]
      pack("aten::histogram.bins_tensor", x, edges, weight, density, *got)
      for one, other in zip(got, expected):
        near(one, other)


@pytest.mark.parametrize("density", [False, True])
def test_histogram_of_points(pack, density):
  points = torch.rand(30, 2, generator=torch.Generator().manual_seed(1))
  weights = points.sum(-1)
  for x in layouts(points):
    for weight in (None, weights):
      for limits in (None, [0.0, 1.0, 0.25, 0.75]):
        args = (x, [3, 4], limits, weight, density)
        options = dict(range=limits, weight=weight, density=density)
        edges = ATEN._histogramdd_bin_edges(x, [3, 4], **options)
        expected = ATEN._histogramdd_from_bin_cts(x, [3, 4], **options)
        got = like(expected)
        pack("aten::_histogramdd_from_bin_cts", *args, got)
        near(got, expected)
      expected = ATEN._histogramdd_from_bin_tensors(x, edges, weight=weight, density=density)
      got = like(expected)
      pack("aten::_histogramdd_from_bin_tensors", x, edges, weight, density, got)
      near(got, expected)


def test_empty(pack):
  expected = torch.histogram(torch.zeros(0), 3)
  got = [like(one) for one in expected]
  pack("aten::histogram.bin_ct", torch.zeros(0), 3, None, None, False, *got)
  for one, other in zip(got, expected):
    near(one, other)


@pytest.mark.parametrize(
  "edges", [(0.0, 2.0, 1.0), (3.0, 1.0, 2.0), (1.0, -2.0, 0.5, 0.5, 4.0), (0.0, math.nan, 2.0)]
)
def test_edges_that_do_not_ascend(pack, edges):
  """Eager mode takes them, and finds the bins by the same search."""
  x, edges = torch.linspace(-3, 5, 33), torch.tensor(edges)
  expected = torch.histogram(x, edges)
  got = [like(one) for one in expected]
  pack("aten::histogram.bins_tensor", x, edges, None, False, *got)
  near(got[0], expected[0])


def test_refuses(pack):
  x, hist, edges, name = torch.zeros(3), torch.zeros(2), torch.zeros(3), "aten::histogram.bin_ct"
  rest = (None, False, hist, edges)
  refused(pack, INVALID_ARGUMENT, "the bins", name, x, 5, None, *rest)
  refused(pack, INVALID_ARGUMENT, "argument range", name, x, 2, [1.0], *rest)
  refused(pack, INVALID_INPUT, "ends before", name, x, 2, [1.0, 0.0], *rest)
  refused(pack, INVALID_INPUT, "not finite", name, x / 0, 2, None, *rest)
  whole = torch.zeros(3).int()
  refused(pack, UNSUPPORTED, "has dtype i32", name, whole, 2, None, None, False, hist.int(), whole)
