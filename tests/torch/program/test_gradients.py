"""Gradients inside a model, by torch.autograd.grad."""

import export_and_compare
import husk
import pytest
import torch
import torch.nn.functional as F
from husk.exporter import Function
from husk.inductor import graphs
from torch import nn
from torch.export import Dim

# The gradients of some of these operators read their results, or values within them.
OPERATORS = {
  "amax": lambda x: x.amax(-1),
  "attention": lambda x: F.scaled_dot_product_attention(x, x[:, :2], x[:, :2]),
  "conv": lambda x: F.conv1d(x, torch.ones(2, 3, 3), padding=1),
  "exp": torch.exp,
  "gather": lambda x: x.gather(-1, torch.tensor([[[0, 2]]])).sigmoid(),
  "layer_norm": lambda x: F.layer_norm(x.tanh(), (4,)),
  "linear": lambda x: F.linear(x, torch.ones(5, 4)).cos(),
  "max_pool": lambda x: F.max_pool1d(x, 2),
  "norm": lambda x: x.norm(dim=-1),
  "product": lambda x: x @ x.mT,
  "selu": F.selu,
  "softmax": lambda x: x.softmax(-1) * torch.arange(4.0),
  "sqrt": lambda x: (x * x + 1).sqrt(),
  "square": torch.square,
  "written": lambda x: (x * 3).mul_(2).add_(1).sin(),
}


class Slope(nn.Module):
  def __init__(self, operator, order=1):
    super().__init__()
    self.operator, self.order = operator, order

  def forward(self, x):
    with torch.enable_grad():
      x = x.detach().requires_grad_()
      value = self.operator(x).sum()
      for left in reversed(range(self.order)):
        (gradient,) = torch.autograd.grad(value, x, create_graph=left > 0)
        value = gradient.square().sum()
    return -gradient


@pytest.mark.parametrize("name", OPERATORS)
def test_of_operators(name):
  model, x = Slope(OPERATORS[name]), torch.randn(2, 3, 4)
  program = Function(model, (x,), dynamic_shapes=({0: Dim("n", min=2, max=64)},)).exported()
  other = torch.randn(5, 3, 4)
  torch.testing.assert_close(program.module()(other), model(other))


@pytest.mark.parametrize("order", (1, 2))
def test_of_a_network(order, tmp_path):
  torch.manual_seed(0)
  net = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 1), nn.Softplus())
  shapes = ({0: Dim("n", min=2, max=64)},)
  args, other = (torch.randn(3, 4),), (torch.randn(7, 4),)
  model = Slope(net, order)
  export_and_compare.run(tmp_path, model, args, shapes, [other])
  husk.write(model, args, tmp_path / "cuda", dynamic_shapes=shapes, targets=("cuda:h200",))


def test_operators_without_gradients_stay_whole():
  class Two(nn.Module):
    def __init__(self):
      super().__init__()
      self.layer = nn.Linear(4, 4).requires_grad_(False)

    def forward(self, x):
      with torch.enable_grad():
        return F.linear(x, torch.ones(2, 4)), self.layer(x)

  program = Function(Two(), (torch.randn(3, 4),)).exported()
  names = [str(node.target) for node in graphs.nodes(program)]
  assert names.count("aten.linear.default") == 2, names
