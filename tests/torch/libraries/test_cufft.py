"""Programs that leave Fourier transforms to cuFFT. Programs without kernels run on the fake driver
with its fake cuFFT."""

import re

import husk
import on_fake_driver
import pytest
import torch
from cuda_numerics import close
from grids import alternating
from torch.export import Dim

LIBRARY = "libcufft.so.12"
# The type of a transform, its dimensions and their sizes.
TRANSFORMS = alternating(
  [(torch.float32, 1e-4), (torch.float64, 1e-10)],
  [1, 2, 3],
  [(4, 6, 8), (1, 1, 1), (2, 3, 7), (3, 5, 2)],
)
CALL = re.compile(r'extern "husk::fft" \((.*?)\)(?: at .*)?$', re.M)


def numbers(*sizes, dtype=torch.float64):
  return torch.randn(*sizes, dtype=dtype, generator=torch.Generator().manual_seed(0))


def check(function, inputs, folder, monkeypatch, tolerance, shapes=None):
  outcomes = on_fake_driver.run(function, inputs, folder, LIBRARY, monkeypatch, shapes, fft="cufft")
  for arguments, (code, results, text) in zip(inputs, outcomes, strict=True):
    assert code == 0, text
    right = function(None, *arguments)
    for one, other in zip(results, right if isinstance(right, tuple) else (right,), strict=True):
      close(one, other, tolerance)


def written(function, args, folder, shapes=None, **options):
  return on_fake_driver.written(function, args, folder, shapes, **{"fft": "cufft", **options})


# The tests of this part compare what the library computes.


@pytest.mark.parametrize("kind, dims, sizes", TRANSFORMS)
def test_complex_numbers(kind, dims, sizes, tmp_path, monkeypatch):
  dtype, tolerance = kind

  def function(self, x):
    z = torch.view_as_complex(x)
    where = tuple(range(-dims, 0))
    return (
      torch.view_as_real(torch.fft.fftn(z, dim=where)),
      torch.view_as_real(torch.fft.ifftn(z, dim=where, norm="forward")),
    )

  check(function, [(numbers(2, *sizes, 2, dtype=dtype),)], tmp_path, monkeypatch, tolerance)


@pytest.mark.parametrize("kind, dims, sizes", TRANSFORMS)
def test_real_numbers(kind, dims, sizes, tmp_path, monkeypatch):
  dtype, tolerance = kind
  where = tuple(range(-dims, 0))

  def function(self, x):
    z = torch.fft.rfftn(x, dim=where)
    back = torch.fft.irfftn(z, s=sizes[-dims:], dim=where, norm="forward")
    return torch.view_as_real(z), back

  check(function, [(numbers(2, *sizes, dtype=dtype),)], tmp_path, monkeypatch, tolerance)


def test_a_batch_and_a_length_that_vary(tmp_path, monkeypatch):
  def function(self, x):
    z = torch.fft.rfft(x)
    return torch.view_as_real(z), torch.fft.irfft(z, n=x.shape[-1], norm="forward")

  inputs = [(numbers(*sizes),) for sizes in ((3, 8), (1, 7), (5, 64))]
  shapes = ({0: Dim("batch", min=1, max=8), 1: Dim("length", min=2, max=100)},)
  check(function, inputs, tmp_path, monkeypatch, 1e-10, shapes)


# The tests of this part look at the text that the exporter writes.


def test_other_dimensions_are_moved(tmp_path):
  def function(self, x):
    return torch.view_as_real(torch.fft.fft2(torch.complex(x, x + 1), dim=(0, 2)))

  (call,) = CALL.findall(written(function, (numbers(4, 5, 6),), tmp_path))
  assert "f64 [5, 4, 6, 2] [48, 12, 2, 1], 2, false" in call, call


def test_more_than_three_dimensions_are_two_calls(tmp_path):
  def function(self, x):
    return torch.view_as_real(torch.fft.rfftn(x))

  calls = CALL.findall(written(function, (numbers(2, 3, 4, 5),), tmp_path))
  assert [re.findall(r"\], (\d), (\w+), \[", call)[0] for call in calls] == [
    ("3", "false"),
    ("1", "false"),
  ]


def test_half_precision_stays_a_product(tmp_path):
  def function(self, x):
    return torch.view_as_real(torch.fft.fft(torch.complex(x, x)))

  text = written(function, (numbers(4, 8).half(),), tmp_path)
  assert "husk::fft" not in text and "launch" in text


def test_a_whole_spectrum_and_a_scale_are_kernels(tmp_path):
  def function(self, x):
    return torch.view_as_real(torch.fft.fft(x, norm="ortho"))

  text = written(function, (numbers(4, 8),), tmp_path)
  assert len(CALL.findall(text)) == 1 and "launch" in text


def test_stft_is_one_call(tmp_path):
  def function(self, x):
    window = torch.hann_window(16)
    return torch.stft(x, 16, hop_length=4, window=window, return_complex=True).abs()

  assert len(CALL.findall(written(function, (numbers(2, 200).float(),), tmp_path))) == 1


def test_products_are_the_default(tmp_path):
  def function(self, x):
    return torch.view_as_real(torch.fft.fft(x))

  args = (numbers(4, 8),)
  default = written(function, args, tmp_path, fft=None)
  assert "husk::fft" not in default
  assert written(function, args, tmp_path, fft="triton") == default
  assert "husk::fft" in written(function, args, tmp_path, fft=None, libraries=True)
  assert "husk::fft" not in written(function, args, tmp_path, fft="triton", libraries=True)
  with pytest.raises(ValueError, match="fft='fftw': give one of 'triton', 'cufft'"):
    written(function, args, tmp_path, fft="fftw")


def test_missing_cufft_is_an_error(tmp_path):
  husk.export(
    on_fake_driver.FunctionModule(lambda self, x: torch.view_as_real(torch.fft.rfft(x))),
    (numbers(4, 8),),
    tmp_path / "model.husk",
    targets=("cuda:h200",),
    fft="cufft",
  )
  flags = "--input=4x8xf64=random", "--cufft=/no/such/library"
  text = on_fake_driver.refusal(LIBRARY, tmp_path / "model.husk", *flags)
  assert "no cuFFT (/no/such/library" in text and "LD_LIBRARY_PATH" in text
  assert "fft='triton'" in text
