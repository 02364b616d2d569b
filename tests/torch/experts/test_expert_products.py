"""Products with the matrices of experts on CUDA targets (experts/operator.py): which calls a
program gets for them, and what these compute by Triton's interpreter."""

import re

import husk
import pytest
import torch
from cuda_numerics import close, computed
from husk.inductor import rank_experts
from torch import nn
from torch.nn import functional as F

EXPERTS, ACTIVE, WIDTH, BETWEEN = 6, 3, 24, 40


def pair_by_squeeze(stack, numbers, x):
  return torch.bmm(stack[numbers], x.unsqueeze(-1)).squeeze(-1)


def pair_by_index(stack, numbers, x):
  return torch.bmm(stack.index_select(0, numbers), x[..., None])[..., 0]


def pair_of_columns(stack, numbers, x):
  return torch.bmm(x.unsqueeze(1), stack[numbers]).squeeze(1)


def halves(both, activation):
  gate, up = both.chunk(2, -1)
  return activation(gate) * up


def halves_of_split(both):
  gate, up = both.split(BETWEEN, -1)
  return F.silu(gate) * up


def silu(both):
  return halves(both, F.silu)


class Mixture(nn.Module):
  """A layer of experts as transformers computes it with the form batched_mm."""

  def __init__(
    self,
    pair=pair_by_squeeze,
    gate=silu,
    width=WIDTH,
    between=BETWEEN,
    experts=EXPERTS,
    dtype=torch.float32,
    norm=False,
    residual=True,
    weights=None,
    numbers=None,
  ):
    super().__init__()
    torch.manual_seed(0)

    def stack(n, k):
      shape = (k, n) if pair is pair_of_columns else (n, k)
      return nn.Parameter(torch.randn(experts, *shape).to(dtype) / k**0.5)

    self.up, self.down = stack(2 * between, width), stack(width, between)
    self.router = nn.Parameter(torch.randn(experts, width).to(dtype))
    self.norm = nn.RMSNorm(width, eps=1e-3, dtype=dtype) if norm else nn.Identity()
    self.pair, self.gate, self.dtype, self.residual = pair, gate, dtype, residual
    self.weights, self.numbers = weights or (lambda x: x.to(dtype)), numbers or (lambda x: x)

  def forward(self, x):
    rows = self.norm(x.flatten(0, 1))
    weights, numbers = F.linear(rows, self.router).softmax(-1, torch.float32).topk(ACTIVE, -1)
    numbers = self.numbers(numbers).reshape(-1)
    both = self.pair(self.up, numbers, rows.repeat_interleave(ACTIVE, 0))
    y = self.pair(self.down, numbers, self.gate(both)) * self.weights(weights).reshape(-1, 1)
    y = y.view(-1, ACTIVE, y.shape[-1]).sum(1).to(x.dtype).view(x.shape)
    return x + y if self.residual else y


CASES = {
  "as transformers": {},
  "a column by an index": dict(pair=pair_by_index),
  "columns in sequence": dict(pair=pair_of_columns),
  "a gate by split": dict(gate=halves_of_split),
  "gelu": dict(gate=lambda x: halves(x, lambda y: F.gelu(y, approximate="tanh"))),
  "relu": dict(gate=lambda x: halves(x, F.relu)),
  "sigmoid": dict(gate=lambda x: halves(x, torch.sigmoid)),
  "a norm": dict(norm=True),
  "a norm of two pieces": dict(norm=True, width=72, between=136),
  "whole pieces": dict(width=64, between=32),
  "no residual": dict(residual=False),
  "weights in float32": dict(weights=lambda x: x, dtype=torch.bfloat16),
  "weights that add up to 1": dict(weights=lambda x: x / x.sum(-1, keepdim=True)),
  "bf16": dict(dtype=torch.bfloat16, norm=True),
  "f16": dict(dtype=torch.float16),
  "bounds": dict(numbers=lambda x: (x * 3 - 2).clamp(0, EXPERTS - 1)),
  "parts": dict(numbers=lambda x: torch.cat([x[:, :1].clamp(0, 5), x[:, 1:].clamp(0, 5)], 1)),
}


