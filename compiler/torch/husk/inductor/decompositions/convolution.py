"""Convolutions for which there is no template, in terms of those for which there is one. Inductor
has templates for two and three dimensions, not transposed, without dilation. Husk has templates for
images (cuda/convolution.py) and for their depthwise convolutions (cuda/depthwise.py), both with
dilation.

Other depthwise convolutions, and grouped ones with few products for each result, are sums that
become one pointwise kernel. Inductor's template would compute tiles of products of which all but
one row is zero."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .dimensions import along

if TYPE_CHECKING:
  import torch

# The most products of one result that are written out in a kernel.
_MOST_PRODUCTS = 64

# The fewest channels for which depthwise convolutions have a template: a thread reads eight.
_FEWEST_CHANNELS = 16


def table(library: bool = False) -> dict[Any, Callable[..., Any]]:
  """The decompositions by operator. `library`: whether a library computes convolutions."""
  import torch

  function = functools.partial(_convolution, library)
  return {torch.ops.aten.convolution.default: function}


def _convolution(
  library: bool,
  x: torch.Tensor,
  weight: torch.Tensor,
  bias: torch.Tensor | None,
  stride: Sequence[int],
  padding: Sequence[int],
  dilation: Sequence[int],
  transposed: bool,
  output_padding: Sequence[int],
  groups: int,
) -> Any:
  import torch

  kernel = tuple(weight.shape[2:])
  stride, padding, dilation, output_padding = (
    _each(values, kernel) for values in (stride, padding, dilation, output_padding)
  )
  numbers = (*weight.shape, *stride, *padding, *dilation, *output_padding, groups)
  if not all(isinstance(number, int) for number in numbers):
    if library or transposed or x.dim() != weight.dim():
      return NotImplemented
    return _reduction_of_any_size(x, weight, stride, padding, dilation, groups, bias)
  # A kernel of one element has no dilation.
  dilation = tuple(1 if size == 1 else d for size, d in zip(kernel, dilation))
  if x.dim() == weight.dim() - 1:
    batch = _convolve(
      x.unsqueeze(0), weight, bias, stride, padding, dilation, transposed, output_padding, groups
    )
    return batch.squeeze(0)
  channels = int(weight.shape[1])
  products = channels * math.prod(kernel)
  has_template = x.dtype in (torch.float16, torch.bfloat16, torch.float32)
  if library and (has_template or x.dtype == torch.float64):
    if len(kernel) > 1:
      return NotImplemented
    result = _as_image(x, weight, stride, padding, dilation, transposed, output_padding, groups)
    return result if bias is None else result + bias.reshape(-1, 1)
  depthwise = groups > 1 and (channels == 1 or products <= _MOST_PRODUCTS)
  if (
    has_template
    and not transposed
    and len(kernel) == 2
    and channels == 1
    and groups >= _FEWEST_CHANNELS
  ):
    return NotImplemented
  if transposed:
    result = _transposed(x, weight, stride, padding, dilation, output_padding, groups)
  elif depthwise or not has_template or _is_one_product(x, weight, stride, padding, dilation):
    few = products <= _MOST_PRODUCTS
    result = (_sum_of_taps if few else _reduction)(
      x, weight, stride, padding, dilation, groups, bias
    )
    return result
  elif len(kernel) == 1:
    result = _as_image(x, weight, stride, padding, dilation, False, (0,), groups)
  elif any(d != 1 for d in dilation) and not (len(kernel) == 2 and groups == 1):
    result = _dilated(x, weight, stride, padding, dilation, groups)
  else:
    return NotImplemented
  return result if bias is None else result + bias.reshape(-1, *[1] * len(kernel))


def _is_one_product(
  x: torch.Tensor,
  weight: torch.Tensor,
  stride: Sequence[int],
  padding: Sequence[int],
  dilation: Sequence[int],
) -> bool:
  """Whether the result has one element. A template writes it from each place of its tile, without a
  mask, so that one of the places that lie outside may come last."""
  sizes = (
    x.shape[0],
    weight.shape[0],
    *result_sizes(x.shape[2:], weight.shape[2:], stride, padding, dilation),
  )
  return all(isinstance(size, int) and size == 1 for size in sizes)


def _as_image(
  x: torch.Tensor,
  weight: torch.Tensor,
  stride: Sequence[int],
  padding: Sequence[int],
  dilation: Sequence[int],
  transposed: bool,
  output_padding: Sequence[int],
  groups: int,
) -> torch.Tensor:
  """A convolution in one dimension, as one of an image with one row, without a bias."""
  return _convolve(
    x.unsqueeze(2),
    weight.unsqueeze(2),
    None,
    (1, *stride),
    (0, *padding),
    (1, *dilation),
    transposed,
    (0, *output_padding),
    groups,
  ).squeeze(2)


def _convolve(x: torch.Tensor, weight: torch.Tensor, *arguments: Any) -> torch.Tensor:
  import torch

  return torch.ops.aten.convolution.default(x, weight, *arguments)


def _each(values: Sequence[int], kernel: Sequence[int]) -> tuple[int, ...]:
  """A value for each dimension of the kernel. One value is the value of all dimensions."""
  return tuple(values) if len(values) == len(kernel) else tuple(values) * len(kernel)


def result_sizes(
  sizes: Sequence[Any],
  kernel: Sequence[int],
  stride: Sequence[int],
  padding: Sequence[int],
  dilation: Sequence[int],
) -> list[Any]:
  """The sizes of the results of a convolution that is not transposed, without batch and channels.
  `sizes` are those of the image, or expressions."""
  return [
    (size + 2 * pad - d * (taps - 1) - 1) // step + 1
    for size, taps, step, pad, d in zip(sizes, kernel, stride, padding, dilation)
  ]


def _positions(
  x: torch.Tensor, positions: Sequence[torch.Tensor], leading: int
) -> tuple[list[torch.Tensor | None], torch.Tensor]:
  """The indices of positions in the last dimensions of `x`, after `leading` dimensions that are not
  indexed, and a mask that is false where a position lies outside."""
  import operator

  masks = [
    (position >= 0) & (position < size) for position, size in zip(positions, x.shape[leading:])
  ]
  return [*[None] * leading, *positions], functools.reduce(operator.and_, masks)


def _loaded(x: torch.Tensor, positions: Sequence[torch.Tensor], leading: int = 2) -> torch.Tensor:
  """The elements of `x` at positions of its last dimensions, zero outside."""
  import torch

  indices, mask = _positions(x, positions, leading)
  # Inductor wants a mask with all dimensions of the result.
  mask = mask.expand(*x.shape[:leading], *mask.shape)
  return torch.ops.aten._unsafe_masked_index(x, mask, indices, 0)


def _windows(
  x: torch.Tensor, sizes: Sequence[Any], stride: Sequence[int], padding: Sequence[int]
) -> Callable[[Sequence[int]], torch.Tensor]:
  """A function of distances from the first element, one for each dimension of an image. It returns
  the elements that are so far from the first ones of all results, zero outside of the image."""
  import torch

  rank = len(sizes)
  if all(isinstance(size, int) for size in (*sizes, *x.shape[2:])):
    # Views of an image with zeros around it. As masks for each element of the kernel, they took
    # Inductor twice as long.
    around = [pad for pads in zip(padding[::-1], padding[::-1]) for pad in pads]
    padded = torch.ops.aten.constant_pad_nd(x, around, 0) if any(around) else x

    def view(distances: Sequence[int]) -> torch.Tensor:
      part = padded
      for dim, (distance, size, step) in enumerate(zip(distances, sizes, stride), 2):
        part = torch.ops.aten.slice(part, dim, distance, distance + (size - 1) * step + 1, step)
      return part

    return view
  steps = [
    torch.arange(size, device=x.device) * step - pad
    for size, step, pad in zip(sizes, stride, padding)
  ]
  return lambda distances: _loaded(
    x,
    [
      along(step + distance, dim, rank)
      for dim, (step, distance) in enumerate(zip(steps, distances))
    ],
  )


def _sum_of_taps(
  x: torch.Tensor,
  weight: torch.Tensor,
  stride: Sequence[int],
  padding: Sequence[int],
  dilation: Sequence[int],
  groups: int,
  bias: torch.Tensor | None,
) -> torch.Tensor:
  """A convolution as a sum with a term for each element of a kernel."""
  kernel, rank = weight.shape[2:], weight.dim() - 2
  sizes = result_sizes(x.shape[2:], kernel, stride, padding, dilation)
  dtype = _sum_dtype(x)
  window = _windows(x, sizes, stride, padding)
  # Dimensions: batch, group, result of the group, then the image.
  grouped = weight.reshape(groups, -1, *weight.shape[1:]).to(dtype)
  total = None
  for tap in itertools.product(*(range(taps) for taps in kernel)):
    loaded = window([at * d for at, d in zip(tap, dilation)]).to(dtype)
    loaded = loaded.reshape(x.shape[0], groups, -1, *sizes)
    for channel in range(int(weight.shape[1])):
      factor = grouped[(slice(None), slice(None), channel, *tap)]
      term = loaded[:, :, channel].unsqueeze(2) * factor.reshape(*factor.shape, *[1] * rank)
      total = term if total is None else total + term
  assert total is not None
  return _finished(total.reshape(x.shape[0], -1, *sizes), bias, x.dtype)


def _reduction(
  x: torch.Tensor,
  weight: torch.Tensor,
  stride: Sequence[int],
  padding: Sequence[int],
  dilation: Sequence[int],
  groups: int,
  bias: torch.Tensor | None,
) -> torch.Tensor:
  """A convolution as a sum over dimensions of channels and of the elements of a kernel."""
  import torch

  kernel, rank = weight.shape[2:], weight.dim() - 2
  sizes = result_sizes(x.shape[2:], kernel, stride, padding, dilation)
  positions = [
    along(torch.arange(size, device=x.device) * step - pad, dim, 2 * rank)
    + along(torch.arange(taps, device=x.device) * d, rank + dim, 2 * rank)
    for dim, (size, step, pad, taps, d) in enumerate(zip(sizes, stride, padding, kernel, dilation))
  ]
  dtype = _sum_dtype(x)
  # Dimensions: batch, group, result of the group, channel, image, kernel.
  loaded = _loaded(x, positions).to(dtype)
  loaded = loaded.reshape(x.shape[0], groups, 1, -1, *sizes, *kernel)
  grouped = weight.to(dtype).reshape(1, groups, -1, weight.shape[1], *[1] * rank, *kernel)
  total = (loaded * grouped).sum(dim=[3, *range(4 + rank, 4 + 2 * rank)])
  return _finished(total.reshape(x.shape[0], -1, *sizes), bias, x.dtype)


def _reduction_of_any_size(
  x: torch.Tensor,
  weight: torch.Tensor,
  stride: Sequence[Any],
  padding: Sequence[Any],
  dilation: Sequence[Any],
  groups: Any,
  bias: torch.Tensor | None,
) -> torch.Tensor:
  """As `_reduction`, for arguments of which some are sizes that vary. No tensor changes its shape,
  since torch could not tell whether products of such sizes are equal."""
  import torch

  (outputs, channels, *kernel), rank = weight.shape, weight.dim() - 2
  torch._check(x.shape[1] == channels * groups)
  sizes = result_sizes(x.shape[2:], kernel, stride, padding, dilation)
  # Dimensions: batch, result, channel, image, kernel.
  group = torch.arange(outputs, device=x.device) // (outputs // groups)
  dims = 2 + 2 * rank
  positions = [
    along(group * channels, 0, dims) + along(torch.arange(channels, device=x.device), 1, dims)
  ]
  for dim, (size, step, pad, taps, d) in enumerate(zip(sizes, stride, padding, kernel, dilation)):
    begin = torch.arange(size, device=x.device) * step - pad
    tap = torch.arange(taps, device=x.device) * d
    positions.append(along(begin, 2 + dim, dims) + along(tap, 2 + rank + dim, dims))
  loaded = _loaded(x, positions, 1).to(_sum_dtype(x))
  factors = weight.to(loaded.dtype)[(slice(None), slice(None), *[None] * rank)]
  total = (loaded * factors).sum(dim=[2, *range(3 + rank, 3 + 2 * rank)])
  return _finished(total, bias, x.dtype)


def _sum_dtype(x: torch.Tensor) -> torch.dtype:
  import torch

  return torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype


def _finished(total: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
  """The sum with its bias, rounded once."""
  if bias is not None:
    total = total + along(bias.to(total.dtype), 0, total.dim() - 1)
  return total.to(dtype)


def _dilated(
  x: torch.Tensor,
  weight: torch.Tensor,
  stride: Sequence[int],
  padding: Sequence[int],
  dilation: Sequence[int],
  groups: int,
) -> torch.Tensor:
  """A convolution with dilation d as a convolution of d images for each dimension, each of which
  has every d-th element. Results between which a stride lies are computed too."""
  import torch

  kernel, rank = weight.shape[2:], weight.dim() - 2
  sizes = result_sizes(x.shape[2:], kernel, stride, padding, dilation)
  lengths = [(size + 2 * pad + d - 1) // d for size, pad, d in zip(x.shape[2:], padding, dilation)]
  # Dimensions: batch, channel, the dilations, the images.
  positions = [
    along(torch.arange(length, device=x.device) * d - pad, rank + dim, 2 * rank)
    + along(torch.arange(d, device=x.device), dim, 2 * rank)
    for dim, (length, d, pad) in enumerate(zip(lengths, dilation, padding))
  ]
  images = _loaded(x, positions).movedim(1, 1 + rank)
  images = images.reshape(-1, x.shape[1], *lengths)
  results = _convolve(
    images, weight, None, [1] * rank, [0] * rank, [1] * rank, False, [0] * rank, groups
  )
  results = results.reshape(x.shape[0], *dilation, *results.shape[1:])
  image = _interleaved(results.movedim(1 + rank, 1), rank)
  positions = [
    along(torch.arange(size, device=x.device) * step, dim, rank)
    for dim, (size, step) in enumerate(zip(sizes, stride))
  ]
  return torch.ops.aten._unsafe_index(image, [None, None, *positions])


def _interleaved(parts: torch.Tensor, rank: int) -> torch.Tensor:
  """One image of parts: of dimensions batch, channel, r1, r2, h, w the image has h r1 and w r2."""
  dims = [0, 1]
  for dim in range(rank):
    dims += [2 + rank + dim, 2 + dim]
  sizes = [part * size for part, size in zip(parts.shape[2:], parts.shape[2 + rank :])]
  return parts.permute(dims).reshape(*parts.shape[:2], *sizes)


def _transposed(
  x: torch.Tensor,
  weight: torch.Tensor,
  stride: Sequence[int],
  padding: Sequence[int],
  dilation: Sequence[int],
  output_padding: Sequence[int],
  groups: int,
) -> torch.Tensor:
  """A transposed convolution as a convolution with as many results for each element of `x` as the
  strides have steps. Result number s q + r of a dimension with stride s is the sum of the products
  of w[s t + r] and x[q - t] over t."""
  import torch

  rank, kernel = weight.dim() - 2, weight.shape[2:]
  if any(d != 1 for d in dilation):
    weight = _with_zeros(weight, dilation)
    kernel = weight.shape[2:]
  taps = [-(-size // step) for size, step in zip(kernel, stride)]
  pads = [
    pad
    for count, step, size in zip(taps[::-1], stride[::-1], tuple(kernel)[::-1])
    for pad in (0, count * step - size)
  ]
  weight = torch.nn.functional.pad(weight, pads)
  # Dimensions: group, channel, result of the group, then t and r of each dimension of the kernel.
  split = [size for count, step in zip(taps, stride) for size in (count, step)]
  weight = weight.reshape(groups, -1, weight.shape[1], *split)
  weight = weight.flip([3 + 2 * dim for dim in range(rank)])
  order = [0, 2, *(4 + 2 * dim for dim in range(rank)), 1, *(3 + 2 * dim for dim in range(rank))]
  weight = weight.permute(order)
  outputs = groups * weight.shape[1]
  weight = weight.reshape(outputs * math.prod(stride), -1, *taps)
  results = _convolve(
    x,
    weight.contiguous(),
    None,
    [1] * rank,
    [count - 1 for count in taps],
    [1] * rank,
    False,
    [0] * rank,
    groups,
  )
  results = results.reshape(x.shape[0], outputs, *stride, *results.shape[2:])
  image = _interleaved(results, rank)
  sizes = [
    (size - 1) * step - 2 * pad + taps_of + more
    for size, step, pad, taps_of, more in zip(x.shape[2:], stride, padding, kernel, output_padding)
  ]
  positions = [
    along(torch.arange(size, device=x.device) + pad, dim, rank)
    for dim, (size, pad) in enumerate(zip(sizes, padding))
  ]
  return _loaded(image, positions)


def _with_zeros(weight: torch.Tensor, dilation: Sequence[int]) -> torch.Tensor:
  """A kernel with d - 1 zeros between its elements, which has dilation 1."""
  import torch

  for dim, d in enumerate(dilation, 2):
    size = int(weight.shape[dim])
    spread = weight.unsqueeze(dim + 1)
    pads = [0, 0] * (weight.dim() - dim - 1) + [0, d - 1]
    spread = torch.nn.functional.pad(spread, pads).flatten(dim, dim + 1)
    weight = spread.narrow(dim, 0, d * (size - 1) + 1)
  return weight
