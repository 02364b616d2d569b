"""What Python computes of sizes."""

import husk
import pytest
import torch
from export_and_compare import ISAS
from torch.export import Dim

SIZES = (2, 4, 5, 6, 8, 14, 15, 16, 25, 64)


class Sized(torch.nn.Module):
  """Two results of a size that functions decide."""

  def forward(self, x):
    n = x.shape[0]
    bits = [n & 3, n | 3, n ^ 3, 5 ^ n, n << 1, n >> 1, -(~n), abs(n - 8)]
    tens = [round(n), round(n, 1), round(n, -1), round(n + 1, -1), round(n * 37, -2)]
    parts = [*divmod(n, 3), *divmod(100, n)]
    return torch.ones(1 + (n ^ 5), 1 + round(n, -1)), torch.tensor([bits + tens + parts]) + x.sum()


class Digits(torch.nn.Module):
  def forward(self, x):
    return x * round(x.shape[0] * 0.37, 1)


def test_operations_of_sizes(tmp_path):
  model, shapes = Sized(), {"x": {0: Dim("n", min=2, max=64)}}
  husk.export(
    model,
    (torch.ones(6),),
    tmp_path / "a.husk",
    dynamic_shapes=shapes,
    targets=(f"host:{ISAS[0]}",),
  )
  program = husk.load(tmp_path / "a.husk")
  for size in SIZES:
    x = torch.ones(size)
    for result, expected in zip(program(x), model(x), strict=True):
      torch.testing.assert_close(torch.as_tensor(result), expected, rtol=0, atol=0)


def test_digits_of_a_fraction_are_refused(tmp_path):
  """torch makes 1.8 of 1.85, and Python 1.9."""
  shapes = {"x": {0: Dim("n", min=2, max=64)}}
  with pytest.raises(husk.Unsupported, match=r"round\(..., 1\) .* \(near test_python_numbers.py:"):
    husk.write(Digits(), (torch.ones(6),), tmp_path, dynamic_shapes=shapes)
  husk.write(Digits(), (torch.ones(6),), tmp_path, targets=(f"host:{ISAS[0]}",))
