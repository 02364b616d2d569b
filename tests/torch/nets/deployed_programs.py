"""Small programs of kinds that people deploy in 2026: states and memories, retrieval, routing,
search with beams, caches, and layers that are no products of matrices.

  python tests/torch/nets/deployed_programs.py, with the options of program_table.py"""

import math
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

import program_table  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from recent_programs import vary  # noqa: E402
from torch import nn  # noqa: E402

PROGRAMS = program_table.Programs()
program = PROGRAMS.add
# By program, words of a refusal that is known.
REFUSED = {}


@program
def state_space_of_complex_modes():
  """A linear recurrent unit: complex modes on a ring, as an associative scan of pairs."""
  from torch._higher_order_ops.associative_scan import associative_scan

  class Unit(nn.Module):
    def __init__(self):
      super().__init__()
      self.size = nn.Parameter(torch.rand(6) * 0.5)
      self.angle = nn.Parameter(torch.rand(6) * 3)
      self.into = nn.Parameter(torch.randn(2, 6, 4) / 3)
      self.out = nn.Parameter(torch.randn(2, 4, 6) / 3)

    def forward(self, x):
      size = torch.exp(-torch.exp(self.size))
      real, imag = size * self.angle.cos(), size * self.angle.sin()
      gain = torch.sqrt(1 - size * size)
      a = torch.einsum("blc,rmc->rblm", x, self.into) * gain
      start = (real.expand_as(a[0]), imag.expand_as(a[0]), a[0], a[1])

      def join(one, two):
        ar, ai, br, bi = one
        cr, ci, dr, di = two
        return (
          ar * cr - ai * ci,
          ar * ci + ai * cr,
          cr * br - ci * bi + dr,
          cr * bi + ci * br + di,
        )

      _, _, hr, hi = associative_scan(join, start, dim=1, combine_mode="generic")
      return torch.einsum("blm,cm->blc", hr, self.out[0]) - hi @ self.out[1].mT + x

  return vary(Unit(), lambda n: (torch.randn(2, n, 4),), [{1: "n"}], (8, 3, 21))


@program
def memory_with_exponential_gates():
  """The matrix memory of an xLSTM, whose exponential gates a running maximum keeps in range."""
  from torch._higher_order_ops.scan import scan

  class Memory(nn.Module):
    def __init__(self):
      super().__init__()
      self.qkv, self.gates = nn.Linear(6, 12), nn.Linear(6, 2)

    def forward(self, x, memory, norm, top):
      def step(state, token):
        memory, norm, top = state
        q, k, v, gates = token
        log_forget = F.logsigmoid(gates[:, 0] * 3)
        after = torch.maximum(log_forget + top, gates[:, 1] * 3)
        forget = torch.exp(log_forget + top - after)[:, None]
        write = torch.exp(gates[:, 1] * 3 - after)[:, None]
        memory = forget[..., None] * memory + write[..., None] * v[:, :, None] * k[:, None]
        norm = forget * norm + write * k
        scale = torch.maximum((norm * q).sum(1, keepdim=True).abs(), torch.exp(-after)[:, None])
        result = (memory @ q[..., None])[..., 0] / scale
        return (memory, norm, after), result

      q, k, v = self.qkv(x).chunk(3, -1)
      tokens = tuple(one.transpose(0, 1).contiguous() for one in (q, k / 2, v, self.gates(x)))
      state, y = scan(step, (memory, norm, top), tokens)
      return y.transpose(0, 1), *state

  def arguments(n):
    return torch.randn(2, n, 6), torch.zeros(2, 4, 4), torch.zeros(2, 4), torch.zeros(2)

  return vary(Memory(), arguments, [{1: "n"}, None, None, None], (5, 2, 17))


