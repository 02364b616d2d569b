"""Sizes that an export promises: a program runs at every size of its range, at the export nothing
pins one, and a size that the operator refuses is refused."""

import pytest
import torch
import torch.nn.functional as F
from export_and_compare import run
from function_module import FunctionModule
from test_cuda_numerics import computed
from torch.export import Dim

AUTO = Dim.AUTO


def numbers(*shape):
  return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def image(*inside):
  """A tensor of two channels with the sizes `inside`."""
  return (numbers(1, 2, *inside),)


def inside(rank):
  """All sizes but those of batch and channels vary."""
  return {dim: AUTO for dim in range(2, 2 + rank)}


# Function, arguments of the export, which sizes vary, other arguments.
CASES = {
  "adaptive_avg_pool1d": (lambda self, x: F.adaptive_avg_pool1d(x, 3), 1, [(12,), (2,), (13,), (24,)]),
  "adaptive_avg_pool2d": (
    lambda self, x: F.adaptive_avg_pool2d(x, (2, 3)),
    2,
    [(6, 12), (7, 13), (2, 24), (40, 3)],
  ),
  "adaptive_avg_pool3d": (
    lambda self, x: F.adaptive_avg_pool3d(x, (2, 3, 1)),
    3,
    [(6, 12, 3), (7, 13, 2), (2, 4, 5)],
  ),
  "adaptive_max_pool1d": (lambda self, x: F.adaptive_max_pool1d(x, 3), 1, [(12,), (2,), (13,), (24,)]),
  "adaptive_max_pool2d": (
    lambda self, x: F.adaptive_max_pool2d(x, (2, 3), return_indices=True),
    2,
    [(6, 12), (7, 13), (2, 24), (40, 3)],
  ),
  "adaptive_max_pool3d": (
    lambda self, x: F.adaptive_max_pool3d(x, (2, 3, 1)),
    3,
    [(6, 12, 3), (7, 13, 2), (2, 4, 5)],
  ),
  "area": (
    lambda self, x: F.interpolate(x, size=(2, 3), mode="area"),
    2,
    [(6, 12), (7, 13), (2, 24), (40, 3)],
  ),
  "nearest": (lambda self, x: F.interpolate(x, size=5, mode="nearest"), 1, [(12,), (2,), (13,), (64,)]),
  "nearest_exact": (
    lambda self, x: F.interpolate(x, size=(5, 7), mode="nearest-exact"),
    2,
    [(6, 12), (7, 13), (2, 24), (40, 3)],
  ),
  "nearest_by_a_factor": (
    lambda self, x: F.interpolate(x, scale_factor=(1.7, 0.6), mode="nearest"),
    2,
    [(6, 12), (7, 13), (4, 24), (40, 5)],
  ),
  "diagonal": (lambda self, x: x.diagonal(1, 2, 3), 2, [(3, 8), (8, 3), (6, 6), (9, 2)]),
  "diagonal_below": (lambda self, x: x.diagonal(-1, 2, 3) + 1, 2, [(3, 8), (8, 3), (6, 6), (9, 2)]),
}


def arguments(name):
  function, rank, sizes = CASES[name]
  return FunctionModule(function), [image(*each) for each in sizes], {"x": inside(rank)}


@pytest.mark.parametrize("name", CASES)
def test_all_sizes_run_on_hosts(tmp_path, name):
  model, (first, *others), shapes = arguments(name)
  run(tmp_path, model, first, shapes, others)


@pytest.mark.parametrize("name", CASES)
def test_all_sizes_run_on_a_gpu(tmp_path, name):
  model, given, shapes = arguments(name)
  results = computed(model, given[0], shapes, [{"x": x} for (x,) in given], tmp_path)
  for (x,), result in zip(given, results, strict=True):
    torch.testing.assert_close(
      list(result.values()), list(torch.utils._pytree.tree_leaves(model(x))), rtol=1e-5, atol=1e-5
    )
