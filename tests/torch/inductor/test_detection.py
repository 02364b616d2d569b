"""The functions that take the place of those of torchvision's detection models while these are
traced. Without torchvision they are compared with loops over numbers."""

import math
import sys
import types

import husk
import pytest
import torch
import vision_operators
from export_and_compare import ISAS
from function_module import FunctionModule
from husk.inductor import detection, shape_functions

vision_operators.define()


def class_by_class(boxes, scores, classes, threshold):
  """Non-maximum suppression in each class, in the order of the scores."""
  kept = torch.zeros(len(boxes), dtype=torch.bool)
  for each in classes.unique().tolist():
    (places,) = (classes == each).nonzero(as_tuple=True)
    kept[places[vision_operators.nms(boxes[places], scores[places], threshold)]] = True
  order = scores.sort(stable=True, descending=True)[1]
  return order[kept[order]]


def boxes_of_classes(count):
  torch.manual_seed(count)
  corners = torch.rand(count, 2) * 60
  boxes = torch.cat([corners, corners + torch.rand(count, 2) * 40], 1)
  return boxes, torch.rand(count).mul(50).round(), torch.randint(0, 9, (count,))


@pytest.mark.parametrize("count", [0, 1, 30, 1001])
def test_classes_are_suppressed_by_themselves(count):
  """With 1001 boxes torchvision goes through the classes one by one."""
  detections = boxes_of_classes(count)
  assert torch.equal(detection.batched_nms(*detections, 0.3), class_by_class(*detections, 0.3))


def test_the_number_of_boxes_may_vary():
  def kept(self, boxes, scores, classes, least):
    chosen = scores >= least
    boxes, scores, classes = boxes[chosen], scores[chosen], classes[chosen]
    return detection.batched_nms(boxes, scores, classes, 0.3)

  count = {0: torch.export.Dim("count", min=2, max=2000)}
  example = *boxes_of_classes(9), torch.tensor(0.0)
  with shape_functions.sizes_from_zero():
    exported = torch.export.export(
      FunctionModule(kept), example, dynamic_shapes=[count, count, count, None], strict=False
    )
  program = exported.module()
  for number in (9, 1200):
    detections = boxes_of_classes(number)
    assert torch.equal(program(*detections, torch.tensor(0.0)), class_by_class(*detections, 0.3))
  assert program(*detections, torch.tensor(99.0)).shape == (0,)


def test_many_boxes_with_one_that_is_not_finite():
  """It suppresses no other box, and the others are moved apart as if it were not there."""
  boxes, scores, classes = boxes_of_classes(1001)
  boxes[500, 2], boxes[501, 0] = float("inf"), float("nan")
  detections = boxes, scores, classes
  kept = detection.batched_nms(*detections, 0.3)
  others = torch.ones(1001, dtype=torch.bool).index_fill(0, torch.tensor([500, 501]), False)
  expected = class_by_class(*(each[others] for each in detections), 0.3)
  places = others.nonzero().squeeze(1)[expected]
  assert kept[others[kept]].tolist() == places.tolist()
  assert {500, 501} <= set(kept.tolist())


def test_codes_of_boxes():
  coder = types.SimpleNamespace(decode_single=lambda codes, boxes: codes + boxes.repeat(1, 3))
  for rows in (4, 0):
    codes, boxes = torch.rand(rows, 12), torch.rand(rows, 4)
    result = detection._decode(coder, codes, [boxes[:1], boxes[1:]])
    assert torch.equal(result, (codes + boxes.repeat(1, 3)).reshape(rows, 3, 4))


def keypoints_one_by_one(maps, rois):
  places, scores = [], []
  for one, (left, top, right, bottom) in zip(maps, rois.tolist()):
    width, height = max(right - left, 1.0), max(bottom - top, 1.0)
    size = math.ceil(height), math.ceil(width)
    resized = torch.nn.functional.interpolate(one[:, None], size, mode="bicubic").flatten(1)
    largest, pixel = resized.max(1)
    x, y = pixel % size[1] + 0.5, pixel // size[1] + 0.5
    x, y = x * (width / size[1]) + left, y * (height / size[0]) + top
    places.append(torch.stack([x, y, torch.ones_like(x)], 1))
    scores.append(largest)
  return torch.stack(places), torch.stack(scores)


def test_keypoints_of_boxes_whose_number_the_data_decides(tmp_path):
  """Maps are resized to larger and to smaller boxes, of which one is thinner than a pixel."""

  def function(self, maps, rois, least):
    chosen = rois[:, 0] >= least
    return detection.keypoints(maps[chosen], rois[chosen])

  torch.manual_seed(0)
  maps, rois = torch.randn(5, 2, 7, 6), torch.rand(5, 4) * 9
  rois[:, 2:] += rois[:, :2] + torch.tensor([[0.0], [2.0], [9.0], [20.0], [5.0]])
  rois[4, 2] = rois[4, 0] + 0.25
  path = tmp_path / "keypoints.husk"
  husk.export(
    FunctionModule(function), (maps, rois, torch.tensor(0.0)), path, targets=(f"host:{ISAS[0]}",)
  )
  program = husk.load(path)
  for least in (0.0, rois[:, 0].median().item()):
    chosen = rois[:, 0] >= least
    expected = keypoints_one_by_one(maps[chosen], rois[chosen])
    torch.testing.assert_close(program(maps, rois, torch.tensor(least)), expected)
  places, scores = program(maps, rois, torch.tensor(99.0))
  assert places.shape == (0, 2, 3) and scores.shape == (0, 2)


def test_nothing_is_replaced_without_torchvision(monkeypatch):
  monkeypatch.delitem(sys.modules, "torchvision", raising=False)
  with detection.traced():
    pass


def test_replaced_functions_return():
  """Those of the installed torchvision, whose results stay what they were."""
  torchvision = pytest.importorskip("torchvision")
  from torchvision.models.detection import roi_heads, transform

  detections = boxes_of_classes(30)
  masks = torch.rand(30, 1, 28, 28)
  expected = (
    torchvision.ops.batched_nms(*detections, 0.3),
    transform.paste_masks_in_image(masks, detections[0], (70, 80)),
    roi_heads.heatmaps_to_keypoints(masks, detections[0]),
  )
  code = torchvision.ops.batched_nms.__code__
  with detection.traced():
    assert torchvision.ops.batched_nms.__code__ is not code
    torch.testing.assert_close(torchvision.ops.batched_nms(*detections, 0.3), expected[0])
    pasted = transform.paste_masks_in_image(masks, detections[0], (70, 80))
    torch.testing.assert_close(pasted, expected[1], rtol=1e-4, atol=1e-5)
    found = roi_heads.heatmaps_to_keypoints(masks, detections[0])
    torch.testing.assert_close(found, expected[2], rtol=1e-4, atol=1e-5)
  assert torchvision.ops.batched_nms.__code__ is code
