"""Recursive filters of torchaudio.

Each sample of their output depends on those before it. The operators of torchaudio write it sample
after sample into a tensor, and torch.export cannot trace them. While a model is traced, functions
of products of matrices take their place: they compute blocks of samples, all at the same time.

The state of a filter of the order K are its last K outputs, and one sample changes it by a matrix M
of K x K, plus the input. In a block of samples the output is that from a state of zeros, which is a
product with the responses to one sample, plus what the powers of M make of the state before the
block. The states at the ends of all blocks are sums over the blocks before them, in steps of which
each reaches 16 times as far as the one before.

All is computed in float64, since powers of M magnify rounding errors. An infinite or undefined
sample makes all samples of its block undefined, those before it too."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .assumed import largest
from .replace import replaced

if TYPE_CHECKING:
  import torch

# Samples of a block, at least.
_BLOCK = 64
# Blocks whose states a step adds: a program has kernels for each step.
_REACH = 16
# The most blocks, if the number of samples has no bound.
_BLOCKS = 1 << 32


@contextlib.contextmanager
def traced() -> Iterator[None]:
  """While open, models that filter by torchaudio can be traced. It is not imported for this: a
  model that uses it has done so."""
  if "torchaudio.functional" not in sys.modules:
    yield
    return
  filtering: Any = importlib.import_module("torchaudio.functional.filtering")
  with replaced(
    (filtering, "_lfilter_core_loop", _filter),
    (filtering, "_overdrive_core_loop_cpu", _overdrive),
    (filtering, "_overdrive_core_loop_generic", _overdrive),
  ):
    yield


def _filter(waveform: torch.Tensor, coefficients: torch.Tensor, output: torch.Tensor) -> None:
  """torchaudio's loop of a filter: the last coefficient is 1, and belongs to the sample itself."""
  import torch.nn.functional as F

  order = coefficients.shape[1] - 1
  filtered = recursive(waveform, coefficients[:, :order].flip(1))
  output.copy_(F.pad(filtered, (order, 0)))


def _overdrive(
  waveform: torch.Tensor,
  distorted: torch.Tensor,
  last_in: torch.Tensor,
  last_out: torch.Tensor,
  output: torch.Tensor,
) -> None:
  """torchaudio's loop of an overdrive, which begins with samples of zero."""
  import torch.nn.functional as F

  changes = distorted - F.pad(distorted[:, :-1], (1, 0))
  filtered = recursive(changes[None], changes.new_full((distorted.shape[0], 1), -0.995))
  output.copy_(waveform * 0.5 + filtered[0] * 0.75)


def recursive(waveform: torch.Tensor, coefficients: torch.Tensor) -> torch.Tensor:
  """y[n] = x[n] - a[0] y[n-1] - a[1] y[n-2] - ..., for x of batch, channel and sample, and a of
  channel and place. All y before the first sample are 0."""
  import torch
  import torch.nn.functional as F

  order = coefficients.shape[1]
  if not order:
    return waveform
  a = coefficients.to(torch.float64)
  batch, channels, samples = waveform.shape
  length = max(_BLOCK, 1 << (order - 1).bit_length())
  # One block more than there are samples for, since Inductor's products of one row differ.
  count = (samples + length - 1) // length + 1
  blocks = F.pad(waveform.to(torch.float64), (0, count * length - samples))
  blocks = blocks.reshape(batch, channels, count, length)

  moved = torch.eye(order - 1, order, dtype=a.dtype, device=a.device).expand(channels, -1, -1)
  power = torch.cat([-a[:, None], moved], 1)  # M, by channel
  # The first row of M, M^2 and so on says what a state adds to the samples after it.
  rows = power[:, :1]
  while rows.shape[1] < length:
    rows = torch.cat([rows, rows @ power], 1)
    power = power @ power
  response = F.pad(rows[:, :-1, 0], (1, 0), value=1.0)  # to a single 1
  place = torch.arange(length, device=a.device)
  distance = place[:, None] - place
  responses = torch.where(distance >= 0, response[:, distance.clamp(min=0)], 0.0)
  alone = blocks @ responses.mT  # as if each block began with a state of zeros

  states = alone[..., length - order :].flip(-1)
  block, back = (torch.arange(size, device=a.device) for size in (count, _REACH))
  for step in range(_steps(count)):
    # These matrices tell what a block, and each of some blocks before it, adds to its state.
    powers = torch.eye(order, dtype=a.dtype, device=a.device).expand(channels, 1, -1, -1)
    while powers.shape[1] < _REACH:
      powers = torch.cat([powers, powers @ power[:, None]], 1)
      power = power @ power
    added = states @ powers.reshape(channels, _REACH * order, order).mT
    added = added.reshape(batch, channels, count, _REACH, order)
    place = block[:, None] - _REACH**step * back
    # All places are inside, so that a kernel need not check them.
    added = torch.ops.aten._unsafe_index.Tensor(added, [None, None, place.clamp(min=0), back])
    states = torch.where((place >= 0)[:, :, None], added, 0.0).sum(3)
  before = torch.ops.aten._unsafe_index.Tensor(states, [None, None, (block - 1).clamp(min=0)])
  before = torch.where((block > 0)[:, None], before, 0.0)
  result = (alone + before @ rows.mT).reshape(batch, channels, count * length)
  # A slice would ask whether there are as many samples.
  place = torch.arange(samples, device=a.device)
  result = torch.ops.aten._unsafe_index.Tensor(result, [None, None, place])
  return result.to(waveform.dtype)


def _steps(count: Any) -> int:
  """How many steps reach the first of some blocks, whose number may vary, from the last one."""
  steps = 0
  while _REACH**steps < largest(count, _BLOCKS):
    steps += 1
  return steps
