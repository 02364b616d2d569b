"""Kernels that threads compile before their definitions are read."""

import os
import threading

import husk
import pytest
import torch
from torch._inductor.runtime import triton_heuristics

TARGET = "cuda:h200"


class Several(torch.nn.Module):
  """Kernels of all kinds: products, a convolution, sums, a sort, and one with asserts."""

  def __init__(self):
    super().__init__()
    torch.manual_seed(0)
    self.convolution = torch.nn.Conv2d(3, 8, 3)
    self.first, self.second = torch.nn.Linear(24, 40), torch.nn.Linear(40, 5)

  def forward(self, x, places):
    y = self.convolution(x).relu().mean((2, 3)).repeat(1, 3)
    y = self.second(self.first(y).softmax(-1))
    return y[places], y.sort(-1).values.cumsum(0)


def inputs():
  return torch.randn(4, 3, 9, 9), torch.tensor([2, 0])


@pytest.fixture
def compiled_by(monkeypatch):
  """The names of the threads that compile kernels."""
  names, real = [], triton_heuristics.CachingAutotuner._precompile_config

  def compiling(tuner, config):
    names.append(threading.current_thread().name)
    return real(tuner, config)

  monkeypatch.setattr(triton_heuristics.CachingAutotuner, "_precompile_config", compiling)
  return names


def processors(monkeypatch, count):
  monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(count)))


def files(folder):
  return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_program_does_not_depend_on_threads(tmp_path, monkeypatch, compiled_by):
  programs, counts = [], []
  for count in (1, 4):
    processors(monkeypatch, count)
    compiled_by.clear()
    folder = tmp_path / str(count)
    husk.write(Several(), inputs(), folder, targets=(TARGET,), progress=False)
    programs.append(files(folder))
    in_threads = [name.startswith("husk-kernels") for name in compiled_by]
    counts.append((len(in_threads), sum(in_threads)))
  assert programs[0] == programs[1]
  (alone, none), (together, threaded) = counts
  assert none == 0 and together == alone, counts
  assert threaded >= 5 and together > threaded, counts  # one with asserts is not


@pytest.fixture
def failing(monkeypatch):
  """The names of threads begin with one of these: what they compile fails."""
  beginnings, real = [], triton_heuristics.CachingAutotuner._precompile_config

  def compiling(tuner, config):
    if threading.current_thread().name.startswith(tuple(beginnings)):
      raise SystemError("planted")
    return real(tuner, config)

  processors(monkeypatch, 4)
  monkeypatch.setattr(triton_heuristics.CachingAutotuner, "_precompile_config", compiling)
  return beginnings


def test_what_threads_fail_at_is_compiled_again(tmp_path, failing):
  programs = []
  for beginning in ("none", "husk-kernels"):
    failing[:] = [beginning]
    folder = tmp_path / beginning
    husk.write(Several(), inputs(), folder, targets=(TARGET,), progress=False)
    programs.append(files(folder))
  assert programs[0] == programs[1]


def test_an_error_is_that_of_the_kernel(tmp_path, failing):
  failing[:] = [""]
  text = r"Triton cannot compile the kernel triton_\w+ for NVIDIA H200: SystemError: planted"
  with pytest.raises(husk.CompileError, match=text) as found:
    husk.write(Several(), inputs(), tmp_path, targets=(TARGET,), progress=False)
  assert "test_ahead.py" in str(found.value)
