"""Calls that torch.export traces for one size, or refuses, though a program can have them.

While a model is traced, `x[i]` for a tensor `i` without dimensions, which torch.export takes for an
int that it must know, picks an element by an operator, and `max_pool1d`, whose code in C++ asks for
the length as an int, is the function that returns the places, too."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .replace import replaced

if TYPE_CHECKING:
  import torch


@contextlib.contextmanager
def traced() -> Iterator[None]:
  """While open, torch.export traces these calls."""
  import torch
  from torch._export import non_strict_utils

  handler: Any = non_strict_utils._NonStrictTorchFunctionHandler
  before = handler._override

  def override(self: Any, function: Any, args: Any, kwargs: Any) -> Any:
    name = getattr(function, "__name__", "")
    if name == "__getitem__" and _picks(args[1]):
      args = _picked(*args)
    elif name == "__setitem__" and isinstance(args[0], torch.Tensor) and _picks_alone(args[1]):
      args = args[0], tuple(_place(one) for one in _items(args[1])), args[2]
    return before(self, function, args, kwargs)

  functions: Any = torch
  pool = functions.max_pool1d

  def max_pool1d(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    if not isinstance(x.shape[-1], torch.SymInt):
      return pool(x, *args, **kwargs)
    return torch.max_pool1d_with_indices(x, *args, **kwargs)[0]

  with replaced((handler, "_override", override), (functions, "max_pool1d", max_pool1d)):
    yield


def _items(index: Any) -> list[Any]:
  return list(index) if isinstance(index, tuple) else [index]


def _is_number(item: Any) -> bool:
  """Whether an index is an int that the data decides."""
  import torch

  if not isinstance(item, torch.Tensor) or item.dim():
    return False
  whole = not (item.is_floating_point() or item.is_complex() or item.dtype == torch.bool)
  return whole and getattr(item, "constant", None) is None


def _picks(index: Any) -> bool:
  return any(map(_is_number, _items(index)))


def _picks_alone(index: Any) -> bool:
  """Whether each part of an index is a number that the data decides."""
  return all(map(_is_number, _items(index)))


def _place(number: torch.Tensor) -> torch.Tensor:
  return number.reshape(1).long()


def _picked(x: torch.Tensor, index: Any) -> tuple[torch.Tensor, Any]:
  """The tensor and the index of an equal call: the tensor has only one element where the index has
  a number, which becomes 0."""
  import torch

  items = _items(index)
  for at, item in enumerate(items):
    if _is_number(item):
      if any(one is Ellipsis for one in items[:at]):
        dim = x.dim() - sum(map(_taken, items[at:]))
      else:
        dim = sum(map(_taken, items[:at]))
      x, items[at] = torch.ops.aten.index.Tensor(x, [*[None] * dim, _place(item)]), 0
  return x, tuple(items)


def _taken(item: Any) -> int:
  """How many dimensions of a tensor a part of an index takes."""
  import torch

  if item is None or isinstance(item, bool):
    return 0
  if isinstance(item, torch.Tensor) and item.dtype == torch.bool:
    return item.dim()
  return 1
