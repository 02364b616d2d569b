"""Sorting on CUDA targets, and what follows from it."""

import functools

import decomposed
import husk
import pytest
import torch

SIZES = [1, 7, 512, 513, 1500, 9000]
DTYPES = [torch.float32, torch.float16, torch.int64, torch.bool, torch.uint8, torch.float64]
REFUSED = {"aten::topk", "aten::kthvalue", "aten::median.dim", "aten::mode", "aten::nanmedian.dim"}


def values(size, dtype, rows=2):
  """Values with ties, infinities, NaN and both zeros."""
  torch.manual_seed(size)
  if dtype is torch.bool:
    return torch.rand(rows, size) > 0.5
  x = torch.randn(rows, size).mul(100).round()
  if dtype.is_floating_point:
    for value in (float("nan"), float("inf"), -float("inf"), -0.0, 0.0):
      x[torch.rand(rows, size) < 0.02] = value
    return x.to(dtype)
  return x.clamp(0, 200).to(dtype) if dtype is torch.uint8 else x.to(dtype)


def decompose(function, *args):
  """The graph of a function, in which Inductor sorts nothing but runs of 512."""
  traced = decomposed.graph(function, args)
  assert not decomposed.operators(traced) & REFUSED
  for node in traced.graph.nodes:
    if node.target is torch.ops.aten.sort.stable:
      dim = node.kwargs.get("dim", -1)
      assert node.args[0].meta["val"].shape[dim] <= 512
  return traced


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_sort(size, dtype):
  x = values(size, dtype)
  for descending in (False, True):
    function = functools.partial(torch.sort, stable=True, descending=descending)
    decomposed.equal(decompose(function, x)(x), function(x))


def test_extremes_of_ints():
  for dtype in (torch.int64, torch.int8):
    info = torch.iinfo(dtype)
    x = torch.tensor([info.max, info.min, 0, -1] * 300, dtype=dtype)
    for descending in (False, True):
      function = functools.partial(torch.sort, stable=True, descending=descending)
      decomposed.equal(decompose(function, x)(x), function(x))


def test_sort_of_another_dimension_and_of_views():
  x = values(1300, torch.float32, 6).reshape(2, 3, 1300).transpose(1, 2)[:, ::2]

  def function(x):
    return torch.sort(x, dim=1, stable=True)

  decomposed.equal(decompose(function, x)(x), function(x))


def test_many_runs_are_merged_two_at_a_time(monkeypatch):
  from husk.inductor.decompositions import order

  monkeypatch.setattr(order, "_MOST_BYTES", 1)
  x = values(5000, torch.float32)

  def function(x):
    return torch.sort(x, stable=True)

  decomposed.equal(decompose(function, x)(x), function(x))


def test_a_number_of_rows_that_varies_has_no_bound_of_its_own(monkeypatch, tmp_path):
  """Runs are merged so that the largest number of rows fits in memory, not only the example."""
  from husk.inductor.decompositions import order

  class Sort(torch.nn.Module):
    def forward(self, x):
      return torch.sort(x, stable=True)

  monkeypatch.setattr(order, "_MOST_BYTES", 500_000)
  rows = torch.export.Dim("rows", min=1, max=20)
  husk.write(
    Sort(),
    (torch.rand(2, 1500),),
    tmp_path,
    dynamic_shapes={"x": {0: rows}},
    targets=("cuda:h200",),
    progress=False,
    tune="none",
  )
  text = (tmp_path / "model.hir").read_text()
  assert "input x tensor f32 [1..20, 1500]" in text and "the kernels assume" not in text


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("largest", [False, True])
def test_topk(size, largest):
  x = values(size, torch.float32, 3)
  for k in {1, min(size, 50), min(size, 300), size}:
    function = functools.partial(torch.topk, k=k, largest=largest)
    elements, places = decompose(function, x)(x)
    decomposed.equal(elements, function(x)[0])
    decomposed.equal(x.gather(-1, places), elements)
    assert all(len(row.unique()) == k for row in places)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 8, 513, 2001])
def test_selections(size, dtype):
  x = values(size, dtype, 3)
  x[0] = x[0, 0] if dtype is torch.bool else torch.arange(size) % 7  # a row without NaN
  functions = [lambda x: torch.kthvalue(x, (size + 2) // 3), lambda x: torch.mode(x, 1, True)]
  if dtype is not torch.bool:
    functions += [lambda x: torch.median(x, 1), lambda x: torch.nanmedian(x, 1, keepdim=True)]
  for function in functions:
    if dtype is torch.bool and "kthvalue" in function.__code__.co_names:
      continue
    expected = function(x)
    elements, places = decompose(function, x)(x)
    decomposed.equal(elements, expected[0])
    keepdim = places.dim() == 2
    found = x.gather(1, places if keepdim else places.unsqueeze(1))
    decomposed.equal(found if keepdim else found.squeeze(1), elements)
  if dtype is not torch.bool:
    for function in (torch.median, torch.nanmedian):
      decomposed.equal(decompose(function, x)(x), function(x))


def test_numbers_without_dimensions():
  x = torch.tensor(3.0)
  for function in (
    lambda x: torch.topk(x, 1),
    lambda x: torch.kthvalue(x, 1),
    lambda x: torch.median(x, 0),
    lambda x: torch.mode(x, 0),
  ):
    decomposed.equal(decompose(function, x)(x), function(x))


def test_msort_and_argsort():
  x = torch.rand(3, 700)

  def function(x):
    return torch.msort(x.T), torch.argsort(x, stable=True)

  decomposed.equal(decompose(function, x)(x), function(x))