def largest(model):
  return {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}[model.dtype]


@pytest.mark.parametrize("name", CASES)
def test_rows_with_numbers(name, tmp_path):
  model = Mixture(**CASES[name]).eval()
  width = model.router.shape[1]
  x = [torch.randn(1, rows, width).to(model.dtype) for rows in (2, 2)]
  found = computed(model, (x[0],), None, [{"x": one} for one in x], tmp_path)
  for one, result in zip(x, found, strict=True):
    close(next(iter(result.values())), model(one), largest(model))
  text = (tmp_path / "model.hir").read_text()
  activation = re.search(r"launch \S*expert_row_\S*_(silu|gelu_tanh|relu|sigmoid)\b", text)
  assert activation and re.search(r"launch \S*experts_of_row", text)
  # Nothing between the products, and nothing after the sum but, at most, the copy of a result.
  assert "bmm" not in text


def test_rows_that_vary(tmp_path):
  model = Mixture(norm=True).eval()
  x = [torch.randn(rows, 1, WIDTH) for rows in (4, 1, 9)]
  rows = torch.export.Dim("rows", min=1, max=16)
  found = computed(model, (x[0],), {"x": {0: rows}}, [{"x": one} for one in x], tmp_path)
  for one, result in zip(x, found, strict=True):
    close(next(iter(result.values())), model(one), 1e-5)
  text = (tmp_path / "model.hir").read_text()
  assert re.search(r"launch \S*expert_row", text) and re.search(r"launch \S*experts_of_row", text)


@pytest.mark.parametrize(
  "change",
  [
    dict(gate=lambda x: halves(x, torch.tanh)),
    dict(gate=lambda x: F.silu(x[:, ::2]) * x[:, 1::2]),
  ],
)
def test_what_follows_stays(change, tmp_path):
  """Gates that the kernel has not are computed after it."""
  model = Mixture(**change).eval()
  x = torch.randn(1, 2, WIDTH)
  found = computed(model, (x,), None, [{"x": x}], tmp_path)
  close(next(iter(found[0].values())), model(x), 1e-5)
  text = (tmp_path / "model.hir").read_text()
  assert re.search(rf"launch \S*expert_row_f32_{EXPERTS}_{2 * BETWEEN}_{WIDTH}\b", text)


def test_experts_of_other_ranks(tmp_path):
  """Rows of experts that a rank lacks are 0, and their matrices are not read."""

  class Ranked(Mixture):
    def forward(self, x, numbers):
      own = rank_experts.number()(numbers, EXPERTS, EXPERTS, EXPERTS - 1).reshape(-1)
      return self.pair(self.up, own, x)

  model = Ranked().eval()
  numbers = torch.tensor([[0, 6], [11, 5], [12, 8]])
  x = torch.randn(6, WIDTH)
  (found,) = computed(model, (x, numbers), None, [{"x": x, "numbers": numbers}], tmp_path)
  own = ((numbers >= EXPERTS) & (numbers < 2 * EXPERTS)).reshape(-1, 1)
  wanted = pair_by_squeeze(model.up, (numbers.reshape(-1) - EXPERTS).clamp(0, EXPERTS - 1), x)
  close(next(iter(found.values())), torch.where(own, wanted, 0), 1e-5)


SCORES = torch.randn(4, EXPERTS)


@pytest.mark.parametrize(
  "numbers",
  [
    lambda x: x.max(-1)[1],
    lambda x: x[:, :4].argmax(1),
    lambda x: torch.concat([x[:2].argmax(1), x[2:].max(1)[1]]),
  ],
)
def test_numbers_of_experts(numbers, tmp_path):
  class Selected(Mixture):
    def forward(self, x, scores):
      return self.pair(self.up, numbers(scores), x)

  model, x = Selected().eval(), torch.randn(4, WIDTH)
  (found,) = computed(model, (x, SCORES), None, [{"x": x, "scores": SCORES}], tmp_path)
  close(next(iter(found.values())), model(x, SCORES), 1e-5)
  assert re.search(r"launch \S*expert_row", (tmp_path / "model.hir").read_text())


