"""Finds operations that can be parts of a call."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ..inductor import graphs
from ..inductor.layouts import known_equal
from .activations import CALLS
from .chain import Part

if TYPE_CHECKING:
  import torch

# A torch.ops overload.
Operator = Any


def activation(node: torch.fx.Node, value: torch.fx.Node) -> Part | None:
  """An activation of `value`, with its name in files."""
  rows = _activations().get(node.target, [])
  if not rows or node.args[:1] != (value,):
    return None
  arguments = graphs.arguments(node)
  for wanted, name in rows:
    if all(arguments[argument] == number for argument, number in wanted.items()):
      return Part(name, [node])
  return None


@functools.cache
def _activations() -> dict[Operator, list[tuple[dict[str, int | str], str]]]:
  """The rows of activations by operator: the values of arguments, and the name."""
  import torch

  found: dict[Operator, list[tuple[dict[str, int | str], str]]] = {}
  for operator, arguments, name in CALLS:
    for packet in (operator, operator + "_"):
      found.setdefault(getattr(torch.ops.aten, packet).default, []).append((arguments, name))
  return found


def residual(node: torch.fx.Node, value: torch.fx.Node) -> Part | None:
  """A tensor of the same shape and dtype that a node adds to `value`. An addition in place must
  write `value`."""
  import torch

  aten = torch.ops.aten
  if node.target not in (aten.add.Tensor, aten.add_.Tensor):
    return None
  arguments = graphs.arguments(node)
  left, right = arguments["self"], arguments["other"]
  if arguments["alpha"] != 1 or (left is value) == (right is value):
    return None
  if node.target is aten.add_.Tensor and left is not value:
    return None
  other = right if left is value else left
  if not isinstance(other, torch.fx.Node):
    return None
  tensor, result = other.meta.get("val"), value.meta["val"]
  if not isinstance(tensor, torch.Tensor) or tensor.dtype != result.dtype:
    return None
  if tensor.dim() != result.dim() or not all(map(known_equal, tensor.shape, result.shape)):
    return None
  return Part(other, [node])
