"""The template of convolutions of images: values by Triton's interpreter, which convolutions take
it, and how the depth is split."""

import dataclasses
import re

import husk
import pytest
import torch
from cuda_numerics import close, computed
from husk.cuda import convolution, records, tuning
from husk.cuda.convolution import Problem, Tiles
from husk.cuda.target import Target
from torch import nn

H200 = Target.load("h200")


class Convolution(nn.Module):
  """A convolution and what often follows it."""

  def __init__(self, *arguments, **options):
    super().__init__()
    self.convolution = nn.Conv2d(*arguments, **options)
    self.norm = nn.BatchNorm2d(arguments[1])

  def forward(self, x):
    return nn.functional.silu(self.norm(self.convolution(x)))


def launched(folder):
  """The kernels that a run launches."""
  run = (folder / "model.hir").read_text().split("\nfunction husk.fold")[0]
  return re.findall(r"^\s*launch h200_triton_(\w+)", run, re.M)


def launches(folder):
  """Their kinds."""
  return [name.split("_")[0] for name in launched(folder)]


@pytest.fixture
def only(monkeypatch):
  """A function that leaves a single choice of tiles."""

  def set_tiles(tiles):
    monkeypatch.setattr(convolution, "candidates", lambda *problem: [tiles])

  return set_tiles


SMALL = Tiles(32, 16, 16, 2, 4)


def split(number, tiles=SMALL):
  return dataclasses.replace(tiles, split=number)


# channels, outputs, kernel; stride, padding, dilation; batch and sizes of the image; tiles. Tiles
# with tails in each dimension, steps of one tap and of several, whole images that are left out.
CASES = [
  ((16, 24, 3), (1, 1, 1), (2, 7, 9), SMALL),
  ((32, 16, (3, 2)), ((2, 1), (1, 2), (1, 3)), (1, 11, 8), SMALL),
  ((16, 20, 3), (1, 12, 12), (2, 14, 14), SMALL),
  ((16, 16, 3), (2, 36, 36), (2, 20, 20), split(2)),
  ((48, 33, 3), (1, 2, 2), (1, 6, 7), split(3)),
  ((64, 16, (1, 5)), (1, (0, 4), (1, 2)), (1, 3, 20), split(8)),
  ((3, 18, 7), (2, 3, 1), (2, 15, 13), SMALL),
  ((5, 9, 3), (1, 2, 2), (1, 8, 9), split(2)),
  ((24, 16, 3), (1, 1, 1), (1, 6, 6), SMALL),
  ((1, 16, 5), (3, 0, 1), (2, 14, 11), SMALL),
  ((32, 48, 1), (2, 0, 1), (2, 9, 9), split(2)),
]


@pytest.mark.parametrize("sizes, steps, image, tiles", CASES)
def test_values(sizes, steps, image, tiles, only, tmp_path):
  only(tiles)
  torch.manual_seed(0)
  channels, outputs, kernel = sizes
  model = Convolution(channels, outputs, kernel, *steps, bias=outputs % 2 == 0).eval()
  x = torch.randn(image[0], channels, *image[1:])
  if image[0] == 2:
    model, x = (each.to(memory_format=torch.channels_last) for each in (model, x))
  (result,) = computed(model, (x,), None, [{"x": x}], tmp_path)
  (value,) = result.values()
  close(value, model(x), 1e-4)
  assert launches(tmp_path).count("tem") == 1


# A case, and what is changed in the template: masks of the image, the rows of the kernel, the parts
# of the depth, the channel of an element of the depth, the mask of the result.
MISTAKES = [
  (0, "(x_h >= 0) & ", ""),
  (0, "(x_h < IN_H)", "(x_h <= IN_H)"),
  (1, "(x_w < IN_W)", "(x_w <= IN_W)"),
  (2, "i = begin_h +", "i ="),
  (2, "high * STRIDE_H + DILATION_H - 1", "low * STRIDE_H + DILATION_H - 1"),
  (5, "tl.minimum(begin + per_part, steps)", "begin + per_part"),
  (4, "begin = part * per_part", "begin = 0"),
  (6, "d % IN_C * stride_xc", "d * stride_xc"),
  (2, "mask = is_image[:, None] & is_channel[None, :]", "mask = is_image[:, None]"),
]


