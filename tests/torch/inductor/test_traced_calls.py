"""Calls that torch.export traces for one size, or refuses by itself."""

import husk
import pytest
import torch
import torch.nn.functional as F
from cuda_numerics import computed
from export_and_compare import ISAS, run
from function_module import FunctionModule
from torch.export import Dim

N = Dim("n", min=3, max=64)


def cube(size):
  return torch.randn(size, 4, 4)


def picked(self, x, i):
  """Numbers of the data among parts of an index of all kinds."""
  rows = torch.tensor([0, 1])
  return (
    x[i],
    x[:, i] * 2,
    x[i, i],
    x[..., i],
    x[..., i, :],
    x[None, i, None, 1:],
    x[rows, i],
    x[i, rows],
    x[x.sum((1, 2)).argmax()],
    x[self.at],
    x[torch.tensor(2)],
  )


def written(self, x, i):
  y = x.clone()
  y[i] = 7.0
  y[i, i] = x[0, 0]
  y[self.at] = x[0] * 2
  return y


@pytest.mark.parametrize("function", [picked, written])
@pytest.mark.parametrize("shapes", [None, {"x": {0: N}, "i": None}])
def test_an_index_that_is_a_number_of_the_data(tmp_path, function, shapes):
  model = FunctionModule(function, at=torch.tensor(1))
  path = husk.export(
    model,
    (cube(6), torch.tensor(2)),
    tmp_path / "picked.husk",
    dynamic_shapes=shapes,
    targets=(f"host:{ISAS[0]}",),
    progress=False,
  )
  program = husk.load(path)
  for size in (6, 3, 9) if shapes else (6,):
    for number in (2, 0, -1, -3):
      x, i = cube(size), torch.tensor(number)
      found = torch.utils._pytree.tree_leaves(program(x, i))
      wanted = torch.utils._pytree.tree_leaves(model(x, i))
      torch.testing.assert_close([torch.as_tensor(one) for one in found], wanted)
  for number in (6, -7):
    with pytest.raises(husk.KernelError, match="out of"):
      husk.load(path)(cube(6), torch.tensor(number))


def test_an_index_that_is_a_number_of_the_data_on_a_gpu(tmp_path):
  model = FunctionModule(lambda self, x, i: (x[i] * 2, x[:, i]))
  runs = [{"x": cube(6), "i": torch.tensor(number)} for number in (2, -1)]
  results = computed(model, (cube(6), torch.tensor(0)), None, runs, tmp_path)
  for arguments, result in zip(runs, results, strict=True):
    torch.testing.assert_close(tuple(result.values()), model(**arguments))


@pytest.mark.parametrize(
  "function",
  [
    lambda self, x: F.max_pool1d(x, 7, 1),
    lambda self, x: F.max_pool1d(x, 3, 2, 1, ceil_mode=True),
    lambda self, x: torch.nn.MaxPool1d(2)(x[0]),
    lambda self, x: F.max_pool1d(x, 3, return_indices=True),
  ],
  ids="wide ceil rows indices".split(),
)
@pytest.mark.parametrize("length", [Dim("length", min=8, max=64), Dim.AUTO], ids=str)
def test_pools_take_all_lengths(tmp_path, function, length):
  others = [(torch.randn(2, 3, other),) for other in (8, 17, 33)]
  run(tmp_path, function, (torch.randn(2, 3, 16),), {"x": {2: length}}, others)


@pytest.mark.parametrize("parts", [2, 3])
def test_a_batch_that_is_repeated_is_cut_into_its_copies(tmp_path, caplog, parts):
  def mixed(self, x):
    first, *others = torch.cat([x * n for n in range(1, parts + 1)]).chunk(parts)
    return first - sum(others)

  batch = Dim("batch", min=2, max=64)
  others = [(torch.randn(other, 4),) for other in (2, 9)]
  run(tmp_path, mixed, (torch.randn(4, 4),), {"x": {0: batch}}, others)
  assert "only with sizes" not in caplog.text
