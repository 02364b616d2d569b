"""husk::convolution_depthwise of the host, against PyTorch."""

import collections

import exactness
import pytest
import torch
import torch.nn.functional as F
from activation_functions import ACTIVATIONS
from host_ops import INVALID_ARGUMENT, UNSUPPORTED, close, layouts, like, refused
from test_host_convolution import ORDERS, TOLERANCE, last

# input, the first convolution's output channels, kernel, stride, padding, dilation, and the last
# four of the depthwise one
CASES = {
  "one tap": ((2, 5, 9, 11), 20, 1, 1, 0, 1, 3, 1, 1, 1),
  "one tap, halved": ((1, 16, 30, 41), 64, 1, 1, 0, 1, 3, 2, 1, 1),
  "5 x 5": ((1, 24, 28, 28), 72, 1, 1, 0, 1, 5, 1, 2, 1),
  "5 x 5, halved": ((3, 8, 17, 19), 33, 1, 1, 0, 1, 5, 2, 2, 1),
  "stem": ((2, 3, 33, 30), 16, 3, 2, 1, 1, 3, 1, 1, 1),
  "more channels than a block": ((1, 10, 14, 14), 150, 1, 1, 0, 1, 3, 1, 1, 1),
  "deep": ((1, 600, 9, 9), 20, 1, 1, 0, 1, 3, 1, 1, 1),
  "3 x 3 after 3 x 3": ((1, 9, 40, 23), 70, 3, 1, 1, 1, 3, 1, 1, 1),
  "padded far": ((1, 4, 3, 5), 10, 1, 1, 3, 1, 3, 1, 5, 1),
  "steps over rows": ((1, 4, 23, 22), 10, 1, 1, 0, 1, 2, 3, 1, 1),
  "steps over rows, padded far": ((1, 4, 9, 10), 10, 2, 1, 2, 1, 1, (4, 3), 7, 1),
  "dilated": ((1, 4, 21, 30), 17, 3, 1, (2, 1), (2, 1), 3, 1, (3, 4), (3, 4)),
  "uneven": ((2, 6, 13, 16), 12, (3, 2), (1, 2), (0, 1), 1, (2, 5), (2, 1), (1, 0), 1),
  "wide": ((1, 3, 6, 1500), 64, 1, 1, 0, 1, (3, 5), 1, (1, 2), 1),
  "wide, halved": ((1, 3, 9, 1501), 50, 3, 1, 1, 1, (5, 7), 2, 2, 1),
  "tall": ((1, 3, 700, 5), 70, 1, 1, 0, 1, 3, 1, 1, 1),
  "one row": ((2, 7, 1, 40), 20, 1, 1, 0, 1, (1, 3), 1, (0, 1), 1),
  "one column": ((2, 7, 40, 1), 20, 1, 1, 0, 1, (3, 1), 1, (1, 0), 1),
  "one position": ((2, 7, 1, 1), 20, 1, 1, 0, 1, 3, 1, 1, 1),
  "nothing between": ((1, 3, 2, 2), 6, 5, 1, 1, 1, 3, 1, 2, 1),
  "no images": ((0, 3, 9, 9), 6, 1, 1, 0, 1, 3, 1, 1, 1),
}


def pair(value):
  return list(value) if isinstance(value, tuple) else [value] * 2


def arguments(case, dtype, activations=("none", "none"), seed=0):
  """The arguments of the operator, with a bias and a scale for both convolutions."""
  shape, channels, *numbers = case
  kernel, stride, padding, dilation, taps, step, pad, gap = map(pair, numbers)
  generator = torch.Generator().manual_seed(seed)

  def random(*size):
    return torch.randn(size, generator=generator, dtype=torch.float64).to(dtype)

  return [
    random(*shape),
    random(channels, shape[1], *kernel) / 4,
    random(channels),
    stride,
    padding,
    dilation,
    random(channels),
    activations[0],
    random(channels, 1, *taps) / 2,
    random(channels),
    step,
    pad,
    gap,
    random(channels),
    activations[1],
  ]


def convolve(x, weight, bias, stride, padding, dilation, scale, activation, groups, plain=False):
  if plain:
    y = exactness.convolution(x, weight, stride, padding, dilation, groups)
  else:
    y = F.conv2d(x, weight, None, stride, padding, dilation, groups)
  if scale is not None:
    y = y * scale.view(1, -1, 1, 1)
  if bias is not None:
    y = y + bias.view(1, -1, 1, 1)
  return ACTIVATIONS[activation](y)


def reference(args):
  """The value of the operator by operators of PyTorch, in f64."""
  x, *rest = [arg.double() if isinstance(arg, torch.Tensor) else arg for arg in args]
  first, second = rest[:7], rest[7:]
  return convolve(convolve(x, *first, 1), *second, second[0].shape[0])


def named(name):
  """A case whose first convolution may have no results, which PyTorch does not compute."""
  return CASES[name] if name != "nothing between" else ((1, 3, 4, 4), *CASES[name][1:])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_values(pack, name, dtype):
  args = arguments(named(name), dtype, ("relu", "hardswish"))
  expected = reference(args).to(dtype)
  # Intermediate results in half precision are rounded.
  tolerance = TOLERANCE[dtype] * (8 if dtype in (torch.float16, torch.bfloat16) else 1)
  for x in (last(args[0]), *layouts(args[0])):
    for got in (like(last(expected)), like(expected)):
      pack("husk::convolution_depthwise", x, *args[1:], got)
      close(got, expected, tolerance, tolerance)


