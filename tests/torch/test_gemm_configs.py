"""The rule that chooses tiles if nothing can be measured."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "compiler" / "torch"))
from husk.cuda import fake_cuda, gemm_configs
from husk.cuda.gemm_configs import Problem, Tiles

SMALL, LARGE = Tiles(16, 32, 64, 4, 4), Tiles(128, 128, 64, 3, 8)


def test_few_rows_take_few_rows():
  target = fake_cuda.Target.load("h200")
  problem = Problem(1, 4096, 4096, 1, 2)
  assert gemm_configs.cost(target, problem, SMALL) < gemm_configs.cost(target, problem, LARGE)


def test_many_rows_take_large_tiles():
  target = fake_cuda.Target.load("h200")
  problem = Problem(8192, 8192, 8192, 1, 2)
  assert gemm_configs.cost(target, problem, LARGE) < gemm_configs.cost(target, problem, SMALL)


def test_tiles_that_do_not_fit_are_excluded():
  problem = Problem(4096, 4096, 4096, 1, 4)
  deep = Tiles(128, 128, 64, 5, 8)  # 320 KiB of tiles
  assert gemm_configs.cost(fake_cuda.Target.load("h200"), problem, deep) == float("inf")
  assert gemm_configs.cost(
    fake_cuda.Target.load("l4"), problem, Tiles(128, 128, 32, 4, 8)
  ) == float("inf")
  assert gemm_configs.cost(
    fake_cuda.Target.load("h200"), problem, Tiles(256, 256, 16, 2, 4)
  ) == float("inf")


def test_equal_costs_take_the_first():

  class Node:
    def get_size(self):
      return [64, 64]

    def get_dtype(self):
      import torch

      return torch.float16

  class Choice:
    def __init__(self, **info):
      self.log_info, self.input_nodes = info, [Node(), Node()]

  class Sizes:
    def optimization_hint(self, size, fallback):
      return size

  from torch._inductor.virtualized import V

  class Graph:
    sizevars = Sizes()

  good = [Choice(tile_shape="(32, 64, 32)", num_stages=3, num_warps=4, n=i) for i in range(2)]
  strange = Choice(something="else")
  with V.set_graph_handler(Graph()):
    assert gemm_configs.pick_template(fake_cuda.Target.load("h200"), [strange, *good]) is good[0]
    assert gemm_configs.pick_template(fake_cuda.Target.load("h200"), [strange, strange]) is strange


def convolution(image, filters, output, tiles, name="triton_convolution2d_1"):
  """A template of a convolution as Inductor makes it; `tiles` as it writes them: m, k, n."""

  class Node:
    def __init__(self, size):
      self.size = size

    def get_size(self):
      return self.size

    def get_dtype(self):
      import torch

      return torch.float16

  class Choice:
    pass

  choice = Choice()
  choice.name, choice.input_nodes, choice.layout = name, [Node(image), Node(filters)], Node(output)
  shape, stages, warps = tiles
  choice.log_info = {"tile_shape": str(shape), "num_stages": stages, "num_warps": warps}
  return choice


# Measured on an H200 in fp16, channels last: times in microseconds by tiles.
LAYERS = [
  (
    ([1, 256, 14, 14], [256, 256, 3, 3], [1, 256, 14, 14]),
    {
      ((32, 128, 32), 3, 4): 11.7,
      ((16, 128, 32), 3, 2): 12.2,
      ((64, 64, 64), 4, 4): 14.0,
      ((128, 128, 128), 3, 8): 22.5,
      ((256, 64, 128), 2, 8): 59.4,
      ((64, 16, 256), 2, 4): 106.9,
    },
  ),
  (
    ([8, 128, 56, 56], [128, 128, 3, 3], [8, 128, 28, 28]),
    {
      ((64, 128, 128), 4, 4): 10.4,
      ((64, 64, 128), 4, 4): 10.9,
    },
  ),
]


@pytest.mark.parametrize("sizes, times", LAYERS)
def test_convolutions_take_tiles_near_the_best(monkeypatch, sizes, times):
  monkeypatch.setattr(gemm_configs.torch_compat, "size_hint", int)
  choices = {convolution(*sizes, tiles): time for tiles, time in times.items()}
  for order in (1, -1):
    chosen = gemm_configs.pick_template(fake_cuda.Target.load("h200"), list(choices)[::order])
    assert choices[chosen] <= 1.1 * min(choices.values())


def test_groups_of_a_convolution_are_products_of_their_own(monkeypatch):
  monkeypatch.setattr(gemm_configs.torch_compat, "size_hint", int)
  tiles = ((64, 64, 64), 4, 4)
  choice = convolution([2, 256, 14, 14], [512, 64, 3, 3], [2, 512, 14, 14], tiles)
  found = gemm_configs._convolution(choice, Tiles(64, 64, 64, 4, 4))
  assert found == Problem(2 * 14 * 14, 128, 9 * 64, 4, 2)
  found = gemm_configs._convolution(choice, Tiles(64, 64, 128, 4, 4))
  assert found.k == 9 * 128  # a step multiplies channels of one element of the kernel


def test_unknown_kernel_set_is_refused():
  with pytest.raises(ValueError, match="products='magic': give one of 'templates', 'fused'"):
    gemm_configs.options("magic")
