"""Complex numbers as two real tensors, and their arithmetic."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch


@dataclasses.dataclass(frozen=True)
class Parts:
  """The real and the imaginary part of a complex value: two tensors of one shape and dtype. Either
  may be a float if the value is a number."""

  re: Any
  im: Any

  def __neg__(self) -> Parts:
    return Parts(-self.re, -self.im)

  def __add__(self, other: Parts | Any) -> Parts:
    if isinstance(other, Parts):
      return Parts(self.re + other.re, self.im + other.im)
    return Parts(self.re + other, self.im)

  def __sub__(self, other: Parts | Any) -> Parts:
    return self + -other

  def __mul__(self, other: Parts | Any) -> Parts:
    if isinstance(other, Parts):
      return Parts(self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re)
    return Parts(self.re * other, self.im * other)

  def conj(self) -> Parts:
    return Parts(self.re, -self.im)

  def turned(self) -> Parts:
    """The value times i."""
    return Parts(-self.im, self.re)

  def turned_back(self) -> Parts:
    """The value times -i."""
    return Parts(self.im, -self.re)


def component(dtype: torch.dtype) -> torch.dtype:
  """The dtype of the parts of a complex dtype. Other dtypes are their own."""
  return dtype.to_real() if dtype.is_complex else dtype


def stacked(value: Parts) -> torch.Tensor:
  """The parts in a last dimension, as torch.view_as_real has them."""
  import torch

  return torch.stack([value.re, value.im], -1)


def unstacked(x: torch.Tensor) -> Parts:
  """The inverse of `stacked`."""
  return Parts(x.select(-1, 0), x.select(-1, 1))
