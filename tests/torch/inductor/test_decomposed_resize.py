"""Resizing with antialiasing on CUDA targets."""

import decomposed
import pytest
import torch


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [(5, 7), (30, 9), (16, 16), (1, 40)])
def test_resize(mode, align_corners, size):
  torch.manual_seed(10)
  x = torch.randn(2, 3, 16, 23)

  def function(x):
    return torch.nn.functional.interpolate(
      x, size, mode=mode, align_corners=align_corners, antialias=True
    )

  traced = decomposed.graph(function, (x,))
  assert not [name for name in decomposed.operators(traced) if "upsample" in name]
  decomposed.equal(traced(x), function(x), rtol=1e-4, atol=1e-4)
  exact = function(x.double())
  half = x.half()
  result = decomposed.graph(function, (half,))(half)
  assert result.dtype is torch.float16 and (result - exact).abs().max() < 5e-3


def test_a_given_scale():
  torch.manual_seed(10)
  x = torch.randn(1, 2, 11, 14)

  def function(x):
    return torch.nn.functional.interpolate(x, scale_factor=0.7, mode="bicubic", antialias=True)

  traced = decomposed.graph(function, (x,))
  decomposed.equal(traced(x), function(x), rtol=1e-4, atol=1e-4)
