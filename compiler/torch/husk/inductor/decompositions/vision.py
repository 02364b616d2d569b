"""The operators of torchvision: suppression of overlapping boxes, pools of regions, convolutions
with offsets.

Regions are rows of (image, left, top, right, bottom). A pool cuts a region into cells, and takes
the mean or the maximum of points of a cell. Its sum over the points is one reduction of a gather,
so that Inductor makes one kernel, and no tensor has more elements than the result but for the
coordinates of a region's points along one axis."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..own_operators import define

if TYPE_CHECKING:
  import torch


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions of those operators that torchvision, if it is imported, has defined."""
  import torch

  functions = {
    "nms": _nms,
    "roi_align": _roi_align,
    "roi_pool": _roi_pool,
    "ps_roi_align": _ps_roi_align,
    "ps_roi_pool": _ps_roi_pool,
    "deform_conv2d": _deform_conv2d,
  }
  packets = {name: getattr(torch.ops.torchvision, name, None) for name in functions}
  return {packet.default: functions[name] for name, packet in packets.items() if packet is not None}


@functools.cache
def unsuppressed() -> Any:
  """husk::unsuppressed, which is defined once per process. Of boxes in the order of their scores it
  tells which overlap none of those that it has kept before them."""
  return define("unsuppressed", "Tensor boxes, float iou_threshold", _unsuppressed_fake)


def _unsuppressed_fake(boxes: torch.Tensor, iou_threshold: float) -> torch.Tensor:
  import torch

  return boxes.new_empty([boxes.shape[0]], dtype=torch.bool)