@program
def late_interaction_of_tokens():
  """A reranker by the best token of a document for each of a query (ColBERT), and ranks of several
  lists that become one."""

  class Reranker(nn.Module):
    def __init__(self):
      super().__init__()
      self.words, self.small = nn.Embedding(40, 16), nn.Linear(16, 8, bias=False)

    def forward(self, query, documents, lengths, lexical):
      q = F.normalize(self.small(self.words(query)), dim=-1)
      d = F.normalize(self.small(self.words(documents)), dim=-1)
      scores = torch.einsum("qe,nte->nqt", q, d)
      there = torch.arange(documents.shape[1]) < lengths[:, None]
      scores = scores.masked_fill(~there[:, None], float("-inf"))
      best, where = scores.max(-1)
      total = best.sum(-1)
      ranks = [one.argsort(descending=True, stable=True).argsort() for one in (total, lexical)]
      joined = sum(1 / (60 + rank) for rank in ranks)
      order = joined.argsort(descending=True, stable=True)
      return total, where, order[:3], joined[order]

  def arguments(n):
    query, documents = torch.randint(0, 40, (5,)), torch.randint(0, 40, (n, 9))
    return query, documents, torch.randint(1, 10, (n,)), torch.randn(n)

  dims = [None, {0: "n"}, {0: "n"}, {0: "n"}]
  return vary(Reranker(), arguments, dims, (7, 4, 30), least={"n": 3})


@program
def layer_of_splines():
  """Two layers of a Kolmogorov-Arnold network: B-splines by their recurrence, and a base."""

  class Splines(nn.Module):
    def __init__(self, inputs, outputs):
      super().__init__()
      knots = torch.arange(-3, 9) * 0.4 - 1
      self.register_buffer("knots", knots.expand(inputs, -1).contiguous())
      self.base = nn.Parameter(torch.randn(outputs, inputs) / 3)
      self.weight = nn.Parameter(torch.randn(outputs, inputs, 8) / 3)

    def forward(self, x):
      knots, x_ = self.knots, x[..., None]
      bases = ((x_ >= knots[:, :-1]) & (x_ < knots[:, 1:])).to(x.dtype)
      for k in range(1, 4):
        left = (x_ - knots[:, : -(k + 1)]) / (knots[:, k:-1] - knots[:, : -(k + 1)])
        right = (knots[:, k + 1 :] - x_) / (knots[:, k + 1 :] - knots[:, 1:-k])
        bases = left * bases[..., :-1] + right * bases[..., 1:]
      return F.silu(x) @ self.base.mT + F.linear(bases.flatten(-2), self.weight.flatten(1))

  model = nn.Sequential(Splines(4, 6), Splines(6, 2))
  return vary(model, lambda n: (torch.randn(n, 4),), [{0: "n"}], (5, 2, 19))


@program
def experts_that_choose_tokens():
  """Each expert takes its best tokens, as many as a share of them, and results add up."""

  class Experts(nn.Module):
    def __init__(self):
      super().__init__()
      self.router = nn.Linear(8, 4)
      self.up = nn.Parameter(torch.randn(4, 8, 12) / 3)
      self.down = nn.Parameter(torch.randn(4, 12, 8) / 3)

    def forward(self, x):
      flat = x.flatten(0, 1)
      gates = self.router(flat).softmax(-1).mT
      weights, chosen = gates.topk(flat.shape[0] // 4, dim=-1)
      hidden = F.gelu(torch.bmm(flat[chosen], self.up))
      result = torch.bmm(hidden, self.down) * weights[..., None]
      y = torch.zeros_like(flat).index_add(0, chosen.flatten(), result.flatten(0, 1))
      served = torch.bincount(chosen.flatten(), minlength=flat.shape[0])
      return y.view_as(x), served

  return vary(Experts(), lambda n: (torch.randn(2, n, 8),), [{1: "n"}], (8, 4, 15))


@program
def buckets_of_distances():
  """Attention with a bias for each bucket of distances, near ones exact and far ones logarithmic
  (T5), of queries that continue a prefix."""

  class Buckets(nn.Module):
    def __init__(self):
      super().__init__()
      self.bias, self.q = nn.Embedding(16, 2), nn.Linear(8, 8)
      self.kv = nn.Linear(8, 16)

    def forward(self, x, prefix):
      keys = torch.cat((prefix, x), 1)
      place = torch.arange(keys.shape[1])
      distance = place[None] - place[prefix.shape[1] :, None]
      side = (distance > 0).long() * 8
      size = distance.abs()
      far = 4 + (torch.log(size.clamp(min=1).float() / 4) / math.log(32) * 4).long()
      bucket = side + torch.where(size < 4, size, far.clamp(max=7))
      bias = self.bias(bucket).permute(2, 0, 1)
      q = self.q(x).unflatten(-1, (2, 4)).transpose(1, 2)
      k, v = self.kv(keys).unflatten(-1, (2, 2, 4)).permute(2, 0, 3, 1, 4)
      y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None], scale=1.0)
      return y.transpose(1, 2).flatten(2), bucket

  def arguments(n):
    return torch.randn(2, n, 8), torch.randn(2, 2 * n + 1, 8)

  return vary(Buckets(), arguments, [{1: "n"}, {1: "m"}], (4, 2, 21))


