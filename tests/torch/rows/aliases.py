"""Outputs that share memory in eager mode: with an input, with one another, or as parts of one
buffer."""

import torch
from row_table import row_table
from torch.export import Dim

ROWS, row = row_table()
A = Dim("a", min=4, max=32)


@row(torch.randn(4, 3), shapes=({0: A},), cases=[(torch.randn(7, 3),)])
def output_twice(self, x):
  y = x.exp()
  return y, y, y + 1


@row(torch.randn(4, 3), torch.randn(2), shapes=({0: A}, {}))
def output_is_input(self, x, y):
  return x, y + 1, x, y


@row(torch.randn(4, 6), shapes=({0: A},), cases=[(torch.randn(9, 6),)])
def views_of_views(self, x):
  y = x.exp()
  v = y[1:].t()
  return v, v[::2], v[1:4].reshape(3, -1), y


@row(torch.randn(4, 6))
def output_views_another(self, x):
  y = x + 1
  return y, y.view(24), y[2], y.t(), y[:, 3:]


@row(torch.randn(4, 6))
def views_of_inputs(self, x):
  return x.t(), x[1:3], x.view(2, 12), x[:, 2], x.unsqueeze(0), x.expand(2, 4, 6)


@row(torch.randn(4, 6), shapes=({0: A},), cases=[(torch.randn(5, 6),)])
def split(self, x):
  a, b, c = x.split(2, dim=1)
  return a * 2, b, c.exp(), x.chunk(2, dim=1)[1]


@row(torch.randn(2, 3), torch.randn(4, 3))
def joined(self, x, y):
  """Kernels write parts of one buffer."""
  return torch.cat([x.exp(), y.sin(), x * 2])


@row(torch.randn(2, 3), torch.randn(2, 3))
def stacked(self, x, y):
  return torch.stack([x, y + 1]), torch.stack([x, y], -1)


@row(torch.randn(4, 4))
def other_dtype(self, x):
  y = x * 2
  return y.view(torch.int32), x.view(torch.int16), y.view(torch.uint8)[1:], x.view(torch.float64)


@row(torch.randint(0, 100, (4, 4), dtype=torch.int32))
def other_dtype_computed(self, x):
  return (x + 1).view(torch.float32).view(torch.int32) + 1


@row(torch.randn(3, 4))
def strided_parts(self, x):
  y = x.sin()
  return torch.as_strided(y, (2, 2), (5, 2), 1), y.diagonal(), x.diagonal(1)


@row(torch.randn(2, 3, 4))
def permuted(self, x):
  return x.permute(2, 0, 1), (x + 1).permute(1, 2, 0), x.transpose(0, 2).contiguous()


@row(torch.randn(5, 3))
def flipped(self, x):
  return x.flip(0), x.roll(1, 0), x.repeat(2, 1), x.tile(1, 2)


@row(torch.randn(5, 3))
def expanded_output(self, x):
  return (
    x.sum(0, keepdim=True).expand(5, 3),
    torch.broadcast_to(x[:1], (2, 3)),
    torch.zeros(1).expand(3),
  )


@row(torch.randn(3, 3))
def output_of_a_part(self, x):
  """The output is only a part of the computed tensor, at an odd offset."""
  return (x + 1).flatten()[1:8]


@row(torch.complex(torch.randn(3, 4), torch.randn(3, 4)))
def complex_parts(self, x):
  return x.real, x.imag, torch.view_as_real(x)


@row(torch.randn(4, 4))
def dead_output(self, x):
  """One of two results is never used."""
  values, _ = torch.max(x, 1)
  return values


@row(torch.randn(6, 2))
def unbound(self, x):
  a, b = x.unbind(1)
  return a, b * 2, *x.unbind(0)[:2]
