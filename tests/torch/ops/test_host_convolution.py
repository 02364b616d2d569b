"""aten::convolution and husk::convolution of the host, against PyTorch."""

import collections
import math

import exactness
import pytest
import torch
import torch.nn.functional as F
from activation_functions import ACTIVATIONS
from host_ops import INVALID_ARGUMENT, UNSUPPORTED, close, layouts, like, refused

# input, weight, stride, padding, dilation, transposed, output padding, groups
CASES = {
  "1d": ((2, 3, 20), (5, 3, 3), 1, 0, 1, False, 0, 1),
  "1d strided": ((2, 3, 20), (5, 3, 4), 3, 2, 2, False, 0, 1),
  "2d": ((2, 3, 9, 11), (5, 3, 3, 3), 1, 1, 1, False, 0, 1),
  "2d many": ((1, 70, 15, 14), (150, 70, 3, 3), 1, 1, 1, False, 0, 1),
  "2d one": ((2, 40, 9, 11), (30, 40, 1, 1), 1, 0, 1, False, 0, 1),
  "2d uneven": ((1, 4, 12, 9), (6, 4, 3, 2), (2, 1), (0, 1), (1, 2), False, 0, 1),
  "2d patches": ((1, 3, 32, 32), (16, 3, 8, 8), 8, 0, 1, False, 0, 1),
  "2d large kernel": ((1, 2, 20, 20), (4, 2, 11, 11), 1, 5, 1, False, 0, 1),
  "2d groups": ((2, 6, 7, 8), (9, 2, 3, 3), 1, 1, 1, False, 0, 3),
  "2d depthwise": ((2, 6, 17, 18), (6, 1, 3, 3), 1, 1, 1, False, 0, 6),
  "2d depthwise twice": ((2, 6, 7, 8), (12, 1, 5, 5), 2, 2, 1, False, 0, 6),
  "2d padding all": ((1, 2, 3, 3), (3, 2, 3, 3), 1, 4, 1, False, 0, 1),
  "3d": ((1, 2, 6, 7, 8), (3, 2, 3, 2, 3), 1, (1, 0, 1), 1, False, 0, 1),
  "3d strided": ((2, 4, 6, 7, 8), (4, 2, 3, 3, 3), (1, 2, 3), 1, (2, 1, 1), False, 0, 2),
  "1d back": ((2, 3, 9), (3, 5, 4), 2, 1, 1, True, 1, 1),
  "2d back": ((2, 4, 6, 7), (4, 5, 3, 3), 2, 1, 1, True, 1, 1),
  "2d back groups": ((2, 4, 6, 7), (4, 3, 3, 3), (1, 3), (0, 1), (2, 1), True, (0, 2), 2),
  "3d back": ((1, 4, 3, 4, 5), (4, 2, 2, 3, 2), 2, 1, 1, True, 0, 1),
  "2d deep": ((1, 300, 4, 5), (20, 300, 3, 3), 1, 1, 1, False, 0, 1),
  "2d few channels": ((1, 3, 30, 29), (70, 3, 7, 7), 2, 3, 1, False, 0, 1),
  "2d one position": ((2, 70, 1, 1), (37, 70, 1, 1), 1, 0, 1, False, 0, 1),
  "2d one tap padded": ((1, 40, 1, 1), (7, 40, 1, 1), 1, 1, 1, False, 0, 1),
  "2d depthwise wide": ((2, 150, 9, 8), (150, 1, 5, 5), 1, 2, 1, False, 0, 150),
  "2d depthwise large kernel": ((1, 3, 30, 30), (3, 1, 23, 23), 1, 3, 1, False, 0, 3),
  "2d depthwise back": ((1, 6, 7, 8), (6, 1, 3, 3), 2, 1, 1, True, 1, 6),
  "2d back far": ((1, 3, 2, 2), (3, 5, 2, 2), 9, 0, 3, True, 0, 1),
  "2d depthwise long lines": ((1, 40, 6, 40), (40, 1, 3, 5), (1, 2), (1, 2), 1, False, 0, 40),
  "2d depthwise few channels": ((1, 5, 4, 30), (5, 1, 3, 3), 1, 1, 1, False, 0, 5),
  "2d depthwise dilated": ((1, 70, 9, 33), (70, 1, 3, 3), 1, (1, 4), (2, 4), False, 0, 70),
  "2d depthwise padded far": ((1, 24, 3, 4), (24, 1, 2, 3), (1, 2), (4, 9), 1, False, 0, 24),
  "2d depthwise small input": ((1, 24, 2, 3), (24, 1, 5, 7), 1, (2, 3), 1, False, 0, 24),
  "2d depthwise column": ((2, 20, 33, 1), (20, 1, 7, 1), 1, (3, 0), 1, False, 0, 20),
  "2d depthwise points": ((3, 20, 1, 1), (20, 1, 1, 1), 1, 0, 1, False, 0, 20),
  "3d depthwise": ((2, 20, 3, 5, 14), (20, 1, 3, 3, 3), 1, 1, 1, False, 0, 20),
  "1d depthwise": ((2, 20, 33), (20, 1, 7), 1, 3, 1, False, 0, 20),
  "2d 3x3 odd": ((2, 33, 9, 11), (47, 33, 3, 3), 1, 1, 1, False, 0, 1),
  "2d 3x3 unpadded": ((1, 70, 12, 10), (65, 70, 3, 3), 1, 0, 1, False, 0, 1),
  "2d 3x3 padded far": ((1, 17, 5, 7), (16, 17, 3, 3), 1, (3, 2), 1, False, 0, 1),
  "2d 3x3 groups": ((1, 48, 9, 8), (80, 24, 3, 3), 1, (0, 1), 1, False, 0, 2),
  "2d 3x3 dilated": ((1, 20, 9, 12), (24, 20, 3, 3), 1, 2, 2, False, 0, 1),
  "2d 3x3 strided": ((1, 20, 9, 12), (24, 20, 3, 3), (1, 2), 1, 1, False, 0, 1),
  "3d 3x3": ((2, 20, 3, 8, 9), (24, 20, 1, 3, 3), 1, (0, 1, 1), 1, False, 0, 1),
  "no images": ((0, 3, 9, 9), (5, 3, 3, 3), 1, 0, 1, False, 0, 1),
}