@program
def flow_with_a_trace():
  """Runge and Kutta's step of a continuous normalizing flow, with the trace of the Jacobian by a
  product with a random vector."""

  class Step(nn.Module):
    def __init__(self):
      super().__init__()
      self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))

    def speed(self, t, x, noise):
      def at(x):
        return self.net(torch.cat((x, t.expand(x.shape[0], 1)), -1))

      value, change = torch.func.jvp(at, (x,), (noise,))
      return value, (change * noise).sum(-1)

    def forward(self, x, noise, start, length):
      half = start + length / 2
      k1, t1 = self.speed(start, x, noise)
      k2, t2 = self.speed(half, x + length / 2 * k1, noise)
      k3, t3 = self.speed(half, x + length / 2 * k2, noise)
      k4, t4 = self.speed(start + length, x + length * k3, noise)
      after = x + length / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
      return after, -length / 6 * (t1 + 2 * t2 + 2 * t3 + t4)

  def arguments(n):
    return torch.randn(n, 3), torch.randn(n, 3), torch.rand(()), torch.full((), 0.1)

  return vary(Step(), arguments, [{0: "n"}, {0: "n"}, None, None], (4, 2, 11))


@program
def bytes_in_patches():
  """Bytes become patches where the next byte is hard to guess; each patch is the largest of its
  bytes, and its vector goes back to them (a byte latent transformer)."""

  class Patches(nn.Module):
    def __init__(self):
      super().__init__()
      self.bytes, self.guess = nn.Embedding(256, 8), nn.Linear(8, 256)
      self.hashes, self.patch = nn.Embedding(61, 8), nn.Linear(8, 8)

    def forward(self, text):
      wide = F.pad(text.long(), (2, 0))
      three = wide.unfold(1, 3, 1)
      number = (three * torch.tensor([65536, 256, 1])).sum(-1) * 2654435761 % 4294967296
      x = self.bytes(text.long()) + self.hashes(number % 61)
      logs = self.guess(x * 6).log_softmax(-1)
      entropy = -(logs.exp() * logs).sum(-1)
      begins = F.pad(entropy[:, :-1] > entropy.mean(1, keepdim=True), (1, 0), value=True)
      of = begins.long().cumsum(1) - 1
      index = of[..., None].expand_as(x)
      patches = torch.full_like(x, -1e9).scatter_reduce(1, index, x, "amax")
      there = patches[..., :1] > -1e8
      patches = torch.where(there, self.patch(patches), 0.0)
      lengths = torch.zeros_like(of).scatter_add(1, of, torch.ones_like(of))
      return x + patches.gather(1, index), entropy, lengths, of[:, -1] + 1

  def arguments(n):
    return (torch.randint(0, 256, (2, n), dtype=torch.uint8),)

  return vary(Patches(), arguments, [{1: "n"}], (12, 4, 37), least={"n": 3})


