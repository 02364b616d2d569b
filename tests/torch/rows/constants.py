"""Weights, literals and the models of PyTorch's C++ wrapper tutorial."""

import torch
from row_table import row_table
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

ROWS, row = row_table()
ROWS_DIM = Dim("rows", min=2, max=64)


@row(
  torch.randn(4, 5),
  torch.randn(4, 5),
  shapes=({0: ROWS_DIM}, {0: ROWS_DIM}),
  cases=[(torch.randn(2, 5), torch.randn(2, 5)), (torch.randn(64, 5), torch.randn(64, 5))],
)
def sum_of_two(self, x, y):
  return (x + y).sum()


@row(torch.arange(10.0))
def literal_added(self, x):
  return torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]) + x


@row(torch.randn(3, 2))
def scalar_literal(self, x):
  return x * torch.tensor(2.5) + torch.tensor(7)


@row(torch.randn(3, 3))
class written_literals(nn.Module):
  """Each call writes to its own copy of the numbers."""

  class Part(nn.Module):
    def forward(self, x):
      changed = torch.tensor([1.0, 2.0, 3.0])
      changed[0] = x.sum()
      return x + changed

  def __init__(self):
    super().__init__()
    self.parts = nn.ModuleList([self.Part(), self.Part()])
    self.scale = torch.tensor([4.0, 5.0, 6.0])  # neither a parameter nor a buffer

  def forward(self, x):
    return self.parts[1](self.parts[0](x[[1, 0]])) * self.scale


@row(torch.randn(4, 6))
class linear(nn.Module):
  def __init__(self):
    super().__init__()
    self.inner = nn.Linear(6, 3)

  def forward(self, x):
    return F.relu(self.inner(x))


@row(torch.randn(2, 8))
class sequence(nn.Module):
  """A norm that two layers share."""

  def __init__(self):
    super().__init__()
    norm = nn.LayerNorm(8)
    self.layers = nn.Sequential(nn.Linear(8, 8), norm, nn.GELU(), nn.Linear(8, 8), norm)

  def forward(self, x):
    return self.layers(x)


@row(torch.randn(3, 4))
class tied(nn.Module):
  """One parameter has two names, and a view of it a third."""

  def __init__(self):
    super().__init__()
    self.up = nn.Linear(4, 4, bias=False)
    self.down = nn.Linear(4, 4, bias=False)
    self.down.weight = self.up.weight
    self.register_buffer("part", self.up.weight.detach()[1:3])

  def forward(self, x):
    return self.down(self.up(x)) @ self.part.t()


@row(torch.randn(3))
class views_with_offsets(nn.Module):
  """Constants that are parts of one storage; one of them has gaps between its rows."""

  def __init__(self):
    super().__init__()
    whole = torch.randn(6, 4)
    for name, view in {
      "whole": whole,
      "rows": whole[2:4],
      "column": whole[:, 1],
      "turned": whole[:3].t(),
    }.items():
      self.register_buffer(name, view)

  def forward(self, x):
    return x + self.whole.sum() + self.rows.mean() + self.column.max(), self.turned * 2


@row(torch.randn(3), buffers={"weight": torch.randn(3), "number": torch.tensor(4)})
def constants_given_back(self, x):
  return self.weight, self.weight[1:], self.number, x + 1


@row(torch.randn(2, 3), buffers={"nothing": torch.empty(0, 3), "none": torch.empty(4, 0)})
def empty_constants(self, x):
  return torch.cat([x, self.nothing]), self.none.sum() + x, self.nothing


@row(torch.randn(2, 3), buffers={"a": torch.randn(3, 2), "b": torch.randn(3, 2)})
def constants_joined(self, x):
  return x @ torch.cat([self.a, self.b], dim=1)


@row(
  torch.randn(5),
  buffers={
    "first": torch.tensor([1, 2, 3], dtype=torch.int8),
    "halves": torch.randn(7).half(),
    "doubles": torch.randn(3, dtype=torch.float64),
    "flag": torch.tensor([True, False, True]),
  },
)
def constants_of_odd_sizes(self, x):
  return x + self.first.sum(), self.halves * 2, self.doubles[self.flag.long()], self.flag


@row(
  torch.arange(4), buffers={"zeros": torch.zeros(3, 2), "ones": torch.ones(2, dtype=torch.int64)}
)
def constants_of_one_value(self, x):
  return self.zeros + x[0], self.ones * x[1]


@row(torch.randn(2, 4))
class quantized_weights(nn.Module):
  """Integers and their scale, multiplied at each use."""

  def __init__(self):
    super().__init__()
    self.register_buffer("whole", torch.randint(-128, 127, (3, 4), dtype=torch.int8))
    self.register_buffer("scale", torch.rand(3, 1) / 64)

  def forward(self, x):
    return F.linear(x, self.whole.float() * self.scale)


@row(torch.randn(3, 4))
class same_name_twice(nn.Module):
  """Names of weights that differ only in characters that a name may not have, and the name of an
  input."""

  def __init__(self):
    super().__init__()
    self.x = nn.Parameter(torch.randn(4))
    self.register_buffer("s0", torch.randn(4))
    self.register_buffer("output", torch.randn(4))

  def forward(self, x):
    return x * self.x + self.s0 * self.output


@row(torch.randn(3), buffers={"buf0": torch.randn(3)}, refused="named buf0")
def name_of_inductors(self, x):
  return x + self.buf0.sum()


@row(torch.randint(0, 10, (7,)), torch.tensor([0, 3]))
class embeddings(nn.Module):
  def __init__(self):
    super().__init__()
    self.words = nn.Embedding(10, 4)

  def forward(self, x, at):
    return self.words(x), self.words.weight[at]


@row(torch.randn(2, 3, 8))
class normalized(nn.Module):
  def __init__(self):
    super().__init__()
    self.group = nn.GroupNorm(3, 3)
    self.batch = nn.BatchNorm1d(3).eval()

  def forward(self, x):
    return F.softmax(self.group(x) + self.batch(x), -1)