def arguments(case, dtype, bias, seed=0):
  shape, weight, stride, padding, dilation, transposed, extra, groups = case
  generator = torch.Generator().manual_seed(seed)

  def random(size):
    return torch.randn(size, generator=generator, dtype=torch.float64).to(dtype)

  spatial = len(shape) - 2

  def each(value):
    return list(value) if isinstance(value, tuple) else [value] * spatial

  outputs = weight[1] * groups if transposed else weight[0]
  return [
    random(shape),
    random(weight),
    random((outputs,)) if bias else None,
    each(stride),
    each(padding),
    each(dilation),
    transposed,
    each(extra),
    groups,
  ]


TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-11, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def last(tensor):
  """The values of a tensor with its channels last in memory."""
  return tensor.movedim(1, -1).contiguous().movedim(-1, 1)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("bias", [False, True])
def test_convolution(pack, name, dtype, bias):
  args = arguments(CASES[name], dtype, bias)
  wide = [arg.double() if isinstance(arg, torch.Tensor) else arg for arg in args]
  expected = torch.ops.aten.convolution(*wide).to(dtype)
  pairs = [(x, weight) for x in layouts(args[0]) for weight in layouts(args[1])]
  for x, weight in [*pairs, (last(args[0]), args[1]), (last(args[0]), last(args[1]))]:
    for got in (like(expected), like(last(expected))):
      pack("aten::convolution", x, weight, *args[2:], got)
      close(got, expected, TOLERANCE[dtype], TOLERANCE[dtype])


def fused(args, scale, residual, activation):
  """The value of husk::convolution by operators of PyTorch."""
  result = torch.ops.aten.convolution(*args[:2], None, *args[3:])
  shape = [1, -1] + [1] * (result.dim() - 2)
  if scale is not None:
    result = result * scale.view(shape)
  if args[2] is not None:
    result = result + args[2].view(shape)
  if residual is not None:
    result = result + residual
  return ACTIVATIONS[activation](result)


@pytest.mark.parametrize("name", CASES)
def test_instruction_sets(pack, name):
  args = arguments(CASES[name], torch.float32, True)
  wide = [arg.double() if isinstance(arg, torch.Tensor) else arg for arg in args]
  expected = torch.ops.aten.convolution(*wide).float()
  for _ in pack.each_use():
    got = like(last(expected))
    pack("aten::convolution", last(args[0]), *args[1:], got)
    close(got, expected, 1e-4, 1e-4)


