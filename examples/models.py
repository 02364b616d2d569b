"""Small models to export and run. The functions that MODELS lists return (model, args,
dynamic_shapes). Weights and inputs come from a fixed seed, so that every export writes the same
bytes.

  python -m husk examples/models.py:gpt -o gpt.husk
"""

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F


class Sum(nn.Module):
  """The sum of all elements of two tensors."""

  def forward(self, x, y):
    return (x + y).sum()


def sum_of_two():
  rows = Dim("rows", min=1, max=1024)
  return Sum(), (torch.randn(4, 5), torch.randn(4, 5)), {"x": {0: rows}, "y": {0: rows}}


class Mlp(nn.Module):
  """Two linear layers with a LayerNorm between them, and a buffer that counts the calls."""

  def __init__(self, inputs=32, hidden=64, outputs=10):
    super().__init__()
    self.up = nn.Linear(inputs, hidden)
    self.norm = nn.LayerNorm(hidden)
    self.down = nn.Linear(hidden, outputs)
    self.register_buffer("counter", torch.zeros((), dtype=torch.int64))

  def forward(self, x):
    self.counter.add_(1)
    return {"logits": self.down(self.norm(F.gelu(self.up(x)))), "calls": self.counter + 0}


def mlp():
  torch.manual_seed(1)
  return Mlp().eval(), (torch.randn(4, 32),), {"x": {0: Dim("batch", min=1, max=64)}}


class Block(nn.Module):
  """One layer of a GPT: causal attention, then a feed-forward part. Each of the two applies a
  LayerNorm to its input first, and its result is added to the input."""

  def __init__(self, width, heads):
    super().__init__()
    self.heads = heads
    self.norm_in = nn.LayerNorm(width)
    self.qkv = nn.Linear(width, 3 * width)
    self.out = nn.Linear(width, width)
    self.norm_mid = nn.LayerNorm(width)
    self.up = nn.Linear(width, 4 * width)
    self.down = nn.Linear(4 * width, width)

  def forward(self, x):
    batch, length, width = x.shape
    q, k, v = (
      part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
      for part in self.qkv(self.norm_in(x)).split(width, dim=-1)
    )
    attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
    return x + self.down(F.gelu(self.up(self.norm_mid(x))))


class Gpt(nn.Module):
  """A GPT: embeddings of tokens and positions, blocks, and a head that shares its weight with the
  token embedding."""

  def __init__(self, vocabulary=256, width=128, layers=4, heads=4, context=128):
    super().__init__()
    self.tokens = nn.Embedding(vocabulary, width)
    self.positions = nn.Embedding(context, width)
    self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
    self.norm = nn.LayerNorm(width)
    self.head = nn.Linear(width, vocabulary, bias=False)
    self.head.weight = self.tokens.weight

  def forward(self, tokens):
    x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
    for block in self.blocks:
      x = block(x)
    return self.head(self.norm(x))


def gpt():
  torch.manual_seed(2)
  shapes = {"tokens": {0: Dim("batch", min=1, max=8), 1: Dim("length", min=1, max=128)}}
  return Gpt().eval(), (torch.randint(0, 256, (2, 16)),), shapes


class CachedBlock(Block):
  """A Block with a cache of keys and values. Row i of `x` is the token at position `at[i]`, which
  attends to itself and to all earlier positions."""

  def __init__(self, width, heads, context):
    super().__init__(width, heads)
    self.register_buffer("keys", torch.zeros(heads, context, width // heads))
    self.register_buffer("values", torch.zeros(heads, context, width // heads))

  def forward(self, x, at):
    length, width = x.shape
    q, k, v = (
      part.view(length, self.heads, width // self.heads).transpose(0, 1)
      for part in self.qkv(self.norm_in(x)).split(width, dim=-1)
    )
    self.keys.index_copy_(1, at, k)
    self.values.index_copy_(1, at, v)
    seen = torch.arange(self.keys.shape[1], device=x.device) <= at[:, None]
    attended = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=seen)
    x = x + self.out(attended.transpose(0, 1).reshape(length, width))
    return x + self.down(F.gelu(self.up(self.norm_mid(x))))


class CachedGpt(Gpt):
  """A Gpt that continues one sequence. `prefill` takes the first tokens of the sequence, `decode`
  takes the next token; both return the logits of the token that follows. The caches and the
  position are buffers that both methods use, and become state of the session."""

  def __init__(self, vocabulary=256, width=128, layers=4, heads=4, context=128):
    super().__init__(vocabulary, width, layers, heads, context)
    self.blocks = nn.ModuleList(CachedBlock(width, heads, context) for _ in range(layers))
    # The head has a weight of its own: an untrained model with a tied head repeats the last token.
    self.head = nn.Linear(width, vocabulary, bias=False)
    self.register_buffer("position", torch.zeros(1, dtype=torch.int64))

  def prefill(self, tokens):
    self.position.zero_()
    return self.decode(tokens)

  def decode(self, tokens):
    at = self.position + torch.arange(tokens.shape[0], device=tokens.device)
    self.position.add_(tokens.shape[0])
    x = self.tokens(tokens) + self.positions(at)
    for block in self.blocks:
      x = block(x, at)
    return self.head(self.norm(x[-1]))


def generate():
  """Two functions of one model, which examples/generate runs."""
  import husk

  torch.manual_seed(4)
  model = CachedGpt().eval()
  prompt, token = torch.arange(8), torch.zeros(1, dtype=torch.int64)
  return {
    "prefill": husk.Function(
      model,
      (prompt,),
      dynamic_shapes={"tokens": {0: Dim("length", min=1, max=128)}},
      method="prefill",
    ),
    "decode": husk.Function(model, (token,), method="decode"),
  }


class Branches(nn.Module):
  """Two independent chains of steps, whose results are added. The steps are softmaxes and
  normalisations over alternating axes, so that no two steps of a chain fuse into one kernel.
  `power` is an int that kernels take as an argument."""

  def forward(self, x, y, power):
    torch._check(power >= 1)
    torch._check(power <= 100)
    for _ in range(2):
      x = torch.softmax(x * power, dim=0)
      x = torch.softmax(x + power, dim=1)
    for _ in range(2):
      y = y / (y.abs().sum(dim=0, keepdim=True) + power)
      y = y / (y.abs().sum(dim=1, keepdim=True) + 1)
    return x + y


def branches():
  torch.manual_seed(3)
  rows = Dim("rows", min=2, max=512)
  return (
    Branches(),
    (torch.randn(8, 48), torch.randn(8, 48), 3),
    {"x": {0: rows}, "y": {0: rows}, "power": Dim.DYNAMIC},
  )


MODELS = {"sum": sum_of_two, "mlp": mlp, "gpt": gpt, "branches": branches}
