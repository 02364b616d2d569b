"""Kernels of a host read nothing in front of a tensor or behind it: their inputs lie beside memory
that nobody may touch."""

import husk
import pytest
import torch
from export_and_compare import ISAS
from fenced import fenced
from function_module import FunctionModule
from random_models import in_a_child
from torch.export import Dim

DTYPES = (torch.float32, torch.bool, torch.bfloat16, torch.int64, torch.uint8)


def padded(self, a, b, c, d, e):
  """Loads under a mask: columns that are there and columns that are not, and the same of rows."""
  F = torch.nn.functional
  return [y for x in (a, b, c, d, e) for y in (F.pad(x, (3, 2)), F.pad(x, (0, 0, 1, 0)))]


@pytest.mark.parametrize("isa", ISAS)
def test_a_load_under_a_mask_ends_where_the_tensor_ends(tmp_path, isa):
  def arguments(columns):
    numbers = torch.arange(3 * columns).reshape(3, columns) % 7
    return [(numbers % 2 == 0) if dtype == torch.bool else numbers.to(dtype) for dtype in DTYPES]

  model = FunctionModule(padded)
  shapes = {name: {1: Dim.AUTO} for name in "abcde"}
  path = husk.export(
    model,
    tuple(arguments(21)),
    tmp_path / "made.husk",
    dynamic_shapes=shapes,
    targets=(f"host:{isa}",),
  )

  def run():
    program = husk.load(path)
    for columns in (*range(2, 20), 31, 32, 33):
      expected = model(*arguments(columns))
      for side in ("back", "front"):
        results = program(*(fenced(x, side) for x in arguments(columns)))
        for one, other in zip(results, expected, strict=True):
          torch.testing.assert_close(torch.as_tensor(one), other, rtol=0, atol=0)
    return "equal"

  assert in_a_child(run, 300) == "equal"


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("heads", [2, 17])
@pytest.mark.parametrize("is_argument", [False, True])
def test_a_reduction_stores_no_lane_behind_the_end(tmp_path, isa, heads, is_argument):
  """Loads that lie side by side along the first dimension make its loop one of vectors. The loop
  with the reduction is not the next one."""

  def largest(self, a, b, c, w):
    x = a + b.permute(2, 0, 1) - w[:, None, None] * c.permute(2, 0, 1)
    return x.argmax(-1) if is_argument else x.amax(-1)

  def arguments(size):
    a, b, c = (torch.randn(heads, size, size) for _ in range(3))
    return a, b.permute(1, 2, 0).contiguous(), c.permute(1, 2, 0).contiguous(), torch.randn(heads)

  model, size = FunctionModule(largest), Dim("size", min=2, max=64)
  path = husk.export(
    model,
    arguments(6),
    tmp_path / "made.husk",
    dynamic_shapes=({1: size, 2: size}, {0: size, 1: size}, {0: size, 1: size}, None),
    targets=(f"host:{isa}",),
  )

  def run():
    program = husk.load(path)
    for size in (6, 2, 17, 33, 63):
      given = arguments(size)
      torch.testing.assert_close(torch.as_tensor(program(*given)), model(*given))
    return "equal"

  assert in_a_child(run, 300) == "equal"
