"""Operators on complex tensors that depend on where the elements lie in memory. They work on the
real numbers there, of which each complex one is two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...errors import Unsupported
from .. import layouts
from . import dispatch
from .parts import Parts, stacked, unstacked

if TYPE_CHECKING:
  import torch


def operators() -> tuple[Any, ...]:
  import torch

  aten = torch.ops.aten
  return (
    aten.as_strided.default,
    aten.as_strided_copy.default,
    aten.as_strided_scatter.default,
    *resizes(),
  )


def resizes() -> tuple[Any, ...]:
  import torch

  return torch.ops.aten.resize.default, torch.ops.aten.resize_as.default


def computed(op: Any, layout: torch.Tensor, x: Any, *rest: Any) -> torch.Tensor:
  """The result of an operator. `layout` is a complex tensor without data that lies as eager mode's
  does, and `x` has the numbers: a real tensor that lies as they do, or a tensor of which `dispatch`
  knows the parts. The other arguments are those of the operator."""
  import torch

  parts = dispatch.parts_of(x)
  order = list(range(layout.dim())) if parts is None else _order(op, layout)
  memory = x if parts is None else _in_memory(parts, order)
  if op in resizes():
    wanted = rest[0]  # the sizes, or a tensor that has them
    size = wanted.shape if isinstance(wanted, torch.Tensor) else wanted
    return dispatch.tensor(unstacked(_resized(memory, size)))
  begin = layout.storage_offset()
  if "scatter" not in op.name():
    # A copy, since no kernel reads a complex tensor with gaps in memory.
    view = memory.as_strided(*_doubled(*rest, own=begin))
    return dispatch.tensor(unstacked(view.clone(memory_format=torch.contiguous_format)))
  source, *place = rest
  written = _scattered(memory, source, _doubled(*place, own=begin))
  if parts is not None:
    back = [order.index(dim) for dim in range(layout.dim())]
    sizes = [layout.shape[dim] for dim in order]
    written = written.reshape(*sizes, 2).permute(*back, layout.dim()).contiguous()
  return dispatch.tensor(unstacked(written))


def _order(op: Any, layout: torch.Tensor) -> list[int]:
  """The dimensions from the outermost to the innermost in memory."""
  strides = layout.stride()
  order = layouts.order_in_memory(layout)
  if all(isinstance(stride, int) for stride in strides):
    order = sorted(order, key=lambda dim: -strides[dim])
  dense = layouts.dense_strides(layout.shape, order)
  for size, stride, wanted in zip(layout.shape, strides, dense, strict=True):
    if not layouts.known_equal(size, 1) and not layouts.known_equal(stride, wanted):
      raise Unsupported(
        f"{op.name()} of a complex tensor whose elements have gaps in memory on CUDA targets: make "
        "it contiguous first"
      )
  return order


def _in_memory(parts: Parts, order: Sequence[int]) -> torch.Tensor:
  """The numbers in the order of the memory, a row for each."""
  return stacked(Parts(*(part.permute(list(order)).reshape(-1) for part in (parts.re, parts.im))))


def _doubled(size: Any, stride: Any, storage_offset: Any = None, *, own: Any) -> tuple[Any, ...]:
  """The sizes, the strides and the beginning of a view of the real numbers. The first element of
  the tensor lies at the place `own` of its storage, and at the place 0 of the real numbers."""
  begin = 0 if storage_offset is None else 2 * (storage_offset - own)
  if isinstance(begin, int) and begin < 0:
    raise Unsupported("a view by strides that begins in front of its complex tensor")
  return [*size, 2], [*(2 * each for each in stride), 1], begin


def _scattered(memory: torch.Tensor, source: Any, place: tuple[Any, ...]) -> torch.Tensor:
  import torch

  parts = dispatch.parts_of(source)
  pairs = stacked(Parts(source, torch.zeros_like(source)) if parts is None else parts)
  return torch.as_strided_scatter(memory, pairs.to(memory.dtype), *place)


def _resized(memory: torch.Tensor, size: Sequence[Any]) -> torch.Tensor:
  """The first numbers, and zeros in place of those that eager mode leaves unwritten."""
  import torch

  count = math.prod(size)
  if not isinstance(count, int) or not isinstance(memory.shape[0], int):
    raise Unsupported("resize of a complex tensor to a size that varies on CUDA targets")
  if count > memory.shape[0]:
    memory = torch.cat([memory, memory.new_zeros(count - memory.shape[0], 2)])
  return memory[:count].reshape(*size, 2)