FUSED_CASES = [
  "2d many",
  "2d deep",
  "2d 3x3 odd",
  "3d 3x3",
  "2d depthwise wide",
  "2d depthwise long lines",
  "2d one position",
  "2d back",
  "1d",
  "3d",
]


@pytest.mark.parametrize("name", FUSED_CASES)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_fused(pack, name, dtype):
  args = arguments(CASES[name], dtype, True)
  wide = [arg.double() if isinstance(arg, torch.Tensor) else arg for arg in args]
  shape = torch.ops.aten.convolution(*args).shape
  generator = torch.Generator().manual_seed(1)
  residual = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
  scale = torch.rand(shape[1], generator=generator, dtype=torch.float64).to(dtype)
  for activation in ACTIVATIONS:
    expected = fused(wide, scale.double(), residual.double(), activation).to(dtype)
    for added in (last(residual), *layouts(residual)):
      for got in (like(last(expected)), like(expected)):
        pack("husk::convolution", last(args[0]), *args[1:], scale, added, activation, got)
        close(got, expected, TOLERANCE[dtype], TOLERANCE[dtype])
  expected = fused(wide, None, None, "relu").to(dtype)
  got = like(last(expected))
  pack("husk::convolution", last(args[0]), *args[1:], None, None, "relu", got)
  close(got, expected, TOLERANCE[dtype], TOLERANCE[dtype])


# Layouts whose positions lie one behind another, along all axes or only some, or not at all.
ORDERS = {
  "last": last,
  "columns first": lambda x: last(x.transpose(-1, -2)).transpose(-1, -2),
  "images last": lambda x: last(x.transpose(0, -1)).transpose(0, -1),
  "every second column": lambda x: last(x.repeat_interleave(2, -1))[..., ::2],
  "part of the lines": lambda x: last(torch.cat([x, x], -2))[..., : x.shape[-2], :],
  "part of the channels": lambda x: last(torch.cat([x, x], 1))[:, : x.shape[1]],
}


@pytest.mark.parametrize("shape", [(3, 17, 4, 5), (2, 17, 1, 7), (2, 17, 7, 1), (2, 17, 2, 3, 4)])
def test_one_tap_reads_and_writes_all_layouts(pack, shape):
  generator = torch.Generator().manual_seed(0)
  x = torch.randn(shape, generator=generator)
  weight = torch.randn([35, shape[1], *[1] * (len(shape) - 2)], generator=generator)
  ones, zeros = [[number] * (len(shape) - 2) for number in (1, 0)]
  call = [ones, zeros, ones, False, zeros, 1]
  residual = torch.randn([shape[0], 35, *shape[2:]], generator=generator)
  expected = F.relu(torch.ops.aten.convolution(x, weight, None, *call) + residual)
  inputs = [*(order(x) for order in ORDERS.values()), x]
  residuals = [*(order(residual) for order in ORDERS.values()), residual]
  for tensor in inputs:
    for added in residuals:
      for order in ORDERS.values():
        got = order(like(expected))
        pack("husk::convolution", tensor, weight, None, *call, None, added, "relu", got)
        close(got, expected, 1e-4, 1e-4)
  same = x[:1].expand(shape)
  got = last(like(expected))
  pack("aten::convolution", same, weight, None, *call, got)
  close(got, torch.ops.aten.convolution(same, weight, None, *call), 1e-4, 1e-4)


@pytest.mark.parametrize("activation", ["sigmoid", "silu", "hardswish"])
def test_activations_at_the_ends(pack, activation):
  values = [-200, -104.5, -90, -88, -20, -3, -1e-5, -0.0, 0.0, 3, 20, 88, 100, torch.inf, torch.nan]
  for dtype in (torch.float32, torch.float64):
    x = torch.tensor(values, dtype=dtype)[None, :, None]
    weight, got = torch.ones(len(values), 1, 1, dtype=dtype), like(last(x))
    numbers = [None, [1], [0], [1], False, [0], len(values), None, None, activation]
    pack("husk::convolution", last(x), weight, *numbers, got)
    close(got, ACTIVATIONS[activation](x.double()).to(dtype), 1e-6, 1e-37)


