"""Programs with patterns of which Inductor's replacement fails."""

import pytest
import torch
from export_and_compare import run
from torch import nn
from torch.export import Dim


class Sums(nn.Module):
  """Running sums of tensors that are filled with a size, with a number, and with a bool."""

  def forward(self, x):
    size, columns = x.shape
    of_size = torch.full((size + 1, columns), float(size)).cumsum(0)
    of_number = torch.full((columns, size), 0.25).cumsum(-1)
    return of_size, of_number, torch.full((size,), True).cumsum(0), x.cumsum(0)


def test_sums_of_filled_tensors(tmp_path):
  dims = ({0: Dim("rows", min=2, max=64)},)
  run(tmp_path, Sums(), (torch.randn(5, 3),), dims, [(torch.randn(9, 3),)], strict=None)


class Shuffled(nn.Module):
  def forward(self, x):
    return x[torch.randperm(x.shape[0])].sort(0).values


@pytest.mark.parametrize("are_known", [False, True])
def test_elements_in_a_random_order(are_known, tmp_path):
  """Also after PyTorch has compiled a graph, for which it makes its patterns."""
  if are_known:
    torch._dynamo.reset()
    torch.compile(lambda x: x + 1)(torch.ones(3))
  run(tmp_path, Shuffled(), (torch.randn(6, 2),))
