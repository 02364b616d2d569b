"""The template of depthwise convolutions: values by Triton's interpreter, and what is exported."""

import dataclasses
import functools
import itertools
import json
import math
import pathlib
import random
import re
import types

import husk
import jinja2
import pytest
import torch
from cuda_numerics import close, computed
from husk import devices
from husk.cuda import depthwise, gemm_configs
from husk.cuda.depthwise import Problem, Tiles
from husk.cuda.target import Target
from husk.inductor import torch_compat
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
  for inputs, result in zip(runs, computed(model, (runs[0]["x"],), shapes, runs, tmp_path)):
    (value,) = result.values()
    close(value, model(**inputs), 1e-4)


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


@pytest.mark.parametrize("channels, bits", [(64, 128), (60, 64), (17, 16)])
def test_loads_are_as_wide_as_the_rows_allow(channels, bits, monkeypatch, tmp_path):
  """A thread has 8 neighbours of a row of halves, whose rows are multiples of 16, 8 or 2 bytes."""
  only(monkeypatch, Tiles(8, 64, 2, 2))
  instances = []

  class Kept(devices.DEVICES["cuda"]):
    def __init__(self, *args, **named):
      super().__init__(*args, **named)
      instances.append(self)

  monkeypatch.setitem(devices.DEVICES, "cuda", Kept)
  model = Convolution(channels, 3).half().eval()
  x = torch.randn(1, channels, 6, 6, dtype=torch.half).to(memory_format=torch.channels_last)
  husk.write(model, (x,), tmp_path, targets=("cuda:h200",))
  ((_, kernel),) = [each for each in instances[0].kernels.kernels() if "_tem_" in each[0]]
  loads = re.findall(r"ld\.global\S*?(?:\.v(\d))?\.b(\d+)", kernel.ptx)
  assert max(int(count or 1) * int(each) for count, each in loads) == bits


@pytest.mark.parametrize(
  "layer",
  [
    nn.Conv2d(16, 32, 7, 2, 3, groups=16),
    nn.Conv2d(17, 51, 3, groups=17),
    nn.Conv2d(16, 16, 3, 1, 2, dilation=(2, 3), groups=16),
    nn.Conv2d(16, 48, (1, 5), (1, 2), (0, 4), dilation=(1, 2), groups=16),
  ],
)
def test_several_results_of_a_channel_and_dilation(layer, tmp_path):
  torch.manual_seed(0)
  x = torch.randn(2, layer.in_channels, 9, 11)
  (result,) = computed(layer.eval(), (x,), None, [{"input": x}], tmp_path)
  (value,) = result.values()
  close(value, layer(x), 1e-4)
  assert launches(tmp_path).count("tem") == 1


