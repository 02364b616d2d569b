"""Branches, loops and regions."""

import torch
from row_table import row_table
from torch import nn
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim

ROWS, row = row_table()
A = Dim("a", min=2, max=32)
YES, NO = torch.tensor(True), torch.tensor(False)


@row(YES, torch.randn(3, 4), torch.randn(3, 4), cases=[(NO, torch.randn(3, 4), torch.randn(3, 4))])
def branch(self, p, x, y):
  return torch.cond(p, lambda x, y: x + y, lambda x, y: (x - y) * 2, (x, y))


@row(torch.randn(4), cases=[(torch.ones(4),), (-torch.ones(4),)])
def branch_by_a_sum(self, x):
  return torch.cond(x.sum() > 0, lambda x: x.exp(), lambda x: x - 1, (x,)) + 1


@row(
  YES,
  NO,
  torch.randn(3),
  cases=[(NO, NO, torch.randn(3)), (NO, YES, torch.randn(3)), (YES, YES, torch.randn(3))],
)
def branches_in_branches(self, p, q, x):
  def yes(q, x):
    return torch.cond(q, lambda x: x * 2, lambda x: x * 3, (x,))

  def no(q, x):
    return torch.cond(q, lambda x: x - 5, lambda x: x.sin(), (x,)) + 1

  return torch.cond(p, yes, no, (q, x))


@row(
  YES,
  torch.randn(2, 4),
  shapes=({}, {0: A}),
  cases=[(NO, torch.randn(5, 4)), (YES, torch.randn(9, 4))],
)
class branches_with_weights(nn.Module):
  def __init__(self):
    super().__init__()
    self.yes, self.no = nn.Linear(4, 3), nn.Linear(4, 3)

  def forward(self, p, x):
    return torch.cond(p, lambda x: self.yes(x), lambda x: self.no(x).relu(), (x,))


@row(YES, torch.randn(4, 6), cases=[(NO, torch.randn(4, 6))])
def branches_of_views(self, p, x):
  return torch.cond(
    p, lambda x: (x[1:3] + 1, x.t() * 2), lambda x: (x[:2] * 3, x.t() - 1), (x[:, 1:4],)
  )


@row(YES, torch.randn(3), cases=[(NO, torch.randn(3))])
def code_around(self, p, x):
  before = x.exp()
  inside = torch.cond(p, lambda y: y + 1, lambda y: y * y, (before,))
  return inside.sum() + before, torch.cond(p, lambda y: y - 1, lambda y: y + before, (inside,))


@row(torch.randn(4, 3), shapes=({0: A},), cases=[(torch.randn(9, 3),), (torch.randn(5, 3),)])
def branch_by_a_size(self, x):
  return torch.cond(x.shape[0] > 4, lambda x: x * 2, lambda x: x.cos(), (x,))


@row(torch.tensor(3), torch.randn(3), cases=[(torch.tensor(-2), torch.randn(3))])
def branch_by_a_number(self, n, x):
  return torch.cond(n.item() > 0, lambda x: x + 1, lambda x: x - 1, (x,))


@row(
  torch.tensor(1),
  torch.randn(3),
  cases=[(torch.tensor(n), torch.randn(3)) for n in (0, 2)],
  least=(2, 12),
)
def one_of_three(self, n, x):
  from torch._higher_order_ops import switch

  return switch(n, [lambda x: x + 1, lambda x: x * 2, lambda x: x.sin()], (x,))


@row(
  torch.tensor(0),
  torch.randn(3),
  cases=[(torch.tensor(3), torch.randn(3)), (torch.tensor(5), torch.randn(3))],
)
def loop(self, n, x):
  return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 1.5 + i), (n, x))


@row(
  torch.tensor(0),
  torch.randn(2, 3),
  shapes=({}, {0: A}),
  cases=[(torch.tensor(1), torch.randn(7, 3))],
)
class loop_with_weights(nn.Module):
  def __init__(self):
    super().__init__()
    self.step = nn.Linear(3, 3)

  def forward(self, n, x):
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, self.step(x).tanh()), (n, x))[1]


@row(torch.tensor(0), torch.randn(1, 2, 5, 5), cases=[(torch.tensor(1), torch.randn(1, 2, 5, 5))])
class loop_with_convolution(nn.Module):
  def __init__(self):
    super().__init__()
    self.step = nn.Conv2d(2, 2, 3, padding=1)

  def forward(self, n, x):
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, self.step(x).tanh()), (n, x))[1]


@row(torch.tensor(0), torch.randn(3), cases=[(torch.tensor(2), torch.randn(3))])
def loops_in_loops(self, n, x):
  def body(i, x):
    _, y = while_loop(
      lambda j, y: j < i, lambda j, y: (j + 1, y * 0.5 + 1), (torch.zeros((), dtype=torch.int64), x)
    )
    return i + 1, y

  return while_loop(lambda i, x: i < 3, body, (n, x))


@row(torch.tensor(0), torch.randn(4, 4), torch.randn(4))
def loop_with_code_around(self, n, x, y):
  z = x.sin()
  _, found = while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a @ z + y), (n, x * 2))
  return found + z, x


@row(torch.randn(3), cases=[(torch.ones(3) * 4,)])
def loop_by_the_data(self, x):
  return while_loop(lambda x: x.abs().max() > 1, lambda x: (x * 0.5,), (x,))[0]


@row(
  torch.tensor(0),
  torch.randn(3),
  torch.tensor(3),
  cases=[(torch.tensor(0), torch.randn(3), torch.tensor(1))],
)
def branch_in_a_loop(self, n, x, limit):
  def body(i, x):
    return i + 1, torch.cond(i % 2 == 0, lambda x: x + 1, lambda x: x * 2, (x,))

  return while_loop(lambda i, x: i < limit, body, (n, x))[1]


@row(torch.randn(3, 4), torch.randn(3, 4), cases=[(torch.randn(3, 4), torch.randn(3, 4))])
def region_called_twice(self, x, y):
  region = torch.compiler.nested_compile_region(lambda a, b: (a * b).sin() + a)
  return region(x, y) + region(y, x)