@pytest.mark.parametrize("case, text, mistake", MISTAKES)
def test_mistakes_are_found(case, text, mistake, only, monkeypatch, tmp_path):
  source = convolution._SOURCE
  assert text in source
  original = convolution._template()
  template = type(original)(
    name=f"{convolution.NAME}_{MISTAKES.index((case, text, mistake))}",
    grid=original.grid,
    source=source.replace(text, mistake),
  )
  monkeypatch.setattr(convolution, "_template", lambda: template)
  with pytest.raises(AssertionError):
    test_values(*CASES[case], only, tmp_path)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("number", [1, 2])
def test_halves_are_summed_in_f32(dtype, number, only, tmp_path):
  """Sums in half precision would lose the small terms."""
  only(split(number))
  small = 2.0**-12 if dtype == torch.float16 else 2.0**-9
  model = nn.Conv2d(32, 16, 3, dilation=2, bias=False).to(dtype).eval()
  with torch.no_grad():
    model.weight.fill_(small)
    model.weight[:, 0, 0, 0] = 1
    model.weight[:, 1:, 2, 2] = 0
  x = torch.ones(1, 32, 5, 5, dtype=dtype)
  (result,) = computed(model, (x,), None, [{"input": x}], tmp_path)
  (value,) = result.values()
  assert torch.equal(value, torch.full((1, 16, 1, 1), 1 + 256 * small, dtype=dtype))


@pytest.mark.parametrize("number", [1, 2])
def test_a_batch_and_an_image_that_vary(number, only, tmp_path):
  only(split(number))
  torch.manual_seed(0)
  model = Convolution(16, 24, 3, 1, 6, 6).eval()
  runs = [
    {"x": torch.randn(batch, 16, h, w)} for batch, h, w in ((2, 9, 8), (1, 7, 7), (3, 10, 20))
  ]
  sizes = {0: torch.export.Dim("batch", min=1, max=8)}
  sizes |= {dim: torch.export.Dim(f"side{dim}", min=7, max=64) for dim in (2, 3)}
  for inputs, result in zip(runs, computed(model, (runs[0]["x"],), {"x": sizes}, runs, tmp_path)):
    (value,) = result.values()
    close(value, model(**inputs), 1e-4)


@pytest.mark.parametrize("number, kernels", [(1, ["tem"]), (4, ["tem", "poi"])])
def test_what_follows_is_fused(number, kernels, only, tmp_path):
  only(split(number))
  model = Convolution(64, 32, 3, padding=1).eval().to(memory_format=torch.channels_last)
  x = torch.randn(1, 64, 8, 8).to(memory_format=torch.channels_last)
  husk.write(model, (x,), tmp_path, targets=("cuda:h200",))
  # The input and the kernel are channels last already, and the last kernel has the batch norm.
  assert launches(tmp_path)[-len(kernels) :] == kernels
  assert "silu" in launched(tmp_path)[-1]


@pytest.mark.parametrize(
  "model, shape",
  [
    (nn.Conv2d(32, 48, 1), (1, 32, 6, 6)),  # a product
    (nn.Conv2d(32, 64, 3, groups=2), (1, 32, 6, 6)),
    (nn.Conv2d(32, 64, 3, groups=2, dilation=2), (1, 32, 6, 6)),
    (nn.Conv3d(16, 16, 3), (1, 16, 4, 4, 4)),
  ],
)
def test_other_convolutions_have_other_kernels(model, shape, tmp_path, monkeypatch):
  monkeypatch.setattr(convolution, "_convolved", None)
  husk.write(model.eval(), (torch.randn(shape),), tmp_path, targets=("cuda:h200",))
  assert "tem" in launches(tmp_path)


# The rule

ASPP = Problem("float16", 1, 2048, 256, 28, 28, (3, 3), (1, 1), (12, 12), (12, 12))


def best(problem):
  return convolution.candidates(H200, problem)[0]


def test_a_long_depth_with_few_tiles_is_split():
  few = dataclasses.replace(ASPP, padding=(1, 1), dilation=(1, 1))
  many = dataclasses.replace(few, batch=32)
  assert best(few).split > 1 and best(many).split == 1
  small = Problem("float16", 1, 64, 64, 56, 56, (3, 3), (1, 1), (1, 1), (1, 1))
  assert best(small).split == 1