@pytest.mark.parametrize(
  "model, shape",
  [
    (nn.Conv2d(8, 8, 3, groups=8), (1, 8, 6, 6)),  # few channels
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


def rendered(tiles, kernel, stride):
  """The text of the kernel for some tiles."""
  return jinja2.Template(depthwise._SOURCE).render(
    COLUMNS=tiles.columns,
    KERNEL_W=kernel,
    STRIDE_W=stride,
    DILATION_W=1,
    LOADED=depthwise.loaded_columns(tiles.columns, kernel, stride, 1),
    **dict.fromkeys(("def_kernel", "size", "stride", "store_output"), lambda *_, **__: ""),
  )


@functools.cache
def counted(columns, kernel, stride):
  """The loads of elements, the loads of weights and the multiplications of a row of the kernel, as
  its text has them."""
  text = rendered(Tiles(8, 32, columns, 1), kernel, stride)
  return (
    text.count("x = tl.load("),
    len(re.findall(r"w\d+ = tl.load", text)),
    text.count(" += x * "),
  )


def problems(count):
  """Depthwise convolutions of all sizes that networks have, and odd ones."""
  random_numbers = random.Random(20)
  for _ in range(count):
    kernel, stride = random_numbers.choice((1, 3, 5, 7, 9)), random_numbers.choice((1, 1, 2, 3))
    height, width = (round(2 ** random_numbers.uniform(0, 8.2)) for _ in range(2))
    channels = round(2 ** random_numbers.uniform(3.2, 11))
    batch = round(2 ** random_numbers.uniform(0, 7))
    yield Problem(batch, channels, height, width, (kernel, kernel), (stride, stride))


def choice_of(problem, tiles):
  """What Inductor tells of a choice of the template."""
  size = [problem.batch, problem.height, problem.width, problem.channels]
  info = dict(STRIPS=tiles.strips, CHANNELS=tiles.channels, COLUMNS=tiles.columns)
  return types.SimpleNamespace(
    name="triton_husk_depthwise_7",
    log_info={**info, "num_warps": tiles.warps, "kernel": problem.kernel, "stride": problem.stride},
    layout=types.SimpleNamespace(size=size),
  )


@pytest.fixture
def ranked(monkeypatch):
  """A function that gives the tiles of the template in the order in which exports rank them."""
  monkeypatch.setattr(torch_compat, "size_hint", int)

  def ranked(target, problem):
    choices = [choice_of(problem, tiles) for tiles in depthwise.TILES]
    return [depthwise.tiles_of(choice) for choice in gemm_configs.ranked(target, choices)]

  return ranked


TARGETS = [H200, Target.load("l4"), Target.load("orin")]


@pytest.mark.parametrize("tiles", depthwise.TILES)
@pytest.mark.parametrize("kernel", [3, 7])
def test_tiles_fit_a_device(tiles, kernel):
  elements = tiles.strips * tiles.channels // (32 * tiles.warps)
  assert elements * 32 * tiles.warps == tiles.strips * tiles.channels  # no thread is idle
  for number in (tiles.strips, tiles.channels, tiles.columns, tiles.warps):
    assert number & (number - 1) == 0  # tl.arange, tl.join
  # A row of a tile is whole sectors of 32 bytes, in halves too, and a thread loads 8 bytes or more.
  assert tiles.channels * 2 % 32 == 0 and elements * 2 >= 8
  # Sums, weights of a row and an element, one register each, with the half for addresses.
  assert elements * (tiles.columns + kernel + 1) <= 128
  for target in TARGETS:
    assert 32 * tiles.warps <= target.max_threads_per_block
    # The sums go through shared memory when they become neighbours.
    bytes_of_sums = 4 * tiles.strips * tiles.columns * tiles.channels
    assert bytes_of_sums <= target.shared_memory_per_block


def written(problem, tiles):
  """How often each result is written, according to the text of the kernel and its grid."""
  text = rendered(tiles, problem.kernel[1], problem.stride[1])
  lines = [line.strip() for line in text.splitlines()]
  places = [each for each in lines if each.startswith(("IN_ROW =", "y_c =", "is_channel ="))]
  first = next(i for i, line in enumerate(lines) if line.startswith("number ="))
  code = compile(
    "\n".join([*places, *lines[first : lines.index("idx_n = idx_y_n[:, None]")]]), "", "exec"
  )
  sizes = dict(BATCH=problem.batch, OUT_H=problem.height, OUT_W=problem.width)
  sizes.update(OUT_C=problem.channels, INDEX_DTYPE=torch.int64)
  for name in ("strips", "channels", "columns"):
    sizes[name.upper()] = getattr(tiles, name)
  counts = torch.zeros(problem.batch, problem.height, problem.width, problem.channels)
  for block in itertools.product(*map(range, grid(problem, tiles))):
    numbers = [torch.tensor(number) for number in block]
    found = {
      **sizes,
      "tl": types.SimpleNamespace(arange=torch.arange, program_id=numbers.__getitem__),
    }
    exec(code, found)
    rows, channels = found["mask"].nonzero(as_tuple=True)
    place = [found[name][rows] for name in ("idx_y_n", "idx_y_h", "idx_y_w")]
    counts.index_put_((*place, found["y_c"][channels]), torch.ones(()), accumulate=True)
  return counts


def grid(problem, tiles):
  """The blocks in each dimension, as the template has them."""
  meta = {"COLUMNS": tiles.columns, "STRIPS": tiles.strips, "CHANNELS": tiles.channels}
  sizes = (problem.batch, problem.height, problem.width, problem.channels)
  return depthwise._template().grid(*sizes, meta)


def test_each_result_is_written_once():
  random_numbers = random.Random(4)
  for tiles in depthwise.TILES:
    sizes = (random_numbers.choice((1, 2, 3)), random_numbers.randint(9, 140))
    problem = Problem(*sizes, *(random_numbers.randint(1, 7) for _ in range(2)), (3, 3), (2, 1))
    assert (written(problem, tiles) == 1).all(), (problem, tiles)


def test_the_rule_counts_what_the_kernel_does():
  """An element more costs an element more: the costs of two kernels that differ in one thing differ
  by what their texts have."""
  for columns, kernel, stride in itertools.product((1, 2, 4), (1, 3, 5, 7, 9), (1, 2, 3)):
    tiles, problem = Tiles(8, 32, columns, 1), Problem(1, 32, 8, columns, (1, kernel), (1, stride))
    loads, weights, products = counted(columns, kernel, stride)
    assert weights == kernel
    # One block has one warp, for four schedulers.
    one_warp = 0.93 / 4
    assert depthwise.cost(H200, problem, tiles) == pytest.approx(
      8 * (loads + 0.02 * products) + one_warp
    )


def test_the_choice_is_legal_and_no_other_tile_has_less_to_do(ranked):
  """No tile has fewer loads and products in a thread, as its text has them, and no more warps of a
  scheduler, nor fewer warps and no more loads and products."""
  for problem in problems(400):
    for target in TARGETS:
      chosen = ranked(target, problem)[0]
      blocks = grid(problem, chosen)
      assert blocks[0] < 2**31 and blocks[1] < 2**16
      mine = work(target, problem, chosen)
      for other in depthwise.TILES:
        theirs = work(target, problem, other)
        assert not (
          all(a <= b for a, b in zip(theirs, mine))
          and any(a < b * 0.999 for a, b in zip(theirs, mine))
        ), (problem, target.name, chosen, other, mine, theirs)


def work(target, problem, tiles):
  """The loads of a thread for a row of the kernel, with the products in units of a load; and the
  warps of a scheduler."""
  loads, _, products = counted(tiles.columns, problem.kernel[1], problem.stride[1])
  elements = tiles.strips * tiles.channels // (32 * tiles.warps)
  blocks = math.prod(grid(problem, tiles)[:2])
  warps = -(-blocks // target.multi_processor_count) * tiles.warps
  return elements * (loads + 0.02 * products), warps


def test_more_work_is_never_cheaper(ranked):
  """A larger batch costs no less with any tile, and a larger device no more."""
  larger = dataclasses.replace(H200, multi_processor_count=2 * H200.multi_processor_count)
  for problem in problems(100):
    twice = dataclasses.replace(problem, batch=2 * problem.batch)
    for tiles in depthwise.TILES:
      cost = depthwise.cost(H200, problem, tiles)
      assert depthwise.cost(larger, problem, tiles) <= cost <= depthwise.cost(H200, twice, tiles)


def test_the_choice_is_near_the_best_of_what_was_measured():
  """The times of all tiles for 20 convolutions in two formats on an H100
  (`tests/gpu/depthwise.py --json tests/torch/cuda/depthwise_times.json`)."""
  times = json.loads(pathlib.Path(__file__).with_name("depthwise_times.json").read_text())
  assert len(times) == 40
  ratios = []
  for name, by_tiles in times.items():
    *sizes, kernel, stride = map(int, by_tiles.pop("problem").split("x"))
    problem = Problem(*sizes, (kernel, kernel), (stride, stride))
    chosen = min(depthwise.TILES, key=lambda tiles: depthwise.cost(H200, problem, tiles))
    took = by_tiles["x".join(map(str, dataclasses.astuple(chosen)))]
    ratios.append(took / min(by_tiles.values()))
    assert ratios[-1] < 1.35, (name, chosen, ratios[-1])
  assert math.prod(ratios) ** (1 / len(ratios)) < 1.07


def test_neighbours_in_a_row_share_loads():
  problem = Problem(8, 96, 56, 56, (7, 7), (1, 1))
  four, one = Tiles(8, 32, 4, 1), Tiles(32, 32, 1, 1)
  assert depthwise.cost(H200, problem, four) < depthwise.cost(H200, problem, one)


def test_the_rule_knows_the_template(monkeypatch):
  monkeypatch.setattr(torch_compat, "size_hint", int)
  tiles, problem = Tiles(8, 32, 4, 1), Problem(1, 96, 14, 14, (7, 7), (1, 1))
  choice = choice_of(problem, tiles)
  assert depthwise.is_choice(choice)
  assert (depthwise.tiles_of(choice), depthwise.problem_of(choice)) == (tiles, problem)
  assert gemm_configs._template_cost(H200, choice) == depthwise.cost(H200, problem, tiles) > 0
