"""Convolutions of torch, in whatever operator, as one description."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..inductor import graphs

if TYPE_CHECKING:
  import torch

# A torch.ops overload.
Operator = Any


@dataclasses.dataclass
class Convolution:
  """The arguments of aten::convolution."""

  input: torch.fx.Node
  weight: torch.fx.Node
  bias: torch.fx.Node | None
  stride: list[int]
  padding: list[int]
  dilation: list[int]
  transposed: bool
  output_padding: list[int]
  groups: int


@functools.cache
def _convolutions() -> frozenset[Operator]:
  import torch

  aten = torch.ops.aten
  return frozenset(
    {
      aten.convolution.default,
      aten.conv1d.default,
      aten.conv2d.default,
      aten.conv3d.default,
      aten.conv1d.padding,
      aten.conv2d.padding,
      aten.conv3d.padding,
      aten.conv_transpose1d.default,
      aten.conv_transpose2d.input,
      aten.conv_transpose3d.input,
    }
  )


def convolution_of(node: torch.fx.Node) -> Convolution | None:
  """The convolution that a node is, if Husk's operator can be called for it."""
  import torch

  if node.op != "call_function" or node.target not in _convolutions():
    return None
  values = graphs.arguments(node)
  x, weight = values["input"].meta["val"], values["weight"].meta["val"]
  floats = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
  tensors = [x, weight] + ([values["bias"].meta["val"]] if values["bias"] is not None else [])
  if x.dim() != weight.dim() or not 3 <= x.dim() <= 5 or x.dtype not in floats:
    return None
  if any(tensor.dtype != x.dtype for tensor in tensors) or type(values["groups"]) is not int:
    return None
  spatial = x.dim() - 2
  stride = _each(values.get("stride"), spatial, 1)
  dilation = _each(values.get("dilation"), spatial, 1)
  output_padding = _each(values.get("output_padding"), spatial, 0)
  padding = _padding(values["padding"], weight.shape[2:], dilation)
  if stride is None or padding is None or dilation is None or output_padding is None:
    return None
  transposed = values.get("transposed", "transpose" in str(node.target))
  return Convolution(
    input=values["input"],
    weight=values["weight"],
    bias=values["bias"],
    transposed=bool(transposed),
    groups=values["groups"],
    stride=stride,
    padding=padding,
    dilation=dilation,
    output_padding=output_padding,
  )


def _padding(value: Any, kernel: Sequence[Any], dilation: list[int] | None) -> list[int] | None:
  """The padding on both sides of each spatial dimension; None if the sides differ or are not
  known."""
  if value == "valid":
    return [0] * len(kernel)
  if value != "same":
    return _each(value, len(kernel), 0)
  if not all(type(size) is int for size in kernel):
    return None
  both = [step * (size - 1) for size, step in zip(kernel, dilation or [])]
  return [pad // 2 for pad in both] if all(pad % 2 == 0 for pad in both) else None


def _each(value: Any, count: int, default: int) -> list[int] | None:
  """A number for each spatial dimension; None if the numbers are not known."""
  if value is None:
    return [default] * count
  numbers = list(value) if isinstance(value, (list, tuple)) else [value]
  if not all(type(number) is int for number in numbers):
    return None
  if len(numbers) == 1:
    numbers *= count
  return numbers if len(numbers) == count else None
