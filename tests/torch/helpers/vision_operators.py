"""The operators of torchvision, which the environment of the tests does not have, as loops over
numbers. `define` defines them for torch if torchvision is not installed; where it is, tests compare
with its own operators."""

import functools
import importlib.util
import math

import torch

SCHEMAS = [
  "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
  "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
  "SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor",
  "roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
  "SymInt pooled_width) -> (Tensor, Tensor)",
  "ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
  "SymInt pooled_width, int sampling_ratio) -> (Tensor, Tensor)",
  "ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
  "SymInt pooled_width) -> (Tensor, Tensor)",
  "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, "
  "SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, "
  "SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor",
]


@functools.cache
def define():
  """torch.ops.torchvision, with its operators."""
  if importlib.util.find_spec("torchvision"):
    importlib.import_module("torchvision")
    return torch.ops.torchvision
  library = torch.library.Library("torchvision", "DEF")
  for schema in SCHEMAS:
    name = schema.partition("(")[0]
    library.define(schema)
    library.impl(name, globals()[name], "CPU")
    torch.library.register_fake(f"torchvision::{name}", _FAKES[name], lib=library)
  define.library = library  # torch drops the operators of a library that nobody has
  return torch.ops.torchvision


def _results(x, rois, height, width, channels):
  shape = rois.shape[0], channels, height, width
  return x.new_empty(shape), x.new_empty(shape, dtype=torch.int32)


_FAKES = {
  "nms": lambda boxes, scores, threshold: boxes.new_empty(
    torch.library.get_ctx().create_unbacked_symint(), dtype=torch.int64
  ),
  "roi_align": lambda x, rois, scale, height, width, *_: _results(
    x, rois, height, width, x.shape[1]
  )[0],
  "roi_pool": lambda x, rois, scale, height, width: _results(x, rois, height, width, x.shape[1]),
  "ps_roi_align": lambda x, rois, scale, height, width, ratio: _results(
    x, rois, height, width, x.shape[1] // (height * width)
  ),
  "ps_roi_pool": lambda x, rois, scale, height, width: _results(
    x, rois, height, width, x.shape[1] // (height * width)
  ),
  "deform_conv2d": lambda x, weight, offset, *_: x.new_empty(
    x.shape[0], weight.shape[0], *offset.shape[2:]
  ),
}


def overlap(a, b):
  """The intersection of two boxes over their union, NaN if they have no area."""
  width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
  height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
  areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
  union = sum(areas) - width * height
  return width * height / union if union else math.nan


def nms(boxes, scores, iou_threshold):
  rows, kept = boxes.tolist(), []
  for i in scores.sort(stable=True, descending=True)[1].tolist():
    if not any(overlap(rows[j], rows[i]) > iou_threshold for j in kept):
      kept.append(i)
  return torch.tensor(kept, dtype=torch.int64)


def _sample(image, y, x):
  """The value of an image, a nested list, between pixels; 0 a pixel or more outside."""
  height, width = len(image), len(image[0])
  if not (-1 <= y <= height and -1 <= x <= width):
    return 0.0
  y, x = (min(max(at, 0.0), size - 1) for at, size in ((y, height), (x, width)))
  result = 0.0
  for row in {int(y), min(int(y) + 1, height - 1)}:
    for column in {int(x), min(int(x) + 1, width - 1)}:
      result += (1 - abs(y - row)) * (1 - abs(x - column)) * image[row][column]
  return result


def _mean_of_samples(image, top, left, height, width, rows, columns):
  if rows <= 0 or columns <= 0:
    return math.nan
  total = 0.0
  for i in range(rows):
    for j in range(columns):
      total += _sample(image, top + (i + 0.5) * height / rows, left + (j + 0.5) * width / columns)
  return total / (rows * columns)


def _pooled(rois, height, width, channels, cell):
  """A tensor of cell(region, channel, row, column)."""
  values = [
    [[[cell(roi, c, i, j) for j in range(width)] for i in range(height)] for c in range(channels)]
    for roi in rois.tolist()
  ]
  return torch.tensor(values, dtype=rois.dtype).reshape(len(values), channels, height, width)


def roi_align(x, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned):
  images = x.tolist()

  def cell(roi, c, i, j):
    left, top, right, bottom = (at * spatial_scale - 0.5 * aligned for at in roi[1:])
    width, height = (
      (size if aligned else max(size, 1.0)) / cells
      for size, cells in ((right - left, pooled_width), (bottom - top, pooled_height))
    )
    rows, columns = (
      sampling_ratio if sampling_ratio > 0 else math.ceil(size) for size in (height, width)
    )
    mean = _mean_of_samples(
      images[int(roi[0])][c], top + i * height, left + j * width, height, width, rows, columns
    )
    return 0.0 if math.isnan(mean) else mean

  return _pooled(rois, pooled_height, pooled_width, x.shape[1], cell)


