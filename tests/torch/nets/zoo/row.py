"""A row of the table of models, and the wrappers that make a model's call one of tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

Call = tuple[tuple[Any, ...], dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Row:
  """A model.

  build: makes it, after the seed was set.
  inputs: the arguments of a call for a size, whose meaning is the row's own.
  size: the size of the export; 0 if the row has one size only.
  shapes: the dynamic shapes of an export in which this size varies.
  others: further sizes at which the artifact runs.
  steps: the number of calls, one after the other, of a model that keeps state.
  boxes: whether the results are detections, which may be in another order.
  """

  family: str
  name: str
  build: Callable[[], torch.nn.Module]
  inputs: Callable[[int], Call]
  size: int = 0
  shapes: Any = None
  others: tuple[int, ...] = ()
  steps: int = 1
  boxes: bool = False


def image(size: int, batch: int = 2) -> Callable[[int], Call]:
  return lambda _: ((torch.randn(batch, 3, size, size),), {})


class Called(torch.nn.Module):
  """A model whose call is a function of the model and tensors, such as one with settings or with a
  list of images."""

  def __init__(self, model: torch.nn.Module, call: Callable[..., Any]) -> None:
    super().__init__()
    self.model, self.call = model, call

  def forward(self, *args: torch.Tensor) -> Any:
    return self.call(self.model, *args)
