"""The template of depthwise convolutions: values by Triton's interpreter, and what is exported."""

import re

import pytest
import torch
from cuda_numerics import close, computed
from husk.cuda import depthwise, gemm_configs
from husk.cuda.depthwise import Problem, Tiles
from husk.cuda.target import Target
from torch import nn

H200 = Target.load("h200")


class Convolution(nn.Module):
  """A depthwise convolution and what often follows it."""

  def __init__(self, channels, kernel, stride=1, padding=0, bias=True):
    super().__init__()
    self.convolution = nn.Conv2d(
      channels, channels, kernel, stride, padding, groups=channels, bias=bias
    )
    self.norm = nn.BatchNorm2d(channels)

  def forward(self, x):
    return nn.functional.silu(self.norm(self.convolution(x)))


def launches(folder):
  return re.findall(r"^\s*launch h200_triton_(\w+?)_", (folder / "model.hir").read_text(), re.M)


def only(monkeypatch, *tiles):
  monkeypatch.setattr(depthwise, "TILES", list(tiles))


# Sizes that are no multiples of tiles, strides, kernels of different sides, few and many columns.
CASES = [
  ((2, 48, 9, 11), 7, 1, 3, Tiles(8, 32, 4, 2)),
  ((1, 40, 14, 13), (3, 5), (2, 1), (1, 2), Tiles(16, 32, 2, 2)),
  ((2, 16, 8, 8), 3, 2, 1, Tiles(8, 32, 4, 1)),
  ((1, 100, 5, 6), 5, 3, 0, Tiles(16, 64, 1, 4)),
  ((3, 17, 6, 7), (1, 3), 1, (0, 1), Tiles(4, 64, 2, 1)),
]


@pytest.mark.parametrize("shape, kernel, stride, padding, tiles", CASES)
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_values(shape, kernel, stride, padding, tiles, order, monkeypatch, tmp_path):
  only(monkeypatch, tiles)
  torch.manual_seed(0)
  model = Convolution(shape[1], kernel, stride, padding, bias=shape[0] % 2 == 0).eval()
  x = torch.randn(shape).to(memory_format=order)
  (result,) = computed(model, (x,), None, [{"x": x}], tmp_path)
  (value,) = result.values()
  close(value, model(x), 1e-4)
  assert launches(tmp_path).count("tem") == 1


def test_halves_are_summed_in_f32(tmp_path):
  """Sums in half precision would lose the small terms."""
  model = nn.Conv2d(16, 16, 7, groups=16, bias=False).half().eval()
  with torch.no_grad():
    model.weight.fill_(2.0**-11)
    model.weight[..., 0, 0] = 1
  x = torch.ones(1, 16, 7, 7, dtype=torch.float16)
  (result,) = computed(model, (x,), None, [{"input": x}], tmp_path)
  (value,) = result.values()
  assert torch.equal(value, torch.full((1, 16, 1, 1), 1 + 48 * 2.0**-11, dtype=torch.float16))


def test_a_batch_that_varies(tmp_path):
  torch.manual_seed(0)
  model = Convolution(24, 3, 1, 1).eval()
  runs = [{"x": torch.randn(batch, 24, 6, 5)} for batch in (2, 1, 5)]
  shapes = {"x": {0: torch.export.Dim("batch", min=1, max=8)}}
  for given, result in zip(runs, computed(model, (runs[0]["x"],), shapes, runs, tmp_path)):
    (value,) = result.values()
    close(value, model(**given), 1e-4)


def test_what_follows_is_fused(tmp_path):
  model = Convolution(64, 5, 1, 2).eval().to(memory_format=torch.channels_last)
  x = torch.randn(1, 64, 8, 8).to(memory_format=torch.channels_last)
  computed(model, (x,), None, [{"x": x}], tmp_path)
  # The input and the kernel get channels last, and the result the order of the model.
  assert launches(tmp_path).count("poi") <= 3
  assert "silu" in next(
    line
    for line in (tmp_path / "model.hir").read_text().splitlines()
    if "launch h200_triton_tem" in line
  )


@pytest.mark.parametrize(
  "model, shape",
  [
    (nn.Conv2d(8, 8, 3, groups=8), (1, 8, 6, 6)),  # few channels
    (nn.Conv2d(16, 32, 3, groups=16), (1, 16, 6, 6)),  # two results of a channel
    (nn.Conv2d(16, 16, 3, groups=16, dilation=2), (1, 16, 8, 8)),
    (nn.Conv1d(16, 16, 3, groups=16), (1, 16, 8)),
  ],
)
def test_other_convolutions_have_no_template(model, shape, tmp_path):
  x = torch.randn(shape)
  (result,) = computed(model.eval(), (x,), None, [{"input": x}], tmp_path)
  (value,) = result.values()
  close(value, model(x), 1e-4)
  assert "tem" not in launches(tmp_path)


# The rule


def test_few_results_take_small_tiles():
  small = Problem(1, 768, 7, 7, (7, 7), (1, 1))
  large = Problem(8, 96, 56, 56, (7, 7), (1, 1))
  best = {
    problem: min(depthwise.TILES, key=lambda tiles: depthwise.cost(H200, problem, tiles))
    for problem in (small, large)
  }
  assert best[large].columns == 4

  def results(tiles):
    return tiles.strips * tiles.columns * tiles.channels

  assert results(best[small]) < results(best[large])


def test_neighbours_in_a_row_share_loads():
  problem = Problem(8, 96, 56, 56, (7, 7), (1, 1))
  four, one = Tiles(8, 32, 4, 1), Tiles(32, 32, 1, 1)
  assert depthwise.cost(H200, problem, four) < depthwise.cost(H200, problem, one)


def test_the_rule_knows_the_template():
  class Choice:
    name = "triton_husk_depthwise_7"
    log_info = {
      "STRIPS": 8,
      "CHANNELS": 32,
      "COLUMNS": 4,
      "num_warps": 1,
      "kernel": (7, 7),
      "stride": (1, 1),
    }

    class layout:
      size = [1, 14, 14, 96]

  assert depthwise.is_choice(Choice) and depthwise.tiles_of(Choice) == Tiles(8, 32, 4, 1)
  gemm_configs.torch_compat.size_hint, before = int, gemm_configs.torch_compat.size_hint
  try:
    assert gemm_configs._template_cost(H200, Choice) == depthwise.choice_cost(H200, Choice) > 0
  finally:
    gemm_configs.torch_compat.size_hint = before
