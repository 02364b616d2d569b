"""The ranges that Inductor knows of values which are computed of places alone."""

import decomposed
import export_and_compare
import pytest
import torch
from cuda_numerics import computed
from function_module import FunctionModule


def booleans(self, x):
  place = torch.arange(x.shape[0], device=x.device)
  low, high = place < 3, place > 1
  differ = low != high
  return x * differ, x * (low == high), x * (low ^ high), x * torch.logical_xor(low, high)


def sine_places(self, x):
  """As models that detect objects divide the places of an image."""
  place = torch.arange(8, dtype=torch.int64, device=x.device).to(torch.float32)
  scale = 10000 ** (2 * torch.div(place, 2, rounding_mode="floor") / 8)
  return x[:, None] / scale


def quotients(self, x):
  place = torch.arange(x.shape[0], device=x.device).float() - 2.5
  near = place + 0.3
  return x * (place // near), x * (place % near), x * (place % -2), x * (place // -0.7)


def quotients_of_quotients(self, x):
  place = torch.arange(x.shape[0], device=x.device) * 37 - 60
  half = torch.div(place, 2, rounding_mode="trunc")
  return x * (half // 16), x * (half % 5), x * torch.div(half, -3, rounding_mode="trunc")


FUNCTIONS = (booleans, sine_places, quotients, quotients_of_quotients)
X = torch.linspace(-2, 2, 5)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_on_hosts(tmp_path, function):
  export_and_compare.run(tmp_path, function, (X,))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_on_cuda(tmp_path, function):
  model = FunctionModule(function)
  (results,) = computed(model, (X,), None, [{"x": X}], tmp_path)
  expected = model(X)
  decomposed.equal([*results.values()], expected if isinstance(expected, tuple) else [expected])
