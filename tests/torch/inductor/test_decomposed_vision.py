"""The operators of torchvision in terms of others, compared with loops over numbers, or with those
of torchvision if it is installed."""

import itertools

import decomposed
import husk
import pytest
import torch
import vision_operators
from cuda_numerics import computed
from function_module import FunctionModule
from husk.cuda import kernels
from husk.inductor.decompositions import vision
from row_table import TARGET
from torch import nn

OPS = vision_operators.define()
X = torch.randn(2, 8, 5, 7, generator=torch.Generator().manual_seed(3))
# Inside of the images at half scale, over their edges, outside, without an area, between pixels,
# with sides in the wrong order, at the edges, and at halves that are rounded.
REGIONS = torch.tensor(
  [
    [0, 1.0, 2.0, 9.0, 8.0],
    [1, -4.0, -3.0, 8.0, 6.0],
    [1, 40.0, 3.0, 50.0, 9.0],
    [0, 3.0, 3.0, 3.0, 3.0],
    [1, 2.3, 1.7, 6.9, 4.1],
    [0, 9.0, 8.0, 5.0, 3.0],
    [1, 0.0, 0.0, 14.0, 10.0],
    [0, 1.0, 3.0, 5.0, 7.0],
    [1, -3.0, -1.0, 30.0, 25.0],
  ]
)
IN_ORDER = (REGIONS[:, 1] <= REGIONS[:, 3]) & (REGIONS[:, 2] <= REGIONS[:, 4])


