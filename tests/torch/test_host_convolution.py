"""aten::convolution of the host, against PyTorch."""

import pytest
import torch
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
  "no images": ((0, 3, 9, 9), (5, 3, 3, 3), 1, 0, 1, False, 0, 1),
}


def arguments(case, dtype, bias):
  shape, weight, stride, padding, dilation, transposed, extra, groups = case
  generator = torch.Generator().manual_seed(0)

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


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("bias", [False, True])
def test_convolution(pack, name, dtype, bias):
  args = arguments(CASES[name], dtype, bias)
  wide = [arg.double() if isinstance(arg, torch.Tensor) else arg for arg in args]
  expected = torch.ops.aten.convolution(*wide).to(dtype)
  for input in layouts(args[0]):
    for weight in layouts(args[1]):
      got = like(expected)
      pack("aten::convolution", input, weight, *args[2:], got)
      close(got, expected, TOLERANCE[dtype], TOLERANCE[dtype])
  if len(args[0].shape) == 4:
    got = like(expected.to(memory_format=torch.channels_last))
    pack(
      "aten::convolution",
      args[0].to(memory_format=torch.channels_last),
      args[1].to(memory_format=torch.channels_last),
      *args[2:],
      got,
    )
    close(got, expected, TOLERANCE[dtype], TOLERANCE[dtype])


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
  ints = [arg.int() if isinstance(arg, torch.Tensor) else arg for arg in args]
  refused(pack, UNSUPPORTED, "dtype i32", "aten::convolution", *ints, out.int())
