"""The template of convolutions of images: values by Triton's interpreter, which convolutions take it,
and how the depth is split."""

import dataclasses
import re

import pytest
import torch
from husk.cuda import convolution, gemm_configs, records
from husk.cuda.convolution import Problem, Tiles
from husk.cuda.target import Target
from test_cuda_numerics import close, computed
from torch import nn

H200 = Target.load("h200")


class Convolution(nn.Module):
  """A convolution and what often follows it."""

  def __init__(self, *arguments, **options):
    super().__init__()
    self.convolution = nn.Conv2d(*arguments, **options)
    self.norm = nn.BatchNorm2d(arguments[1])

  def forward(self, x):
    return nn.functional.silu(self.norm(self.convolution(x)))


def launches(folder):
  return re.findall(r"^\s*launch h200_triton_(\w+?)_", (folder / "model.hir").read_text(), re.M)


@pytest.fixture
def only(monkeypatch):
  """A function that leaves a single choice of tiles."""

  def set_tiles(tiles):
    monkeypatch.setattr(convolution, "candidates", lambda target, problem: [tiles])

  return set_tiles


SMALL = Tiles(32, 16, 16, 2, 4)


def split(number, tiles=SMALL):
  return dataclasses.replace(tiles, split=number)


# channels, outputs, kernel; stride, padding, dilation; batch and sizes of the image; tiles. Tiles
# with tails in each dimension, steps of one tap and of several, whole images that are left out.
CASES = [
  ((16, 24, 3), (1, 1, 1), (2, 7, 9), SMALL),
  ((32, 16, (3, 2)), ((2, 1), (1, 2), (1, 3)), (1, 11, 8), SMALL),
  ((16, 20, 3), (1, 12, 12), (2, 14, 14), SMALL),
  ((16, 16, 3), (2, 36, 36), (2, 20, 20), split(2)),
  ((48, 33, 3), (1, 2, 2), (1, 6, 7), split(3)),
  ((64, 16, (1, 5)), (1, (0, 4), (1, 2)), (1, 3, 20), split(8)),
  ((3, 18, 7), (2, 3, 1), (2, 15, 13), SMALL),
  ((5, 9, 3), (1, 2, 2), (1, 8, 9), split(2)),
  ((24, 16, 3), (1, 1, 1), (1, 6, 6), SMALL),
  ((1, 16, 5), (3, 0, 1), (2, 14, 11), SMALL),
  ((32, 48, 1), (2, 0, 1), (2, 9, 9), split(2)),
]


@pytest.mark.parametrize("sizes, steps, image, tiles", CASES)
def test_values(sizes, steps, image, tiles, only, tmp_path):
  only(tiles)
  torch.manual_seed(0)
  channels, outputs, kernel = sizes
  model = Convolution(channels, outputs, kernel, *steps, bias=outputs % 2 == 0).eval()
  x = torch.randn(image[0], channels, *image[1:])
  if image[0] == 2:
    model, x = (each.to(memory_format=torch.channels_last) for each in (model, x))
  (result,) = computed(model, (x,), None, [{"x": x}], tmp_path)
  (value,) = result.values()
  close(value, model(x), 1e-4)
  assert launches(tmp_path).count("tem") == 1
