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


def test_unknown_kernel_set_is_refused():
  with pytest.raises(ValueError, match="products='magic': give one of 'templates', 'fused'"):
    gemm_configs.options("magic")
