"""Sampling of volumes on CUDA targets."""

import decomposed
import pytest
import torch


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [False, True])
def test_volumes(mode, padding, align_corners):
  torch.manual_seed(14)
  grid = torch.rand(2, 3, 2, 6, 3) * 5 - 2.5

  def function(x, grid):
    return torch.nn.functional.grid_sample(
      x, grid, mode=mode, padding_mode=padding, align_corners=align_corners
    )

  for sizes in ((4, 5, 6), (1, 3, 1)):
    x = torch.randn(2, 3, *sizes)
    traced = decomposed.graph(function, (x, grid))
    assert not [name for name in decomposed.operators(traced) if "grid_sampler" in name]
    decomposed.equal(traced(x, grid), function(x, grid), rtol=1e-4, atol=1e-4)
  doubles = x.double(), grid.double()
  decomposed.equal(decomposed.graph(function, doubles)(*doubles), function(*doubles))


def test_a_coordinate_that_is_no_number():
  x, grid = torch.randn(1, 2, 3, 4, 5), torch.zeros(1, 1, 1, 2, 3)
  grid[0, 0, 0, 0, 1] = float("nan")

  def function(x, grid):
    return torch.nn.functional.grid_sample(x, grid, align_corners=False)

  result, expected = decomposed.graph(function, (x, grid))(x, grid), function(x, grid)
  decomposed.equal(result[..., 1], expected[..., 1], rtol=1e-4, atol=1e-4)