def test_first_without_results(pack):
  """Where the first convolution has no results, the second one reads only its padding."""
  args = arguments(((1, 3, 2, 2), *CASES["nothing between"][1:]), torch.float32)
  args[4] = [0, 0]
  assert args[1].shape[2:] == (5, 5)
  out = torch.full((1, 6, 2, 2), torch.nan)
  pack("husk::convolution_depthwise", *args, out)
  close(out, args[9].view(1, 6, 1, 1).expand(1, 6, 2, 2), 1e-6, 1e-6)


@pytest.mark.parametrize("name", CASES)
def test_instruction_sets(pack, name):
  args = arguments(named(name), torch.float32, ("none", "relu6"))
  expected = reference(args).float()
  for _ in pack.each_use():
    got = like(last(expected))
    pack("husk::convolution_depthwise", last(args[0]), *args[1:], got)
    close(got, expected, 1e-4, 1e-4)


@pytest.mark.parametrize("name", ["one tap", "stem", "5 x 5, halved"])
def test_activations(pack, name):
  for first in ACTIVATIONS:
    for second in ACTIVATIONS:
      args = arguments(CASES[name], torch.float32, (first, second))
      expected = reference(args).float()
      got = like(last(expected))
      pack("husk::convolution_depthwise", last(args[0]), *args[1:], got)
      close(got, expected, 1e-4, 1e-4)


@pytest.mark.parametrize("name", ["one tap", "one tap, halved", "stem"])
def test_layouts(pack, name):
  for missing in ([], [2], [6], [9], [13], [2, 6, 9, 13]):
    args = arguments(CASES[name], torch.float32, ("hardswish", "none"))
    for place in missing:
      args[place] = None
    expected = reference(args).float()
    for read in ORDERS.values():
      for write in ORDERS.values():
        got = write(like(expected))
        pack("husk::convolution_depthwise", read(args[0]), *args[1:], got)
        close(got, expected, 1e-4, 1e-4)
  for first in layouts(args[1]):
    for second in layouts(args[8]):
      got = like(last(expected))
      pack("husk::convolution_depthwise", last(args[0]), first, *args[2:8], second, *args[9:], got)
      close(got, expected, 1e-4, 1e-4)


@pytest.mark.parametrize("name", ["one tap, halved", "5 x 5", "stem", "wide"])
@pytest.mark.parametrize("activations", [("none", "none"), ("silu", "relu")])
def test_errors(pack, name, activations):
  """Errors are those of plain f32, with each instruction set."""
  errors = collections.defaultdict(exactness.Errors)
  for seed in range(2):
    args = arguments(CASES[name], torch.float32, activations, seed)
    exact = reference(args)
    first, second = args[1:8], args[8:]
    plain = convolve(args[0], *first, 1, plain=True)
    plain = convolve(plain, *second, second[0].shape[0], plain=True)
    for isa in pack.each_use():
      got = like(last(plain))
      pack("husk::convolution_depthwise", last(args[0]), *args[1:], got)
      errors[isa].add(exact, got, plain)
  for isa, each in errors.items():
    each.check(isa)


def test_refuses(pack):
  args = arguments(CASES["one tap"], torch.float32)
  out = torch.zeros(2, 20, 9, 11)

  def call(text, at, value, code=INVALID_ARGUMENT):
    values = [*args, out]
    values[at] = value
    refused(pack, code, text, "husk::convolution_depthwise", *values)

  call("argument input has rank 3", 0, args[0][0])
  call("argument input has size 4 along 1, not 5", 0, args[0][:, :4])
  call("argument weight has rank 5", 1, args[1][None])
  call("argument weight has dtype f64", 1, args[1].double())
  call("argument weight has no elements", 1, args[1][:, :0])
  call("argument bias has size 4", 2, args[2][:4])
  call("argument stride is out of range", 3, [0, 1])
  call("argument padding is out of range", 4, [0, -1])
  call("argument dilation has 3 ints, not 2", 5, [1, 1, 1])
  call("argument channel_scale has dtype f16", 6, args[6].half())
  call("argument activation is no activation", 7, "elu")
  call("argument depthwise_weight has size 19 along 0, not 20", 8, args[8][:19])
  call("argument depthwise_weight has size 2 along 1, not 1", 8, torch.ones(20, 2, 3, 3))
  call("argument depthwise_weight has no elements", 8, args[8][..., :0])
  call(
    "argument depthwise_weight has more than 512 taps", 8, torch.ones(20, 1, 3, 200), UNSUPPORTED
  )
  call("argument depthwise_bias has size 4", 9, args[9][:4])
  call("argument depthwise_stride is out of range", 10, [2**32, 1])
  call("argument out has size 11 along 3, not 13", 11, [1, 2])
  call("argument depthwise_scale has size 4", 13, args[13][:4])
  call("argument depthwise_activation is no activation", 14, 1)
  call("argument out has rank 3", 15, out[0])
  call("argument out has size 1 along 0, not 2", 15, out[:1])
  call("argument out has size 19 along 1, not 20", 15, out[:, :19])
  call("argument out has dtype f64", 15, out.double())
  ints = [arg.int() if isinstance(arg, torch.Tensor) else arg for arg in args]
  refused(pack, UNSUPPORTED, "dtype i32", "husk::convolution_depthwise", *ints, out.int())
  far = arguments(((1, 5, 900, 900), *CASES["one tap"][1:-1], 400), torch.float32)
  far[11] = [0, 0]
  text = "argument depthwise_weight reads more elements at a time"
  refused(pack, UNSUPPORTED, text, "husk::convolution_depthwise", *far, torch.ones(1, 20, 100, 100))