def check(op, *args):
  result = vision.table()[op.default](*args)
  decomposed.equal(result, op(*args), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("ratio", [-1, 0, 1, 2])
def test_means_of_points(ratio, dtype):
  x, regions = X.to(dtype), REGIONS.to(dtype)
  for rois, aligned in itertools.product((regions, regions[:0], regions[:1]), (False, True)):
    # torchvision fails if sides are in the wrong order and it counts points by them.
    rois = rois[IN_ORDER[: len(rois)]] if aligned and ratio <= 0 else rois
    check(OPS.roi_align, x, rois, 0.5, 3, 2, ratio, aligned)
  check(OPS.ps_roi_align, x, regions[IN_ORDER], 0.5, 2, 2, ratio)
  check(OPS.ps_roi_align, x, regions[:0], 0.5, 4, 2, ratio)


def test_pools_of_pixels():
  for rois in (REGIONS, REGIONS[:0], REGIONS[:1]):
    check(OPS.roi_pool, X, rois, 0.5, 3, 2)
    check(OPS.roi_pool, X, rois, 1.0, 1, 1)
    check(OPS.ps_roi_pool, X, rois, 0.5, 2, 2)


def test_images_in_other_orders():
  x = X.contiguous(memory_format=torch.channels_last)
  check(OPS.roi_align, x, REGIONS, 0.5, 3, 2, 2, True)
  check(OPS.roi_pool, x, REGIONS, 0.5, 3, 2)
  check(OPS.roi_align, X.flip(3), REGIONS, 0.5, 3, 2, 2, True)


def test_numbers_that_are_not_finite():
  """A point that is not read does not count, though it be NaN; a NaN is no largest pixel."""
  x = X.clone()
  x[:, :, 0, 0] = float("nan")
  x[:, :, 4, 6] = float("inf")
  for ratio in (-1, 2):
    result = vision.table()[OPS.roi_align.default](x, REGIONS[[4, 2]], 0.5, 3, 2, ratio, False)
    assert result.isfinite().all() and not result[1].any()
  largest, place = vision.table()[OPS.roi_pool.default](x, REGIONS[[6]], 0.5, 1, 1)
  assert largest.isinf().all() and (place == 34).all()
  alone = torch.full((1, 1, 1, 1), float("nan"))
  _, place = vision.table()[OPS.roi_pool.default](alone, REGIONS[[0]] * 0, 1.0, 1, 1)
  assert place.item() == -1


def test_halves_are_computed_as_floats():
  result = vision.table()[OPS.roi_align.default](X.half(), REGIONS.half(), 0.5, 3, 2, 2, True)
  expected = OPS.roi_align(X, REGIONS.half().float(), 0.5, 3, 2, 2, True)
  assert result.dtype == torch.float16
  torch.testing.assert_close(result.float(), expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("image", [-1, 2, float("nan")])
def test_an_image_that_is_not_there(image):
  rois = torch.tensor([[image, 0.0, 0.0, 3.0, 3.0]])
  with pytest.raises(IndexError, match="out of"):
    vision.table()[OPS.roi_align.default](X, rois, 1.0, 2, 2, 2, True)


@pytest.mark.parametrize(
  "groups, offset_groups, mask, strides, pads, dilations",
  [
    (1, 1, True, (1, 1), (1, 1), (1, 1)),
    (2, 2, False, (2, 1), (2, 0), (1, 2)),
    (4, 1, True, (1, 2), (0, 1), (2, 1)),
  ],
)
def test_convolutions_with_offsets(groups, offset_groups, mask, strides, pads, dilations):
  torch.manual_seed(1)
  kernel = 2, 3
  out = [
    (X.shape[2 + axis] + 2 * pads[axis] - dilations[axis] * (kernel[axis] - 1) - 1) // strides[axis]
    + 1
    for axis in (0, 1)
  ]
  check(
    OPS.deform_conv2d,
    X,
    torch.randn(4, 8 // groups, *kernel),
    torch.randn(2, offset_groups * 12, *out) * 3,
    torch.rand(2, offset_groups * 6, *out),
    torch.randn(4),
    *(*strides, *pads, *dilations),
    *(groups, offset_groups, mask),
  )


# Whole programs


def boxes_and_scores(count):
  corners = torch.rand(count, 2) * 6
  scores = torch.rand(count).mul(10).round()  # some are equal
  return torch.cat([corners, corners + torch.rand(count, 2) * 5], 1), scores


class Detector(torch.nn.Module):
  """A convolution that proposes a box for each pixel, and pools of the best boxes."""

  def __init__(self):
    super().__init__()
    self.features = torch.nn.Conv2d(3, 8, 3, padding=1)
    self.head = torch.nn.Conv2d(8, 5, 1)

  def forward(self, image, least):
    features = torch.relu(self.features(image))
    rows = self.head(features)[0].flatten(1).t()
    height, width = image.shape[2:]
    place = torch.arange(rows.shape[0])
    center = torch.stack([place % width, place // width], 1)
    size = rows[:, :2].clamp(max=1).exp() * 2
    boxes = torch.cat([center - size, center + size], 1).clamp(min=0)
    scores = rows[:, 4].sigmoid()
    boxes, scores = boxes[scores > least], scores[scores > least]
    kept = OPS.nms(boxes, scores, 0.3)
    rois = torch.cat([torch.zeros_like(boxes[:, :1]), boxes], 1)[kept]
    return rois, scores[kept], OPS.roi_align(features, rois, 1.0, 2, 2, 2, True)


def test_a_detector_on_hosts(tmp_path):
  torch.manual_seed(2)
  model = Detector()
  with torch.no_grad():
    model.head.weight *= 4
  sides = {2: torch.export.Dim("rows", min=2, max=64), 3: torch.export.Dim("columns", max=64)}
  husk.export(
    model,
    (torch.randn(1, 3, 8, 9), torch.tensor(0.5)),
    tmp_path / "a.husk",
    dynamic_shapes=[sides, None],
    targets=(TARGET,),
  )
  program, counts = husk.load(tmp_path / "a.husk"), []
  for size, least in (((8, 9), 0.5), ((12, 7), 0.5), ((4, 4), 2.0)):
    args = torch.randn(1, 3, *size), torch.tensor(least)
    with torch.no_grad():
      expected = model(*args)
    decomposed.equal(program(*args), expected, rtol=1e-4, atol=1e-4)
    counts.append(len(expected[0]))
  assert counts[0] > 3 and counts[1] > 3 and counts[2] == 0


def test_suppression_is_a_host_step_of_a_gpu(tmp_path):
  def suppressed(self, boxes, scores):
    return boxes[OPS.nms(boxes, scores, 0.4)]

  model = FunctionModule(suppressed)
  runs = [dict(zip(("boxes", "scores"), boxes_and_scores(count))) for count in (6, 2, 13)]
  count = {0: torch.export.Dim("count", min=2, max=100)}
  args = tuple(runs[0].values())
  for inputs, result in zip(runs, computed(model, args, [count, count], runs, tmp_path)):
    decomposed.equal(list(result.values()), [model(**inputs)])
  text = (tmp_path / "model.hir").read_text()
  assert 'extern "husk::unsuppressed" (' in text and "husk::unsuppressed runs on the CPU" in text


class Pool(nn.Module):
  def forward(self, x, rois):
    return OPS.roi_pool(x, rois, 0.5, 7, 7)[0]


def test_sizes_of_cells_are_quotients_on_gpus(tmp_path, monkeypatch):
  """With 1 / 7, a region of 21 pixels has a cell of 3.0000002, which ends a pixel later."""
  sources = []
  original = kernels.source_of
  monkeypatch.setattr(
    kernels, "source_of", lambda *args: sources.append(original(*args)) or sources[-1]
  )
  args = torch.randn(2, 4, 24, 24), torch.rand(3, 5)
  husk.write(Pool(), args, tmp_path, targets=("cuda:h200",))
  text = "".join(source for _, source in sources)
  assert "div_rn" in text and "0.142857" not in text
