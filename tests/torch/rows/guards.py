"""Conditions on sizes, and numbers that are computed from sizes."""

import torch
from row_table import row_table
from torch.export import Dim
from torch.nn import functional as F

ROWS, row = row_table()
A, B = Dim("a", min=2, max=32), Dim("b", min=2, max=32)
AUTO = Dim.AUTO


@row(
  torch.randn(4, 3),
  torch.randn(4, 3),
  shapes=({0: A}, {0: A}),
  cases=[(torch.randn(9, 3), torch.randn(9, 3))],
  wrong=[
    ((torch.randn(4, 3), torch.randn(5, 3)), "size 0 of y"),
    ((torch.randn(33, 3), torch.randn(33, 3)), "32"),
    ((torch.randn(4, 4), torch.randn(4, 3)), "x"),
  ],
)
def two_inputs_equal(self, x, y):
  return x + y


@row(
  torch.randn(4, 3),
  torch.randn(8, 3),
  shapes=({0: A}, {0: 2 * A}),
  cases=[(torch.randn(7, 3), torch.randn(14, 3))],
  wrong=[((torch.randn(4, 3), torch.randn(9, 3)), "size 0 of y")],
)
def twice_another(self, x, y):
  return torch.cat([x, x]) * y


@row(
  torch.randn(4, 3),
  torch.randn(5, 3),
  shapes=({0: A}, {0: A + 1}),
  cases=[(torch.randn(2, 3), torch.randn(3, 3))],
  wrong=[((torch.randn(4, 3), torch.randn(4, 3)), "size 0 of y")],
)
def one_more(self, x, y):
  return x + y[1:], y[:-1] - x


@row(
  torch.randn(9, 2),
  shapes=({0: 2 * A + 1},),
  cases=[(torch.randn(5, 2),), (torch.randn(65, 2),)],
  wrong=[((torch.randn(8, 2),), "size 0 of x")],
)
def odd_alone(self, x):
  return x[: x.shape[0] // 2], x.sum(0)


@row(
  torch.randn(8, 3),
  shapes=({0: 4 * Dim("quarter", min=2, max=10)},),
  cases=[(torch.randn(40, 3),)],
  wrong=[((torch.randn(10, 3),), "size 0 of x")],
)
def multiple_of_four(self, x):
  return x.view(-1, 4) * 2


@row(
  torch.randn(4, 6),
  torch.randn(6, 5),
  shapes=({0: A, 1: B}, {0: B}),
  cases=[(torch.randn(2, 9), torch.randn(9, 5)), (torch.randn(32, 2), torch.randn(2, 5))],
)
def several_symbols(self, x, y):
  return x @ y, x.sum(0) + y.sum(1)


@row(torch.randn(2, 3, 4), shapes=({0: A, 1: B},), cases=[(torch.randn(5, 8, 4),)])
def reshaped(self, x):
  return x.reshape(-1, 4) + 1, x.flatten(), x.reshape(x.shape[0], -1).sum(1)


@row(torch.randn(4, 6, 3), shapes=({0: A, 1: B},), cases=[(torch.randn(3, 5, 3),)])
def precomputed_sizes(self, x):
  """The transposed copy needs a product of sizes in its index."""
  return x.permute(2, 1, 0).contiguous().softmax(1), x.permute(1, 0, 2).reshape(-1)


@row(
  torch.randn(4, 3, 6, 5).to(memory_format=torch.channels_last),
  shapes=({0: A},),
  cases=[(torch.randn(2, 3, 6, 5).to(memory_format=torch.channels_last),)],
  wrong=[((torch.randn(4, 3, 6, 5),), "stride")],
)
def channels_last(self, x):
  return x * 2, x.mean(dim=(2, 3))


@row(torch.randn(4, 3, 6, 5), shapes=({0: A},))
def to_channels_last(self, x):
  return (x + 1).to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)


@row(
  torch.randn(6, 8)[:, :5],
  cases=[(torch.randn(6, 8)[:, :5],)],
  wrong=[((torch.randn(6, 5),), "stride 0 of input")],
)
def padded_rows(self, x):
  return x * 2, x.sum(1)


@row(torch.empty(0, 8)[:, :5], torch.randn(4, 5), shapes=({}, {0: A}))
def padded_rows_of_nothing(self, x, y):
  return torch.cat([x, y])


@row(
  torch.empty_strided((4, 6), (9, 1)).normal_(),
  shapes=({0: AUTO, 1: AUTO},),
  cases=[(torch.empty_strided((7, 8), (9, 1)).normal_(),)],
)
def padded_dynamic(self, x):
  """The caller decides both sizes and the stride between rows."""
  return x + 1


@row(
  torch.randn(5, 4).t(),
  shapes=({0: Dim("c", min=2, max=9), 1: A},),
  cases=[(torch.randn(8, 6).t(),)],
)
def transposed_dynamic(self, x):
  return x * 3, x.contiguous()


