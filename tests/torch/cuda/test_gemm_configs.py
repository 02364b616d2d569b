"""The rule that chooses tiles if nothing can be measured."""

import pathlib
import re
import subprocess

import husk
import pytest
import torch
import triton
from husk.cuda import fake_cuda, gemm_configs, records, tuning
from husk.cuda.gemm_configs import Problem, Tiles
from husk.inductor import torch_compat
from torch import nn

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
    assert picked([strange, *good]) is good[0]
    assert picked([strange, strange]) is strange


def picked(choices, found=None):
  """The template that rules, or records, pick on an H200."""
  return tuning.Tuning("heuristic", found).pick_template(fake_cuda.Target.load("h200"), choices)


class Rows:
  """A size that is `example` in the example, from 1 to `most`. The fields are those of sympy's
  expressions and of torch's ranges."""

  def __init__(self, example, most):
    self.example, self.lower, self.upper, self.free_symbols = example, 1, most, {"rows"}


def product(rows, tiles):
  """A template of a product of `rows` x 768 and 768 x 3072."""

  class Node:
    def __init__(self, *size):
      self.size = size

    def get_size(self):
      return self.size

    def get_stride(self):
      return self.size[1], 1

    def get_dtype(self):
      import torch

      return torch.float16

  class Choice:
    name = "triton_mm_1"
    input_nodes = (Node(rows, 768), Node(768, 3072))
    log_info = {"tile_shape": tiles, "num_stages": 4, "num_warps": 4}

  return Choice()


class Example:
  """Inductor's graph while it lowers, with what `size_hint` asks for."""

  sizevars = property(lambda self: self)
  shape_env = property(lambda self: self)

  def optimization_hint(self, size, fallback):
    return getattr(size, "example", size)

  def bound_sympy(self, size):
    return size


FEW, MIDDLE, MANY = "(16, 64, 32)", "(64, 64, 64)", "(128, 64, 128)"


@pytest.mark.parametrize(
  "rows, tiles", [(20, FEW), (2000, MANY), (Rows(20, 32), FEW), (Rows(20, 8192), MIDDLE)]
)
def test_sizes_that_vary_take_tiles_that_are_good_for_all(rows, tiles):
  """Few rows take small tiles, and many rows large ones. The last example is as small as the first,
  but the model may get 8192 rows."""
  from torch._inductor.virtualized import V

  known = records.Records(records.Chip.of(fake_cuda.Target.load("h200")))
  form = (("left", "rows"), ("right", "rows"))
  names = {FEW: "16x32x64", MIDDLE: "64x64x64", MANY: "128x128x64"}
  for m, times in {16: (5, 6, 9), 512: (20, 10, 8), 4096: (200, 70, 50)}.items():
    problem = records.Problem("product", "float16", form, (("m", m), ("n", 3072), ("k", 768)))
    configs = [f"{name} stages 4 warps 4" for name in names.values()]
    known.add(problem, dict(zip(configs, times)))
  with V.set_graph_handler(Example()):
    chosen = picked([product(rows, each) for each in names], known)
  assert chosen.log_info["tile_shape"] == tiles


def test_sizes_at_a_place_of_their_range():
  from torch._inductor.virtualized import V

  with V.set_graph_handler(Example()):
    size, unbounded = Rows(20, 4096), Rows(20, float("inf"))
    hints = []
    for place in (None, 0.0, 0.5, 1.0):
      with torch_compat.sizes_at(place):
        hints.append([torch_compat.size_hint(each) for each in (size, unbounded, 7)])
    assert hints == [[20, 20, 7], [1, 1, 7], [64, 64, 7], [4096, 4096, 7]]
    assert torch_compat.size_hint(size) == 20


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
    chosen = picked(list(choices)[::order])
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


def spilled(folder):
  """The bytes that threads of the kernels of an export keep in memory, as registers are full."""
  tools = pathlib.Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
  sizes = []
  for cubin in sorted(folder.glob("*_tem_*.cubin")):
    done = subprocess.run(
      [tools / "cuobjdump", "-res-usage", cubin], capture_output=True, text=True, check=True
    )
    sizes += [int(size) for size in re.findall(r"STACK:(\d+)", done.stdout)]
  return sizes


@pytest.mark.parametrize("sizes", [(1568, 384, 1536), (392, 768, 3072), (8, 1024, 1024)])
def test_products_of_f32_fit_the_registers(sizes, tmp_path):
  """Tiles for tensor cores made products without tf32 forty times slower."""
  m, k, n = sizes
  husk.write(nn.Linear(k, n).eval(), (torch.randn(m, k),), tmp_path, targets=("cuda:h200",))
  assert spilled(tmp_path) == [0]


def test_convolutions_of_f32_fit_the_registers(tmp_path, monkeypatch):
  monkeypatch.setattr(torch_compat, "convolutions_in_tf32", lambda: False)
  model = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.Conv2d(64, 96, 3, dilation=2)).eval()
  husk.write(model, (torch.randn(2, 64, 28, 28),), tmp_path, targets=("cuda:h200",))
  sizes = spilled(tmp_path)
  assert len(sizes) == 2 and max(sizes) <= 16
