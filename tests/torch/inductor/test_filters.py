"""The functions that take the place of torchaudio's recursive filters while a model is traced."""

import sys
import types

import husk
import pytest
import torch
from export_and_compare import ISAS
from function_module import FunctionModule
from husk.inductor import filters
from torch.export import Dim

FILTERING = "torchaudio.functional.filtering"


def sample_by_sample(waveform, coefficients):
  found = [torch.zeros_like(waveform[..., 0])] * coefficients.shape[1]
  for sample in waveform.unbind(-1):
    for place, one in enumerate(coefficients.unbind(1)):
      sample = sample - one * found[-1 - place]
    found.append(sample)
  return torch.stack(found[coefficients.shape[1] :], -1)


def stable(channels, order):
  """Coefficients of filters whose poles are inside of the unit circle, one of them close to it."""
  torch.manual_seed(order)
  if order > 9:  # the coefficients of many poles are too inexact
    return torch.rand(channels, order, dtype=torch.float64) / order
  poles = torch.rand(channels, order, dtype=torch.float64) * 1.6 - 0.8
  poles[:, 0] = 0.995
  polynomial = torch.ones(channels, 1, dtype=torch.float64)
  for pole in poles.unbind(1):
    shifted = torch.nn.functional.pad(polynomial, (1, 0)) * pole[:, None]
    polynomial = torch.nn.functional.pad(polynomial, (0, 1)) - shifted
  return polynomial[:, 1:]


@pytest.mark.parametrize("order", [1, 2, 5, 70])
@pytest.mark.parametrize("samples", [1, 63, 64, 65, 700, 1100])
def test_samples_depend_on_all_before_them(order, samples):
  coefficients = stable(2, order)
  waveform = torch.randn(3, 2, samples, dtype=torch.float64)
  expected = sample_by_sample(waveform, coefficients)
  torch.testing.assert_close(filters.recursive(waveform, coefficients), expected)


def test_a_filter_of_no_coefficients_changes_nothing():
  waveform = torch.randn(1, 1, 9)
  assert filters.recursive(waveform, torch.zeros(1, 0)) is waveform


def test_an_undefined_sample_leaves_the_blocks_before_it_as_they_are():
  waveform = torch.randn(1, 1, 300)
  clean = filters.recursive(waveform, stable(1, 2))
  waveform[..., 200] = torch.nan
  found = filters.recursive(waveform, stable(1, 2))
  assert torch.equal(found[..., :192], clean[..., :192])
  assert found[..., 200:].isnan().all()


def loop_of_the_library(waveform, coefficients, output):
  raise AssertionError("torch.export traced the loop of torchaudio")


@pytest.fixture
def library(monkeypatch):
  """Stands in for torchaudio."""
  filtering = types.ModuleType(FILTERING)
  for name in ("_lfilter_core_loop", "_overdrive_core_loop_cpu", "_overdrive_core_loop_generic"):
    setattr(filtering, name, loop_of_the_library)
  monkeypatch.setitem(sys.modules, "torchaudio", types.ModuleType("torchaudio"))
  monkeypatch.setitem(sys.modules, "torchaudio.functional", types.ModuleType("functional"))
  monkeypatch.setitem(sys.modules, FILTERING, filtering)
  return filtering


def test_a_filter_runs_at_other_numbers_of_samples(library, tmp_path):
  coefficients = stable(2, 2).to(torch.float32)

  def filtered(self, waveform):
    output = torch.zeros(1, 2, waveform.shape[1] + 2)
    flipped = torch.cat([coefficients.flip(1), torch.ones(2, 1)], 1)
    library._lfilter_core_loop(waveform[None], flipped, output)
    return output[0, :, 2:]

  path = tmp_path / "filter.husk"
  shapes = [{1: Dim("samples", min=2, max=4000)}]
  husk.export(
    FunctionModule(filtered),
    (torch.randn(2, 90),),
    path,
    dynamic_shapes=shapes,
    targets=(f"host:{ISAS[0]}",),
    progress=False,
  )
  assert library._lfilter_core_loop is loop_of_the_library
  program = husk.load(path)
  for samples in (90, 3, 3000):
    waveform = torch.randn(2, samples)
    expected = sample_by_sample(waveform.double()[None], coefficients.double())[0]
    torch.testing.assert_close(torch.as_tensor(program(waveform)), expected.to(torch.float32))


def test_an_overdrive_begins_with_samples_of_zero(library):
  waveform, distorted = torch.randn(2, 100), torch.randn(2, 100)
  output, zeros = torch.zeros(2, 100), torch.zeros(2)
  with filters.traced():
    library._overdrive_core_loop_cpu(waveform, distorted, zeros, zeros, output)
  last_in, last_out = zeros, zeros
  for place in range(100):
    last_out = distorted[:, place] - last_in + 0.995 * last_out
    last_in = distorted[:, place]
    expected = waveform[:, place] * 0.5 + last_out * 0.75
    torch.testing.assert_close(output[:, place], expected, rtol=1e-4, atol=1e-5)


def test_nothing_is_replaced_without_torchaudio(monkeypatch):
  monkeypatch.delitem(sys.modules, "torchaudio.functional", raising=False)
  with filters.traced():
    assert "torchaudio" not in sys.modules or "torchaudio.functional" not in sys.modules
