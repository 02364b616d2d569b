"""Writes in place: to buffers of the model and to inputs."""

import torch
from row_table import row_table
from torch import nn
from torch.export import Dim

ROWS, row = row_table()
A = Dim("a", min=2, max=32)


@row(torch.randn(3), runs=3, buffers={"count": torch.zeros((), dtype=torch.int64)})
def counter(self, x):
  self.count.add_(1)
  return x * self.count, self.count + 0


@row(
  torch.randn(3), runs=3, buffers={"sum": torch.zeros(3), "seed": torch.arange(6.0).reshape(2, 3)}
)
def sums(self, x):
  """One state starts as a fill, the other with values."""
  self.sum += x
  self.seed.mul_(2)
  return self.sum.clone(), self.seed[1]


@row(torch.randn(4, 3), runs=2, shapes=({0: A},))
def input_written(self, x):
  return x.add_(1)


@row(torch.randn(4, 3), torch.randn(3), runs=2)
def part_of_an_input_written(self, x, y):
  x[1:3].mul_(y)
  x[:, 0] = 7
  return x.sum(), y


@row(torch.randn(6, 4)[:, :3], runs=2)
def padded_input_written(self, x):
  x.copy_(x.flip(0))
  return x + 0


@row(
  torch.randn(2, 1, 4),
  torch.tensor([5]),
  runs=2,
  cases=[(torch.randn(2, 1, 4), torch.tensor([0]))],
  buffers={"k": torch.zeros(2, 16, 4)},
)
def cache_by_index(self, x, at):
  self.k.index_copy_(1, at, x)
  return self.k.sum(1), self.k[:, 5]


@row(
  torch.randn(2, 4),
  runs=3,
  buffers={"k": torch.zeros(8, 2, 4), "at": torch.zeros(1, dtype=torch.int64)},
)
def cache_with_its_place(self, x):
  """The position is state as well."""
  self.k.index_copy_(0, self.at, x[None])
  self.at.add_(1)
  return self.k.sum(0), self.at.clone()


@row(torch.randn(2, 3), torch.tensor([1, 0]), runs=2, buffers={"table": torch.zeros(4, 3)})
def scattered(self, x, at):
  self.table.index_put_((at,), x, accumulate=True)
  return self.table * 1


@row(torch.randn(4, 3), runs=2)
class batch_norm(nn.Module):
  """In training mode the running averages change."""

  def __init__(self):
    super().__init__()
    self.norm = nn.BatchNorm1d(3)

  def forward(self, x):
    return self.norm(x)


@row(torch.randn(3))
class views_of_state(nn.Module):
  """Two views of one storage, one of which is written."""

  def __init__(self):
    super().__init__()
    whole = torch.zeros(4, 3)
    self.register_buffer("whole", whole)
    self.register_buffer("rows", whole[1:3])

  def forward(self, x):
    self.rows.add_(x)
    return self.whole * 1, self.rows.sum(0)


@row(torch.randn(3), runs=2, buffers={"last": torch.zeros(3)})
def state_given_back(self, x):
  """The outputs are the value before the write and the value after it."""
  before = self.last.clone()
  self.last.copy_(x * 2)
  return before, self.last


@row(torch.randn(3), torch.randn(3), runs=2)
def swapped(self, x, y):
  kept = x.clone()
  x.copy_(y)
  y.copy_(kept)
  return x + y


@row(
  torch.randn(3),
  runs=2,
  buffers={"flag": torch.tensor(False), "small": torch.ones(5, dtype=torch.uint8)},
)
def state_of_small_dtypes(self, x):
  self.flag.logical_not_()
  self.small.mul_(3)
  return torch.where(self.flag, x, -x), self.small.clone()


@row(
  torch.randn(2, 3),
  runs=2,
  shapes=({0: A},),
  cases=[(torch.randn(5, 3),)],
  buffers={"mean": torch.zeros(3)},
)
def running_mean(self, x):
  self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
  return x - self.mean


@row(
  torch.randn(4),
  runs=2,
  buffers={
    "f16": torch.zeros(4, dtype=torch.float16),
    "bf16": torch.full((4,), 1.5, dtype=torch.bfloat16),
    "f64": torch.zeros(4, dtype=torch.float64),
    "f8": torch.zeros(4, dtype=torch.float8_e5m2),
    "i16": torch.full((4,), -7, dtype=torch.int16),
    "c64": torch.zeros(4, dtype=torch.complex64),
    "zero": torch.full((4,), -0.0),
    "nan": torch.full((4,), float("nan")),
  },
)
def state_of_every_dtype(self, x):
  """Fills of each kind."""
  before = [getattr(self, name).clone() for name in ("f16", "bf16", "f64", "i16", "zero", "nan")]
  self.f16.copy_(x)
  self.bf16.add_(x.to(torch.bfloat16))
  self.f64.sub_(x)
  self.f8.copy_(x.to(torch.float8_e5m2))
  self.i16.mul_(2)
  self.c64.copy_(torch.complex(x, -x))
  self.zero.copy_(torch.sqrt(self.zero))
  self.nan.copy_(torch.where(torch.isnan(self.nan), x, self.nan + 1))
  return *before, self.f8.float(), torch.view_as_real(self.c64)
