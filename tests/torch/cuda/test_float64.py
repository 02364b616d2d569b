"""Kernels for a GPU compute in float64 what a model computes in float64."""

import re

import husk
import pytest
import torch
from function_module import FunctionModule
from husk.cuda import kernels
from torch.export import Dim


@pytest.fixture
def ptx(monkeypatch):
  """The PTX of each kernel that is compiled."""
  found = []
  kernel = kernels._kernel

  def recorded(name, tuner, result, *more):
    found.append(result.kernel.asm["ptx"])
    return kernel(name, tuner, result, *more)

  monkeypatch.setattr(kernels, "_kernel", recorded)
  return found


@pytest.mark.parametrize(
  "function",
  [
    lambda self, x: x * (1 / x.shape[0]),
    lambda self, x: x / x.shape[0] ** 0.5,
    lambda self, x: x.sin() * ((x.shape[0] + 1) / (2 * x.shape[0])),
    lambda self, x: torch.fft.fft(torch.complex(x, x), dim=0, norm="ortho").real,
    lambda self, x: x.softmax(0),
    lambda self, x: x.log_softmax(1),
    lambda self, x: x.logsumexp(0),
    lambda self, x: torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]),
  ],
  ids="quotient root fraction transform softmax log_softmax logsumexp attention".split(),
)
def test_nothing_is_rounded_to_float32(ptx, tmp_path, function):
  x = torch.randn(40, 48, dtype=torch.float64)
  husk.write(
    FunctionModule(function),
    (x,),
    tmp_path,
    dynamic_shapes=({0: Dim.DYNAMIC},),
    targets=("cuda:h200",),
  )
  # CUDA's own functions compare halves of a float64 as float32, but convert nothing to it.
  rounding = re.compile(r"cvt\S*\.f32\.[fsu]\d+|(?:div|sqrt)\S*\.f32")
  assert ptx and not [found for text in ptx for found in rounding.findall(text)]


def test_factors_of_float32_stay_in_float32(ptx, tmp_path):
  x = torch.randn(40, 48)
  husk.write(
    FunctionModule(lambda self, x: x * (1 / x.shape[0])),
    (x,),
    tmp_path,
    dynamic_shapes=({0: Dim.DYNAMIC},),
    targets=("cuda:h200",),
  )
  assert not any(re.search(r"\.f64", text) for text in ptx)
