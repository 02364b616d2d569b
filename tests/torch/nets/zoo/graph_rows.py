"""Networks on graphs, written with PyTorch's gathers and scatters. Nodes and edges vary."""

from __future__ import annotations

import torch
from torch import nn
from torch.export import Dim

from .row import Call, Row


class Gcn(nn.Module):
  """Kipf and Welling, 2017: neighbours, normalized by degrees."""

  def __init__(self) -> None:
    super().__init__()
    self.one, self.two = nn.Linear(8, 16, bias=False), nn.Linear(16, 4, bias=False)

  def forward(self, x, edges):
    count = x.shape[0]
    loops = torch.arange(count, device=x.device)
    source, target = torch.cat([edges[0], loops]), torch.cat([edges[1], loops])
    ones = torch.ones(target.shape[0], device=x.device)
    degree = torch.zeros(count, device=x.device).index_add(0, target, ones)
    scale = degree.rsqrt()
    weight = (scale[source] * scale[target]).unsqueeze(1)
    for layer in (self.one, self.two):
      messages = layer(x)[source] * weight
      x = torch.zeros(count, messages.shape[1], device=x.device).index_add(0, target, messages)
      x = x.relu() if layer is self.one else x
    return x.log_softmax(1)


class Gat(nn.Module):
  """Veličković et al., 2018: a softmax over the neighbours of each node."""

  def __init__(self, heads: int = 2, width: int = 6) -> None:
    super().__init__()
    self.heads, self.width = heads, width
    self.project = nn.Linear(8, heads * width, bias=False)
    self.source = nn.Parameter(torch.randn(heads, width))
    self.target = nn.Parameter(torch.randn(heads, width))

  def forward(self, x, edges):
    source, target = edges
    h = self.project(x).view(-1, self.heads, self.width)
    score = (h * self.source).sum(-1)[source] + (h * self.target).sum(-1)[target]
    score = nn.functional.leaky_relu(score, 0.2)
    index = target.unsqueeze(1).expand_as(score)
    empty = torch.full((x.shape[0], self.heads), float("-inf"), device=x.device)
    most = empty.scatter_reduce(0, index, score, "amax")
    weight = (score - most[target]).exp()
    total = torch.zeros_like(most).scatter_add(0, index, weight)
    weight = weight / (total[target] + 1e-16)
    messages = h[source] * weight.unsqueeze(-1)
    out = torch.zeros_like(h).scatter_add(0, target.view(-1, 1, 1).expand_as(messages), messages)
    return nn.functional.elu(out.flatten(1))


class Sage(nn.Module):
  """Hamilton et al., 2017: the mean and the maximum of the neighbours."""

  def __init__(self) -> None:
    super().__init__()
    self.own, self.mean, self.most = nn.Linear(8, 12), nn.Linear(8, 12), nn.Linear(8, 12)

  def forward(self, x, edges):
    source, target = edges
    index = target.unsqueeze(1).expand(-1, x.shape[1])
    zeros = torch.zeros_like(x)
    mean = zeros.scatter_reduce(0, index, x[source], "mean", include_self=False)
    most = zeros.scatter_reduce(0, index, x[source], "amax", include_self=False)
    return nn.functional.normalize((self.own(x) + self.mean(mean) + self.most(most)).relu(), dim=1)


class Gin(nn.Module):
  """Xu et al., 2019: sums of neighbours, and the sum of each graph of a batch."""

  def __init__(self) -> None:
    super().__init__()
    self.eps = nn.Parameter(torch.tensor(0.1))
    self.layers = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
    self.out = nn.Linear(8, 3)

  def forward(self, x, edges, graph):
    for _ in range(2):
      around = torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])
      x = self.layers((1 + self.eps) * x + around)
    pooled = torch.zeros(4, x.shape[1], device=x.device).index_add(0, graph, x)
    return self.out(pooled)


class Schnet(nn.Module):
  """Schütt et al., 2017: filters of distances between atoms."""

  def __init__(self) -> None:
    super().__init__()
    self.embed = nn.Embedding(20, 16)
    self.filter = nn.Sequential(nn.Linear(12, 16), nn.Softplus(), nn.Linear(16, 16))
    self.one, self.two = nn.Linear(16, 16, bias=False), nn.Linear(16, 16)
    self.register_buffer("centers", torch.linspace(0, 5, 12))

  def forward(self, atoms, positions, edges):
    source, target = edges
    x = self.embed(atoms)
    distance = (positions[source] - positions[target]).norm(dim=1)
    smeared = torch.exp(-10 * (distance.unsqueeze(1) - self.centers) ** 2)
    cutoff = 0.5 * (torch.cos(distance * torch.pi / 5) + 1) * (distance < 5)
    weight = self.filter(smeared) * cutoff.unsqueeze(1)
    for _ in range(2):
      messages = self.one(x)[source] * weight
      x = x + self.two(torch.zeros_like(x).index_add_(0, target, messages)).tanh()
    return x.sum()


def graph(nodes: int) -> tuple[torch.Tensor, torch.Tensor]:
  """Features of nodes, and edges, of which there are as many for the same number of nodes."""
  return torch.randn(nodes, 8), torch.randint(0, nodes, (2, 3 * nodes + 1))


def featured(nodes: int) -> Call:
  return graph(nodes), {}


def batched(nodes: int) -> Call:
  return (*graph(nodes), torch.randint(0, 4, (nodes,)).sort().values), {}


def molecule(atoms: int) -> Call:
  edges = torch.stack([torch.arange(atoms), torch.roll(torch.arange(atoms), 1)]).repeat(1, 3)
  return (torch.randint(0, 20, (atoms,)), torch.randn(atoms, 3), edges), {}


def rows() -> list[Row]:
  nodes, edges = {0: Dim("nodes", min=2, max=4096)}, {1: Dim("edges", min=2, max=8192)}

  def row(name, model, inputs, *shapes) -> Row:
    return Row("graph", name, model, inputs, 9, shapes, (5, 40))

  return [
    row("gcn", Gcn, featured, nodes, edges),
    row("gat", Gat, featured, nodes, edges),
    row("sage", Sage, featured, nodes, edges),
    row("gin", Gin, batched, nodes, edges, nodes),
    row("schnet", Schnet, molecule, nodes, nodes, edges),
  ]