@program
def distances_in_the_ball():
  """Hyperbolic embeddings: a linear layer in the Poincare ball, distances to prototypes, and
  Einstein's midpoint."""

  class Ball(nn.Module):
    def __init__(self):
      super().__init__()
      self.weight = nn.Parameter(torch.randn(4, 5) / 3)
      self.shift = nn.Parameter(torch.randn(4) / 10)
      self.prototypes = nn.Parameter(torch.randn(6, 4) / 5)

    @staticmethod
    def added(x, y):
      xy = (x * y).sum(-1, keepdim=True)
      x2, y2 = x.square().sum(-1, keepdim=True), y.square().sum(-1, keepdim=True)
      above = (1 + 2 * xy + y2) * x + (1 - x2) * y
      return above / (1 + 2 * xy + x2 * y2).clamp(min=1e-9)

    def forward(self, x):
      size = x.norm(dim=-1, keepdim=True).clamp(min=1e-6)
      point = torch.tanh(size) * x / size
      moved = point @ self.weight.mT
      before, after = point.norm(dim=-1, keepdim=True), moved.norm(dim=-1, keepdim=True)
      turned = torch.tanh(after / before * torch.atanh(before.clamp(max=1 - 1e-5))) * moved / after
      y = self.added(turned, self.shift)
      y = y * ((1 - 1e-3) / y.norm(dim=-1, keepdim=True)).clamp(max=1.0)
      gap = self.added(-y[:, None], self.prototypes)
      distance = 2 * torch.atanh(gap.norm(dim=-1).clamp(max=1 - 1e-5))
      klein = 2 * y / (1 + y.square().sum(-1, keepdim=True))
      gamma = torch.rsqrt(1 - klein.square().sum(-1, keepdim=True))
      middle = (gamma * klein).sum(0) / gamma.sum(0)
      squared = (y[:, None] - y).square().sum(-1)
      inner = 1 - y.square().sum(-1)
      pairs = torch.acosh((1 + 2 * squared / (inner[:, None] * inner)).clamp(min=1.0))
      return (-distance).softmax(-1), middle, pairs + torch.eye(x.shape[0])

  return vary(Ball(), lambda n: (torch.randn(n, 5),), [{0: "n"}], (5, 2, 14))


@program
def search_with_beams():
  """The whole search with beams of a small decoder: a loop that ends when all beams have, scores by
  length, states in a new order, and tokens back from the parents."""

  class Search(nn.Module):
    def __init__(self):
      super().__init__()
      self.words, self.cell, self.head = nn.Embedding(9, 8), nn.GRUCell(8, 8), nn.Linear(8, 9)

    def forward(self, start):
      batch, beams, most = start.shape[0], 3, 7

      def goes_on(step, tokens, scores, ended, state):
        return (step < most) & ~ended.all()

      def continued(step, tokens, scores, ended, state):
        last = tokens.gather(2, step.expand(batch, beams, 1))[..., 0]
        state = self.cell(self.words(last).flatten(0, 1), state.flatten(0, 1))
        logs = (self.head(state) * 3).log_softmax(-1).view(batch, beams, 9)
        only = torch.where(torch.arange(9) == 0, 0.0, float("-inf"))
        logs = torch.where(ended[..., None], only, logs)
        scores, best = (scores[..., None] + logs).flatten(1).topk(beams, -1)
        parent, token = best // 9, best % 9
        tokens = tokens.gather(1, parent[..., None].expand_as(tokens))
        place = (step + 1).expand(batch, beams, 1)
        tokens = tokens.scatter(2, place, token[..., None])
        ended = ended.gather(1, parent) | (token == 0)
        state = state.view(batch, beams, 8).gather(1, parent[..., None].expand(-1, -1, 8))
        return step + 1, tokens, scores, ended, state

      tokens = torch.zeros(batch, beams, most + 1, dtype=torch.long)
      tokens[:, :, 0] = 1
      scores = torch.tensor([0.0, float("-inf"), float("-inf")]).repeat(batch, 1)
      ended = torch.zeros(batch, beams, dtype=torch.bool)
      state = start[:, None].repeat(1, beams, 1)
      first = torch.zeros((), dtype=torch.long), tokens, scores, ended, state
      found = torch._higher_order_ops.while_loop(goes_on, continued, first)
      lengths = (found[1][..., 1:] != 0).sum(-1) + 1
      final = found[2] / lengths**0.6
      order = final.argsort(-1, descending=True)
      tokens = found[1].gather(1, order[..., None].expand_as(found[1]))
      return tokens, final.gather(1, order), found[0]

  return vary(Search(), lambda n: (torch.randn(n, 8),), [{0: "n"}], (2, 4, 7))