@row(torch.randn(6, 3), shapes=({0: AUTO},), cases=[(torch.randn(11, 3),), (torch.randn(4, 3),)])
def slices(self, x):
  return x[: x.shape[0] // 2], x[-2:], x[::2], x[1:].sum(0)


@row(torch.randn(6, 7), shapes=({0: A, 1: B},), cases=[(torch.randn(4, 7),), (torch.randn(3, 9),)])
def smaller_size(self, x):
  n = torch.sym_min(x.shape[0], x.shape[1])
  return x[:n, :n].sum(), n


@row(
  torch.randn(3, 4),
  shapes=({0: Dim("n", min=0, max=16)},),
  cases=[(torch.randn(0, 4),), (torch.randn(1, 4),)],
)
def from_nothing_to_many(self, x):
  return x * 2, x.sum(0)


@row(torch.randn(2, 3), shapes=({0: A},), cases=[(torch.randn(9, 3),)])
def size_in_the_values(self, x):
  n = x.shape[0]
  return x / n, torch.arange(n) + n, torch.full((n, 2), n), torch.ones(n, n).triu(), n * n - 1


@row(
  torch.randn(6, 4),
  shapes=({0: AUTO},),
  cases=[(torch.randn(12, 4),)],
  wrong=[((torch.randn(7, 4),), "(x.size()[0] % 2) == 0")],
)
def asserted(self, x):
  torch._check(x.shape[0] % 2 == 0)
  return x.reshape(x.shape[0] // 2, 2, 4).sum(1)


@row(torch.randn(2, 3, 8), shapes=({2: AUTO},), cases=[(torch.randn(2, 3, 6),)])
def padded_and_pooled(self, x):
  return F.pad(x, (1, 2)), F.pad(x, (2, 1), mode="reflect"), F.avg_pool1d(x, 2)


@row(torch.randn(1, 3, 4, 5), shapes=({2: A, 3: B},), cases=[(torch.randn(1, 3, 6, 3),)])
def resized(self, x):
  return F.interpolate(x, scale_factor=2, mode="nearest"), F.interpolate(
    x, size=(3, 7), mode="bilinear"
  )


@row(
  torch.randn(3, 4),
  torch.randn(2, 4),
  shapes=({0: A}, {0: B}),
  cases=[(torch.randn(9, 4), torch.randn(31, 4))],
)
def joined_dynamic(self, x, y):
  return torch.cat([x, y]), torch.cat([x * 2, y + 1, x])


@row(torch.randn(2, 4), shapes=({0: A},), cases=[(torch.randn(30, 4),)])
def attention(self, x):
  return F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True)


@row(
  torch.randn(3, 2),
  torch.randn(2, 3),
  shapes=({0: A}, {1: A}),
  cases=[(torch.randn(8, 2), torch.randn(2, 8))],
)
def broadcast(self, x, y):
  return x[:, None] + y.t()[None], x + y[:, 0]


@row(
  torch.randn(6, 4),
  torch.randn(8, 4),
  kwargs={"k": torch.randn(4, 3), "entries": {"q": [torch.randn(12)], "n": 3}},
  shapes={
    "x": {0: AUTO},
    "many": ({0: AUTO},),
    "k": {0: AUTO},
    "entries": {"q": [{0: AUTO}], "n": AUTO},
  },
  wrong=[
    (
      (
        (torch.randn(6, 4), torch.randn(90, 4)),
        {"k": torch.randn(4, 3), "entries": {"q": [torch.randn(12)], "n": 3}},
      ),
      "max(",
    ),
    (
      (
        (torch.randn(6, 4), torch.randn(8, 4)),
        {"k": torch.randn(4, 3), "entries": {"q": [torch.randn(12)], "n": 4}},
      ),
      "entries['n'] % 3",
    ),
    (
      (
        (torch.randn(6, 4), torch.randn(8, 4)),
        {"k": torch.randn(4, 3), "entries": {"q": [torch.randn(13)], "n": 3}},
      ),
      "entries['q'][0].size()[0] % 2",
    ),
  ],
)
def found_while_exporting(self, x, *many, k, entries):
  """Guards of nested inputs and of `*many`."""
  torch._check(max(x.shape[0], many[0].shape[0]) < 90)
  torch._check(entries["n"] % 3 == 0)
  torch._check(entries["q"][0].shape[0] % 2 == 0)
  torch._check(x.shape[0] * 2 + k.shape[0] > 7)
  return x.sum() * entries["n"] + many[0].sum() + k.sum() + entries["q"][0].sum()


@row(
  torch.empty_strided((4, 6), (9, 1)).normal_(),
  shapes=({0: A},),
  cases=[(torch.empty_strided((7, 6), (9, 1)).normal_(),)],
  wrong=[((torch.randn(4, 6),), "stride 0 of input")],
)
def padded_static_inside(self, x):
  return x + 1, x.sum(1)


@row(
  torch.randn(5, 4),
  torch.randn(13, 3),
  shapes=({0: AUTO, 1: AUTO}, {0: AUTO}),
  cases=[(torch.randn(7, 2), torch.randn(11, 3))],
  wrong=[((torch.randn(7, 2), torch.randn(13, 3)), "")],
)
def solved_from_two(self, x, y):
  """The tensor y has x0 + 2 * x1 rows."""
  return torch.cat([x[:, :1].expand(-1, 3), x.t()[:, :3].repeat(2, 1)]) + y


@row(
  torch.randn(4, 3),
  torch.randn(6, 3),
  shapes=({0: AUTO}, {0: AUTO}),
  cases=[(torch.randn(3, 3), torch.randn(9, 3))],
)
def slices_by_other_sizes(self, x, y):
  return y[: x.shape[0]] + x, y[-x.shape[0] :] * 2
