"""Operators that PyTorch itself reaches inside of others only."""

import husk
import pytest
import torch
from export_and_compare import ISAS
from function_module import FunctionModule
from husk.inductor.decompositions import internal
from torch.export import Dim

aten, prims = torch.ops.aten, torch.ops.prims

# x, weight, stride, padding, dilation, transposed, output padding, groups.
CONVOLUTIONS = [
  ((2, 3, 7, 7), (4, 3, 3, 3), [2, 2], [0, 0], [1, 1], False, [0, 0], 1),
  ((2, 4, 9, 10), (6, 2, 3, 3), [2, 2], [1, 0], [1, 2], False, [0, 0], 2),
  ((2, 4, 11), (4, 1, 3), [1], [2], [2], False, [0], 4),
  ((2, 4, 5, 6), (4, 3, 3, 2), [2, 1], [1, 0], [1, 2], True, [1, 0], 2),
]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_gradients_of_convolutions(case):
  torch.manual_seed(1)
  x, weight = (torch.randn(shape, dtype=torch.float64) for shape in case[:2])
  gradient = torch.randn_like(aten.convolution(x, weight, None, *case[2:]))
  args = gradient, x, weight, [gradient.shape[1]], *case[2:]
  found = internal.table()[aten.convolution_backward.default](*args, [True] * 3)
  for one, expected in zip(found, aten.convolution_backward(*args, [True] * 3), strict=True):
    torch.testing.assert_close(one, expected)
  only = internal.table()[aten.convolution_backward.default](*args, [False, True, False])
  assert only[0] is None and only[2] is None
  assert torch.equal(only[1], found[1])


@pytest.mark.parametrize("size, windows", [(6, 3), (7, 3), (5, 8)])
def test_gradients_of_adaptive_means(size, windows):
  x, gradient = torch.randn(2, 3, size, 9), torch.randn(2, 3, windows, 4)
  op = aten._adaptive_avg_pool2d_backward.default
  torch.testing.assert_close(internal.table()[op](gradient, x), op(gradient, x))


@pytest.mark.parametrize("length", [1, 2, 7, 8])
def test_windows_and_frequencies(length):
  hamming = internal.table()[aten.hamming_window.periodic]
  for periodic in (False, True):
    torch.testing.assert_close(hamming(length, periodic), torch.hamming_window(length, periodic))
  frequencies = internal.table()[aten.fft_fftfreq.default]
  torch.testing.assert_close(frequencies(length, 0.3), torch.fft.fftfreq(length, 0.3))


def test_a_factor_of_ints_is_rounded():
  x, y, z = torch.arange(-3, 3), torch.tensor(2), torch.arange(6)
  addcmul = internal.table()[aten.addcmul.default]
  assert torch.equal(addcmul(x, y, z, value=-1.5), torch.addcmul(x, y, z, value=-1.5))
  assert addcmul(x, y, z, value=2) is NotImplemented
  assert addcmul(x.float(), y, z, value=0.5) is NotImplemented


def test_a_program_has_them(tmp_path):
  def function(self, x, place):
    put = aten._index_put_impl(x, [place], x[:1], True, False)
    parts = prims.split_dim(prims.view_of(x), 1, 2)
    window = torch.hamming_window(6) * torch.fft.fftfreq(6)
    return (
      put,
      parts,
      prims.squeeze(prims.collapse(x, 0, 1)[None], [0]),
      aten.slice_copy(x * window, 1, 1, 3),
      prims.prod(x, [0, 1]),
      aten._adaptive_avg_pool2d_backward(x, x.repeat(1, 2, 3)),
    )

  def arguments(count):
    return torch.randn(count, 4, 6), torch.tensor([1])

  path = tmp_path / "program.husk"
  shapes = [{0: Dim("count", min=2, max=64)}, None]
  husk.export(
    FunctionModule(function),
    arguments(3),
    path,
    dynamic_shapes=shapes,
    targets=(f"host:{ISAS[0]}",),
    progress=False,
  )
  for count in (3, 8):
    inputs = arguments(count)
    found = [torch.as_tensor(one) for one in husk.load(path)(*inputs)]
    for one, expected in zip(found, function(None, *inputs), strict=True):
      torch.testing.assert_close(one, expected)
