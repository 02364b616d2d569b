"""husk::convolution_int8 of the host, against the arithmetic of a quantized graph in float64."""

import itertools
import math

import pytest
import torch
from fenced import fenced
from host_ops import INVALID_ARGUMENT, UNSUPPORTED, layouts, refused
from torch.nn import functional as F

NAME = "husk::convolution_int8"
ENDS = {torch.uint8: (0, 255), torch.int8: (-128, 127)}


def codes(dtype, *shape, seed=0):
  low, high = ENDS[dtype]
  random = torch.Generator().manual_seed(seed)
  values = torch.randint(low, high + 1, shape, generator=random).to(dtype)
  return values.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else values


class Layer:
  """The arguments of a call, by name, and the numbers in float64 that it computes."""

  def __init__(self, x, out_channels, kernel, groups=1, out=torch.uint8, residual=None, **spatial):
    shape = (out_channels, x.shape[1] // groups, *kernel)
    dims = len(kernel)
    random = torch.Generator().manual_seed(3)
    self.out = out
    lists = {"stride": [1] * dims, "padding": [0] * dims, "dilation": [1] * dims, **spatial}
    self.arguments = {
      "input": x,
      "weight": codes(torch.int8, *shape, seed=1),
      "scales": torch.rand(out_channels, generator=random) * 0.02 + 0.001,
      "bias": torch.randn(out_channels, generator=random),
      **lists,
      "groups": groups,
      "input_scale": 0.02,
      "input_zero": 100 if x.dtype == torch.uint8 else -7,
      "dynamic_scale": None,
      "dynamic_zero": None,
      "residual": None,
      "residual_scale": 0.3,
      "residual_zero": 11,
      "activation": "none",
      "out_scale": 0.2 * math.prod(shape[1:]) ** 0.5,
      "out_zero": 40 if out == torch.uint8 else 3,
      "out_least": ENDS.get(out, (0, 0))[0],
      "out_most": ENDS.get(out, (0, 0))[1],
      "dtype": out,
    }
    if residual is not None:
      self.arguments["residual"] = codes(residual, *self.numbers().shape, seed=5)

  def numbers(self):
    """What the activation gets."""
    g = self.arguments
    scale = g["input_scale"] if g["dynamic_scale"] is None else g["dynamic_scale"].double()
    zero = g["input_zero"] if g["dynamic_zero"] is None else g["dynamic_zero"]
    x = (g["input"].double() - zero) * scale
    scales = g["scales"].double().reshape(-1, *[1] * (g["weight"].dim() - 1))
    weight = g["weight"].double() * scales
    bias = None if g["bias"] is None else g["bias"].double()
    if weight.dim() == 2:
      result = F.linear(x, weight, bias)
    else:
      convolve = {3: F.conv1d, 4: F.conv2d}[weight.dim()]
      result = convolve(x, weight, bias, g["stride"], g["padding"], g["dilation"], g["groups"])
    if g["residual"] is not None:
      residual = g["residual"].double()
      if not g["residual"].is_floating_point():
        residual = (residual - g["residual_zero"]) * g["residual_scale"]
      result = result + residual
    return result

  def check(self, pack, packed=(1,), activation=lambda x: x, out=None):
    right = activation(self.numbers())
    if out is None:
      out = torch.full(right.shape, 9, dtype=self.out)
      if out.dim() == 4:
        out = out.contiguous(memory_format=torch.channels_last)
    sizes = pack(NAME, *self.arguments.values(), out, packed=packed)
    if self.out == torch.float32:
      size = right.abs().max()
      torch.testing.assert_close(out.double(), right, rtol=1e-5, atol=float(size) * 1e-6)
      return sizes
    g = self.arguments
    exact = right / g["out_scale"] + g["out_zero"]
    exact = exact.clamp(g["out_least"], g["out_most"])
    # Only numbers in the middle between two codes may be either of them.
    assert ((out.double() - exact).abs() <= 0.5 + 1e-3).all(), (out.double() - exact).abs().max()
    return sizes


def test_each_set_dtype_and_method(pack):
  for _ in pack.each_use():
    for x, out, packed in itertools.product(
      (torch.uint8, torch.int8), (torch.uint8, torch.int8, torch.float32), ((), (1,))
    ):
      for layer in (
        Layer(codes(x, 7, 40), 21, (), out=out),
        Layer(codes(x, 1, 13), 70, (), out=out),
        Layer(codes(x, 2, 8, 6, 5), 20, (1, 1), out=out, stride=[2, 1]),
        Layer(codes(x, 1, 5, 7, 9), 37, (3, 2), out=out, padding=[1, 2], dilation=[2, 1]),
        Layer(codes(x, 2, 12, 5, 6), 18, (3, 3), groups=3, out=out, padding=[1, 1]),
        Layer(codes(x, 2, 37, 6, 7), 37, (3, 3), groups=37, out=out, padding=[1, 1]),
        Layer(codes(x, 1, 5, 6, 7), 5, (2, 3), groups=5, out=out, stride=[2, 2]),
        Layer(codes(x, 1, 8, 16), 24, (3,), out=out, padding=[1]),
      ):
        sizes = layer.check(pack, packed)
        assert len(sizes) == len(packed) and all(sizes)


def test_extreme_codes_do_not_saturate(pack):
  for _ in pack.each_use():
    for dtype, low in ((torch.uint8, 255), (torch.int8, -128), (torch.int8, 127)):
      layer = Layer(torch.full((9, 64), low, dtype=dtype), 32, (), out=torch.float32)
      layer.arguments["weight"][:] = -128
      layer.arguments["weight"][1::2] = 127
      layer.check(pack)


def test_sizes(pack):
  """Depths of more than a slice, columns and channels that fill no panel or no part."""
  for channels, out_channels in ((2304, 7), (2400, 300), (4700, 16), (3, 257)):
    Layer(codes(torch.uint8, 5, channels), out_channels, ()).check(pack)
    Layer(codes(torch.int8, 5, channels), out_channels, ()).check(pack, ())
  for channels in (16, 17, 256, 264, 300):
    x = codes(torch.uint8, 1, channels, 5, 11)
    Layer(x, channels, (3, 3), groups=channels, padding=[1, 1]).check(pack)
  Layer(codes(torch.uint8, 1, 3, 40, 40), 16, (7, 7), stride=[2, 2], padding=[3, 3]).check(pack)
  x = codes(torch.uint8, 1, 256, 11, 11)
  for _ in pack.each_use():  # the largest panels that fit into scratch memory
    Layer(x, 256, (11, 11), groups=256, padding=[5, 5]).check(pack, ())
  x = codes(torch.uint8, 1, 2, 14, 14)
  Layer(x, 2, (12, 12), groups=2, padding=[6, 6]).check(pack)  # too many taps for one method


def test_depthwise_kernels(pack):
  """Rows of a kernel that are no multiple of four, a last row of its own, columns that positions
  share or do not, and channels that fill vectors, or overlap those before them."""
  kernels = (
    ((1, 1), {}),
    ((1, 6), {"padding": [0, 3]}),
    ((5, 1), {"padding": [1, 0]}),
    ((5, 5), {"padding": [2, 2]}),
    ((5, 6), {"stride": [2, 2], "padding": [4, 5]}),
    ((4, 3), {"stride": [1, 4]}),
    ((3, 3), {"dilation": [2, 2], "padding": [2, 2]}),
    ((9, 2), {"stride": [3, 1], "dilation": [1, 3], "padding": [8, 2]}),
  )
  for _ in pack.each_use():
    for x, out in ((torch.uint8, torch.int8), (torch.int8, torch.float32)):
      for channels in (8, 16, 32, 50, 60, 72, 120):
        for kernel, spatial in kernels:
          image = codes(x, 1, channels, 9, 11)
          layer = Layer(image, channels, kernel, groups=channels, out=out, **spatial)
          layer.arguments["activation"] = "hardswish"
          layer.check(pack, activation=F.hardswish)


def test_long_lines_of_a_depthwise_convolution(pack):
  """Lines of more positions than have words in memory at a time."""
  for _ in pack.each_use():
    layer = Layer(codes(torch.uint8, 1, 64, 2, 150), 64, (9, 3), groups=64, padding=[4, 1])
    layer.check(pack)


def test_rows_and_columns_that_fill_no_tile(pack):
  for _ in pack.each_use():
    for rows, columns, out in itertools.product(
      (1, 5, 7, 11, 13), (5, 12, 17, 72), (torch.uint8, torch.int8, torch.float32)
    ):
      residual = out if out != torch.float32 else None
      for depth in (24, 2400):
        Layer(codes(torch.uint8, rows, depth), columns, (), out=out, residual=residual).check(pack)
  layer = Layer(codes(torch.uint8, 7, 24), 21, (), out=torch.float32)
  layer.arguments["residual"] = torch.randn(7, 21)
  layer.check(pack)


def test_positions_that_share_a_vector_of_codes(pack):
  """Results of 16 or 32 columns that lie behind each other, or do not."""
  for _ in pack.each_use():
    for columns, batch, height, out in itertools.product(
      (16, 32, 48), (1, 2), (1, 13), (torch.uint8, torch.int8)
    ):
      x = codes(torch.uint8, batch, 8, height, 11)
      for residual in (None, torch.int8):
        Layer(x, columns, (1, 1), out=out, residual=residual).check(pack)
        layer = Layer(x, columns, (1, 1), out=out, residual=residual)
        wide = codes(out, batch, 2 * columns, height, 11)
        layer.check(pack, out=wide[:, columns:])
        assert (wide[:, :columns] == codes(out, batch, 2 * columns, height, 11)[:, :columns]).all()
      layer.arguments["residual"] = codes(torch.int8, batch, 64, height, 11)[:, :columns]
      layer.check(pack)


def test_short_lines(pack):
  """Lines of a kernel that are copied with what follows them, but for those at the image's end."""
  for _ in pack.each_use():
    for x, size, spatial in (
      (torch.uint8, (8, 9), {"stride": [2, 2], "padding": [1, 1]}),
      (torch.int8, (6, 7), {}),
      (torch.uint8, (5, 4), {}),  # too short
      (torch.uint8, (9, 8), {"dilation": [2, 1]}),
    ):
      image = codes(x, 2, 3, *size)
      Layer(image, 20, (3, 3), **spatial).check(pack)
      tall = codes(x, 2, 3, 2 * size[0], size[1])[:, :, ::2]  # lines that lie apart
      Layer(tall, 20, (3, 3), **spatial).check(pack)
      Layer(image[:, :, :1].expand(-1, -1, size[0], -1), 20, (3, 3), **spatial).check(pack)


@pytest.mark.parametrize("side", ("front", "back"))
def test_memory_beside_tensors_is_not_touched(pack, side):
  def fence(value):
    return fenced(value, side) if isinstance(value, torch.Tensor) else value

  for _ in pack.each_use():
    for x, (channels, columns), groups, kernel in itertools.product(
      (torch.uint8, torch.int8), ((3, 20), (24, 72), (50, 50)), (False, True), ((3, 3), (1, 1))
    ):
      if groups and channels != columns:
        continue
      image = codes(x, 1, channels, 6, 7)
      padding = [size // 2 for size in kernel]
      count = channels if groups else 1
      layer = Layer(image, columns, kernel, count, residual=torch.uint8, padding=padding)
      layer.arguments = {name: fence(value) for name, value in layer.arguments.items()}
      out = torch.zeros(layer.numbers().shape, dtype=torch.uint8)
      out = fence(out.contiguous(memory_format=torch.channels_last))
      for packed in ((), (1,)):
        layer.check(pack, packed, out=out)


@pytest.mark.parametrize("side", ("front", "back"))
def test_lines_of_a_kernel_that_lie_in_the_image(pack, side):
  """Lines of whole words, of adjacent elements or not, also at edges and in a part of an image."""
  kernels = (
    ((3, 3), {"padding": [1, 1]}),
    ((3, 3), {"stride": [2, 2], "padding": [1, 1]}),
    ((2, 1), {"stride": [1, 3], "dilation": [3, 1]}),
    ((5, 3), {"dilation": [2, 1], "padding": [4, 1]}),
    ((3, 2), {"dilation": [1, 2]}),
    ((8, 1), {"padding": [4, 0]}),
    ((9, 1), {"padding": [4, 0]}),
  )
  for _ in pack.each_use():
    for (kernel, spatial), channels, columns in itertools.product(kernels, (4, 6, 32), (16, 70)):
      layer = Layer(codes(torch.uint8, 2, channels, 11, 9), columns, kernel, **spatial)
      layer.arguments["input"] = fenced(layer.arguments["input"], side)
      layer.check(pack)
  for channels in (256, 260):  # the deepest rows of lines, and deeper ones
    Layer(codes(torch.uint8, 1, channels, 4, 5), 24, (3, 3), padding=[1, 1]).check(pack)
  whole = codes(torch.uint8, 1, 24, 9, 12)
  for part in (whole[..., 1:8, 2:11], whole[:, 4:12], whole[:, :, ::2], whole.contiguous()):
    Layer(part, 20, (3, 3), padding=[1, 1]).check(pack)
  Layer(codes(torch.uint8, 1, 24, 7, 7), 21, (3, 3), groups=3, padding=[1, 1]).check(pack)


@pytest.mark.parametrize("scale", (0.01, 0.12, 9.0))
def test_silu_is_exact_up_to_roundings(pack, scale):
  """In f32, where an error is not hidden by the rounding to codes."""
  for _ in pack.each_use():
    layer = Layer(torch.arange(256).to(torch.uint8)[:, None], 16, (), out=torch.float32)
    g = layer.arguments
    g["weight"][:], g["scales"][:], g["bias"][:] = 1, 1, 0
    g.update(input_scale=scale, input_zero=128, activation="silu")
    out = torch.zeros(256, 16)
    pack(NAME, *g.values(), out, packed=(1,))
    right = F.silu(layer.numbers())
    torch.testing.assert_close(out.double(), right, rtol=2e-6, atol=1e-12)


ACTIVATIONS = {
  "relu": F.relu,
  "relu6": F.relu6,
  "hardswish": F.hardswish,
  "silu": F.silu,
  "gelu": F.gelu,
  "hardsigmoid": F.hardsigmoid,
}


@pytest.mark.parametrize("residual", (torch.uint8, torch.int8, None))
def test_residual_and_activation(pack, residual):
  for name, activation in ACTIVATIONS.items():
    for channels, groups in ((20, 1), (20, 20), (72, 1), (72, 72)):
      x = codes(torch.uint8, 2, channels, 5, 6)
      layer = Layer(x, channels, (3, 3), groups=groups, residual=residual, padding=[1, 1])
      layer.arguments["activation"], layer.arguments["out_scale"] = name, 0.05
      layer.check(pack, activation=activation)


def test_residual_of_numbers_dynamic_scale_and_no_bias(pack):
  layer = Layer(codes(torch.int8, 5, 48), 24, (), out=torch.float32)
  layer.arguments.update(bias=None, residual=torch.randn(5, 24))
  layer.check(pack)
  for dtype in (torch.float32, torch.float64):
    scale, zero = torch.tensor([0.37], dtype=dtype), torch.tensor([-60])
    layer.arguments.update(dynamic_scale=scale, dynamic_zero=zero)
    layer.check(pack)
  layer.arguments["scales"] = torch.tensor([0.01])
  layer.check(pack)


def test_codes_between_two_ends(pack):
  layer = Layer(codes(torch.uint8, 9, 32), 16, ())
  layer.arguments.update(out_least=30, out_most=90, out_scale=0.01)
  layer.check(pack)


def test_ties_are_rounded_to_even_codes(pack):
  """2.5 is 2, and 3.5 is 4."""
  x = torch.arange(8, dtype=torch.uint8).reshape(8, 1).repeat(1, 4)
  layer = Layer(x, 16, ())
  layer.arguments["weight"][:] = 0
  layer.arguments["weight"][:, 0] = 1
  layer.arguments["scales"][:] = 1.0
  layer.arguments.update(bias=None, input_zero=0, input_scale=0.5, out_scale=1.0, out_zero=0)
  out = torch.empty(8, 16, dtype=torch.uint8)
  pack(NAME, *layer.arguments.values(), out, packed=(1,))
  assert out[:, 3].tolist() == [0, 0, 1, 2, 2, 2, 3, 4]


def test_strides(pack):
  for groups in (1, 8):
    layer = Layer(
      codes(torch.uint8, 2, 8, 5, 6), 8, (3, 3), groups=groups, residual=torch.uint8, padding=[1, 1]
    )
    for x in layouts(layer.arguments["input"]):
      layer.arguments["input"] = x
      layer.check(pack)
    for weight in layouts(layer.arguments["weight"]):
      layer.arguments["weight"] = weight
      layer.check(pack)
    for residual in layouts(layer.arguments["residual"]):
      layer.arguments["residual"] = residual
      layer.check(pack)
    for out in layouts(torch.zeros(2, 8, 5, 6, dtype=torch.uint8)):
      layer.check(pack, out=out.clone() if out._is_view() and 0 in out.stride() else out)


def test_no_elements(pack):
  layer = Layer(codes(torch.uint8, 0, 8), 4, ())
  pack(NAME, *layer.arguments.values(), torch.empty(0, 4, dtype=torch.uint8))


def test_refusals(pack):
  layer = Layer(codes(torch.uint8, 1, 4, 5, 5), 6, (3, 3))
  out = torch.empty(1, 6, 3, 3, dtype=torch.uint8)

  def refuses(code, text, **changes):
    arguments = {**layer.arguments, "out": out, **changes}
    refused(pack, code, text, NAME, *arguments.values())

  refuses(UNSUPPORTED, "input", input=layer.arguments["input"].float())
  refuses(INVALID_ARGUMENT, "weight", weight=layer.arguments["weight"].float())
  refuses(INVALID_ARGUMENT, "scales", scales=torch.ones(5))
  refuses(INVALID_ARGUMENT, "scales", scales=torch.ones(6, dtype=torch.float64))
  refuses(INVALID_ARGUMENT, "bias", bias=torch.ones(5))
  refuses(INVALID_ARGUMENT, "stride", stride=[0, 1])
  refuses(INVALID_ARGUMENT, "padding", padding=[1])
  refuses(INVALID_ARGUMENT, "groups", groups=4)
  refuses(INVALID_ARGUMENT, "argument input has size", groups=2)
  refuses(INVALID_ARGUMENT, "input_scale", input_scale=0.0)
  refuses(INVALID_ARGUMENT, "input_scale", input_scale=float("nan"))
  refuses(INVALID_ARGUMENT, "input_zero", input_zero=256)
  refuses(INVALID_ARGUMENT, "dynamic_zero", dynamic_scale=torch.ones(1))
  refuses(
    INVALID_ARGUMENT, "dynamic_scale", dynamic_scale=torch.ones(2), dynamic_zero=torch.tensor(0)
  )
  refuses(
    UNSUPPORTED,
    "dynamic_scale",
    dynamic_scale=torch.ones(1, dtype=torch.float16),
    dynamic_zero=torch.tensor(0),
  )
  refuses(INVALID_ARGUMENT, "residual", residual=torch.zeros(1, 6, 3, 2, dtype=torch.uint8))
  refuses(UNSUPPORTED, "residual", residual=out.to(torch.int64))
  refuses(INVALID_ARGUMENT, "residual_zero", residual=out, residual_zero=-1)
  refuses(INVALID_ARGUMENT, "out_zero", out_zero=-1)
  refuses(INVALID_ARGUMENT, "out_least", out_least=9, out_most=8)
  refuses(INVALID_ARGUMENT, "out_scale", out_scale=float("inf"))
  refuses(INVALID_ARGUMENT, "argument out has size", out=torch.empty(1, 6, 3, 4, dtype=torch.uint8))
  refuses(UNSUPPORTED, "out", out=out.double())
  wide = Layer(codes(torch.uint8, 1, 65537), 1, ())
  out = torch.empty(1, 1, dtype=torch.uint8)
  refused(pack, UNSUPPORTED, "65536", NAME, *wide.arguments.values(), out)
