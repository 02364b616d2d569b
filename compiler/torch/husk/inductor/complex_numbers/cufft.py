"""Fourier transforms that cuFFT computes where the program runs (`fft="cufft"`), by the CUDA port's
`husk::fft`.

The operator transforms the last one to three dimensions of a dense tensor, in which a complex
number is a pair in a further dimension."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..own_operators import define
from .fourier import Fourier
from .parts import Parts, stacked, unstacked

if TYPE_CHECKING:
  import torch

_MOST = 3  # dimensions of one call


@functools.cache
def operator() -> Any:
  """The operator `husk::fft`. It is defined here, since torch is imported only when it is needed.
  `sizes` are those of the result, which tell what is real: see ports/cuda/ops/fft.h."""
  return define(
    "fft",
    "Tensor input, int dims, bool inverse, SymInt[] sizes",
    _fake,
    tag="needs_contiguous_strides",
  )


def _fake(input: torch.Tensor, dims: int, inverse: bool, sizes: Sequence[Any]) -> torch.Tensor:
  return input.new_empty(sizes)


class LibraryFourier(Fourier):
  """The transforms as calls of cuFFT. Those of half precision stay products."""

  def complex_over(self, x: Parts, dims: Sequence[int], sign: int) -> Parts:
    if not _is_supported(x.re):
      return super().complex_over(x, dims, sign)
    left = list(dims)
    while left:
      part, left = left[-_MOST:], left[:-_MOST]
      pairs = _moved(stacked(x), part, -1)
      x = unstacked(_moved_back(_call(pairs, len(part), sign > 0, pairs.shape), part, -1))
    return x

  def real_over(self, x: torch.Tensor, dims: Sequence[int]) -> Parts:
    if not _is_supported(x):
      return super().real_over(x, dims)
    part = list(dims)[-_MOST:]
    moved = _moved(x, part, 0)
    sizes = [*moved.shape[:-1], moved.shape[-1] // 2 + 1, 2]
    half = unstacked(_moved_back(_call(moved, len(part), False, sizes), part, -1))
    return self.complex_over(half, list(dims)[:-_MOST], -1)

  def real_back_over(self, x: Parts, dims: Sequence[int], n: Any) -> torch.Tensor:
    if not _is_supported(x.re):
      return super().real_back_over(x, dims, n)
    part = list(dims)[-_MOST:]
    x = self.complex_over(x, list(dims)[:-_MOST], 1)
    pairs = _moved(stacked(x), part, -1)[..., : n // 2 + 1, :]
    return _moved_back(_call(pairs, len(part), True, [*pairs.shape[:-2], n]), part, 0)


def _is_supported(x: torch.Tensor) -> bool:
  import torch

  return x.dtype in (torch.float32, torch.float64)


def _call(x: torch.Tensor, dims: int, inverse: bool, sizes: Sequence[Any]) -> torch.Tensor:
  return operator()(x, dims, inverse, list(sizes))


def _places(dims: Sequence[int], end: int) -> list[int]:
  """The last dimensions before `end`, which is 0, or -1 if the last dimension has the parts."""
  return [end - len(dims) + index for index in range(len(dims))]


def _moved(x: torch.Tensor, dims: Sequence[int], end: int) -> torch.Tensor:
  """The tensor with the dimensions `dims` as the last ones before `end`. They are numbered without
  the dimension of the parts."""
  return x.movedim(_numbers(x, dims, end), _places(dims, end))


def _moved_back(x: torch.Tensor, dims: Sequence[int], end: int) -> torch.Tensor:
  return x.movedim(_places(dims, end), _numbers(x, dims, end))


def _numbers(x: torch.Tensor, dims: Sequence[int], end: int) -> list[int]:
  return [dim % (x.dim() + end) for dim in dims]