def _nms(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
  """Only the selection at the end has a size that the data decides, and it is an operator that both
  ports have."""
  import torch

  order = torch.ops.aten.sort.stable(scores, stable=True, dim=0, descending=True)[1]
  kept = unsuppressed()(boxes.index_select(0, order), iou_threshold)
  return torch.ops.aten.masked_select(order, kept)


# Sizes that the data decides


def _most(counts: torch.Tensor) -> Any:
  """The largest of some counts, as a size. It is 1 at least, also of no counts."""
  import torch

  size = torch.cat([counts.reshape(-1), counts.new_ones(1)]).amax().item()
  torch._check(size >= 1)
  return size


def _as_int(x: torch.Tensor) -> torch.Tensor:
  """Integers of floats that may be too large or NaN, for which they are 0."""
  import torch

  return torch.where(x.abs() < 2.0**31, x, 0.0).to(torch.int64)


def _rounded(x: torch.Tensor) -> torch.Tensor:
  """Integers next to floats; halves are rounded away from zero."""
  import torch

  whole = x.trunc()
  return torch.where((x - whole).abs() >= 0.5, whole + torch.sign(x), whole)


def _precision(x: torch.Tensor) -> torch.dtype:
  """The dtype that coordinates and sums of images are computed in."""
  import torch

  return torch.promote_types(x.dtype, torch.float32)


def _counted(count: Any, like: torch.Tensor) -> torch.Tensor:
  import torch

  return torch.arange(count, device=like.device)


def _quotient(x: torch.Tensor, number: int) -> torch.Tensor:
  """x / number, rounded once. Kernels of GPUs multiply with 1 / number if they know it, as eager
  mode does there, but torchvision divides, and whole quotients decide which pixels a cell has."""
  return x / (_counted(1, x) + number)


def _image_of(rois: torch.Tensor, images: Any) -> torch.Tensor:
  """The image of each region. A number that no image has becomes one that a kernel refuses."""
  import torch

  number = rois[:, 0].to(torch.int64)
  return torch.where(number < 0, images, number)


# Bilinear points


def _neighbours(
  points: torch.Tensor, size: Any, used: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
  """The two indices and the two weights of each point along an axis, in a new last dimension. A
  point that is not used, or lies more than one pixel outside, has the weight -1 twice. Points
  further inside are moved to the edge."""
  import torch

  used = used & (points >= -1.0) & (points <= size)
  points = torch.where(used, points, 0.0).clamp(min=0.0)
  low = points.to(torch.int64).clamp(max=size - 1)
  high = (low + 1).clamp(max=size - 1)
  upper = torch.where(low >= size - 1, 0.0, points - low)
  weights = torch.where(used.unsqueeze(-1), torch.stack([1.0 - upper, upper], -1), -1.0)
  return torch.stack([low, high], -1), weights


def _points(
  start: torch.Tensor, length: torch.Tensor, cells: int, sampling_ratio: int, size: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
  """The points of regions along one axis: indices and weights by region, cell and neighbour, and
  how many points a cell of each region has."""
  import torch

  cell = _quotient(length, cells)
  if sampling_ratio > 0:
    counts = torch.full_like(start, sampling_ratio, dtype=torch.int64)
    most: Any = sampling_ratio
  else:
    counts = _as_int(torch.ceil(cell))
    most = _most(counts)
  place, number = _counted(cells, start), _counted(most, start)
  corner = start.unsqueeze(1) + place * cell.unsqueeze(1)
  steps = (number + 0.5).to(start.dtype) * cell.unsqueeze(1) / counts.unsqueeze(1)
  points = corner.unsqueeze(2) + steps.unsqueeze(1)
  used = (number < counts.unsqueeze(1)).unsqueeze(1)
  indices, weights = _neighbours(points, size, used)
  return indices.flatten(2), weights.flatten(2), counts


def _sum_of_points(
  x: torch.Tensor, image: torch.Tensor, channel: torch.Tensor, rows: Any, columns: Any
) -> torch.Tensor:
  """The sum over the points of each cell, by region, channel, row and column. `channel` has the
  channels of `x` that belong to it."""
  import torch

  (y, y_weights, _), (x_at, x_weights, _) = rows, columns
  # By region, channel, row, column, and the points of both axes.
  down = (slice(None), None, slice(None), None, slice(None), None)
  across = (slice(None), None, None, slice(None), None, slice(None))
  index = [image.reshape(-1, 1, 1, 1, 1, 1), channel[..., None, None], y[down], x_at[across]]
  values = torch.ops.aten.index.Tensor(x, index)
  first, second = y_weights[down], x_weights[across]
  used = (first >= 0) & (second >= 0)
  return torch.where(used, values.to(first.dtype) * (first * second), 0.0).sum([4, 5])


def _roi_align(
  x: torch.Tensor,
  rois: torch.Tensor,
  spatial_scale: float,
  pooled_height: int,
  pooled_width: int,
  sampling_ratio: int,
  aligned: bool,
) -> torch.Tensor:
  dtype = _precision(x)
  left, top, right, bottom = (
    rois[:, at].to(dtype) * spatial_scale - (0.5 if aligned else 0.0) for at in range(1, 5)
  )
  width, height = right - left, bottom - top
  if not aligned:
    width, height = width.clamp(min=1.0), height.clamp(min=1.0)
  rows = _points(top, height, pooled_height, sampling_ratio, x.shape[2])
  columns = _points(left, width, pooled_width, sampling_ratio, x.shape[3])
  channel = _counted(x.shape[1], x).reshape(1, -1, 1, 1)
  total = _sum_of_points(x, _image_of(rois, x.shape[0]), channel, rows, columns)
  count = (rows[2] * columns[2]).clamp(min=1).to(dtype)
  return (total / count.reshape(-1, 1, 1, 1)).to(x.dtype)


def _mapped_channels(x: torch.Tensor, height: int, width: int) -> torch.Tensor:
  """The channel of the image for each channel, row and column of a position-sensitive pool."""
  channels = x.shape[1] // (height * width)
  return _counted(channels * height * width, x).reshape(1, channels, height, width)


def _with_mapping(result: torch.Tensor, channel: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
  import torch

  return result, channel.to(torch.int32).expand(result.shape).contiguous()


def _ps_roi_align(
  x: torch.Tensor,
  rois: torch.Tensor,
  spatial_scale: float,
  pooled_height: int,
  pooled_width: int,
  sampling_ratio: int,
) -> tuple[torch.Tensor, torch.Tensor]:
  dtype = _precision(x)
  left, top, right, bottom = (rois[:, at].to(dtype) * spatial_scale - 0.5 for at in range(1, 5))
  rows = _points(top, bottom - top, pooled_height, sampling_ratio, x.shape[2])
  columns = _points(left, right - left, pooled_width, sampling_ratio, x.shape[3])
  channel = _mapped_channels(x, pooled_height, pooled_width)
  total = _sum_of_points(x, _image_of(rois, x.shape[0]), channel, rows, columns)
  count = (rows[2] * columns[2]).to(dtype)
  return _with_mapping((total / count.reshape(-1, 1, 1, 1)).to(x.dtype), channel)


# Pools of pixels


def _pixels(
  start: torch.Tensor, length: torch.Tensor, cells: int, size: Any, end: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
  """The pixels of regions along one axis: indices by region, cell and number, whether the cell has
  a pixel of this number, and how many pixels a cell has. `start` and `length` are whole numbers,
  and cells end at `end`."""
  import torch

  place = _counted(cells, start)
  cell = _quotient(length, cells).unsqueeze(1)
  first = torch.floor(place * cell) + start.unsqueeze(1)
  last = torch.ceil((place + 1) * cell) + start.unsqueeze(1)
  first, last = (torch.nan_to_num(at).clamp(0, end).to(torch.int64) for at in (first, last))
  counts = (last - first).clamp(min=0)
  number = _counted(_most(counts), start)
  return (
    (first.unsqueeze(2) + number).clamp(max=size - 1),
    number < counts.unsqueeze(2),
    counts,
  )


def _pixels_of_regions(
  x: torch.Tensor, rois: torch.Tensor, scale: float, height: int, width: int, last: int
) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
  """The pixels of regions along both axes. `last` is 1 if a region has the pixel in which it ends,
  and 0 if it has not."""
  dtype = _precision(x)
  left, top, right, bottom = (_rounded(rois[:, at].to(dtype) * scale) for at in range(1, 5))
  axes = ((top, bottom, height, x.shape[2]), (left, right, width, x.shape[3]))
  return [
    _pixels(begin, (end - begin + last).clamp(min=1), cells, size, size - 1 + last)
    for begin, end, cells, size in axes
  ]


def _count(rows: Any, columns: Any) -> torch.Tensor:
  """How many pixels the cells of regions have."""
  return rows[2][:, None, :, None] * columns[2][:, None, None, :]


def _pixel_values(
  x: torch.Tensor, image: torch.Tensor, channel: torch.Tensor, rows: Any, columns: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
  """The pixels by region, channel, row, column and the numbers of both axes; their places in an
  image; whether a cell has them."""
  import torch

  (y, has_y, _), (x_at, has_x, _) = rows, columns
  down = (slice(None), None, slice(None), None, slice(None), None)
  across = (slice(None), None, None, slice(None), None, slice(None))
  index = [image.reshape(-1, 1, 1, 1, 1, 1), channel[..., None, None], y[down], x_at[across]]
  values = torch.ops.aten.index.Tensor(x, index)
  return values, y[down] * x.shape[3] + x_at[across], has_y[down] & has_x[across]


def _roi_pool(
  x: torch.Tensor,
  rois: torch.Tensor,
  spatial_scale: float,
  pooled_height: int,
  pooled_width: int,
) -> tuple[torch.Tensor, torch.Tensor]:
  """The largest pixel of each cell, and its place in the image. NaN is never the largest."""
  import torch

  rows, columns = _pixels_of_regions(x, rois, spatial_scale, pooled_height, pooled_width, 1)
  channel = _counted(x.shape[1], x).reshape(1, -1, 1, 1)
  values, places, used = _pixel_values(x, _image_of(rois, x.shape[0]), channel, rows, columns)
  least = max(torch.finfo(torch.float32).min, torch.finfo(x.dtype).min)
  used = used & (values > least)
  values = torch.where(used, values, least)
  largest = values.amax([4, 5])
  is_largest = used & (values == largest[..., None, None])
  behind = x.shape[2] * x.shape[3]
  argmax = torch.where(is_largest, places, behind).amin([4, 5])
  return (
    torch.where(_count(rows, columns) == 0, 0.0, largest),
    torch.where(argmax == behind, -1, argmax).to(torch.int32),
  )


def _ps_roi_pool(
  x: torch.Tensor,
  rois: torch.Tensor,
  spatial_scale: float,
  pooled_height: int,
  pooled_width: int,
) -> tuple[torch.Tensor, torch.Tensor]:
  import torch

  dtype = _precision(x)
  rows, columns = _pixels_of_regions(x, rois, spatial_scale, pooled_height, pooled_width, 0)
  channel = _mapped_channels(x, pooled_height, pooled_width)
  values, _, used = _pixel_values(x, _image_of(rois, x.shape[0]), channel, rows, columns)
  total = torch.where(used, values.to(dtype), 0.0).sum([4, 5])
  count = _count(rows, columns)
  mean = torch.where(count == 0, 0.0, total / count.clamp(min=1).to(dtype))
  return _with_mapping(mean.to(x.dtype), channel)


# Convolutions with offsets


def _deform_conv2d(
  x: torch.Tensor,
  weight: torch.Tensor,
  offset: torch.Tensor,
  mask: torch.Tensor,
  bias: torch.Tensor,
  stride_h: int,
  stride_w: int,
  pad_h: int,
  pad_w: int,
  dilation_h: int,
  dilation_w: int,
  groups: int,
  offset_groups: int,
  use_mask: bool,
) -> torch.Tensor:
  """The product of the weights with the pixels at moved points, which lie in memory: as many as the
  image has for each element of the kernel."""
  import torch

  dtype = _precision(x)
  images, channels, *sizes = x.shape
  kernel, out = weight.shape[2:], offset.shape[2:]
  taps = kernel[0] * kernel[1]
  # By image, group of offsets, row and column of the kernel, axis, and place of the result.
  moved = offset.reshape(images, offset_groups, *kernel, 2, *out).to(dtype)
  axes = zip((stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w))
  corners = []
  for axis, (stride, pad, dilation) in enumerate(axes):
    tap = _counted(kernel[axis], x).reshape([-1, *[1] * (3 - axis)])
    place = _counted(out[axis], x).reshape([-1, *[1] * (1 - axis)])
    point = (place * stride - pad + tap * dilation).to(dtype) + moved[:, :, :, :, axis]
    corners.append(_corners(point, sizes[axis]))
  image = _counted(images, x).reshape(-1, 1, 1, 1, 1, 1, 1)
  per_group = channels // offset_groups
  channel = _counted(channels, x).reshape(offset_groups, per_group, 1, 1, 1, 1)
  columns: Any = 0
  for y, y_weight in corners[0]:
    for x_at, x_weight in corners[1]:
      index = [image, channel, y.unsqueeze(2), x_at.unsqueeze(2)]
      values = torch.ops.aten._unsafe_index(x, index).to(dtype)
      factor = y_weight * x_weight
      inside = ((y_weight >= 0) & (x_weight >= 0)).unsqueeze(2)
      columns = columns + torch.where(inside, values * factor.unsqueeze(2), 0.0)
  if use_mask:
    columns = columns * mask.reshape(images, offset_groups, 1, *kernel, *out)
  columns = columns.to(x.dtype).reshape(images, groups, channels // groups * taps, -1)
  weights = weight.reshape(groups, weight.shape[0] // groups, -1)
  result = torch.matmul(weights, columns).reshape(images, weight.shape[0], *out)
  return result + bias.reshape(-1, 1, 1)


def _corners(point: torch.Tensor, size: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
  """The two neighbours of points along an axis, each with its weight. A neighbour outside of the
  image has the weight -1, and so have both neighbours of a point a pixel or more outside."""
  import torch

  inside = (point > -1.0) & (point < size)
  low = torch.where(inside, point, 0.0).floor()
  upper = point - low
  result = []
  for at, weight in ((low, 1.0 - upper), (low + 1, upper)):
    there = inside & (at >= 0) & (at <= size - 1)
    result.append((at.to(torch.int64).clamp(0, size - 1), torch.where(there, weight, -1.0)))
  return result
