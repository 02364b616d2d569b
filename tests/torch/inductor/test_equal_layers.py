"""Equal layers of a graph, which Inductor lowers once: the statements that every layer has, and the
values against PyTorch."""

import re

import pytest
import torch
import torch.nn.functional as F
from export_and_compare import run
from husk.inductor import equal_layers
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

LAYERS = 6


class Layer(nn.Module):
  """A layer that keeps the first row of what it takes, as a cache does, or adds it to what it has
  kept. `shared` is a buffer of all layers."""

  def __init__(self, shared, adds):
    super().__init__()
    self.first, self.second = nn.Linear(8, 16, bias=False), nn.Linear(16, 8)
    self.register_buffer("kept", torch.zeros(3, 8) if shared is None else shared)
    self.adds = adds

  def forward(self, x, weights, place):
    y = F.silu(self.first(torch.tanh(x) * x.mean(-1, keepdim=True)))
    if self.adds:
      self.kept.add_(x[:1])
    else:
      torch.ops.aten.index_put_(self.kept, (place,), x[:1])
    return x + self.second(y * weights.sum(0).unsqueeze(-1)) * self.kept.mean(0)


class Model(nn.Module):
  def __init__(self, shared=None, adds=False):
    super().__init__()
    self.layers = nn.ModuleList(Layer(shared, adds) for _ in range(LAYERS))

  def forward(self, x):
    weights, place = torch.cos(x.T), torch.ones(1, dtype=torch.int64, device=x.device)
    for layer in self.layers:
      x = layer(x, weights, place)
    return torch.exp(-x)


@pytest.fixture
def calls(monkeypatch):
  """How many calls the graphs of the exports got."""
  counts, share = [], equal_layers.share
  monkeypatch.setattr(equal_layers, "_FEWEST_NODES", 20)
  monkeypatch.setattr(equal_layers, "share", lambda module: counts.append(share(module)))
  return counts


def steps(text):
  return sorted(re.findall(r'extern "(\S+)"', text)), len(re.findall(r"^ *launch ", text, re.M))


def test_layers_are_written_once_and_called(tmp_path, calls, monkeypatch):
  """A program has the same steps and fewer kernels than kernels of each layer would be."""
  torch.manual_seed(0)
  model, shapes = Model(), ({0: torch.export.Dim.AUTO},)
  others = [(torch.randn(n, 8),) for n in (3, 5)]
  text = run(tmp_path / "called", model, (torch.randn(4, 8),), shapes, others, artifact=False)
  assert calls == [LAYERS - 1]
  assert "aten::copy_" not in text  # no operand is copied since its strides are written otherwise
  monkeypatch.setattr(equal_layers, "share", lambda module: 0)
  flat = run(tmp_path / "flat", model, (torch.randn(4, 8),), shapes, artifact=False)
  operators, launches = steps(text)
  assert operators == steps(flat)[0] and operators.count("husk::linear") == 2 * LAYERS
  assert launches <= steps(flat)[1] + 2  # what all layers take, which is computed before


@pytest.mark.parametrize(
  "model", [Model(torch.zeros(3, 8)), Model(adds=True)], ids=["shared", "sum"]
)
def test_layers_that_write_otherwise_stay(model, tmp_path, calls):
  """Layers that write the same memory, of which Inductor would not know, and layers whose results
  are copied to states: without a call they are computed there."""
  run(tmp_path, model, (torch.randn(4, 8),), others=[(torch.randn(4, 8),)], artifact=False)
  assert calls == [0]


@pytest.mark.parametrize("is_needed", [True, False])
def test_layers_of_which_nothing_but_a_write_is_needed_stay(calls, is_needed):
  """Inductor would drop their calls, and what they write with them."""

  def layers(x, rows, weight, *kept):
    place = torch.ones(1, dtype=torch.int64)
    for one in kept:
      torch.ops.aten.index_put_(one, (place,), torch.mm(rows, weight)[:1])
      x = torch.mm(x.tanh().exp().sin().cos(), weight)
    return x

  kept = [torch.zeros(3, 8) for _ in range(LAYERS)]
  inputs = (torch.randn(4, 8), torch.randn(4, 8), torch.randn(8, 8))
  module = make_fx(layers, tracing_mode="fake")(*inputs, *kept)
  if not is_needed:
    module.graph.output_node().args = (next(iter(module.graph.nodes)),)
  equal_layers.share(module)
  assert (calls[0] >= LAYERS - 2) == is_needed and (calls[0] == 0) != is_needed


def test_other_layers_stay(tmp_path, calls):
  """A graph may have equal layers that are not neighbours."""
  torch.manual_seed(0)
  layers = [module for _ in range(3) for module in (nn.Linear(8, 8), nn.ReLU())]
  model = nn.Sequential(*layers, nn.Linear(8, 6), nn.Softmax(-1), nn.Linear(6, 8))
  run(tmp_path, model, (torch.randn(4, 8),), artifact=False)
  assert calls == [0]


def test_periods():
  """A layer with nodes that occur twice in it is found as a whole."""
  keys = [9, 9, *[1, 2, 1, 3] * 5, 8]
  assert equal_layers._periods(keys)[0] in (2, 4)
  assert equal_layers._run(keys, 4) == (2, 22)
