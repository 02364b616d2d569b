"""Quantized graphs as `convert_pt2e` writes them: layers add codes, and results are those of the
arithmetic of the graph up to one code. Graphs are written by hand, without torchao."""

import export_and_compare
import torch
import torch.ao.quantization.fx._decomposed  # defines the operators
from torch.nn import functional as F

OPS = torch.ops.quantized_decomposed
U8, I8 = (0, 255, torch.uint8), (-128, 127, torch.int8)


def random(*shape, seed=0):
  return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def quantized(x, scale, zero, kind=U8):
  return OPS.quantize_per_tensor(x, scale, zero, *kind)


def dequantized(x, scale, zero, kind=U8):
  return OPS.dequantize_per_tensor(x, scale, zero, *kind)


def rounded(x, scale, zero, kind=U8):
  return dequantized(quantized(x, scale, zero, kind), scale, zero, kind)


class Net(torch.nn.Module):
  """Layers with weights of codes. `sizes` has the shape of the weight of each layer."""

  def __init__(self, body, **sizes):
    super().__init__()
    self.body = body
    for seed, (name, shape) in enumerate(sizes.items()):
      codes = (random(*shape, seed=seed) * 50).clamp(-127, 127).to(torch.int8)
      self.register_buffer(f"{name}_codes", codes)
      self.register_buffer(f"{name}_scales", random(shape[0], seed=seed + 50).abs() * 0.002 + 1e-4)
      self.register_buffer(f"{name}_zeros", torch.zeros(shape[0], dtype=torch.int64))
      self.register_buffer(f"{name}_bias", random(shape[0], seed=seed + 90) * 0.1)

  def weight(self, name):
    parts = (getattr(self, f"{name}_{part}") for part in ("codes", "scales", "zeros"))
    return OPS.dequantize_per_channel(*parts, 0, *(-128, 127, torch.int8))

  def convolution(self, x, name, *args):
    return F.conv2d(x, self.weight(name), getattr(self, f"{name}_bias"), *args)

  def linear(self, x, name):
    return F.linear(x, self.weight(name), getattr(self, f"{name}_bias"))

  def forward(self, x):
    return self.body(self, x)


def calls(folder, body, x, **sizes):
  """The calls of the operator in the program, whose results are those of eager mode."""
  text = export_and_compare.run(folder, Net(body, **sizes), (x,), strides=False)
  lines = text.splitlines()
  assert not [line for line in lines if '"husk::convolution"' in line or '"husk::linear' in line]
  return [line for line in lines if '"husk::convolution_int8"' in line]


def small_net(m, x):
  x = rounded(x, 0.03, 110)
  first = rounded(F.relu(m.convolution(x, "a", 2, 1)), 0.02, 0)
  second = rounded(F.hardtanh(m.convolution(first, "b", 1, 1, 1, 16), 0, 6), 0.01, 0)
  third = rounded(m.convolution(second, "c") + first, 0.02, 99)
  pooled = rounded(F.adaptive_avg_pool2d(third, 1).flatten(1), 0.01, 99)
  return m.linear(pooled, "d")


def test_layers_between_codes(tmp_path):
  found = calls(
    tmp_path, small_net, random(2, 3, 11, 9, seed=9),
    a=(16, 3, 3, 3), b=(16, 1, 3, 3), c=(16, 16, 1, 1), d=(10, 16),
  )  # fmt: skip
  assert len(found) == 4
  assert '"relu"' in found[0] and '"relu6"' in found[1]
  # Each result is one of codes, but the last.
  assert [" u8 [" in line.split("write tensor")[1] for line in found] == [True, True, True, False]
  # The residual is a tensor of codes.
  assert found[2].count("read tensor") == 5


def test_signed_codes_and_one_scale(tmp_path):
  def body(m, x):
    x = rounded(x, 0.05, -3, I8)
    weight = OPS.dequantize_per_tensor(m.a_codes, 0.002, 0, -127, 127, torch.int8)
    x = rounded(F.hardswish(F.conv2d(x, weight)), 0.02, -100, I8)
    weight = OPS.dequantize_per_tensor(m.b_codes, 0.004, 0, -127, 127, torch.int8)
    return F.linear(rounded(x.mean((2, 3)), 0.01, -20, I8), weight)

  found = calls(tmp_path, body, random(1, 8, 7, 9, seed=4), a=(32, 8, 1, 1), b=(6, 32))
  assert len(found) == 2
  assert '"hardswish"' in found[0] and " i8 [" in found[0].split("write tensor")[1]


def test_operators_between_equal_codes_keep_them(tmp_path):
  def body(m, x):
    x = rounded(x, 0.03, 110)
    x = rounded(F.relu(m.convolution(x, "a")), 0.02, 0)
    pooled = rounded(F.max_pool2d(x, 3, 2, 1), 0.02, 0)
    x = rounded(torch.cat([pooled, pooled], 1), 0.02, 0)
    return m.convolution(x, "b")

  found = calls(tmp_path, body, random(1, 4, 9, 9, seed=3), a=(16, 4, 3, 3), b=(8, 32, 1, 1))
  assert len(found) == 2


def test_dynamic_codes(tmp_path):
  def body(m, x):
    scale, zero = OPS.choose_qparams.tensor(x, -128, 127, 1e-6, torch.int8)
    x = OPS.quantize_per_tensor.tensor(x, scale, zero, *I8)
    x = OPS.dequantize_per_tensor.tensor(x, scale, zero, *I8)
    return F.relu(m.linear(x, "a"))

  (call,) = calls(tmp_path, body, random(3, 5, 32, seed=2), a=(24, 32))
  assert '"relu"' in call


def test_what_is_not_recognised_is_computed_in_f32(tmp_path):
  def body(m, x):
    plain = m.convolution(x, "a")  # the input has no codes
    x = rounded(x, 0.03, 110)
    weight = OPS.dequantize_per_tensor(m.a_codes, 0.002, 3, -127, 127, torch.int8)
    return plain, F.conv2d(x, weight), F.conv_transpose2d(x, m.weight("a"))

  text = export_and_compare.run(
    tmp_path, Net(body, a=(4, 4, 3, 3)), (random(1, 4, 6, 6, seed=1),), strides=False
  )
  assert '"husk::convolution_int8"' not in text
  assert text.count('"husk::convolution"') == 3
