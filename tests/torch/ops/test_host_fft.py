"""Fourier transforms of the host, against PyTorch."""

import math

import pytest
import torch
from host_ops import (
  INVALID_ARGUMENT,
  INVALID_INPUT,
  UNSUPPORTED,
  close,
  layouts,
  like,
  refused,
)
from husk.lower import workspaces

ATEN = torch.ops.aten
# Products of small factors, and lengths that become convolutions, as 67 and 2039 do.
LENGTHS = [1, 2, 3, 4, 5, 7, 8, 12, 16, 30, 49, 61, 67, 97, 201, 210, 256, 1000]
LENGTHS += [1009, 1025, 2039, 4096, 6143, 6144, 10007, 3 * 4099, 8192, 3 * 4096]
# Reals are transformed as half as many complex numbers, with vectors where they fit.
LENGTHS += [6, 10, 14, 24, 40, 48, 72, 134, 200, 375, 400, 480, 4078]


def random(shape, dtype):
  wide = torch.complex128 if dtype.is_complex else torch.float64
  return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=wide).to(dtype)


def workspace(name, self, dims, last):
  """The workspace that an export gives to the call."""
  values = {"self": self, "dim": dims, **({"last_dim_size": last} if name == "_fft_c2r" else {})}
  length = workspaces.length("aten::" + name, values)
  return [] if length is None else [torch.full((int(length),), math.nan, dtype=torch.float64)]


def check(pack, name, self, *args, scratch=None):
  expected = getattr(ATEN, name)(self, *args)
  tolerance = 1e-10 if expected.dtype in (torch.complex128, torch.float64) else 2e-4
  got = like(expected)
  scratch = workspace(name, self, args[0], args[2]) if scratch is None else scratch
  pack("aten::" + name, self, *args, got, *scratch)
  close(got, expected, tolerance, tolerance * max(1, expected.abs().max().item()))


@pytest.mark.parametrize("wide", [False, True])
def test_lengths(pack, wide):
  for n in LENGTHS:
    for forward in (True, False):
      check(
        pack,
        "_fft_c2c",
        random((2, n), torch.complex128 if wide else torch.complex64),
        [1],
        0,
        forward,
      )
    for onesided in (True, False):
      check(
        pack, "_fft_r2c", random((2, n), torch.float64 if wide else torch.float32), [1], 0, onesided
      )
    half = random((2, n // 2 + 1), torch.complex128 if wide else torch.complex64)
    check(pack, "_fft_c2r", half, [1], 0, n)


@pytest.mark.parametrize("wide", [False, True])
def test_lengths_without_a_workspace(pack, wide):
  """Files of earlier versions have none."""
  dtype = torch.complex128 if wide else torch.complex64
  for n in (67, 97, 1000, 1021, 1024):
    check(pack, "_fft_c2c", random((2, n), dtype), [1], 0, True, scratch=[])
    real = torch.float64 if wide else torch.float32
    check(pack, "_fft_r2c", random((2, n), real), [1], 0, True, scratch=[])
    check(pack, "_fft_c2r", random((2, n // 2 + 1), dtype), [1], 0, n, scratch=[])
  for n in (8192, 65536):
    for stride in (1, 2):
      self = random((n, 2), dtype)[:, ::stride]
      check(pack, "_fft_c2c", self, [0], 1, True, scratch=[])


@pytest.mark.parametrize("wide", [False, True])
def test_dimensions(pack, wide):
  for self in layouts(random((4, 5, 6), torch.complex128 if wide else torch.complex64)):
    for dims in ([0], [2], [2, 0], [0, 1, 2]):
      for mode in (0, 1, 2):
        check(pack, "_fft_c2c", self, dims, mode, True)
        check(pack, "_fft_c2c", self, dims, mode, False)
    for mode in (0, 1, 2):
      check(pack, "_fft_c2r", self, [1], mode, 8)
      check(pack, "_fft_c2r", self, [1], mode, 9)
      check(pack, "_fft_c2r", self, [0, 1], mode, 8)
      check(pack, "_fft_c2r", self, [2, 0, 1], mode, 9)
  for self in layouts(random((4, 5, 6), torch.float64 if wide else torch.float32)):
    for dims in ([0], [2], [0, 2], [2, 1, 0]):
      for mode in (0, 1, 2):
        check(pack, "_fft_r2c", self, dims, mode, True)
    check(pack, "_fft_r2c", self, [1], 0, False)


def test_refuses(pack):
  c = torch.zeros(3, 10007, dtype=torch.complex64)
  refused(
    pack,
    UNSUPPORTED,
    "10007 points along a dimension need a workspace",
    "aten::_fft_c2c",
    c,
    [1],
    0,
    True,
    c.clone(),
  )
  small = torch.zeros(60, dtype=torch.float64)
  refused(pack, INVALID_ARGUMENT, "smaller", "aten::_fft_c2c", c, [1], 0, True, c.clone(), small)
  refused(pack, UNSUPPORTED, "dtype f32", "aten::_fft_c2c", c.real, [1], 0, True, c.real)
  refused(
    pack, INVALID_ARGUMENT, "names no dimension", "aten::_fft_c2c", c, [2], 0, True, c.clone()
  )
  refused(pack, INVALID_ARGUMENT, "one twice", "aten::_fft_c2c", c, [0, -2], 0, True, c.clone())
  refused(pack, INVALID_ARGUMENT, "normalization", "aten::_fft_c2c", c, [0], 3, True, c.clone())
  refused(pack, INVALID_INPUT, "no points", "aten::_fft_c2c", c[:, :0], [1], 0, True, c[:, :0])
  refused(
    pack,
    INVALID_ARGUMENT,
    "argument out has size 5 along 1, not 4",
    "aten::_fft_r2c",
    torch.zeros(2, 6),
    [1],
    0,
    True,
    torch.zeros(2, 5, dtype=torch.complex64),
  )
  refused(
    pack,
    INVALID_ARGUMENT,
    "argument self has size 5 along 1, not 4",
    "aten::_fft_c2r",
    c[:, :5],
    [1],
    0,
    6,
    torch.zeros(3, 6),
  )
  refused(
    pack,
    UNSUPPORTED,
    "several dimensions",
    "aten::_fft_c2r",
    c[:, :4],
    [0, 1],
    0,
    6,
    torch.zeros(3, 6),
  )
