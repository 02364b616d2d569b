"""Hyperbolic tangents of CUDA targets: values of the decompositions, and that kernels have no
function with branches."""

import husk
import pytest
import torch
from husk.inductor.decompositions import activations
from torch import nn
from torch.nn import functional as F

HALVES = (torch.float16, torch.bfloat16)


def numbers(dtype):
  """All numbers of 16 bits, in `dtype`."""
  return torch.arange(-(1 << 15), 1 << 15, dtype=torch.int16).view(dtype)


@pytest.mark.parametrize("dtype", HALVES)
def test_tangents_are_rounded_to_nearest(dtype):
  x = numbers(dtype)
  result, right = activations._tanh(x), torch.tanh(x.double()).to(dtype)
  both_are_nan = result.isnan() & right.isnan()
  # Few are so near to the middle between two numbers that the last bit of float32 decides.
  assert int((~both_are_nan & (result != right)).sum()) <= 4
  torch.testing.assert_close(result, right, equal_nan=True, rtol=2**-7, atol=0)
  assert torch.equal(result[x == 0].signbit(), x[x == 0].signbit())


@pytest.mark.parametrize("dtype", HALVES)
def test_gelu_has_at_most_the_error_of_eager_mode(dtype):
  x = torch.linspace(-12, 12, 100_001).to(dtype)
  right = F.gelu(x.double(), approximate="tanh")
  own, eager = (
    (result.double() - right).pow(2).mean().sqrt()
    for result in (activations._gelu(x, approximate="tanh"), F.gelu(x, approximate="tanh"))
  )
  assert own <= 1.1 * eager


def test_others_stay_as_they_are():
  assert activations._tanh(torch.zeros(1)) is NotImplemented
  assert activations._gelu(torch.zeros(1).half()) is NotImplemented
  assert activations._gelu(torch.zeros(1), approximate="tanh") is NotImplemented


class Both(nn.Module):
  def forward(self, x):
    return torch.tanh(x) + F.gelu(x, approximate="tanh")


@pytest.mark.parametrize("dtype, has_tanh", [(torch.bfloat16, False), (torch.float32, True)])
def test_kernels(dtype, has_tanh, tmp_path, monkeypatch):
  sources = []
  from husk.cuda import kernels

  original = kernels.source_of
  monkeypatch.setattr(
    kernels, "source_of", lambda *a, **k: sources.append(original(*a, **k)) or sources[-1]
  )
  husk.write(Both().eval(), (torch.randn(64, 64).to(dtype),), tmp_path, targets=("cuda:h200",))
  assert any("libdevice.tanh" in str(source) for source in sources) == has_tanh
