"""Unusual inputs, and every dtype that has arithmetic."""

import torch
from row_table import row_table
from torch.export import Dim
from torch.nn import functional as F

ROWS, row = row_table()
A = Dim("a", min=2, max=32)
N = Dim("n", min=0, max=32)


def misaligned(tensor, elements=1):
  """A copy of a tensor that begins `elements` after an aligned address."""
  storage = torch.zeros(tensor.numel() + elements, dtype=tensor.dtype)
  return storage[elements:].view(tensor.shape).copy_(tensor)


@row(
  torch.randn(33),
  torch.randn(4, 9),
  cases=[
    (misaligned(torch.randn(33)), torch.randn(4, 9)),
    (torch.randn(33), misaligned(torch.randn(4, 9), 3)),
    (misaligned(torch.randn(33), 5), misaligned(torch.randn(4, 9), 7)),
  ],
)
def misaligned_inputs(self, x, y):
  return x.exp(), y.sum(1), (y @ y.t())


@row(
  misaligned(torch.randn(40)),
  torch.randint(0, 9, (17,), dtype=torch.int8),
  cases=[
    (torch.randn(40), misaligned(torch.randint(0, 9, (17,), dtype=torch.int8))),
    (misaligned(torch.randn(40), 3), misaligned(torch.randint(0, 9, (17,), dtype=torch.int8), 5)),
  ],
)
def misaligned_example(self, x, y):
  return x * 2, y + y, x[:17] * y


@row(
  misaligned(torch.randn(24).to(torch.complex64)),
  cases=[(misaligned(torch.randn(24).to(torch.complex64), 3),)],
)
def misaligned_complex(self, x):
  return torch.view_as_real(x) * 2


@row(torch.randn(6, 8).t(), torch.randn(4, 12)[:, ::3], torch.randn(3, 4, 5).permute(2, 0, 1))
def not_contiguous(self, x, y, z):
  return x + 1, y * 2, z.sum(0), x.contiguous(), z.reshape(-1)


@row(torch.randn(1, 4).expand(3, 4), torch.randn(2, 1).expand(2, 5), torch.tensor(2.0).expand(3))
def expanded(self, x, y, z):
  return x + 1, y.sum(1), z * 2, x


@row(torch.randn(0, 4), torch.randn(3, 0), torch.empty(0))
def nothing_in(self, x, y, z):
  return x * 2, y.sum(1), x.sum(0), z, torch.cat([x, x]), y.t()


@row(torch.randn(3, 4), shapes=({0: N},), cases=[(torch.randn(0, 4),)])
def size_zero_at_run_time(self, x):
  return x.exp(), x.sum(0), x.sum(), x.t(), torch.cat([x, x * 2])


@row(torch.tensor(3.5), torch.tensor(2, dtype=torch.int32))
def without_dimensions(self, x, n):
  return x * 2, x + n, x.reshape(1), x.expand(3), n


@row(torch.randn(2, 1, 3, 1, 4, 1))
def sizes_of_one(self, x):
  return x.squeeze() + 1, x.squeeze(1).sum(-1), x.permute(5, 4, 3, 2, 1, 0) * 2


@row(torch.randn(1, 2, 1, 2, 1, 2, 1, 2, 2, 2))
def many_dimensions(self, x):
  return x.sum(dim=(1, 3, 5)), x.transpose(1, 9) + 1


@row(torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1e-45]))
def special_floats(self, x):
  return (
    x * 2,
    x.relu(),
    torch.isnan(x),
    torch.maximum(x, x.new_zeros(())),
    x.nan_to_num(),
    x == x,
    x.sign(),
  )


@row(torch.tensor([2**62, -(2**63), 2**63 - 1, -1, 0]))
def special_ints(self, x):
  return x + x, x // 3, x % 7, x >> 5, x << 2, x.abs(), x ^ 0x55


@row(torch.arange(-8, 8), torch.tensor([3, -3, 5, -5] * 4))
def quotients(self, x, y):
  return (
    x // y,
    x % y,
    torch.fmod(x, y),
    torch.div(x, y),
    torch.div(x, y, rounding_mode="trunc"),
    torch.div(x.float(), y.float(), rounding_mode="floor"),
  )