@program
def attention_in_a_window_and_globally():
  """Attention of each block to itself and its neighbours without the matrix of all pairs, and of
  all to the first tokens, which see all (Longformer)."""

  class Local(nn.Module):
    def __init__(self):
      super().__init__()
      self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
      batch, length, _ = x.shape
      count = (length + 3) // 4
      rest = count * 4 - length
      q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
      first_k, first_v = k[:, :, :2], v[:, :, :2]
      wide = [F.pad(one, (0, 0, 4, 4 + rest)).unfold(2, 12, 4).mT for one in (k, v)]
      there = F.pad(torch.ones(length, dtype=torch.bool), (4, 4 + rest)).unfold(0, 12, 4)
      there = there & (torch.arange(count)[:, None] * 4 + torch.arange(12) - 4 >= 2)
      blocks = F.pad(q, (0, 0, 0, rest)).unflatten(2, (-1, 4))
      near = blocks @ wide[0].mT / 2
      near = near.masked_fill(~there[:, None], float("-inf"))
      far = torch.einsum("bhnqe,bhge->bhnqg", blocks, first_k) / 2
      weights = torch.cat((far, near), -1).softmax(-1)
      y = torch.einsum("bhnqg,bhge->bhnqe", weights[..., :2], first_v) + weights[..., 2:] @ wide[1]
      y = y.flatten(2, 3)[:, :, :length]
      whole = F.scaled_dot_product_attention(q[:, :, :2], k, v)
      y = torch.cat((whole, y[:, :, 2:]), 2)
      return self.out(y.transpose(1, 2).flatten(2))

  return vary(Local(), lambda n: (torch.randn(2, n, 8),), [{1: "n"}], (13, 8, 30), least={"n": 5})


@program
def number_and_flag_of_the_data():
  """A flag and a number that `.item()` makes, which tensors are multiplied with and chosen by."""

  def function(x, y):
    flag = (x.sum() > 0).item()
    top = x.amax().item()
    many = (y > 0).sum().item()
    torch._check(many >= 0)
    return x * flag, x + flag, y * many + flag, torch.where(y > 0, top, x), x / (1 + many)

  def arguments(n):
    return torch.randn(n, 3), torch.randint(-3, 4, (n, 3))

  return vary(function, arguments, [{0: "n"}] * 2, (4, 2, 9))


@program
def cache_that_forgets():
  """A cache of keys that keeps what the last queries looked at most and the newest, and quantizes
  the values that stay."""

  def function(query, keys, values, recent):
    scores = (query @ keys.mT / 2).softmax(-1).sum((0, 1))
    pooled = F.avg_pool1d(scores[None, None], 3, 1, 1)[0, 0]
    old = keys.shape[1] - recent.shape[0]
    place = pooled[:old].topk(4).indices.sort().values
    place = torch.cat((place, torch.arange(recent.shape[0]) + old))
    kept_keys, kept = keys[:, place], values[:, place]
    low, high = kept.aminmax(dim=-1, keepdim=True)
    scale = ((high - low) / 15).clamp(min=1e-6)
    codes = ((kept - low) / scale).round().clamp(0, 15).to(torch.uint8)
    packed = codes[..., ::2] | (codes[..., 1::2] << 4)
    again = torch.stack((packed & 15, packed >> 4), -1).flatten(-2) * scale + low
    return place, kept_keys, packed, F.scaled_dot_product_attention(query, kept_keys, again)

  def arguments(n):
    return torch.randn(2, 3, 4), torch.randn(2, n, 4), torch.randn(2, n, 4), torch.zeros(2)

  return vary(function, arguments, [None, {1: "n"}, {1: "n"}, None], (12, 7, 30), least={"n": 6})


