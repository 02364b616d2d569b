"""Layers between codes on GPUs: products of ints, by Triton's interpreter and as text."""

import pytest
import torch
from cuda_numerics import computed
from husk.quantized import int_layers
from test_convolution_int8 import I8, OPS, Net, random, rounded
from torch.nn import functional as F


def check(folder, body, x, tolerance, count, **sizes):
  """Runs a network; `count` layers are products of ints."""
  model = Net(body, **sizes)
  program = int_layers.rewrite(torch.export.export(model, (x,)))
  targets = [node.target for node in program.graph.nodes]
  assert targets.count(int_layers.operator()) == count
  (found,) = computed(model, (x,), None, [{"x": x}], folder)
  (found,) = found.values()
  torch.testing.assert_close(found, model(x), rtol=0, atol=tolerance)


def test_linear_layers(tmp_path):
  def body(m, x):
    x = rounded(F.relu(m.linear(rounded(x, 0.03, 110), "a")), 0.05, 3)
    return m.linear(rounded(x, 0.0371, -3, I8), "b")

  check(tmp_path, body, random(2, 3, 128, seed=4), 1e-3, 2, a=(96, 128), b=(24, 96))


@pytest.mark.parametrize(
  ("size", "rest"),
  [((24, 40, 1, 1), ()), ((24, 16, 3, 3), (2, 1)), ((24, 16, 2, 3), (1, (0, 2), 2))],
)
def test_convolutions(size, rest, tmp_path):
  def body(m, x):
    return m.convolution(rounded(x, 0.03, 110), "a", *rest)

  check(tmp_path, body, random(2, size[1], 7, 8, seed=4), 1e-3, 1, a=size)


def test_dynamic_codes(tmp_path):
  def body(m, x):
    scale, zero = OPS.choose_qparams.tensor(x, -128, 127, 1e-6, torch.int8)
    x = OPS.quantize_per_tensor.tensor(x, scale, zero, *I8)
    return m.linear(OPS.dequantize_per_tensor.tensor(x, scale, zero, *I8), "a")

  # A number in the middle between two codes becomes either.
  check(tmp_path, body, random(3, 64, seed=2), 0.02, 1, a=(32, 64))


def test_other_layers_are_products_of_floats():
  def body(m, x):
    return m.convolution(rounded(x, 0.03, 110), "a", 1, 1, 1, 32)

  program = torch.export.export(Net(body, a=(32, 1, 3, 3)), (random(1, 32, 6, 6),))
  assert int_layers.rewrite(program) is program
