"""Products of many rows by tensor maps: values of the template by the interpreter, and which
products have it."""

import re

import husk
import pytest
import torch
from cuda_numerics import computed
from husk.cuda import records, tensor_maps
from husk.cuda.target import Target
from torch import nn
from torch.export import Dim

H200 = Target.load("h200")


def recorded(folder, rows, n, k, config, left="rows", right="columns"):
  """A record file by which products of so many rows have a configuration."""
  found = records.Records(records.Chip.of(H200))
  form = (("left", left), ("right", right))
  for m in rows:
    problem = records.Problem("product", "float16", form, (("m", m), ("n", n), ("k", k)))
    found.add(problem, {config: 1.0})
  path = folder / "records.json"
  found.save(path)
  return path


def maps_in(folder):
  """The products of a program by tensor maps."""
  text = (folder / "model.hir").read_text()
  return len(re.findall(r"^ *launch .*write scratch", text, re.MULTILINE))


class Layer(nn.Module):
  """A product with what follows it."""

  def __init__(self, k, n, dtype, bias=True):
    super().__init__()
    self.layer = nn.Linear(k, n, bias).to(dtype)

  def forward(self, x, residual):
    return residual + nn.functional.gelu(self.layer(x), approximate="tanh")


def close(got, right):
  torch.testing.assert_close(got.double(), right, rtol=2**-7, atol=2**-7)


@pytest.mark.parametrize(
  "config, dtype, bias, n",
  [
    ("maps 128x256x64 stages 3 warps 8", torch.float16, True, 272),
    ("maps 128x64x64 stages 4 warps 4 blocks 2", torch.bfloat16, False, 72),
    ("maps 64x128x128 stages 3 warps 4", torch.float16, False, 136),
  ],
)
def test_values_at_sizes_that_vary(config, dtype, bias, n, tmp_path):
  torch.manual_seed(0)
  k = 152  # no multiple of a step
  model = Layer(k, n, dtype, bias).eval()
  x, residual = torch.randn(320, k).to(dtype), torch.randn(320, n).to(dtype)
  rows = Dim("rows", min=1, max=512)
  compared = (320, 1, 8, 64, 512)  # the example, and sizes from its range
  runs = [{"x": x[:count], "residual": residual[:count]} for count in (320, 1, 130)]
  found = computed(
    model,
    (x, residual),
    ({0: rows}, {0: rows}),
    runs,
    tmp_path,
    tune="heuristic",
    records=recorded(tmp_path, compared, n, k, config),
  )
  exact = Layer(k, n, dtype, bias).double()
  exact.load_state_dict(model.double().state_dict())
  for run, result in zip(runs, found, strict=True):
    close(result["output"], exact(run["x"].double(), run["residual"].double()).detach())
  assert maps_in(tmp_path) == 1


class Matrices(nn.Module):
  def forward(self, left, right):
    return left @ right


@pytest.mark.parametrize("left_in_rows", [True, False])
def test_factors_in_rows_and_in_columns(left_in_rows, tmp_path):
  torch.manual_seed(1)
  left = torch.randn(256, 64) if left_in_rows else torch.randn(64, 256).T
  left, right = left.half(), torch.randn(64, 72).half()
  config = "maps 64x128x64 stages 4 warps 4 blocks 2"
  order = "rows" if left_in_rows else "columns"
  path = recorded(tmp_path, [256], 72, 64, config, left=order, right="rows")
  (result,) = computed(
    Matrices(),
    (left, right),
    None,
    [{"left": left, "right": right}],
    tmp_path,
    tune="heuristic",
    records=path,
  )
  close(result["output"], left.double() @ right.double())
  assert maps_in(tmp_path) == 1


class Parts(nn.Module):
  """A product of a part of the columns of a matrix, with several results."""

  def __init__(self, begin):
    super().__init__()
    self.begin = begin

  def forward(self, x, weight, bias):
    part = x[:, self.begin : self.begin + 64]
    product = torch.addmm(bias, part, weight, alpha=0.5, beta=2.0)
    return product.relu(), product.sum(1)


@pytest.mark.parametrize("begin, count", [(64, 1), (63, 0)])
def test_a_part_must_begin_at_16_bytes(begin, count, tmp_path):
  torch.manual_seed(2)
  args = torch.randn(300, 128).half(), torch.randn(64, 72).half(), torch.randn(300, 72).half()
  config = "maps 64x128x64 stages 4 warps 4 blocks 2"
  (result,) = computed(
    Parts(begin),
    args,
    None,
    [dict(zip(("x", "weight", "bias"), args))],
    tmp_path,
    tune="heuristic",
    records=recorded(tmp_path, [300], 72, 64, config, right="rows"),
  )
  exact = Parts(begin)(*(one.double() for one in args))
  for got, right in zip((result[name] for name in sorted(result)), exact, strict=True):
    torch.testing.assert_close(got.double(), right, rtol=2**-7, atol=2**-4)
  assert maps_in(tmp_path) == count


class Product(nn.Module):
  def __init__(self, k, n, dtype):
    super().__init__()
    self.layer = nn.Linear(k, n, bias=False).to(dtype)

  def forward(self, x):
    return self.layer(x)


@pytest.mark.parametrize(
  "rows, k, dtype, target, count",
  [
    (4096, 4096, torch.bfloat16, "h200", 1),
    (4096, 4100, torch.bfloat16, "h200", 0),  # rows that do not begin at multiples of 16 bytes
    (4096, 4096, torch.float32, "h200", 0),
    (4096, 4096, torch.bfloat16, "a100", 0),  # has no tensor maps
    (128, 4096, torch.bfloat16, "h200", 0),
  ],
)
def test_what_has_the_template(rows, k, dtype, target, count, tmp_path):
  model = Product(k, 4096, dtype).eval()
  x = torch.randn(rows, k).to(dtype)
  husk.write(model, (x,), tmp_path, targets=(f"cuda:{target}",))
  assert maps_in(tmp_path) == count


def test_the_rule_prefers_it_for_many_tiles(tmp_path):
  model = Product(4096, 4096, torch.bfloat16).eval()
  for rows, count in ((4096, 1), (256, 0)):
    folder = tmp_path / str(rows)
    x = torch.randn(rows, 4096).bfloat16()
    husk.write(model, (x,), folder, targets=("cuda:h200",), tune="rules")
    assert maps_in(folder) == count


def test_configurations_fit_the_memory():
  for tiles, blocks in tensor_maps.CONFIGS:
    loads = (tiles.m + tiles.n) * tiles.k * tiles.stages * 2
    assert blocks * loads <= H200.shared_memory_per_block_optin
