"""Operators that are called and not compiled."""

import torch
from row_table import row_table
from torch.export import Dim
from torch.nn import functional as F

ROWS, row = row_table()
A = Dim("a", min=2, max=32)


@row(torch.randint(0, 9, (3, 4), dtype=torch.uint8))
def joined_bytes(self, x):
  return torch.cat([x, x + 1]), torch.cat([x, x], 1)


@row(
  torch.complex(torch.randn(3, 4), torch.randn(3, 4)),
  torch.complex(torch.randn(3, 4), torch.randn(3, 4)),
)
def complex_numbers(self, x, y):
  return x + y, x * y, x.abs(), x.conj().resolve_conj(), x.sum(), -x, x / y


@row(torch.randn(3, 4, dtype=torch.complex128))
def complex_doubles(self, x):
  return x * 2, x + x, torch.view_as_real(x), x.angle()


@row(torch.complex(torch.randn(3, 4), torch.randn(3, 4)))
def complex_turned(self, x):
  return x.permute(1, 0) + 1, x.t(), x.squeeze(0)


@row(torch.randn(4, 3), torch.randn(4, 3))
def made_complex(self, x, y):
  z = torch.complex(x, y)
  return z.real + z.imag, z, torch.polar(x.abs(), y)


@row(torch.zeros(4, 5), torch.randint(0, 4, (2, 5)), torch.randn(2, 5))
def scattered(self, x, at, values):
  return (
    x.scatter(0, at, values),
    x.scatter(0, at, 2.5),
    x.scatter_add(0, at, values),
    x.scatter_reduce(0, at, values, "amax"),
  )


@row(torch.zeros(4, 5), torch.randint(0, 4, (2, 5)), torch.randn(2, 5))
def scattered_in_place(self, x, at, values):
  x.scatter_(0, at, values)
  x.scatter_reduce_(0, at, values, reduce="prod")
  return x * 1


@row(torch.randn(4, 3, 2), torch.tensor([1, 3]), torch.tensor([0, 1]))
def indexed(self, x, i, j):
  return (
    x[i],
    x[i, :, j],
    x[:, None, i[:1]],
    x.index_select(0, i),
    x.gather(0, i.view(2, 1, 1).expand(2, 3, 2)),
  )


@row(torch.randn(4, 3, 2), torch.tensor([1, 3]), torch.randn(4, 2, 2))
def put_beside_none(self, x, at, values):
  y = x.clone()
  y[:, at % 3] = values
  return y, torch.index_put(x, (at,), torch.ones(2, 3, 2), accumulate=True)


@row(torch.randn(5, 6))
def narrowed(self, x):
  return x.narrow(1, 2, 3), F.pad(x, (1, 1, 2, 0), value=3.5), x.fill_diagonal_(0.0)


@row(torch.randn(4, 4))
def filled(self, x):
  y = torch.empty_like(x)
  y.fill_(2.0)
  return y + x, x.masked_fill(x > 0, -1.0)


@row(torch.tensor([1.0, 3.0, 5.0, 7.0]), torch.randn(3, 4) * 4)
def searched(self, edges, x):
  return torch.searchsorted(edges, x), torch.bucketize(x, edges, right=True)


@row(torch.randint(0, 5, (20,)), torch.rand(30))
def counted(self, n, x):
  return torch.histc(x, bins=4, min=0, max=1), torch.nn.functional.one_hot(n, 5)


@row(
  torch.randn(2, 2, 4, 4), torch.rand(2, 3, 3, 2) * 2 - 1, tolerance={"rtol": 1e-4, "atol": 1e-4}
)
def sampled_at_a_grid(self, x, grid):
  return F.grid_sample(x, grid, align_corners=False)


@row(torch.randn(8), torch.randn(2, 5), tolerance={"rtol": 1e-4, "atol": 1e-4})
def transforms(self, x, y):
  """Fourier transforms of whole tensors and of windows."""
  return (
    torch.fft.fft(x),
    torch.fft.rfft(y),
    torch.fft.irfft(torch.fft.rfft(x)),
    torch.fft.fft2(torch.complex(y, y.flip(0))),
  )


@row(torch.randn(64), tolerance={"rtol": 1e-4, "atol": 1e-4})
def windows(self, x):
  return torch.stft(
    x, 16, hop_length=8, window=torch.hann_window(16), return_complex=True
  ).abs(), torch.hann_window(10)


@row(
  torch.randn(3, 4),
  torch.randn(2, 3, 5),
  torch.randn(2, 5, 4),
  tolerance={"rtol": 1e-4, "atol": 1e-4},
)
def sum_of_batched_products(self, x, y, z):
  return torch.addbmm(x, y, z)


@row(
  torch.randint(-100, 100, (32, 16), dtype=torch.int8),
  torch.randint(-64, 65, (16, 8), dtype=torch.int8),
)
def products_of_bytes(self, x, y):
  """PyTorch's library adds two products in 16 bits on CPUs without VNNI: 2 * 255 * 64 fits."""
  return torch._int_mm(x, y)


@row(torch.randn(3, 5), torch.randn(2, 5), tolerance={"rtol": 1e-4, "atol": 1e-4})
def distances(self, x, y):
  return torch.cdist(x, y)


@row(
  torch.randn(2, 1, 3, 4, 4),
  torch.rand(2, 3, 2, 2, 3) * 2 - 1,
  tolerance={"rtol": 1e-4, "atol": 1e-4},
)
def sampled_in_space(self, x, grid):
  return F.grid_sample(x, grid, align_corners=True)


@row(torch.randn(3, 4), 2, torch.tensor(True), 1.5)
def odd_scalars(self, x, n, flag, f):
  """Integers and bools for arguments that take any number."""
  return (
    torch.add(flag, x > 0, alpha=True),
    torch.add(x, 3, alpha=2),
    torch.pow(x.abs(), 2),
    x + True,
    torch.sub(x, f, alpha=n),
    torch.scalar_tensor(n) + x,
  )