def _mapping(rois, height, width, channels):
  return (
    torch.arange(channels * height * width, dtype=torch.int32)
    .reshape(1, channels, height, width)
    .repeat(rois.shape[0], 1, 1, 1)
  )


def ps_roi_align(x, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio):
  images, channels = x.tolist(), x.shape[1] // (pooled_height * pooled_width)

  def cell(roi, c, i, j):
    left, top, right, bottom = (at * spatial_scale - 0.5 for at in roi[1:])
    width, height = (right - left) / pooled_width, (bottom - top) / pooled_height
    rows, columns = (
      sampling_ratio if sampling_ratio > 0 else math.ceil(size) for size in (height, width)
    )
    image = images[int(roi[0])][(c * pooled_height + i) * pooled_width + j]
    return _mean_of_samples(image, top + i * height, left + j * width, height, width, rows, columns)

  return (
    _pooled(rois, pooled_height, pooled_width, channels, cell),
    _mapping(rois, pooled_height, pooled_width, channels),
  )


def _rounded(x):
  """The nearest integer; halves are rounded away from zero."""
  return int(math.copysign(math.floor(abs(x) + 0.5), x))


def _pixels(begin, size, cells, number, end):
  """The pixels of one cell along an axis."""
  first = begin + math.floor(number * size / cells)
  last = begin + math.ceil((number + 1) * size / cells)
  return range(min(max(first, 0), end), min(max(last, 0), end))


def roi_pool(x, rois, spatial_scale, pooled_height, pooled_width):
  images, size, places = x.tolist(), x.shape[2:], []

  def cell(roi, c, i, j):
    left, top, right, bottom = (_rounded(at * spatial_scale) for at in roi[1:])
    rows = _pixels(top, max(bottom - top + 1, 1), pooled_height, i, size[0])
    columns = _pixels(left, max(right - left + 1, 1), pooled_width, j, size[1])
    image = images[int(roi[0])][c]
    pixels = [(image[row][column], row * size[1] + column) for row in rows for column in columns]
    value, place = max(pixels, key=lambda pixel: pixel[0], default=(0.0, -1))
    places.append(place)
    return value

  result = _pooled(rois, pooled_height, pooled_width, x.shape[1], cell)
  return result, torch.tensor(places, dtype=torch.int32).reshape(result.shape)


def ps_roi_pool(x, rois, spatial_scale, pooled_height, pooled_width):
  images, channels, size = x.tolist(), x.shape[1] // (pooled_height * pooled_width), x.shape[2:]

  def cell(roi, c, i, j):
    left, top, right, bottom = (_rounded(at * spatial_scale) for at in roi[1:])
    rows = _pixels(top, max(bottom - top, 1), pooled_height, i, size[0] - 1)
    columns = _pixels(left, max(right - left, 1), pooled_width, j, size[1] - 1)
    image = images[int(roi[0])][(c * pooled_height + i) * pooled_width + j]
    pixels = [image[row][column] for row in rows for column in columns]
    return sum(pixels) / len(pixels) if pixels else 0.0

  return (
    _pooled(rois, pooled_height, pooled_width, channels, cell),
    _mapping(rois, pooled_height, pooled_width, channels),
  )


def deform_conv2d(
  x,
  weight,
  offset,
  mask,
  bias,
  stride_h,
  stride_w,
  pad_h,
  pad_w,
  dilation_h,
  dilation_w,
  groups,
  offset_groups,
  use_mask,
):
  images, channels = x.shape[:2]
  taps_h, taps_w = weight.shape[2:]
  rows, columns = offset.shape[2:]
  # A border of zeros makes all that lies outside of the image 0.
  padded = torch.nn.functional.pad(x, (1, 1, 1, 1)).tolist()
  moved = offset.reshape(images, offset_groups, taps_h, taps_w, 2, rows, columns).tolist()
  shape = images, channels, taps_h, taps_w, rows, columns
  sampled = torch.zeros(shape, dtype=x.dtype)
  for n, c, p, q, i, j in torch.cartesian_prod(*map(torch.arange, shape)).tolist():
    down, across = moved[n][c * offset_groups // channels][p][q]
    y = i * stride_h - pad_h + p * dilation_h + down[i][j] + 1
    at = j * stride_w - pad_w + q * dilation_w + across[i][j] + 1
    sampled[n, c, p, q, i, j] = _sample(padded[n][c], y, at)
  if use_mask:
    factors = mask.reshape(images, offset_groups, 1, taps_h, taps_w, rows, columns)
    sampled = sampled * factors.repeat_interleave(channels // offset_groups, 1).reshape(shape)
  parts = sampled.reshape(images, groups, -1, rows * columns)
  weights = weight.reshape(groups, weight.shape[0] // groups, -1)
  result = (weights @ parts).reshape(images, -1, rows, columns)
  return result + bias.reshape(-1, 1, 1)
