"""Tensors that the model's code fills with numbers."""

import export_and_compare
import pytest
import torch

pytestmark = pytest.mark.skipif(
  not export_and_compare.ISAS, reason="this machine has neither AVX2 nor AVX-512"
)
T = torch.tensor


def windows(self, x):
  """The mask of shifted windows, as torchvision and transformers write it."""
  mask = x.new_zeros((6, 6))
  parts = (slice(0, -3), slice(-3, -1), slice(-1, None))
  for number, (rows, columns) in enumerate((one, other) for one in parts for other in parts):
    mask[rows, columns] = number
  mask = mask.view(2, 3, 2, 3).permute(0, 2, 1, 3).reshape(4, 9)
  return x + (mask.unsqueeze(1) - mask.unsqueeze(2)).ne(0) * -100.0


def numbers_and_steps(self, x):
  ones = torch.full((2, 3), 2.5)
  ones[0].mul_(3)
  ones[:, 1].add_(1)
  return x @ ones


def test_a_constant_takes_their_place(tmp_path):
  for n, (function, x) in enumerate(
    ((windows, torch.randn(4, 9, 9)), (numbers_and_steps, torch.randn(4, 2)))
  ):
    folder = tmp_path / str(n)
    folder.mkdir()
    text = export_and_compare.run(folder, function, (x,), strides=False)
    assert "constant filled_0 " in text
    assert "fill" not in text.split("variant", 1)[1].replace("filled_0", "")


def of_data(self, x):
  mask = torch.zeros(3)
  mask[0] = 1
  mask[1] = x.sum()
  mask[2] = 3
  return x * mask


def read_between(self, x):
  mask = torch.zeros(3)
  mask[0] = 1
  y = x * mask
  mask[1] = 2
  return y + mask


def copied_between(self, x):
  mask = torch.zeros(2, 3)
  flat = mask.t().reshape(6)
  mask[0] = 1
  mask[1] = 2
  flat[3] = 7
  return x + mask + flat[:3]


def returned(self, x):
  mask = torch.zeros(3)
  mask[0], mask[1] = 1, 2
  return mask, x + 1


def with_a_varying_number(self, x):
  number = torch.zeros(())
  number += 1
  mask = torch.zeros(3)
  mask[0] = number
  number += x.sum()
  mask[1] = number
  return x + mask


def read_later_by_a_view(self, x):
  mask = torch.zeros(3)
  part = mask[1:]
  mask[1], mask[2] = 5, 6
  return x[1:] + part, mask.clone() * x


@pytest.mark.parametrize(
  "function",
  [of_data, read_between, copied_between, returned, with_a_varying_number, read_later_by_a_view],
)
def test_others_are_computed(function, tmp_path):
  export_and_compare.run(tmp_path, function, (T([1.0, 2.0, 4.0]),), strides=False)