def number_row(dtype, name):
  """Each dtype: arithmetic, comparison, a sum, conversions in both directions, a copy and a
  transposition."""
  signed = dtype not in (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
  x = torch.randint(-9 if signed else 0, 9, (5, 7)).to(dtype)
  y = torch.randint(1, 9, (5, 7)).to(dtype)

  def moved(self, x, y):
    return (
      x == y,
      x.float() / 2,
      (y.float() * 1.5).to(dtype),
      x.t().contiguous(),
      torch.full((3,), 5, dtype=dtype),
    )

  def whole(self, x, y):
    return *moved(self, x, y), x + y, x * y, torch.where(x < y, x, y), x.sum(), x.amax(0), x.flip(0)

  limited = dtype in (
    torch.uint16,
    torch.uint32,
    torch.uint64,
  )  # eager PyTorch has no arithmetic of these dtypes
  row(
    x,
    y,
    name=name,
    tolerance={"rtol": 1e-2, "atol": 1e-2} if dtype in (torch.float16, torch.bfloat16) else {},
  )(moved if limited else whole)


for _dtype in (
  "uint8",
  "int8",
  "int16",
  "int32",
  "int64",
  "float16",
  "bfloat16",
  "float32",
  "float64",
  "uint16",
  "uint32",
  "uint64",
):
  number_row(getattr(torch, _dtype), _dtype)


@row(torch.tensor([True, False, True, True]), torch.tensor([False, False, True, True]))
def bool_(self, x, y):
  return x & y, x | y, ~x, x ^ y, x.sum(), x.any(), y.all(), x.float(), torch.where(x, 1, 2), x == y


def float8_row(dtype, name):
  x = (torch.randn(4, 9) * 4).to(dtype)

  @row(x, name=name)
  def _(self, x):
    y = x.float()
    return y * 2, (y + 0.5).to(dtype), x.view(4, 9), x.view(torch.uint8)


for _dtype in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"):
  float8_row(getattr(torch, _dtype), _dtype)


@row(torch.randn(3, 4).half(), torch.randn(4, 5).half(), tolerance={"rtol": 1e-2, "atol": 1e-2})
def half_product(self, x, y):
  return x @ y, F.softmax(x, -1), F.layer_norm(x, (4,))


@row(torch.randn(3, 4).bfloat16(), torch.empty(0, 4))
def promoted(self, x, y):
  """The dtype of an empty tensor counts for the dtype of the result."""
  return torch.cat([x, y]), x + 1.5, x * torch.tensor(2.0, dtype=torch.float64), x + torch.ones(4)


@row(torch.randint(0, 5, (3, 4)), torch.randn(3, 4))
def mixed_dtypes(self, n, x):
  return n + x, n * 0.5, n / 2, n.to(torch.float64) + x, (x > 0) + n, x.to(torch.int8), n.bool()


_same = torch.randn(3, 4)


@row(_same, _same)
def same_tensor_twice(self, x, y):
  return x + y, x * 2


@row(
  torch.randn(4, 6).to(torch.float8_e4m3fn),
  torch.randn(3, dtype=torch.complex64),
  torch.randn(2).bfloat16(),
  wrong=[
    (
      (torch.randn(4, 6), torch.randn(3, dtype=torch.complex64), torch.randn(2).bfloat16()),
      "f8e4m3fn",
    ),
    ((torch.randn(4, 6).to(torch.float8_e4m3fn), torch.randn(3), torch.randn(2).bfloat16()), "c64"),
    (
      (
        torch.randn(4, 6).to(torch.float8_e4m3fn),
        torch.randn(3, dtype=torch.complex64),
        torch.randn(3).bfloat16(),
      ),
      "2",
    ),
    (
      (
        torch.randn(24).to(torch.float8_e4m3fn),
        torch.randn(3, dtype=torch.complex64),
        torch.randn(2).bfloat16(),
      ),
      "has 1 dims, must have 2",
    ),
  ],
)
def checked_inputs(self, x, y, z):
  return x.float(), torch.view_as_real(y), z + 1
