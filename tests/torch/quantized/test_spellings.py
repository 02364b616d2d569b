"""Spellings of quantized graphs that torchao writes besides that of test_convolution_int8.py. The
operators of affine quantization are defined here, as torchao declares them."""

import logging

import export_and_compare
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # defines the operators
from cuda_numerics import computed
from husk.quantized import spellings
from test_convolution_int8 import OPS, Net, dequantized, quantized, random, rounded
from torch.nn import functional as F

KINDS = {
  "quantize_affine": "ScalarType output_dtype",
  "dequantize_affine": "ScalarType input_dtype",
}


@pytest.fixture(scope="module")
def affine():
  """The operators torchao.quantize_affine and torchao.dequantize_affine."""
  if hasattr(torch.ops.torchao, "quantize_affine"):
    yield
    return
  library = torch.library.Library("torchao", "FRAGMENT")
  for name, dtype in KINDS.items():
    rest = "" if name == "quantize_affine" else ", ScalarType output_dtype=6"
    library.define(
      f"{name}(Tensor input, SymInt[] block_size, Tensor scale, Tensor? zero_point, {dtype}, "
      f"Scalar? quant_min=None, Scalar? quant_max=None{rest}) -> Tensor"
    )

  def wide(tensor, numbers, block):
    """Numbers of blocks as a tensor that is broadcast to the elements."""
    counts = [size // one for size, one in zip(tensor.shape, block)]
    return numbers.reshape(counts).float()

  def quantize(input, block, scale, zero, dtype, least=None, most=None):
    zero, scale = wide(input, zero, block), wide(input, scale, block)
    return (torch.round(input / scale) + zero).clamp(least, most).to(dtype)

  def dequantize(input, block, scale, zero, dtype, least=None, most=None, output_dtype=6):
    return (input.float() - wide(input, zero, block)) * wide(input, scale, block)

  library.impl("quantize_affine", quantize, "CompositeExplicitAutograd")
  library.impl("dequantize_affine", dequantize, "CompositeExplicitAutograd")
  for name, dtype in (("quantize_affine", torch.int8), ("dequantize_affine", torch.float32)):
    fake = lambda input, *rest, dtype=dtype, **others: torch.empty_like(  # noqa: E731
      input, dtype=rest[3] if dtype == torch.int8 else dtype
    )
    torch.library.register_fake(f"torchao::{name}", fake, lib=library)
  yield
  library._destroy()


def steps(folder, model, x):
  text = export_and_compare.run(folder, model, (x,), strides=False)
  lines = text.splitlines()
  assert not [line for line in lines if '"husk::convolution"' in line or '"husk::linear' in line]
  return [line for line in lines if '"husk::convolution_int8"' in line]


class Affine(torch.nn.Module):
  """A convolution of 1 x 1, whose scales keep dimensions, a depthwise one, and a linear layer.
  With `folded`, weights are codes."""

  def __init__(self, folded):
    super().__init__()
    self.folded = folded
    for seed, shape in enumerate(((16, 8, 1, 1), (16, 1, 3, 3), (6, 16))):
      weight = random(*shape, seed=seed)
      scale = weight.abs().amax(tuple(range(1, len(shape))), keepdim=shape[2:] == (1, 1)) / 127
      zero = torch.zeros_like(scale, dtype=torch.int32)
      if folded:
        block = [1, *shape[1:]]
        weight = torch.ops.torchao.quantize_affine(
          weight, block, scale, zero, torch.int8, -127, 127
        )
      self.register_buffer(f"weight{seed}", weight)
      self.register_buffer(f"scale{seed}", scale)
      self.register_buffer(f"zero{seed}", zero)
    self.register_buffer("scale", torch.tensor([0.03]))
    self.register_buffer("zero", torch.tensor([110], dtype=torch.int32))

  def weight(self, number):
    weight, scale, zero = (getattr(self, f"{part}{number}") for part in ("weight", "scale", "zero"))
    block, ao = [1, *weight.shape[1:]], torch.ops.torchao
    if not self.folded:
      weight = ao.quantize_affine(weight, block, scale, zero, torch.int8, -127, 127)
    return ao.dequantize_affine(weight, block, scale, zero, torch.int8, -127, 127)

  def rounded(self, x):
    numbers = (list(x.shape), self.scale, self.zero, torch.uint8, 0, 255)
    ao = torch.ops.torchao
    return ao.dequantize_affine(ao.quantize_affine(x, *numbers), *numbers)

  def forward(self, x):
    x = self.rounded(F.relu(F.conv2d(self.rounded(x), self.weight(0))))
    x = self.rounded(F.conv2d(x, self.weight(1), None, 1, 1, 1, 16))
    return F.linear(self.rounded(x.mean((2, 3))), self.weight(2))


@pytest.mark.parametrize("folded", [True, False])
def test_affine_quantization(affine, folded, tmp_path):
  found = steps(tmp_path, Affine(folded), random(2, 8, 7, 9, seed=9))
  assert len(found) == 3
  assert [" u8 [" in line.split("write tensor")[1] for line in found] == [True, True, False]


def test_weights_of_floats_that_are_quantized(tmp_path, caplog):
  """convert_pt2e(fold_quantize=False): the file has the codes, and a scale for a whole weight is
  found."""

  class Floats(torch.nn.Module):
    def __init__(self):
      super().__init__()
      self.a = torch.nn.Parameter(random(16, 8, 3, 3, seed=1))
      self.b = torch.nn.Parameter(random(64, 16, seed=2))
      self.register_buffer("scales", self.a.detach().abs().amax((1, 2, 3)) / 127)
      self.register_buffer("zeros", torch.zeros(16, dtype=torch.int64))

    def forward(self, x):
      kind = (-127, 127, torch.int8)
      a = OPS.quantize_per_channel(self.a, self.scales, self.zeros, 0, *kind)
      a = OPS.dequantize_per_channel(a, self.scales, self.zeros, 0, *kind)
      b = dequantized(quantized(self.b, 0.03, 0, kind), 0.03, 0, kind)
      x = rounded(F.conv2d(rounded(x, 0.03, 110), a), 0.1, 120)
      return F.linear(rounded(x.mean((2, 3)), 0.02, 110), b)

  with caplog.at_level(logging.WARNING, "husk"):
    found = steps(tmp_path, Floats(), random(2, 8, 7, 9, seed=9))
  assert len(found) == 2 and not caplog.records
  assert all(" i8 [" in line.split("read tensor")[2] for line in found)


def pooled(m, x):
  x = rounded(F.relu(m.convolution(rounded(x, 0.03, 110), "a")), 0.02, 3)
  return rounded(F.max_pool2d(x, 3, 2, 1), 0.05, 40)


def test_a_pooling_between_other_codes(tmp_path):
  """Inductor would keep the codes."""
  (call,) = steps(tmp_path, Net(pooled, a=(16, 4, 3, 3)), random(1, 4, 9, 9, seed=3))
  assert " u8 [" in call.split("write tensor")[1]


def test_a_pooling_between_other_codes_on_a_gpu(tmp_path):
  def body(m, x):
    return rounded(F.max_pool2d(rounded(x, 0.02, 3), 3, 2, 1), 0.05, 40)

  x = random(1, 4, 9, 9, seed=3)
  model = Net(body)
  (found,) = computed(model, (x,), None, [{"x": x}], tmp_path)
  torch.testing.assert_close(*found.values(), model(x), rtol=0, atol=0.0501)


def test_a_program_in_the_first_spelling_is_left_alone():
  model = Net(lambda m, x: m.convolution(rounded(x, 0.03, 110), "a"), a=(4, 4, 3, 3))
  program = torch.export.export(model, (random(1, 4, 6, 6),))
  assert spellings.canonical(program) is program