@program
def features_of_a_sparse_autoencoder():
  """The largest features over all rows of a batch together, those above a threshold of their own,
  what they explain, and features that never fire."""

  class Features(nn.Module):
    def __init__(self):
      super().__init__()
      self.encode = nn.Linear(8, 32)
      self.decode = nn.Parameter(F.normalize(torch.randn(32, 8), dim=-1))
      self.register_buffer("since", torch.zeros(32, dtype=torch.long))
      self.register_buffer("bound", torch.rand(32))

    def forward(self, x):
      middle = x.mean(0)
      all_ = F.relu(self.encode(x - middle))
      best = all_.flatten().topk(3 * x.shape[0])
      batch = torch.zeros_like(all_.flatten()).scatter(0, best.indices, best.values).view_as(all_)
      jump = all_ * (all_ > self.bound)
      fired = (batch > 0).any(0)
      self.since.copy_(torch.where(fired, 0, self.since + x.shape[0]))
      again = batch @ self.decode + middle
      explained = 1 - (x - again).var() / x.var()
      rows, features = torch.nonzero(jump, as_tuple=True)
      return again, explained, self.since.clone(), rows, features, jump[rows, features]

  return vary(Features(), lambda n: (torch.randn(n, 8),), [{0: "n"}], (5, 2, 12))


@program
def likes_of_a_history():
  """The ranking of candidates by a history of lengths that differ: attention by pairs, crossings of
  features, tables by quotient and remainder, and the area under the curve."""

  class Ranking(nn.Module):
    def __init__(self):
      super().__init__()
      self.quotient, self.remainder = nn.Embedding(10, 6), nn.Embedding(11, 6)
      self.pair = nn.Sequential(nn.Linear(24, 8), nn.PReLU(), nn.Linear(8, 1))
      self.cross = nn.ModuleList(nn.Linear(18, 18) for _ in range(2))
      self.bags = nn.EmbeddingBag(20, 6, mode="mean")
      self.last = nn.Linear(18, 1)

    def rows(self, number):
      return self.quotient(number // 11) * self.remainder(number % 11)

    def forward(self, history, lengths, item, tags, offsets, clicked):
      past, now = self.rows(history), self.rows(item)[:, None].expand(-1, history.shape[1], -1)
      weights = self.pair(torch.cat((past, now, past - now, past * now), -1))[..., 0]
      weights = weights * (torch.arange(history.shape[1]) < lengths[:, None])
      taste = (weights[..., None] * past).sum(1)
      first = x = torch.cat((taste, now[:, 0], self.bags(tags, offsets)), -1)
      for layer in self.cross:
        x = first * layer(x) + x
      score = self.last(x)[:, 0]
      better = (score[:, None] > score).float() + 0.5 * (score[:, None] == score)
      pairs = clicked[:, None] & ~clicked
      return score.sigmoid(), (better * pairs).sum() / pairs.sum().clamp(min=1)

  def arguments(n):
    history, item = torch.randint(0, 110, (n, 5)), torch.randint(0, 110, (n,))
    tags, offsets = torch.randint(0, 20, (2 * n + 3,)), torch.arange(n) * 2
    return history, torch.randint(1, 6, (n,)), item, tags, offsets, torch.rand(n) > 0.5

  dims = [{0: "n"}, {0: "n"}, {0: "n"}, {0: "tags"}, {0: "n"}, {0: "n"}]
  return vary(Ranking(), arguments, dims, (4, 2, 11))


if __name__ == "__main__":
  program_table.main(__doc__, PROGRAMS, REFUSED)
