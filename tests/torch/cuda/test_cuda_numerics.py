"""The CUDA variants compute the same as the models: they run on the CPU by Triton's interpreter
(triton_interpreter.py)."""

import models
import pytest
import torch
from cuda_numerics import close, computed

GEMM_SETS = pytest.mark.parametrize("gemm_set", ["templates", "fused"])


@GEMM_SETS
def test_mlp_with_its_counter(gemm_set, tmp_path):
  model, args, shapes = models.MODELS["mlp"]()
  torch.manual_seed(7)
  runs = [{"x": torch.randn(batch, 32)} for batch in (4, 1, 64, 17)]
  results = computed(model, args, shapes, runs, tmp_path, gemm_set=gemm_set)
  assert [int(result["calls"]) for result in results] == [1, 2, 3, 4]
  for inputs, result in zip(runs, results):
    close(result["logits"], model(**inputs)["logits"])


def test_sum(tmp_path):
  model, args, shapes = models.MODELS["sum"]()
  runs = [{"x": torch.randn(rows, 5), "y": torch.randn(rows, 5)} for rows in (4, 1, 333)]
  for inputs, result in zip(runs, computed(model, args, shapes, runs, tmp_path)):
    close(result["output"], model(**inputs), 1e-4)


def test_branches(tmp_path):
  model, args, shapes = models.MODELS["branches"]()
  runs = [
    {"x": torch.randn(rows, 48), "y": torch.randn(rows, 48), "power": power}
    for rows, power in ((8, 3), (2, 1), (77, 9))
  ]
  for inputs, result in zip(runs, computed(model, args, shapes, runs, tmp_path)):
    close(result["output"], model(**inputs))


@GEMM_SETS
def test_gpt(gemm_set, tmp_path):
  torch.manual_seed(2)
  model = models.Gpt(vocabulary=64, width=32, layers=1, heads=2, context=16).eval()
  shapes = {
    "tokens": {
      0: torch.export.Dim("batch", min=1, max=8),
      1: torch.export.Dim("length", min=1, max=16),
    }
  }
  runs = [
    {"tokens": torch.randint(0, 64, (batch, length))} for batch, length in ((2, 8), (1, 1), (3, 13))
  ]
  for inputs, result in zip(
    runs,
    computed(model, (torch.randint(0, 64, (2, 8)),), shapes, runs, tmp_path, gemm_set=gemm_set),
  ):
    close(result["output"], model(**inputs), 1e-4)


class ConstantFactors(torch.nn.Module):
  """If a factor is a constant, Inductor loads it inside the template of the product."""

  def forward(self, x, y):
    half = torch.full((32, 48), 0.5, dtype=x.dtype)
    return (
      x @ half,
      torch.ones(16, x.shape[0], dtype=x.dtype) @ x,
      torch.where(y > 0, y, 0.25) @ torch.zeros(2, 16, 16).add(2),
    )


def test_factors_that_are_constants(tmp_path):
  model = ConstantFactors()
  n = torch.export.Dim("n", min=1, max=64)
  runs = [{"x": torch.randn(rows, 32), "y": torch.randn(2, rows, 16)} for rows in (20, 1, 64)]
  results = computed(model, tuple(runs[0].values()), ({0: n}, {1: n}), runs, tmp_path)
  for inputs, result in zip(runs, results):
    for one, other in zip(result.values(), model(**inputs), strict=True):
      close(one, other, 1e-4)


class ConstantsOfCode(torch.nn.Module):
  """Tensors that the code of the model and of a part of it make."""

  class Part(torch.nn.Module):
    def forward(self, x):
      changed = torch.tensor([1.0, 2.0, 3.0])
      changed[0] = x.sum()
      return x + changed

  def __init__(self):
    super().__init__()
    self.parts = torch.nn.ModuleList([self.Part(), self.Part()])
    self.scale = torch.tensor([4.0, 5.0, 6.0])  # neither a parameter nor a buffer

  def forward(self, x):
    picked = self.parts[1](self.parts[0](x[[1, 0]]))
    _, doubled = torch.while_loop(
      lambda turn, y: turn < 3, lambda turn, y: (turn + 1, y * 2), (torch.tensor(0), x)
    )
    return picked * self.scale + torch.tensor(2.5), doubled, x.clamp(max=torch.tensor(0.5))


def test_constants_of_code(tmp_path):
  model = ConstantsOfCode()
  n = torch.export.Dim("n", min=2, max=64)
  runs = [{"x": torch.randn(rows, 3)} for rows in (3, 2, 64)]
  results = computed(model, (runs[0]["x"],), ({0: n},), runs, tmp_path)
  for inputs, result in zip(runs, results):
    for one, other in zip(result.values(), model(**inputs), strict=True):
      close(one, other)


