"""Functions of torchvision's detection models that torch.export cannot trace.

They ask for the number of boxes, which the data decides, to choose a way to compute, as the length
of a loop, or as an int of Python. While a model is traced they are replaced by functions of the
same results that do not ask."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .replace import replaced

if TYPE_CHECKING:
  import torch


@contextlib.contextmanager
def traced() -> Iterator[None]:
  """While open, detection models of torchvision can be traced. It is not imported for this: a model
  that uses it has done so."""
  if "torchvision" not in sys.modules:
    yield
    return
  boxes, poolers = _module("ops.boxes"), _module("ops.poolers")
  coders, transform = _module("models.detection._utils"), _module("models.detection.transform")
  heads = _module("models.detection.roi_heads")
  with replaced(
    # A model may have imported batched_nms by its name, so what it does is replaced: it chooses
    # one of two functions, and always takes the same now.
    (boxes.batched_nms, "__code__", _class_by_class.__code__),
    (boxes, "_batched_nms_vanilla", batched_nms),
    (poolers, "len", _length),
    (coders.BoxCoder, "decode", _decode),
    (transform, "paste_masks_in_image", _paste_masks),
    (heads, "heatmaps_to_keypoints", keypoints),
  ):
    yield


def _module(name: str) -> Any:
  return importlib.import_module(f"torchvision.{name}")


def _length(x: Any) -> Any:
  """`len`, which returns no symbol."""
  import torch

  return x.shape[0] if isinstance(x, torch.Tensor) else len(x)


def _class_by_class(boxes: Any, scores: Any, idxs: Any, iou_threshold: float) -> Any:
  # As the code of torchvision's function it sees the names of torchvision's module.
  return _batched_nms_vanilla(boxes, scores, idxs, iou_threshold)  # type: ignore  # noqa: F821


def batched_nms(
  boxes: torch.Tensor, scores: torch.Tensor, idxs: torch.Tensor, iou_threshold: float
) -> torch.Tensor:
  """The boxes of each class that are not suppressed. torchvision moves the classes apart, so that
  no boxes of two classes overlap, and many boxes it suppresses class by class. Moved in float64,
  boxes have the same overlaps as before, so this takes the place of the second way."""
  import torch
  from torch.fx.experimental.symbolic_shapes import statically_known_true

  nms = torch.ops.torchvision.nms
  few: Any = boxes.numel() <= (4000 if boxes.device.type == "cpu" else 100_000)
  if statically_known_true(few):
    return nms(_apart(boxes, idxs), scores, iou_threshold)
  exact = boxes.to(torch.float64)
  moved = _apart(torch.where(exact.isfinite(), exact, 0.0), idxs)
  exact = torch.where(exact.isfinite(), moved, exact)
  if not statically_known_true(torch.sym_not(few)):
    few = torch.full((), torch.sym_ite(few, 1, 0), device=boxes.device) > 0
    exact = torch.where(few, _apart(boxes, idxs).to(torch.float64), exact)
  return nms(exact, scores.to(torch.float64), iou_threshold)


def _apart(boxes: torch.Tensor, idxs: torch.Tensor) -> torch.Tensor:
  import torch

  nothing = boxes.new_full((1,), float("-inf"))  # the largest of no coordinates
  largest = torch.cat([boxes.reshape(-1), nothing]).amax()
  return boxes + (idxs.to(boxes) * (largest + 1))[:, None]


def _decode(self: Any, rel_codes: torch.Tensor, boxes: Sequence[torch.Tensor]) -> torch.Tensor:
  """The boxes that codes say in relation to given ones, by given box and class. torchvision leaves
  out the dimension of the classes if there are no boxes."""
  import torch

  all_boxes = torch.cat(list(boxes))
  classes = rel_codes.shape[-1] // 4
  return self.decode_single(rel_codes, all_boxes).reshape(all_boxes.shape[0], classes, 4)


def _paste_masks(
  masks: torch.Tensor, boxes: torch.Tensor, img_shape: tuple[int, int], padding: int = 1
) -> torch.Tensor:
  """Images with a mask each, resized to its box. torchvision resizes one after the other."""
  import torch

  roi_heads = _module("models.detection.roi_heads")
  masks, scale = roi_heads.expand_masks(masks, padding=padding)
  boxes = roi_heads.expand_boxes(boxes, scale).to(torch.int64)
  height, width = img_shape
  y, y_weights = _resized(boxes[:, 1], boxes[:, 3], height, masks.shape[2])
  x, x_weights = _resized(boxes[:, 0], boxes[:, 2], width, masks.shape[3])
  # By box, row, column, and the neighbours of both axes.
  down = (slice(None), slice(None), None, slice(None), None)
  across = (slice(None), None, slice(None), None, slice(None))
  number = torch.arange(masks.shape[0], device=masks.device).reshape(-1, 1, 1, 1, 1)
  values = masks[:, 0][number, y[down], x[across]]
  used = (y_weights[down] >= 0) & (x_weights[across] >= 0)
  pixels = torch.where(used, values * (y_weights[down] * x_weights[across]), 0.0).sum([3, 4])
  return pixels.to(masks.dtype)[:, None]


def _resized(
  first: torch.Tensor, last: torch.Tensor, size: int, mask_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
  """The two places in a mask that each pixel of an image takes along one axis, and their weights,
  by box. Pixels outside of the box have the weight -1."""
  import torch

  pixel = torch.arange(size, device=first.device)
  inside = (pixel >= first[:, None]) & (pixel <= last[:, None])
  ratio = mask_size / (last - first + 1).clamp(min=1).to(torch.float32)
  place = ((pixel - first[:, None] + 0.5).to(torch.float32) * ratio[:, None] - 0.5).clamp(min=0.0)
  low = place.to(torch.int64).clamp(max=mask_size - 1)
  high = (low + 1).clamp(max=mask_size - 1)
  upper = place - low
  weights = torch.where(inside[..., None], torch.stack([1.0 - upper, upper], -1), -1.0)
  return torch.stack([low, high], -1), weights


def keypoints(maps: torch.Tensor, rois: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
  """The pixel at which each map of a box is largest, and the largest value, after the maps are
  resized to the box. torchvision's loop has the size of a box as numbers; this one resizes to that
  of the largest box, and leaves out the pixels that a box has not. All boxes at once would need
  gigabytes."""
  import torch
  from torch._higher_order_ops.while_loop import while_loop_op

  device, count = maps.device, maps.shape[:2]
  sizes = (rois[:, 2:] - rois[:, :2]).clamp(min=1)
  whole = sizes.ceil()
  columns, rows = (
    torch.arange(_largest(whole[:, axis]), dtype=torch.float32, device=device) for axis in (0, 1)
  )
  boxes = torch.arange(count[0], device=device)

  def is_left(i: Any, *values: Any) -> Any:
    return i < boxes.shape[0]

  def body(
    i: Any, x: Any, y: Any, scores: Any, maps: Any, whole: Any, columns: Any, rows: Any, boxes: Any
  ) -> Any:
    one = maps.index_select(0, i.reshape(1))[0]
    width, height = whole.index_select(0, i.reshape(1))[0].split(1)
    x_places, x_weights = _bicubic(one.shape[2], width, columns)
    y_places, y_weights = _bicubic(one.shape[1], height, rows)
    resized = (one[:, :, x_places] * x_weights).sum(-1)
    resized = (resized[:, y_places] * y_weights[:, :, None]).sum(2)
    inside = (rows < height)[:, None] & (columns < width)
    pixels = torch.where(inside, resized, float("-inf")).reshape(one.shape[0], -1)
    largest, pixel = pixels.max(1)
    row = torch.div(pixel, columns.shape[0], rounding_mode="floor")
    found = (pixel - row * columns.shape[0], row, largest)
    this = (boxes == i)[:, None]
    return i + 1, *(torch.where(this, new, old) for new, old in zip(found, (x, y, scores)))

  loop: Any = while_loop_op
  start = (
    torch.zeros((), dtype=torch.int64, device=device),
    *(torch.zeros(count, dtype=torch.int64, device=device) for _ in range(2)),
    torch.zeros(count, dtype=torch.float32, device=device),
  )
  _, x, y, scores = loop(is_left, body, start, (maps, whole, columns, rows, boxes))
  places = (torch.stack([x, y], -1).to(torch.float32) + 0.5) * (sizes / whole)[:, None]
  return torch.cat([places + rois[:, None, :2], torch.ones_like(places[..., :1])], -1), scores


def _largest(sizes: torch.Tensor) -> Any:
  """The largest of some sizes in pixels, which are 1 or more, as a number; 1 if there are none."""
  import torch

  size = torch.cat([sizes, sizes.new_ones(1)]).amax().to(torch.int64).item()
  torch._check(size >= 1)
  return size


def _bicubic(
  places: int, size: torch.Tensor, pixels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
  """The four places in a map that each pixel of a resized one takes along an axis, and their
  weights, as PyTorch's bicubic interpolation has them."""
  import torch

  place = places / size * (pixels + 0.5) - 0.5
  low = place.floor()
  neighbours = torch.arange(-1, 3, device=pixels.device)
  distance = (neighbours - (place - low)[:, None]).abs()
  near = (1.25 * distance - 2.25) * distance * distance + 1
  far = ((-0.75 * distance + 3.75) * distance - 6) * distance + 3
  weights = torch.where(distance <= 1, near, far)
  return (low.to(torch.int64)[:, None] + neighbours).clamp(0, places - 1), weights
