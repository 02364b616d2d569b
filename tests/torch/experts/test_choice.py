"""Choices of experts on CUDA targets (experts/choice.py): which of them become one call, and what
it computes by Triton's interpreter."""

import husk
import pytest
import torch
from cuda_numerics import close, computed
from torch import nn

NAN = float("nan")


class Router(nn.Module):
  def __init__(self, choose):
    super().__init__()
    self.choose = choose

  def forward(self, x):
    return self.choose(x)


def divided(x, k=2):
  weights, numbers = x.softmax(-1, torch.float32).topk(k, -1)
  return (weights / weights.sum(-1, keepdim=True)).to(x.dtype), numbers


def divided_in_place(x):
  weights, numbers = torch.topk(torch.softmax(x.float(), dim=-1), 3, dim=-1)
  weights /= weights.sum(dim=-1, keepdim=True)
  return weights, numbers


def left(x):
  weights, numbers = x.softmax(-1, torch.float32).topk(4, -1)
  return weights.to(x.dtype), numbers


def softmax_of_chosen(x):
  weights, numbers = x.topk(4, -1)
  return weights.softmax(-1), numbers


def softmax_of_chosen_in_f32(x):
  weights, numbers = x.topk(4, 1)
  return weights.softmax(1, torch.float32).to(x.dtype), numbers


def with_scores(x):
  """The probabilities are a result, too."""
  scores = x.softmax(-1, torch.float32)
  weights, numbers = scores.topk(2, -1)
  return weights, numbers, scores


def numbers_alone(x):
  return x.softmax(-1, torch.float32).topk(3, -1)[1]


CHOICES = {
  "divided": divided,
  "divided in place": divided_in_place,
  "left": left,
  "softmax of the chosen": softmax_of_chosen,
  "softmax of the chosen in f32": softmax_of_chosen_in_f32,
  "with scores": with_scores,
  "numbers alone": numbers_alone,
}


def results(model, x, folder, shapes=None):
  (found,) = computed(Router(model).eval(), (x,), shapes, [{"x": x}], folder)
  return list(found.values())


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_values(name, dtype, tmp_path):
  torch.manual_seed(3)
  x = torch.stack([torch.randperm(40) for _ in range(7)]).to(dtype) / 8
  found, right = results(CHOICES[name], x, tmp_path), CHOICES[name](x)
  right = right if isinstance(right, tuple) else (right,)
  for one, other in zip(found, right, strict=True):
    assert one.dtype == other.dtype
    close(one, other, 1e-6 if one.dtype == torch.float32 else 1e-2)
  assert (tmp_path / "model.hir").read_text().count("launch h200_chosen_") == 1


@pytest.mark.parametrize("n, k", [(1, 1), (2, 2), (5, 1), (128, 8), (1000, 10), (33, 32)])
def test_sizes(n, k, tmp_path):
  torch.manual_seed(n)
  x = torch.randn(3, 1, n)
  found = results(lambda x: divided(x, k), x, tmp_path)
  for one, other in zip(found, divided(x, k), strict=True):
    close(one, other, 1e-6)


def test_rows_that_vary(tmp_path):
  x = torch.randn(9, 24)
  rows = torch.export.Dim("rows", min=1, max=64)
  found = results(divided, x, tmp_path, {"x": {0: rows}})
  for one, other in zip(found, divided(x), strict=True):
    close(one, other, 1e-6)


def test_equal_elements_infinities_and_numbers_that_are_none(tmp_path):
  """The first of equal elements is chosen, and NaN before all numbers."""

  def choose(x):
    weights, numbers = x.topk(4, -1)
    return weights.softmax(-1), numbers

  infinity = float("inf")
  x = torch.tensor([
    [1.0, 3, 3, -1, 3, 2, 3, 3],
    [0, -infinity, infinity, 5, -infinity, -2, -3, 1],
    [1, NAN, 7, 2, NAN, 3, 4, 5],
    [-0.0, -1, -2, -3, -4, -5, -6, -7],
  ])  # fmt: skip
  weights, numbers = results(choose, x, tmp_path)
  assert numbers.tolist() == [[1, 2, 4, 6], [2, 3, 7, 0], [1, 4, 2, 7], [0, 1, 2, 3]]
  close(weights[3], x[3, :4].softmax(-1), 1e-6)
  assert weights[2].isnan().all()


def in_f64(x):
  weights, numbers = x.double().softmax(-1).topk(2, -1)
  return weights, numbers


def of_columns(x):
  weights, numbers = x.softmax(0, torch.float32).topk(2, 0)
  return weights, numbers


def smallest(x):
  return x.softmax(-1, torch.float32).topk(2, -1, largest=False)


def softmax_of_columns(x):
  return x.softmax(0, torch.float32).topk(2, -1)


def softmax_in_halves(x):
  return x.half().softmax(-1).topk(2, -1)


def written_between(x):
  x = x + 1
  scores = x.softmax(-1, torch.float32)
  x.mul_(2)
  weights, numbers = scores.topk(2, -1)
  return weights, numbers, x


def plain(x):
  return x.topk(2, -1)


@pytest.mark.parametrize(
  "choose",
  [in_f64, of_columns, smallest, softmax_of_columns, softmax_in_halves, written_between, plain],
)
def test_others_stay(choose, tmp_path):
  x = torch.randn(4, 12)
  husk.export(
    Router(choose).eval(), (x,), tmp_path / "x.husk", targets=("cuda:h200",), keep=tmp_path
  )
  assert "h200_chosen_" not in (tmp_path / "model.hir").read_text()


@pytest.mark.parametrize("n, k", [(1025, 2), (64, 33)])
def test_too_many_stay(n, k, tmp_path):
  x = torch.randn(2, n)
  model = Router(lambda x: divided(x, k)).eval()
  husk.export(model, (x,), tmp_path / "x.husk", targets=("cuda:h200",), keep=tmp_path)
  assert "h200_chosen_" not in (tmp_path / "model.hir").read_text()
