"""Numbers, indices and sizes that depend on data."""

import torch
from row_table import row_table
from torch.export import Dim

ROWS, row = row_table()
A = Dim("a", min=2, max=32)
AUTO = Dim.AUTO


@row(
  torch.randn(4),
  torch.tensor(3),
  cases=[(torch.randn(4), torch.tensor(0)), (torch.randn(4), torch.tensor(9))],
  wrong=[((torch.randn(4), torch.tensor(10)), "")],
)
def number_from_a_tensor(self, x, n):
  v = n.item()
  torch._check(v >= 0)
  torch._check(v < 10)
  return x * v + 1, v


@row(
  torch.randn(4),
  torch.tensor(2.5),
  torch.tensor(True),
  cases=[(torch.randn(4), torch.tensor(-0.5), torch.tensor(False))],
)
def floats_and_bools_from_tensors(self, x, f, b):
  return x * f.item(), f.item(), b.item()


@row(
  torch.randn(10),
  torch.tensor(4),
  cases=[(torch.randn(10), torch.tensor(0)), (torch.randn(10), torch.tensor(10))],
)
def slice_of_a_size(self, x, n):
  v = n.item()
  torch._check(v >= 0)
  torch._check(v <= 10)
  return x[:v] * 2, torch.ones(v)


@row(
  torch.randn(10),
  torch.tensor(4),
  cases=[(torch.randn(10), torch.tensor(9)), (torch.randn(10), torch.tensor(-10))],
)
def picked(self, x, n):
  return x[n.item()] * 2


@row(
  torch.tensor([[0, 1, 0], [2, 0, 3]]),
  cases=[(torch.zeros(2, 3, dtype=torch.int64),), (torch.ones(2, 3, dtype=torch.int64),)],
)
def places(self, x):
  return x.nonzero(), x.nonzero().shape[0]


@row(
  torch.randn(5, 3),
  shapes=({0: A},),
  cases=[(torch.randn(9, 3),), (-torch.ones(4, 3),), (torch.ones(3, 3),)],
)
def chosen(self, x):
  """Elements and rows that satisfy a condition."""
  return x[x > 0], x[x.sum(1) > 0] * 2, torch.masked_select(x, x < 0)


@row(
  torch.randn(3, 2),
  torch.tensor([2, 0, 3]),
  cases=[
    (torch.randn(3, 2), torch.tensor([0, 0, 0])),
    (torch.randn(3, 2), torch.tensor([1, 5, 2])),
  ],
)
def repeated(self, x, times):
  return torch.repeat_interleave(x, times, dim=0) + 1


@row(
  torch.tensor([1, 0, 2, 0, 3]),
  torch.randn(5, 2),
  cases=[(torch.tensor([1, 1, 1, 1, 1]), torch.randn(5, 2))],
)
def product_of_what_was_found(self, x, y):
  at = x.nonzero().squeeze(1)
  found = y[at]
  return found @ torch.ones(2, 3), found.sum(0), torch.cat([found, found])


@row(
  torch.randn(4, 6),
  torch.tensor(2),
  torch.tensor(3),
  cases=[(torch.randn(4, 6), torch.tensor(1), torch.tensor(5))],
)
def sums_of_sizes(self, x, n, m):
  a, b = n.item(), m.item()
  for v in (a, b):
    torch._check(v >= 1)
    torch._check(v <= 6)
  return torch.ones(a + b), torch.zeros(a * 2, b), torch.full((a, 3), b)


@row(torch.tensor([2, 1, 3]), torch.randn(6), cases=[(torch.tensor([0, 4, 2]), torch.randn(6))])
def split_by_numbers(self, sizes, x):
  numbers = sizes.tolist()
  for n in numbers:
    torch._check(n >= 0)
  return x.split(numbers)[1] * 2


@row(torch.randn(6, 2), torch.tensor(6), wrong=[((torch.randn(6, 2), torch.tensor(5)), "")])
def number_that_is_a_size(self, x, n):
  v = n.item()
  torch._check(v == x.shape[0])
  return x + torch.ones(v, 1)


@row(
  torch.randn(8, 3),
  torch.tensor(2),
  torch.tensor(5),
  cases=[
    (torch.randn(8, 3), torch.tensor(0), torch.tensor(8)),
    (torch.randn(8, 3), torch.tensor(5), torch.tensor(5)),
  ],
)
def slice_between(self, x, n, m):
  a, b = n.item(), m.item()
  torch._check(a >= 0)
  torch._check(b >= a)
  torch._check(b <= 8)
  return x[a:b] * 2


@row(torch.tensor([3, 1, 3, 2, 1]), cases=[(torch.tensor([1, 1, 1, 1, 1]),)])
def distinct(self, x):
  return torch.unique(x), torch.unique(x).shape[0]
