"""Replacements of functions by which torch finds the shapes and dtypes of results, where those of
torch hold for the example only, or are wrong."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .replace import Replacement, replaced, replaced_entries

if TYPE_CHECKING:
  import torch


@contextlib.contextmanager
def sizes_from_zero() -> Iterator[None]:
  """While open, sizes that the data decide begin with 0, also where an operator's function for the
  shapes of its results asks for them by the older of torch's two methods, whose least size is 2. A
  program would refuse a result of fewer elements."""
  from torch._library import fake_impl

  def create(self: Any, *, min: int = 0, max: int | None = None) -> Any:
    return self.new_dynamic_size(min=min, max=max)

  with replaced((fake_impl.FakeImplCtx, "create_unbacked_symint", create)):
    yield


def smaller_sizes() -> Replacement:
  """A replacement of `min` in torch's functions for shapes.

  torch's own takes the smaller one of two sizes of the example, for all sizes. The functions of the
  CPU do not, which are C++, so a singular value decomposition on a GPU alone was that of a matrix
  with no more columns than rows, or with no fewer.
  """
  import torch
  from torch import _meta_registrations

  def smaller(*values: Any, **options: Any) -> Any:
    if len(values) == 2 and any(isinstance(value, torch.SymInt) for value in values):
      return torch.sym_min(*values)
    return min(*values, **options)

  return _meta_registrations, "min", smaller


@contextlib.contextmanager
def windows_of_all_sizes() -> Iterator[None]:
  """While open, the number of windows of a pool is that of all sizes.

  torch's own function asks whether a division has a remainder, though Python's rounds down in any
  case, and whether the last window of a pool that rounds up begins inside. A program would take
  even sizes alone, for instance.
  """
  import torch
  from torch import _meta_registrations

  def windows(
    size: Any, kernel: Any, before: Any, after: Any, stride: Any, dilation: Any, ceil_mode: bool
  ) -> Any:
    span = size + before + after - dilation * (kernel - 1) - 1
    if not ceil_mode:
      return span // stride + 1
    inside = (size + before - 1) // stride + 1
    count: Any = torch.sym_min((span + stride - 1) // stride + 1, inside)
    return count

  with replaced((_meta_registrations, "pooling_output_shape_pad_lr", windows)):
    yield


@contextlib.contextmanager
def right_dtypes() -> Iterator[None]:
  """While open, the results of operators are traced with the dtypes and shapes that they have.
  torch 2.11 traces the places and counts of `unique`, and all results of `bincount`, with the dtype
  of the argument, and keeps dimensions of one element that `linalg_vector_norm` counts from the
  last. `unique` along a dimension that is counted from the last gets too many dimensions, and
  `masked_select` at most as many elements as its input has before it is broadcast. The last states
  of an LSTM get a dimension of one element too many, so that no other LSTM takes them."""
  import torch
  from torch._decomp import decomposition_table, decompositions
  from torch._subclasses import FakeTensorMode, fake_impls

  module: Any = fake_impls
  table: dict[Any, Any] = module.op_implementations_dict
  bincount_operator = torch.ops.aten.bincount.default
  select_operator = torch.ops.aten.masked_select.default
  unique_before, bincount_before = module._unique, table[bincount_operator]
  select_before = table[select_operator]

  def as_dtype(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return value if value.dtype == dtype else value.new_empty(value.shape, dtype=dtype)

  def unique(
    mode: Any, op: Any, x: torch.Tensor, dim: int | None, *args: Any, **kwargs: Any
  ) -> Any:
    if dim is not None and x.dim():
      dim %= x.dim()
    values, *places = unique_before(mode, op, x, dim, *args, **kwargs)
    return values, *(as_dtype(one, torch.int64) for one in places)

  def masked_select(mode: Any, op: Any, x: torch.Tensor, mask: torch.Tensor) -> Any:
    with mode:
      x, mask = torch.broadcast_tensors(x, mask)
    return select_before(mode, op, x, mask)

  def bincount(
    mode: Any, op: Any, x: torch.Tensor, weights: torch.Tensor | None = None, minlength: Any = 0
  ) -> Any:
    dtype = torch.int64
    if weights is not None:
      dtype = torch.float32 if weights.dtype == torch.float32 else torch.float64
    return as_dtype(bincount_before(mode, op, x, weights, minlength), dtype)

  def norm(
    mode: Any, op: Any, x: torch.Tensor, ord: Any = 2, dim: Any = None, *args: Any, **kwargs: Any
  ) -> Any:
    if not x.dim() or all(each >= 0 for each in dim or ()):
      return NotImplemented
    with mode:
      return with_dims_from_the_first(op)(x, ord, dim, *args, **kwargs)

  layer_before = decompositions.one_layer_lstm

  def lstm_layer(inputs: Any, states: Any, *args: Any, **kwargs: Any) -> Any:
    results, last = layer_before(inputs, states, *args, **kwargs)
    return results, tuple(
      one.squeeze(0) if one.dim() > state.dim() else one for one, state in zip(last, states)
    )

  norm_operator = torch.ops.aten.linalg_vector_norm.default
  of_any_size = with_dims_from_the_first(decomposition_table[norm_operator])
  implementations = {
    bincount_operator: bincount,
    norm_operator: norm,
    select_operator: masked_select,
  }
  FakeTensorMode.cache_clear()
  with (
    replaced((module, "_unique", unique), (decompositions, "one_layer_lstm", lstm_layer)),
    replaced_entries("torch._subclasses.fake_impls.op_implementations_dict", implementations),
    replaced_entries("torch._decomp.decomposition_table", {norm_operator: of_any_size}),
  ):
    yield


def with_dims_from_the_first(norm: Callable[..., Any]) -> Callable[..., Any]:
  """Makes the decomposition of `linalg_vector_norm` count dimensions from the first. That of torch
  2.11 keeps dimensions of one element that are counted from the last."""

  def counted(x: Any, ord: Any = 2, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
    if dim is not None and x.dim():
      dim = [each % x.dim() for each in ([dim] if isinstance(dim, int) else dim)]
    return norm(x, ord, dim, *args, **kwargs)

  return counted
