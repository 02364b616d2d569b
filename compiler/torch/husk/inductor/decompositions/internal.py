"""Operators that PyTorch itself reaches inside of others only, and that models may call by their
names: copies of views, gradients, windows of signals; and a factor that Inductor refuses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions by operator, for all targets."""
  import torch

  aten, prims = torch.ops.aten, torch.ops.prims
  return {
    aten.slice_copy.Tensor: _copied(aten.slice.Tensor),
    aten._reshape_copy.default: _copied(aten.reshape.default),
    aten._index_put_impl.default: _index_put,
    aten._adaptive_avg_pool2d_backward.default: _adaptive_average_backward,
    aten.convolution_backward.default: _convolution_backward,
    **{
      getattr(aten.hamming_window, name): _hamming
      for name in aten.hamming_window.overloads()
      if not name.endswith("out")
    },
    aten.fft_fftfreq.default: _frequencies,
    aten.addcmul.default: _addcmul,
    prims.prod.default: _prod,
    prims.collapse.default: _collapse,
  }


def _copied(view: Any) -> Callable[..., Any]:
  """A copy of a view."""

  def copied(*args: Any, **kwargs: Any) -> Any:
    import torch

    return view(*args, **kwargs).clone(memory_format=torch.contiguous_format)

  return copied


def _index_put(
  x: torch.Tensor, indices: Any, values: torch.Tensor, accumulate: bool = False, _: bool = False
) -> torch.Tensor:
  import torch

  return torch.ops.aten.index_put.default(x, indices, values, accumulate)


def _addcmul(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, *, value: Any = 1) -> Any:
  """Eager mode rounds the factor of tensors of ints to an int."""
  if x.is_floating_point() or x.is_complex() or not isinstance(value, float):
    return NotImplemented
  return x + y * z * int(value)


def _prod(x: torch.Tensor, dims: Sequence[int] | None, *, output_dtype: Any = None) -> Any:
  for dim in sorted(range(x.dim()) if dims is None else dims, reverse=True):
    x = x.prod(dim)
  return x if output_dtype is None else x.to(output_dtype)


def _collapse(x: torch.Tensor, start: int, end: int) -> torch.Tensor:
  return x.flatten(start, end).clone()


def _hamming(
  length: Any,
  periodic: bool = True,
  alpha: float = 0.54,
  beta: float = 0.46,
  *,
  dtype: torch.dtype | None = None,
  device: Any = None,
  **_: Any,
) -> torch.Tensor:
  import torch

  dtype = dtype or torch.get_default_dtype()
  place = torch.arange(length, dtype=torch.float64, device=device)
  angle = place * (2 * math.pi) / (length if periodic else torch.sym_max(length - 1, 1))
  window = alpha - beta * torch.cos(angle)
  if length == 1:
    window = torch.ones_like(window)
  return window.to(dtype)


def _frequencies(
  n: Any, d: float = 1.0, *, dtype: Any = None, device: Any = None, **_: Any
) -> torch.Tensor:
  import torch

  place = torch.arange(n, device=device)
  signed = torch.where(place < (n + 1) // 2, place, place - n)
  return (signed.to(dtype or torch.get_default_dtype())) * (1.0 / (n * d))


def _adaptive_average_backward(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
  """A cell of the input gets its part of all means that it is in."""
  import torch

  down, across = (_parts(gradient.shape[dim], x.shape[dim], gradient.device) for dim in (-2, -1))
  wide = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
  return (down.mT.to(wide.dtype) @ wide @ across.to(wide.dtype)).to(gradient.dtype)


def _parts(windows: Any, size: Any, device: Any) -> torch.Tensor:
  """The weight of each element of an axis in each window of an adaptive mean."""
  import torch

  window, place = torch.arange(windows, device=device), torch.arange(size, device=device)
  begin = window * size // windows
  end = ((window + 1) * size + windows - 1) // windows
  inside = (place >= begin[:, None]) & (place < end[:, None])
  return inside / (end - begin)[:, None]


def _convolution_backward(
  gradient: torch.Tensor,
  x: torch.Tensor,
  weight: torch.Tensor,
  bias_sizes: Any,
  stride: Sequence[int],
  padding: Sequence[int],
  dilation: Sequence[int],
  transposed: bool,
  output_padding: Sequence[int],
  groups: int,
  output_mask: Sequence[bool],
) -> Any:
  """The gradients of a convolution as convolutions."""
  import torch

  convolution = torch.ops.aten.convolution.default
  rank = x.dim() - 2
  stride, padding, dilation = (
    list(one) if len(one) == rank else [*one] * rank for one in (stride, padding, dilation)
  )
  of_x, of_weight, of_bias = None, None, None
  if output_mask[0] and transposed:
    of_x = convolution(gradient, weight, None, stride, padding, dilation, False, [0] * rank, groups)
  elif output_mask[0]:
    more = [
      x.shape[2 + d]
      - ((gradient.shape[2 + d] - 1) * stride[d] - 2 * padding[d])
      - (dilation[d] * (weight.shape[2 + d] - 1) + 1)
      for d in range(rank)
    ]
    of_x = convolution(gradient, weight, None, stride, padding, dilation, True, more, groups)
  if output_mask[1]:
    image, kernel = (gradient, x) if transposed else (x, gradient)
    # The batch is what the products are summed over, so it takes the place of the channels.
    image = image.unflatten(1, (groups, -1)).movedim(2, 0).movedim(2, 1).flatten(1, 2)
    kernel = kernel.unflatten(1, (groups, -1)).movedim(0, 2).flatten(0, 1)
    found = convolution(image, kernel, None, dilation, padding, stride, False, [0] * rank, groups)
    for d in range(rank):
      found = found.narrow(2 + d, 0, weight.shape[2 + d])
    of_weight = found.transpose(0, 1).contiguous()
  if output_mask[2]:
    of_bias = gradient.sum([0, *range(2, x.dim())])
  return of_x, of_weight, of_bias