ERRORS = {
  "3x3": ((1, 256, 14, 14), (256, 256, 3, 3), 1, 1, 1, False, 0, 1),
  "3x3 odd": ((2, 40, 27, 29), (72, 40, 3, 3), 1, 1, 1, False, 0, 1),
  "3x3 few positions": ((1, 512, 7, 7), (64, 512, 3, 3), 1, 1, 1, False, 0, 1),
  "1x1": ((1, 512, 14, 14), (100, 512, 1, 1), 1, 0, 1, False, 0, 1),
  "depthwise": ((1, 96, 14, 14), (96, 1, 7, 7), 1, 3, 1, False, 0, 96),
  "one position": ((1, 960, 1, 1), (240, 960, 1, 1), 1, 0, 1, False, 0, 1),
}


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("activation", ["none", "silu"])
def test_errors(pack, name, activation):
  """Errors are those of plain f32, with each instruction set."""
  errors = collections.defaultdict(exactness.Errors)
  size, (channels, *_), *_ = ERRORS[name]
  for seed in exactness.seeds(size[0] * channels * math.prod(size[2:])):
    args = arguments(ERRORS[name], torch.float32, True, seed)
    wide = [arg.double() if isinstance(arg, torch.Tensor) else arg for arg in args]
    scale = torch.rand(channels, generator=torch.Generator().manual_seed(seed))
    exact = fused(wide, scale.double(), None, activation)
    x, weight, bias, stride, padding, dilation, *_, groups = args
    plain = exactness.convolution(x, weight, stride, padding, dilation, groups)
    plain = plain * scale.view(1, -1, 1, 1) + bias.view(1, -1, 1, 1)
    plain = ACTIVATIONS[activation](plain)
    for isa in pack.each_use():
      got = like(last(plain))
      pack("husk::convolution", last(x), *args[1:], scale, None, activation, got)
      errors[isa].add(exact, got, plain)
  for isa, each in errors.items():
    each.check(isa)


def test_refuses(pack):
  args = arguments(CASES["2d"], torch.float32, True)
  out = torch.zeros(2, 5, 9, 11)

  def call(code, text, at, value, target=out):
    refused(pack, code, text, "aten::convolution", *args[:at], value, *args[at + 1 :], target)

  call(INVALID_ARGUMENT, "argument weight has rank 3", 1, args[1][0])
  call(INVALID_ARGUMENT, "argument weight has dtype f64", 1, args[1].double())
  call(INVALID_ARGUMENT, "argument input has size 3 along 1, not 2", 1, args[1][:, :2])
  call(INVALID_ARGUMENT, "argument bias has size 4", 2, args[2][:4])
  call(INVALID_ARGUMENT, "argument stride has 3 ints, not 2", 3, [1, 1, 1])
  call(INVALID_ARGUMENT, "argument stride is out of range", 3, [0, 1])
  call(INVALID_ARGUMENT, "argument padding is out of range", 4, [0, -1])
  call(INVALID_ARGUMENT, "argument groups is not positive", 8, 0)
  call(INVALID_ARGUMENT, "argument weight does not divide", 8, 3)
  call(INVALID_ARGUMENT, "argument out has size 9 along 2, not 5", 3, [2, 1], out)
  call(INVALID_ARGUMENT, "argument out has rank 3", 3, [1, 1], out[0])

  def call_fused(text, at, value):
    values = [*args, torch.ones(5), torch.zeros(2, 5, 9, 11), "relu"]
    values[at] = value
    refused(pack, INVALID_ARGUMENT, text, "husk::convolution", *values, out)

  call_fused("argument channel_scale has size 4", 9, torch.ones(4))
  call_fused("argument channel_scale has dtype f64", 9, torch.ones(5).double())
  call_fused("argument residual has size 10 along 3", 10, torch.zeros(2, 5, 9, 10))
  call_fused("argument residual has rank 3", 10, torch.zeros(5, 9, 11))
  call_fused("argument residual has dtype f16", 10, out.half())
  call_fused("argument activation is no activation", 11, "elu")
  call_fused("argument activation is no activation", 11, 1)
  ints = [arg.int() if isinstance(arg, torch.Tensor) else arg for arg in args]
  refused(pack, UNSUPPORTED, "dtype i32", "aten::convolution", *ints, out.int())
