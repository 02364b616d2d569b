"""A residual that is added to an all-reduce is an argument of it."""

import husk
import on_host_ranks
import pytest
import torch
from torch import nn
from torch.distributed import _functional_collectives as functional

CALL = 'extern "husk::all_reduce"'
RESIDUAL = "order u8 [1] [1], read tensor"


class Model(nn.Module):
  """Calls `function` with a function that adds up a tensor of all ranks."""

  def __init__(self, mesh, function):
    super().__init__()
    self.group, self.function = (mesh, 0), function

  def forward(self, *args):
    return self.function(lambda x, how="sum": functional.all_reduce(x, how, self.group), *args)


def exported(folder, function, *args, ranks=2, **options):
  """Exports a model for ranks; returns the text of rank 0, and what the ranks compute."""
  text = on_host_ranks.export(
    folder, lambda mesh: Model(mesh, function), args, ranks=ranks, **options
  )
  return text, husk.load_ranks(folder / "model.husk", ["cpu"] * ranks, threads=1)(*args)


def summed(x, how="sum"):
  """What the all-reduce of two ranks with equal tensors makes."""
  return {"sum": x + x, "avg": x, "max": x}[how]


def both_orders(reduce, x, residual):
  one = residual + reduce(x * 2)
  return reduce(one * 3, "max") + one


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_residual_is_an_argument(tmp_path, dtype):
  torch.manual_seed(0)
  x, residual = (torch.randn(3, 5).to(dtype) for _ in range(2))
  text, result = exported(tmp_path, both_orders, x, residual)
  assert text.count(CALL) == text.count(RESIDUAL) == 2
  assert torch.equal(result, both_orders(summed, x, residual))
  # Two roundings, as of two operators.
  x, residual = torch.full((3, 5), 128.5).to(dtype), torch.ones(3, 5, dtype=dtype)
  text, result = exported(tmp_path, both_orders, x, residual)
  assert torch.equal(result, both_orders(summed, x, residual))


def of_other_size(reduce, x, y):
  y = y[:1]
  return reduce(x) + y


def of_other_dtype(reduce, x, y):
  y = y.double()
  return reduce(x) + y


def scaled(reduce, x, y):
  return torch.add(reduce(x), y, alpha=2)


def a_number(reduce, x, y):
  return reduce(x) + 1.5


def used_twice(reduce, x, y):
  z = reduce(x)
  return z + y, z * 2


def twice_itself(reduce, x, y):
  z = reduce(x)
  return z + z


def computed_later(reduce, x, y):
  z = reduce(x)
  return z + torch.sin(y)


def strided(reduce, x, y):
  y = y.t()
  return reduce(x) + y


def of_ints(reduce, x, y):
  y = y.int()
  return reduce(x.int()) + y


def written_between(reduce, x, y):
  buffer = y * 2
  view = buffer.view(-1)
  z = reduce(x)
  view.add_(1)
  return z + buffer


def added_in_place(reduce, x, y):
  z = y * 2
  z += reduce(x)
  return z


@pytest.mark.parametrize(
  "function",
  [
    of_other_size,
    of_other_dtype,
    scaled,
    a_number,
    used_twice,
    twice_itself,
    computed_later,
    strided,
    of_ints,
    written_between,
    added_in_place,
  ],
  ids=lambda function: function.__name__,
)
def test_other_additions_stay(tmp_path, function):
  torch.manual_seed(0)
  x, y = torch.randn(4, 4), torch.randn(4, 4)
  text, results = exported(tmp_path, function, x, y)
  assert CALL in text and RESIDUAL not in text
  torch.testing.assert_close(results, function(summed, x, y))


def written_afterwards(reduce, x, y):
  z = reduce(x) + y
  z.mul_(3)
  return z, y


def two_of_one_residual(reduce, x, y):
  return reduce(x, "avg") + y, y + reduce(x * 3)


def in_a_view(reduce, x, y):
  return (reduce(x) + y).view(-1)[1:]


@pytest.mark.parametrize(
  ("function", "count"),
  [(written_afterwards, 1), (two_of_one_residual, 2), (in_a_view, 1)],
  ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_happens_to_the_result_does_not_matter(tmp_path, function, count):
  torch.manual_seed(0)
  x, y = torch.randn(4, 4), torch.randn(4, 4)
  text, results = exported(tmp_path, function, x, y)
  assert text.count(RESIDUAL) == count
  torch.testing.assert_close(results, function(summed, x, y))


# The kernel of the port sends 512 KiB from a rank to each other one if there are three; behind NCCL
# a residual would be one more pass. Two ranks have a kernel for all sizes.
@pytest.mark.parametrize(
  ("ranks", "rows", "count"), [(3, 32, 1), (3, 33, 0), (2, 64, 1), (2, 4096, 1)]
)
def test_the_largest_size_decides(tmp_path, ranks, rows, count):
  x = torch.ones(2, 4096)
  dynamic = {"args": ({0: torch.export.Dim("rows", min=1, max=rows)},) * 2}
  text, result = exported(
    tmp_path,
    lambda reduce, x, y: reduce(x) + y,
    x,
    x,
    ranks=ranks,
    dynamic_shapes=dynamic,
  )
  assert text.count(RESIDUAL) == count
  assert torch.equal(result, x * (ranks + 1))
