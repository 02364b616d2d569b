"""Plain models: layers, reuse, and sizes that are too large for a test but not for a range."""

import torch
from row_table import row_table
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

ROWS, row = row_table()
A = Dim("a", min=2, max=64)
AUTO = Dim.AUTO


@row(torch.randn(4, 8), torch.randn(4, 8))
class linear_and_sum(nn.Module):
  def __init__(self):
    super().__init__()
    self.linear = nn.Linear(8, 8)

  def forward(self, x, y):
    return x + self.linear(y)


@row(torch.randn(3, 8), shapes=({0: A},), cases=[(torch.randn(40, 8),)], runs=3)
class repeated_layers(nn.Module):
  """Three layers of one shape have the same kernels."""

  def __init__(self):
    super().__init__()
    self.layers = nn.ModuleList(
      nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Tanh()) for _ in range(3)
    )

  def forward(self, x):
    for layer in self.layers:
      x = x + layer(x)
    return x


@row(torch.randn(2, 3, 4), shapes=({0: Dim("large")},), cases=[(torch.randn(31, 3, 4),)])
def without_a_bound(self, x):
  return x.softmax(-1) * 2, x.sum((1, 2))


@row(
  torch.randn(4, 3),
  torch.randn(5, 3),
  torch.randn(6, 3),
  shapes=({0: AUTO}, {0: AUTO}, {0: AUTO}),
  cases=[(torch.randn(9, 3), torch.randn(2, 3), torch.randn(7, 3))],
)
def several_dynamic_kernels(self, x, y, z):
  return x * 2, y.exp() + 1, z.sum(1)


@row(
  [torch.randn(4, 3), torch.randn(5, 2)],
  shapes=([{0: AUTO}, {0: AUTO}],),
  cases=[([torch.randn(8, 3), torch.randn(3, 2)],)],
)
def over_a_list(self, parts):
  return torch._foreach_add(parts, 1.5)


@row(torch.randn(3, 4), torch.randn(4), torch.randn(5, 3))
def product_with_a_bias(self, x, b, y):
  return torch.addmm(b, y, x), F.linear(x, x, x.sum(1))


@row(torch.randn(4, 8), torch.randint(0, 10, (6,)), torch.tensor([0, 2, 5]))
class bag_of_words(nn.Module):
  def __init__(self):
    super().__init__()
    self.words = nn.EmbeddingBag(10, 3, mode="sum")
    self.layers = nn.Sequential(nn.Linear(8, 3), nn.ReLU())

  def forward(self, x, words, offsets):
    return self.layers(x)[:3] + self.words(words, offsets)


@row(torch.randint(-9, 9, (4, 5)), torch.randn(4, 5))
def clamped(self, n, x):
  return (
    n.clamp(-3, 3),
    n.clamp(min=-1.5),
    x.clamp(max=0.5),
    torch.clamp(x, x.new_tensor(-1.0), x.new_tensor(1.0)),
  )


@row(
  torch.randn(3, 2),
  torch.randn(3, 2),
  shapes=({0: AUTO}, {0: AUTO}),
  cases=[(torch.randn(8, 2), torch.randn(8, 2))],
)
def assert_of_metadata(self, x, y):
  return x.to(torch.float64) + y.to(torch.float64)


@row(torch.randn(4, 6), [2, 3])
def int_list(self, x, shape):
  return x.reshape(4, *shape)


@row(
  torch.randn(4, 2, 6),
  torch.randn(4, 6, 3),
  shapes=({0: A}, {0: A}),
  cases=[(torch.randn(9, 2, 6), torch.randn(9, 6, 3))],
)
def batched_products(self, x, y):
  return torch.bmm(x, y), x @ y + 1, torch.baddbmm(torch.ones(4, 2, 3)[:1], x, y)


@row(
  torch.randn(2, 4, 3, 8),
  torch.randn(2, 4, 5, 8),
  torch.randn(2, 4, 5, 8),
  torch.rand(2, 1, 3, 5) > 0.3,
)
def attention_with_mask(self, q, k, v, mask):
  return F.scaled_dot_product_attention(q, k, v, attn_mask=mask), F.scaled_dot_product_attention(
    q, k, v, scale=0.3
  )


@row(torch.randn(2, 8, 3, 4), torch.randn(2, 2, 3, 4), torch.randn(2, 2, 3, 4))
def attention_in_groups(self, q, k, v):
  return F.scaled_dot_product_attention(q, k, v, enable_gqa=True, is_causal=True)


@row(torch.randn(2, 3, 8))
class convolution_1d(nn.Module):
  def __init__(self):
    super().__init__()
    self.forth = nn.Conv1d(3, 4, 3, padding=1)
    self.back = nn.ConvTranspose1d(4, 2, 3, stride=2)

  def forward(self, x):
    return self.back(F.relu(self.forth(x)))


@row(
  torch.randn(2, 4, 6, 6), shapes=({0: A, 2: AUTO, 3: AUTO},), cases=[(torch.randn(3, 4, 8, 5),)]
)
class convolution_2d(nn.Module):
  """A grouped and dilated convolution with a norm."""

  def __init__(self):
    super().__init__()
    self.first = nn.Conv2d(4, 8, 3, padding=1, groups=2)
    self.norm = nn.BatchNorm2d(8).eval()
    self.second = nn.Conv2d(8, 3, 3, padding=2, dilation=2, bias=False)

  def forward(self, x):
    return self.second(F.silu(self.norm(self.first(x))))


@row(torch.randn(1, 2, 4, 5, 5))
class convolution_3d(nn.Module):
  def __init__(self):
    super().__init__()
    self.inner = nn.Conv3d(2, 3, 2, stride=2)

  def forward(self, x):
    return self.inner(x)


@row(torch.randn(2, 3, 8, 8))
def pooled(self, x):
  return (
    F.max_pool2d(x, 2),
    F.avg_pool2d(x, 3, 2),
    F.adaptive_avg_pool2d(x, 1),
    F.max_pool2d(x, 3, 2, return_indices=True),
  )


@row(
  torch.randn(3, 5),
  torch.tensor([4]),
  shapes=({1: AUTO}, {}),
  cases=[(torch.randn(3, 9), torch.tensor([2]))],
)
class sums_of_rows(nn.Module):
  """The index is itself a result."""

  def __init__(self):
    super().__init__()
    self.words = nn.Embedding(8, 5)

  def forward(self, x, at):
    return self.words(at % x.shape[1] % 8), x.cumsum(1), x.sort(1)[0]


@row(torch.randn(4, 6))
def scans(self, x):
  return x.cumsum(0), x.cumprod(1), x.logcumsumexp(1), x.cummax(1)[0]


@row(torch.randn(4, 10), shapes=({0: A},), cases=[(torch.randn(7, 10),)])
def ordered(self, x):
  return torch.topk(x, 3), torch.sort(x, descending=True), x.argmax(1), x.argsort(1), x.median(1)


@row(torch.randn(2, 3, 4), tolerance={"rtol": 1e-4, "atol": 1e-5})
def statistics(self, x):
  return (
    x.var(-1),
    x.std(),
    x.norm(dim=1),
    x.prod(-1),
    torch.var_mean(x, 0),
    x.logsumexp(1),
    x.any(),
    x.amin(-1),
  )
