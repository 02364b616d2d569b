"""Sorts of short rows on CUDA targets: values by Triton's interpreter, and what is compiled."""

import types

import husk
import pytest
import torch
from cuda_numerics import computed
from husk.cuda import sorting
from torch import nn


class Sorts(nn.Module):
  def forward(self, x, y):
    return [
      torch.sort(row, stable=True, descending=descending)
      for row in (x, y)
      for descending in (False, True)
    ]


def rows(dtype, length):
  """Rows with many equal elements, and with all special numbers that the dtype has."""
  torch.manual_seed(length)
  row = (torch.randn(3, length) * 3).round().to(dtype)
  if dtype.is_floating_point:
    for place, value in enumerate(("nan", "inf", "-inf", "0.0", "-0.0", "nan")):
      row[1, place * 3] = float(value)
  return row


@pytest.mark.parametrize(
  "dtype",
  [torch.float32, torch.bfloat16, torch.int64, torch.uint8],
)
def test_short_rows(dtype, tmp_path):
  args = rows(dtype, 21), rows(dtype, 32)
  wanted = [x for pair in Sorts()(*args) for x in pair]
  (results,) = computed(Sorts(), args, None, [dict(zip("xy", args))], tmp_path, progress=False)
  assert len(results) == len(wanted)
  for result, expected in zip(results.values(), wanted, strict=True):
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)
    if dtype.is_floating_point and expected.dtype == dtype:  # 0.0 and -0.0 keep their places
      zeros = [x.signbit() & (x == 0) for x in (result, expected)]
      assert torch.equal(*zeros)


def test_a_thread_sorts_few_elements(tmp_path):
  """The machine code of sorts grows with the elements of a thread."""
  args = torch.randn(90, 512), torch.randn(90, 300)
  husk.write(Sorts(), args, tmp_path, targets=("cuda:h100",), progress=False, tune="none")
  sizes = {path.name: path.stat().st_size for path in tmp_path.glob("*.cubin")}
  assert sizes and max(sizes.values()) < 300_000, sizes


@pytest.mark.parametrize("length, rows, warps", [(512, 1, 8), (64, 4, 4), (2, 128, 4)])
def test_configurations(length, rows, warps):
  offered = types.SimpleNamespace(kwargs={"XBLOCK": 8}, num_warps=2)
  tuner = types.SimpleNamespace(
    configs=[offered],
    size_hints={"x": 90, "r0_": length},
    fn=types.SimpleNamespace(src="x = husk_sorted(a, b, None, 1, stable=True, descending=False)"),
  )
  first, second = sorting.configs(tuner)
  assert (first.kwargs["XBLOCK"], first.num_warps) == (rows, warps)
  assert second is offered and offered.kwargs["XBLOCK"] == 8
  tuner.fn.src = "x = tl.sum(a, 1)"
  assert sorting.configs(tuner) == [offered]
