"""Operators on CUDA targets that select elements, whose sizes the data decides."""

import decomposed
import pytest
import torch


def check(function, *args):
  """Compares the decomposed function with the function. A size that the data decides is a number of
  the traced graph, so that the graph is made with symbols."""
  traced = decomposed.graph(function, args, "symbolic")
  names = decomposed.operators(traced)
  assert not names & {"aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::bincount"}
  assert not names & {"aten::unique_consecutive", "aten::nonzero_static"}
  decomposed.equal(traced(*args), function(*args))


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 5), (900,)])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_nonzero(shape, share):
  torch.manual_seed(4)
  x = torch.where(torch.rand(shape) < share, torch.randn(shape), 0.0)
  check(torch.nonzero, x)
  check(lambda x: torch.masked_select(x, x != 0), x)
  check(lambda x: torch.nonzero_static(x, size=5, fill_value=-7), x)
  check(lambda x: x[x != 0] + 1, x)


def test_nonzero_without_dimensions():
  check(lambda x: torch.nonzero_static(x, size=3), torch.tensor(1.0))
  for value in (0.0, 1.0):
    check(torch.nonzero, torch.tensor(value))


def test_masks_with_other_indices():
  torch.manual_seed(4)
  x = torch.randn(5, 6, 3)
  check(lambda x: x[x[:, 0, 0] > 0], x)
  check(lambda x: x[:, x[0, :, 0] > 0], x)
  check(lambda x: x[x[:, :, 0] > 0, torch.tensor(1)], x)


def test_masked_select_of_broadcast_tensors():
  torch.manual_seed(4)
  check(torch.masked_select, torch.randn(3, 1), torch.rand(4) > 0.5)
  check(torch.masked_select, torch.tensor(3.0), torch.tensor(True))


@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put_with_a_mask(accumulate):
  torch.manual_seed(4)
  x = torch.randn(6, 4)
  mask, rows = x > 0, x[:, 0] > 0

  def put(x, mask, values):
    return torch.index_put(x, [mask], values, accumulate)

  for values in (torch.randn(int(mask.sum())), torch.tensor(2.5)):
    check(put, x, mask, values)
  for values in (torch.randn(int(rows.sum()), 4), torch.randn(1, 4), torch.randn(4)):
    check(put, x, rows, values)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bool, torch.uint8])
def test_unique(dtype):
  torch.manual_seed(4)
  x = torch.randint(0, 9, (10, 70)).to(dtype)
  check(lambda x: torch.unique(x, return_inverse=True, return_counts=True), x)
  if dtype.is_floating_point:
    x[x == 3] = float("nan")  # which equals nothing
  check(lambda x: torch.unique(x), x)
  check(lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True), x)


def test_counts():
  torch.manual_seed(4)
  x = torch.randint(0, 9, (300,))
  check(lambda x: torch.bincount(x, minlength=20), x)
  check(torch.bincount, x)
  check(torch.bincount, x, torch.rand(300, dtype=torch.float64))
  check(torch.repeat_interleave, x)
  check(lambda x: torch.repeat_interleave(x * 2, x % 3, dim=0), x)