class PadsAnExpandedTensor(torch.nn.Module):
  """What the pools and the pad read of the expanded dimension is one number, which the same kernel
  has computed and stored."""

  def forward(self, x):
    doubled = x.to(torch.int32).to(torch.float32) * 2
    expanded = doubled.unsqueeze(-1).expand(*x.shape, 3)
    pool = torch.nn.functional.max_pool1d
    padded = torch.nn.functional.pad(expanded, (1, 2), value=7.0)
    average = torch.nn.functional.avg_pool1d(expanded, 3, padding=1)
    return doubled, *pool(expanded, 3, padding=1, return_indices=True), padded, average


def test_a_value_that_a_kernel_has_stored_is_masked(tmp_path):
  model, n = PadsAnExpandedTensor(), torch.export.Dim("n", min=1, max=64)
  runs = [{"x": torch.randn(rows, 8) * 9} for rows in (5, 1, 64)]
  results = computed(model, (runs[0]["x"],), ({0: n},), runs, tmp_path)
  for inputs, result in zip(runs, results):
    for one, other in zip(result.values(), model(**inputs), strict=True):
      close(one, other)


@pytest.mark.parametrize("depth", [3, 16, 48])
def test_sums_of_two_products(depth, tmp_path):
  """Inductor's kernel of both needs a depth of more than 16."""

  class Sum(torch.nn.Module):
    def forward(self, x, a, y, b):
      return x @ a + y @ b

  torch.manual_seed(0)
  args = tuple(torch.randn(size) for size in 2 * ((5, depth), (depth, 7)))
  (result,) = computed(Sum(), args, None, [dict(zip("xayb", args))], tmp_path)
  close(result["output"], Sum()(*args), 1e-4)


def test_vmap(tmp_path):
  class Distances(torch.nn.Module):
    def forward(self, x, y):
      return torch.vmap(lambda a: torch.vmap(lambda b: ((a - b) ** 2).sum())(y))(x)

  torch.manual_seed(0)
  args = torch.randn(3, 2), torch.randn(4, 2)
  (result,) = computed(Distances(), args, None, [dict(zip("xy", args))], tmp_path)
  close(result["output"], Distances()(*args))


def test_vmap_of_a_size_that_varies(tmp_path):
  """torch.vmap leaves constants of that size in the program."""

  class Rows(torch.nn.Module):
    def forward(self, x):
      return torch.vmap(lambda row: (row.cumsum(0), row.max()), out_dims=(1, 0))(x)

  x, shapes = torch.randn(3, 5), {"x": {0: torch.export.Dim("n", min=2, max=9)}}
  (result,) = computed(Rows(), (torch.randn(4, 5),), shapes, [{"x": x}], tmp_path)
  for one, expected in zip(result.values(), Rows()(x), strict=True):
    close(one, expected)


class Experts(torch.nn.Module):
  """The experts of DeepSeek-V3: each token goes to the best experts of the best groups, which a
  mask marks. The mask is the int 1, scattered into floats."""

  def __init__(self, width=16, inner=8, experts=8, groups=4, dtype=torch.float32):
    super().__init__()
    generator = torch.Generator().manual_seed(4)

    def weight(*shape):
      return torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype) / 4)

    self.groups = groups
    self.gate = weight(experts, width)
    self.register_buffer("bias", torch.randn(experts, generator=generator) / 4)
    self.up, self.down = weight(experts, width, 2 * inner), weight(experts, inner, width)

  def forward(self, x):
    scores = torch.nn.functional.linear(x.float(), self.gate.float()).sigmoid()
    biased = scores + self.bias
    grouped = biased.view(x.shape[0], self.groups, -1)
    group_scores = grouped.topk(2, dim=-1)[0].sum(-1)
    best_groups = group_scores.topk(2, dim=-1, sorted=False)[1]
    mask = torch.zeros_like(group_scores)
    mask.scatter_(1, best_groups, 1)
    mask = mask.unsqueeze(-1).expand(*grouped.shape).reshape(x.shape[0], -1)
    chosen = biased.masked_fill(~mask.bool(), 0.0).topk(2, dim=-1, sorted=False)[1]
    weights = scores.gather(1, chosen)
    weights = weights / (weights.sum(-1, keepdim=True) + 1e-20) * 2.5
    gate, up = (x.unsqueeze(1).unsqueeze(1) @ self.up[chosen]).chunk(2, -1)
    results = (torch.nn.functional.silu(gate) * up) @ self.down[chosen]
    return (results.squeeze(2) * weights.unsqueeze(-1).to(x.dtype)).sum(1), mask.to(x.dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), ((torch.float32, 1e-5), (torch.bfloat16, 3e-2)))
def test_experts(dtype, tolerance, tmp_path):
  model, n = Experts(dtype=dtype), torch.export.Dim("n", min=1, max=64)
  runs = [{"x": torch.randn(rows, 16).to(dtype)} for rows in (5, 9)]
  results = computed(model, (runs[0]["x"],), ({0: n},), runs, tmp_path)
  for inputs, result in zip(runs, results):
    for one, other in zip(result.values(), model(**inputs), strict=True):
      close(one, other, tolerance)
