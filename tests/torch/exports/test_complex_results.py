"""Complex tensors on hosts: inverse transforms to real numbers, and writes into parts."""

import export_and_compare
import husk
import pytest
import torch
from function_module import FunctionModule
from husk.jit.backend import backend

FFT = torch.fft

TO_REAL = {
  "irfft2": (lambda self, x: FFT.irfft2(FFT.rfft2(x)), (4, 6)),
  "irfftn": (lambda self, x: FFT.irfftn(FFT.rfftn(x)), (2, 4, 6)),
  "irfftn of an odd size": (lambda self, x: FFT.irfftn(x, s=(5, 7), dim=(2, 1)), (3, 4, 5)),
  "ortho": (
    lambda self, x: FFT.irfftn(FFT.rfftn(x, dim=(1, 2), norm="ortho"), dim=(1, 2), norm="ortho"),
    (2, 4, 6),
  ),
  "forward": (lambda self, x: FFT.irfft2(x, norm="forward"), (3, 4, 5)),
  "hfft2": (lambda self, x: FFT.hfft2(x), (3, 4, 5)),
}


@pytest.mark.parametrize("name", TO_REAL)
def test_transform_to_real_numbers_over_several_dimensions(name, tmp_path):
  function, shape = TO_REAL[name]
  torch.manual_seed(4)
  export_and_compare.run(tmp_path, function, (torch.randn(shape),), strides=False)


@pytest.mark.parametrize("name", ["addmm", "baddbmm", "addbmm"])
def test_products_with_complex_factors(name, tmp_path):
  def function(self, x, a, b):
    factors = {"beta": 1 + 2j, "alpha": 2 - 1j}
    return getattr(torch, name)(x, a, b, **factors), getattr(torch, name)(x, a, b, beta=0, alpha=1j)

  torch.manual_seed(4)
  sizes = {"addmm": (2, 2, 2), "baddbmm": (3, 3, 3), "addbmm": (2, 3, 3)}[name]
  args = [torch.randn([2, 4, 4][-size:], dtype=torch.complex64) for size in sizes]
  model = FunctionModule(function)
  husk.export(
    model, tuple(args), tmp_path / "a.husk", targets=(f"host:{export_and_compare.ISAS[0]}",)
  )
  for result, expected in zip(husk.load(tmp_path / "a.husk")(*args), model(*args), strict=True):
    torch.testing.assert_close(torch.as_tensor(result), expected)


def test_transform_of_sizes_that_vary(tmp_path):
  sizes = {0: torch.export.Dim("n", min=2, max=32), 1: torch.export.Dim("m", min=2, max=32)}
  others = [(torch.randn(shape),) for shape in ((9, 6), (2, 31))]
  export_and_compare.run(
    tmp_path,
    lambda self, x: FFT.irfft2(FFT.rfft2(x), s=(x.shape[0], x.shape[1])),
    (torch.randn(6, 8),),
    ({0: sizes[0], 1: sizes[1]},),
    others,
    strides=False,
  )


def _slice(x):
  x[..., 1:].mul_(2)


def _select(x):
  x.select(-1, 0).add_(2)


def _diagonal(x):
  x.diagonal(0, -1, -2).mul_(-3)


def _transposed(x):
  x.transpose(0, 1)[::2].conj().mul_(5)


@pytest.mark.parametrize("write", [_slice, _select, _diagonal, _transposed])
def test_write_into_a_part(write, tmp_path):
  def function(self, x):
    x = torch.complex(x, x * 2)
    write(x)
    return x

  torch.manual_seed(4)
  export_and_compare.run(tmp_path, function, (torch.randn(3, 4, 5),), strides=False)


def test_graphs_of_torch_compile():
  def function(x):
    return FFT.irfft2(FFT.rfft2(x) * 2)

  x = torch.randn(4, 6)
  torch.testing.assert_close(torch.compile(function, backend=backend)(x), function(x))