@pytest.mark.parametrize(
  "numbers",
  [
    lambda x: x.long(),
    lambda x: x.long().clamp(0, EXPERTS),
    lambda x: x.long().clamp(-1, EXPERTS - 1),
    lambda x: torch.cat([x.long()[:2], SCORES[2:].argmax(1)]),
    lambda x: torch.cat([SCORES, SCORES], 1).argmax(1),
  ],
)
def test_numbers_that_may_be_anything(numbers, tmp_path):
  """Eager mode refuses numbers of no expert, and counts those below 0 from the end."""

  class Selected(Mixture):
    def forward(self, x, given):
      return self.pair(self.up, numbers(given), x[: len(numbers(given))])

  args = torch.randn(4, WIDTH), torch.tensor([0.0, 1, 5, -1])
  husk.export(Selected().eval(), args, tmp_path / "x.husk", targets=("cuda:h200",), keep=tmp_path)
  assert "expert_row" not in (tmp_path / "model.hir").read_text()


class Sorted(nn.Module):
  """Rows that are sorted by expert, of which `ends` has the ends."""

  def __init__(self, dtype, by_rows=True, gate=None, n=40, k=32):
    super().__init__()
    torch.manual_seed(0)
    shape = (EXPERTS, n, k) if by_rows else (EXPERTS, k, n)
    self.stack = nn.Parameter(torch.randn(shape).to(dtype) / k**0.5)
    self.by_rows, self.gate, self.dtype = by_rows, gate, dtype

  def forward(self, x, ends):
    stack = self.stack.transpose(-2, -1) if self.by_rows else self.stack
    y = torch._grouped_mm(x, stack, ends)
    return y if self.gate is None else self.gate(y)

  def right(self, x, ends):
    ends = ends.clamp(0, len(x)).tolist()
    stack = self.stack.transpose(-2, -1) if self.by_rows else self.stack
    begins = [0, *ends[:-1]]
    y = torch.zeros(len(x), stack.shape[-1], dtype=torch.float64)
    for matrix, begin, end in zip(stack.double(), begins, ends, strict=True):
      y[begin:end] = x[begin:end].double() @ matrix
    return y if self.gate is None else self.gate(y)


@pytest.mark.parametrize(
  "change",
  [
    {},
    dict(by_rows=False),
    dict(gate=silu),
    dict(gate=silu, by_rows=False, k=200, n=24),
    dict(k=136, n=72),
  ],
)
def test_sorted_rows(change, tmp_path):
  model = Sorted(torch.bfloat16, **change).eval()
  k = model.stack.shape[2 if model.by_rows else 1]
  rows = torch.export.Dim("rows", min=2, max=512)
  calls = [
    (torch.randn(ends[-1] + more, k).bfloat16(), torch.tensor(ends, dtype=torch.int32))
    for ends, more in (
      ([3, 3, 20, 20, 90, 90], 0),
      ([0, 0, 0, 0, 0, 3], 4),
      ([16, 32, 48, 64, 80, 96], 40),
      ([100, 100, 100, 100, 100, 100], 0),
    )
  ]
  found = computed(
    model,
    calls[0],
    {"x": {0: rows}, "ends": None},
    [dict(zip(("x", "ends"), call, strict=True)) for call in calls],
    tmp_path,
  )
  for call, result in zip(calls, found, strict=True):
    close(next(iter(result.values())).double(), model.right(*call), 3e-2)
  text = (tmp_path / "model.hir").read_text()
  assert re.search(r"launch \S*expert_tiles", text)
