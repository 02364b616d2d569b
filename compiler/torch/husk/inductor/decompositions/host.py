"""The decompositions of hosts: operators that the host computes in part only, in terms of those
that it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import (
  blocks,
  convolution,
  division,
  hash,
  host_complex,
  linear_algebra,
  memory,
  pads,
  pool,
  product,
  reduce,
  resize,
  select,
  special,
)

if TYPE_CHECKING:
  import torch

# A decomposition returns this if the operator is called although Inductor has a decomposition of
# it.
CALLED = object()


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions by operator. One that returns NotImplemented leaves the call as it is, or to
  Inductor's decomposition."""
  import torch

  aten = torch.ops.aten
  return {
    **division.table(),
    **memory.table(),
    **pool.averages(),
    **hash.table(),
    **pads.table(),
    aten.index_add.default: reduce.index_add_of_bf16,
    **host_complex.table(),
    aten.convolution.default: _of_ints(convolution.table()[aten.convolution.default]),
    aten._scaled_mm.default: product.scaled,
    **blocks.of_torchao(blocks.arithmetic),
    aten._trilinear.default: _first(
      _of_ints(product.table()[aten._trilinear.default]), product.bilinear
    ),
    **{op: _of_bytes(op) for op in resize.table()},
    **linear_algebra.exponentials(),
    aten.sum.default: _sum_of_bytes(aten.sum.default),
    aten.sum.dim_IntList: _sum_of_bytes(aten.sum.dim_IntList),
    aten.argmin.default: _in_wide_ints(aten.argmin.default),
    aten.argmax.default: _in_wide_ints(aten.argmax.default),
    aten.take.default: select.take,
    aten.erfinv.default: special.in_floats(special.erfinv),
    aten.grid_sampler_2d.default: _grid_sampler_2d,
  }


def _grid_sampler_2d(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
  """Samples of images, which Husk's library computes. A kernel of Inductor would find the elements
  around a position for each channel again."""
  return CALLED if x.is_floating_point() else NotImplemented


def _of_bytes(resized: Any) -> Callable[..., Any]:
  """The resizing of images of bytes, as that of floats. Eager mode computes it in integers, and is
  off by 1 where the exact value is near a half."""
  import torch

  def decomposed(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    if x.dtype is not torch.uint8:
      return NotImplemented
    return resize.as_bytes(resized(x.to(torch.float32), *args, **kwargs))

  return decomposed


def _of_ints(decomposition: Callable[..., Any]) -> Callable[..., Any]:
  """The decomposition of an operator that Husk's library computes for floats only."""

  def decomposed(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    if x.is_floating_point() or x.is_complex():
      return NotImplemented
    return decomposition(x, *args, **kwargs)

  return decomposed


def _first(*decompositions: Callable[..., Any]) -> Callable[..., Any]:
  """The first of several decompositions that takes the call."""

  def decomposed(*args: Any, **kwargs: Any) -> Any:
    results = (decomposition(*args, **kwargs) for decomposition in decompositions)
    return next((one for one in results if one is not NotImplemented), NotImplemented)

  return decomposed


def _sum_of_bytes(op: Any) -> Callable[..., Any]:
  """A sum that is an int of 8 bits as one of 32 bits. Inductor's kernels of vectors add elements
  behind the end in the smaller type."""
  import torch

  small = (torch.int8, torch.uint8)

  def summed(x: torch.Tensor, *args: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
    if dtype not in small:
      return NotImplemented
    return op(x, *args, dtype=torch.int32, **kwargs).to(dtype)

  return summed


def _in_wide_ints(op: Any) -> Callable[..., Any]:
  """A search in ints of 8 or 16 bits as one in ints of 32 bits. Inductor's kernels of vectors have
  fewer places than elements for the smaller types, and return numbers that are no places."""
  import torch

  def search(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    if x.dtype not in (torch.int8, torch.uint8, torch.int16):
      return NotImplemented
    return op(x.to(torch.int32), *args, **kwargs)

  return search