def test_the_parts_take_little_memory(monkeypatch, tmp_path):
  batch = torch.export.Dim("batch", min=1, max=1024)
  model = nn.Conv2d(512, 64, 3, dilation=4, padding=4).half().eval()
  original, parts = convolution._added, []

  def added(result, number, *more):
    parts.append(number)
    return original(result, number, *more)

  monkeypatch.setattr(convolution, "_added", added)
  for shapes in ({"input": {0: batch}}, None):
    x = torch.randn(2, 512, 14, 14).half()
    husk.write(model, (x,), tmp_path, targets=("cuda:h200",), tune="rules", dynamic_shapes=shapes)
    assert bool(parts) == (shapes is None)
  problem = dataclasses.replace(ASPP, batch=4)
  for positions, most in ((0, 8), (16 << 10, 4), (1 << 20, 1)):
    assert max(t.split for t in convolution.candidates(H200, problem, positions)) == most


def test_large_layers_take_inductors_template():
  """With eight images each layer of a ResNet-50 has tiles for most multiprocessors."""
  layers = [(64, 56), (128, 28), (256, 14), (512, 7)]
  for images, taken in (1, True), (8, False):
    for channels, side in layers:
      layer = Problem(
        "float16", images, channels, channels, side, side, (3, 3), (1, 1), (1, 1), (1, 1)
      )
      assert convolution.suits(H200, layer) == taken, layer
      assert convolution.suits(H200, dataclasses.replace(layer, dilation=(2, 1)))
      assert convolution.suits(H200, dataclasses.replace(layer, channels=3))


@pytest.mark.parametrize("kernel, dilation", [(1, 2), ((1, 3), (2, 1))])
def test_a_side_with_one_tap_has_no_dilation(kernel, dilation, tmp_path):
  """Such a layer is Inductor's if it is large, and Inductor's template has no dilation."""
  model = nn.Conv2d(64, 128, kernel, dilation=dilation, bias=False).half()
  x = torch.zeros(8, 64, 56, 56, dtype=torch.float16)
  husk.write(model.eval(), (x,), tmp_path, targets=("cuda:h200",))
  assert "tem" in launches(tmp_path)


def test_few_channels_are_loaded_one_by_one():
  stem = Problem("float16", 8, 3, 64, 112, 112, (7, 7), (2, 2), (3, 3), (1, 1))
  assert stem.is_shallow and best(stem).k <= 64 and best(stem).split == 1
  assert not dataclasses.replace(stem, channels=4).is_shallow
  assert dataclasses.replace(stem, channels=3, dtype="float32").is_shallow


def test_taps_outside_of_the_image_cost_nothing():
  tiles = Tiles(64, 64, 64, 4, 4)
  depths = {
    d: convolution._useful_depths(dataclasses.replace(ASPP, padding=(d, d), dilation=(d, d)), tiles)
    for d in (1, 12, 24, 27, 28, 36)
  }
  assert depths[1] == (ASPP.depth, ASPP.depth) and depths[28] == depths[36] == (2048, 2048)
  means = [mean for mean, _ in depths.values()]
  assert means[:5] == sorted(means[:5], reverse=True) and len(set(means)) == 5
  assert all(mean <= longest <= ASPP.depth for mean, longest in depths.values())


def test_tiles_fit_the_target():
  shallow = [*convolution.SHALLOW_TILES, *convolution.TILES]
  assert len(set(shallow)) == len(shallow)
  for dtype in ("float16", "float32"):
    found = convolution.candidates(Target.load("l4"), dataclasses.replace(ASPP, dtype=dtype))
    size = 4 if dtype == "float32" else 2
    assert found and all(t.k * (t.m + t.n) * t.stages * size <= 101376 for t in found)


def test_records_decide_about_the_parts():
  found = records.Records(records.Chip.of(H200))
  tuned = tuning.Tuning("heuristic", found)
  tiles = convolution.candidates(H200, ASPP)
  assert tuned.pick_tiles(ASPP, tiles) == tiles[0]
  found.add(records.of_convolution(ASPP), {records.config_of_tiles(tiles[5]): 1.0})
  assert tuned.pick_tiles(ASPP, tiles) == tiles[5]
  assert tuning.Tuning("rules", found).pick_tiles(ASPP, tiles) == tiles[0]
  twice = dataclasses.replace(ASPP, batch=2)
  assert tuned.pick_tiles(twice, convolution.candidates(H200, twice)) == tiles[5]
