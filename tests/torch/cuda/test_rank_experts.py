"""Kernels of GPUs read the matrices of a rank's own experts only."""

import husk
import pytest
import torch
from husk.cuda import experts
from husk.inductor import rank_experts
from torch import nn
from torch._inductor import lowering

EXPERTS, ROWS, WIDTH = 4, 8, 16


class Selected(nn.Module):
  """As layers of experts select matrices for tokens: by any shape, with bounds or without."""

  def __init__(self, form):
    super().__init__()
    self.stack = nn.Parameter(torch.randn(EXPERTS, ROWS, WIDTH))
    self.form = form

  def forward(self, x, index):
    if self.form != "whole":
      other = EXPERTS if self.form == "bounded" else EXPERTS - 1
      index = rank_experts.number()(index, EXPERTS, EXPERTS, other)
    index = index.reshape(-1)
    if self.form == "bounded":
      index = index.clamp(0, EXPERTS - 1)
    return torch.bmm(self.stack[index], x.unsqueeze(-1)).squeeze(-1)


@pytest.mark.parametrize("form", ["known", "bounded", "whole"])
def test_the_program_of_a_gpu(tmp_path, form):
  index = torch.tensor([[0, 4], [5, 7], [3, 6]])
  args = (torch.randn(6, WIDTH), index % EXPERTS if form == "whole" else index)
  husk.export(
    Selected(form).eval(), args, tmp_path / "x.husk", targets=("cuda:h200",), keep=tmp_path
  )
  text = (tmp_path / "model.hir").read_text()
  assert ("matrices_of_rank" in text) == (form != "whole")


def test_values(monkeypatch):
  """Inductor's kernels for the CPU have the operations of those for GPUs."""
  operator = rank_experts.matrices()
  monkeypatch.setitem(lowering.lowerings, operator, experts.lowerings()[operator])
  stack, x = torch.randn(EXPERTS, ROWS, WIDTH), torch.randn(6, WIDTH)
  index = torch.tensor([0, 4, 5, 7, 3, 6])

  def product(stack, x, index):
    return (operator(stack, index, 4, EXPERTS) * x.unsqueeze(1)).sum(-1)

  found = torch.compile(product, fullgraph=True)(stack, x, index)
  own = (index >= 4).unsqueeze(-1)
  expected = torch.bmm(stack[(index - 4).clamp(0)], x.unsqueeze(-1)).squeeze(-1)
  torch.testing.assert_close(found, torch.where(own, expected, 0))
