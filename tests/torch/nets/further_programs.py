"""More small programs of kinds that people write in 2026: states, scans, loops and branches,
gradients inside a model, a number of results that the data decides, and numbers at their ends.

  python tests/torch/nets/further_programs.py, with the options of program_table.py"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

import program_table  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from program_table import of  # noqa: E402
from recent_programs import vary  # noqa: E402
from torch import nn  # noqa: E402

PROGRAMS = program_table.Programs()
program = PROGRAMS.add
# By program, words of a refusal that is known.
REFUSED: dict[str, str] = {}


@program
def scan_of_a_selective_state():
  """A state space whose decay the input chooses, as an associative scan (Mamba-2)."""
  from torch._higher_order_ops.associative_scan import associative_scan

  class Selective(nn.Module):
    def __init__(self):
      super().__init__()
      self.enter, self.leave = nn.Linear(8, 2 * 8 + 2 * 4 + 2), nn.Linear(8, 8)
      self.rate = nn.Parameter(torch.randn(2))

    def forward(self, x):
      z, u, b, c, step = self.enter(x).split([8, 8, 4, 4, 2], -1)
      step = F.softplus(step)
      decay = (-self.rate.exp() * step)[..., None, None].exp()
      u = u.unflatten(-1, (2, 4)) * step[..., None]
      update = u[..., None] * b[:, :, None, None]

      def combine(left, right):
        return left[0] * right[0], left[1] * right[0] + right[1]

      decay = decay.expand_as(update)
      _, states = associative_scan(combine, (decay, update), dim=1, combine_mode="generic")
      y = (states * c[:, :, None, None]).sum(-1).flatten(2)
      return self.leave(y * F.silu(z)), states[:, -1]

  return vary(Selective(), lambda n: (torch.randn(n, 13, 8),), [{0: "n"}], (2, 3, 6))


@program
def delta_rule_in_chunks():
  """Linear attention that corrects what it has stored, with a triangular solve for each chunk."""

  def function(q, k, v, beta, decay):
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    chunk = 4
    q, k, v, beta, decay = (
      one.unflatten(2, (-1, chunk)) for one in (q, k, v, beta[..., None], decay[..., None])
    )
    total = decay.cumsum(3)
    fade = (total - total.mT).tril().exp().tril()
    lower = (beta * (k @ k.mT) * fade).tril(-1)
    eye = torch.eye(chunk)
    solved = torch.linalg.solve_triangular(
      eye + lower, beta * torch.cat((v, k * total.exp()), -1), upper=False, unitriangular=True
    )
    values, keys = solved.split([v.shape[-1], k.shape[-1]], -1)
    state = q.new_zeros(q.shape[0], q.shape[1], k.shape[-1], v.shape[-1])
    out = []
    for i in range(3):
      new = values[:, :, i] - keys[:, :, i] @ state
      inner = (q[:, :, i] @ k[:, :, i].mT) * fade[:, :, i]
      out.append(q[:, :, i] * total[:, :, i].exp() @ state + inner @ new)
      last = total[:, :, i, -1:]
      state = state * last.exp() + (k[:, :, i] * (last - total[:, :, i]).exp()).mT @ new
    return torch.stack(out, 2).flatten(2, 3), state

  def arguments(n):
    q, k, v = (torch.randn(n, 2, 12, 6) for _ in range(3))
    return q, k, v, torch.rand(n, 2, 12), -torch.rand(n, 2, 12)

  return vary(function, arguments, [{0: "n"}] * 5, (2, 3, 5))


@program
def window_of_keys_as_a_ring():
  """A cache of the last eight keys and values, whose oldest a step overwrites."""

  class Ring(nn.Module):
    def __init__(self):
      super().__init__()
      self.project, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
      self.register_buffer("keys", torch.zeros(2, 2, 8, 8))
      self.register_buffer("values", torch.zeros(2, 2, 8, 8))
      self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, x):
      q, k, v = self.project(x).view(2, -1, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
      places = (self.seen + torch.arange(x.shape[1])) % 8
      self.keys.index_copy_(2, places, k)
      self.values.index_copy_(2, places, v)
      self.seen.add_(x.shape[1])
      age = (self.seen - 1 - torch.arange(8)) % 8
      y = F.scaled_dot_product_attention(
        q, self.keys, self.values, attn_mask=(age < self.seen)[None]
      )
      return self.out(y.transpose(1, 2).flatten(2)), self.seen.clone()

  return vary(Ring(), lambda n: (torch.randn(2, n, 16),), [{1: "n"}], (3, 2, 5))


@program
def step_of_a_beam_search():
  """The best continuations of four beams, some of which have ended, and caches in a new order."""

  def function(logits, scores, ended, cache, lengths):
    word = logits.log_softmax(-1)
    only_end = torch.full_like(word, float("-inf"))
    only_end[..., 0] = 0.0
    word = torch.where(ended[..., None], only_end, word)
    total = (scores[..., None] + word).flatten(1)
    lengths = lengths + (~ended).long()
    norm = ((5 + lengths) / 6.0).pow(0.6).repeat_interleave(logits.shape[-1], 1)
    _, places = (total / norm).topk(4, -1)
    beam, token = places // logits.shape[-1], places % logits.shape[-1]
    at = beam[:, None, :, None, None].expand(-1, cache.shape[1], -1, *cache.shape[3:])
    ended = ended.gather(1, beam) | (token == 0)
    return token, total.gather(1, places), ended, cache.gather(2, at), lengths.gather(1, beam)

  def arguments(n):
    ended = torch.tensor([[False, True, False, False]] * 2)
    return (
      torch.randn(2, 4, 9),
      torch.randn(2, 4),
      ended,
      torch.randn(2, 3, 4, n, 5),
      torch.ones(2, 4, dtype=torch.long) * n,
    )

  return vary(function, arguments, [None, None, None, {3: "n"}, None], (6, 2, 11))


@program
def forces_of_a_potential():
  """Energy of atoms by radial functions and a network, and forces as its gradient."""

  class Potential(nn.Module):
    def __init__(self):
      super().__init__()
      self.kinds = nn.Embedding(5, 4)
      self.net = nn.Sequential(nn.Linear(8 + 4, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, places, kinds):
      with torch.enable_grad():
        places = places.detach().requires_grad_()
        apart = places[:, None] - places[None]
        distance = (apart.square().sum(-1) + torch.eye(places.shape[0])).sqrt()
        centres = torch.linspace(0.5, 4, 8)
        radial = (-2 * (distance[..., None] - centres).square()).exp()
        cut = 0.5 * (torch.cos(distance.clamp(max=5) * torch.pi / 5) + 1)
        weights = (cut * (1 - torch.eye(places.shape[0])))[..., None]
        features = torch.cat(((radial * weights).sum(1), self.kinds(kinds)), -1)
        energy = self.net(features).sum()
        (gradient,) = torch.autograd.grad(energy, places)
      return energy.detach(), -gradient

  def arguments(n):
    return torch.randn(n, 3) * 2, torch.randint(0, 5, (n,))

  return vary(Potential(), arguments, [{0: "n"}] * 2, (6, 3, 14))


@program
def step_of_an_optimizer_that_orthogonalizes():
  """The momentum of a matrix, whose singular values five steps make equal (Muon), written to the
  arguments."""

  def function(weight, momentum, gradient, rate):
    momentum.mul_(0.95).add_(gradient)
    x = gradient + 0.95 * momentum
    x = x / (x.norm() + 1e-7)
    if x.shape[0] > x.shape[1]:
      x = x.mT
    for _ in range(5):
      gram = x @ x.mT
      x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    if weight.shape[0] > weight.shape[1]:
      x = x.mT
    weight.mul_(1 - 0.01 * rate).sub_(rate * x)
    return weight.norm(), momentum.clone()

  return of(
    function, torch.randn(12, 7), torch.randn(12, 7), torch.randn(12, 7), torch.tensor(0.02)
  )


@program
def codec_of_sounds():
  """Convolutions whose weights have norms, codes by rounds of nearest vectors, a sound again."""

  class Snake(nn.Module):
    def __init__(self, channels):
      super().__init__()
      self.alpha = nn.Parameter(torch.rand(1, channels, 1) + 0.5)

    def forward(self, x):
      return x + (self.alpha * x).sin().square() / (self.alpha + 1e-9)

  class Codec(nn.Module):
    def __init__(self):
      super().__init__()
      norm = nn.utils.parametrizations.weight_norm
      self.enter = nn.Sequential(
        norm(nn.Conv1d(1, 8, 7, padding=3)), Snake(8), norm(nn.Conv1d(8, 6, 4, 2, 1))
      )
      self.leave = nn.Sequential(
        norm(nn.ConvTranspose1d(6, 8, 4, 2, 1)), Snake(8), nn.Conv1d(8, 1, 3, padding=1)
      )
      self.books = nn.ParameterList([nn.Parameter(torch.randn(10, 6)) for _ in range(3)])

    def forward(self, sound):
      rest, codes = self.enter(sound).mT, []
      total = torch.zeros_like(rest)
      for book in self.books:
        place = torch.cdist(rest, book.expand(rest.shape[0], -1, -1)).argmin(-1)
        chosen = F.embedding(place, book)
        total, rest = total + chosen, rest - chosen
        codes.append(place)
      return self.leave(total.mT).tanh(), torch.stack(codes, 1), rest.square().mean((1, 2))

  return vary(Codec(), lambda n: (torch.randn(n, 1, 40),), [{0: "n"}], (2, 3, 5))


@program
def attention_at_offsets():
  """Queries that read a few points of maps of several sizes (deformable attention)."""

  class Points(nn.Module):
    def __init__(self):
      super().__init__()
      self.value, self.out = nn.Linear(16, 16), nn.Linear(16, 16)
      self.offsets, self.weights = nn.Linear(16, 2 * 2 * 3 * 2), nn.Linear(16, 2 * 2 * 3)

    def forward(self, query, points, large, small):
      batch, count, _ = query.shape
      offsets = self.offsets(query).view(batch, count, 2, 2, 3, 2)
      weights = self.weights(query).view(batch, count, 2, 6).softmax(-1)
      found = []
      for level, image in enumerate((large, small)):
        height, width = image.shape[-2:]
        values = self.value(image.flatten(2).mT).mT.reshape(batch * 2, 8, height, width)
        scale = torch.tensor([width, height])
        at = points[:, :, None, None] + offsets[:, :, :, level] / scale
        at = (2 * at - 1).transpose(1, 2).flatten(0, 1)
        found.append(F.grid_sample(values, at, align_corners=False))
      weights = weights.transpose(1, 2).reshape(batch * 2, 1, count, 6)
      y = (torch.cat(found, -1) * weights).sum(-1)
      return self.out(y.view(batch, 16, count).mT)

  def arguments(n):
    images = torch.randn(2, 16, n, n + 2), torch.randn(2, 16, 3, 4)
    return torch.randn(2, 5, 16), torch.rand(2, 5, 2), *images

  one = of(
    Points(),
    *arguments(6),
    dims=[None, None, {2: "n"}, None],
    others=[arguments(n) for n in (3, 9)],
  )
  n = one.shapes[2][2]
  one.shapes = (None, None, {2: n, 3: n + 2}, None)
  return one


@program
def edges_within_a_radius():
  """A graph whose number of edges the data decides, and the sums of their messages."""

  class Radius(nn.Module):
    def __init__(self):
      super().__init__()
      self.message = nn.Sequential(nn.Linear(7, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, places, features):
      distance = torch.cdist(places, places)
      near = (distance < 1.5) & ~torch.eye(places.shape[0], dtype=torch.bool)
      source, target = near.nonzero(as_tuple=True)
      change = places[target] - places[source]
      length = change.norm(dim=-1, keepdim=True)
      messages = self.message(torch.cat((features[source], change / length, length), -1))
      summed = torch.zeros(places.shape[0], 4).index_add(0, target, messages)
      degree = torch.bincount(target, minlength=places.shape[0])
      return summed / degree.clamp(min=1)[:, None], source, degree

  def arguments(n):
    return torch.randn(n, 3), torch.randn(n, 3)

  return vary(Radius(), arguments, [{0: "n"}] * 2, (8, 3, 20))


@program
def thoughts_until_they_change_no_more():
  """A layer that runs until its state rests, at most nine times, with a branch in each turn."""

  class Thinking(nn.Module):
    def __init__(self):
      super().__init__()
      self.layer = nn.Linear(8, 8)
      with torch.no_grad():
        self.layer.weight.mul_(0.4)

    def forward(self, x):
      def goes_on(turn, state, change):
        return (turn < 9) & (change > 1e-2)

      def turn_over(turn, state, change):
        def rough(s):
          return torch.tanh(self.layer(s) + x)

        def fine(s):
          return 0.5 * s + 0.5 * torch.tanh(self.layer(s) + x)

        after = torch.cond(change > 0.2, rough, fine, (state,))
        return turn + 1, after, (after - state).abs().amax()

      start = torch.zeros((), dtype=torch.long), torch.zeros_like(x), torch.full((), 1.0)
      turns, state, change = torch._higher_order_ops.while_loop(goes_on, turn_over, start)
      return turns, state, change

  return vary(Thinking(), lambda n: (torch.randn(n, 8),), [{0: "n"}], (3, 2, 9))


@program
def documents_in_one_row():
  """Attention within documents that lie in one row, with a slope for each head."""
  from torch.nn.attention.flex_attention import flex_attention

  def function(q, k, v, documents):
    slopes = 2.0 ** -torch.arange(1, 3)

    def score(value, batch, head, i, j):
      allowed = (documents[i] == documents[j]) & (j <= i)
      return torch.where(allowed, value + slopes[head] * (j - i), float("-inf"))

    return flex_attention(q, k, v, score_mod=score, enable_gqa=True)

  def arguments(n):
    documents = torch.sort(torch.randint(0, 3, (n,))).values
    return torch.randn(1, 2, n, 16), torch.randn(1, 1, n, 16), torch.randn(1, 1, n, 16), documents

  return vary(function, arguments, [{2: "n"}] * 3 + [{0: "n"}], (9, 4, 30))


@program
def numbers_at_their_ends():
  """What overflows, is no number, or is the least of its type."""

  def function(bytes_, ints, floats, shorts):
    wrapped = bytes_ + bytes_ * 3, shorts * shorts, ints.abs(), -ints, ints // 7, ints % -7
    odd = (
      floats.clamp(-1, 1),
      floats.sign(),
      floats.round(),
      floats.nan_to_num(),
      floats.sort().values,
    )
    order = floats.argmax(), floats.maximum(floats.flip(0)), floats.fmin(floats.flip(0))
    bits = ints >> 3, bytes_ << 5, ints ^ shorts, ~bytes_, floats.frexp().mantissa, floats.signbit()
    whole = floats.trunc(), torch.remainder(floats, 0.7), torch.fmod(floats, -0.7)
    powers = (
      floats.pow(3),
      floats.sqrt(),
      floats.atan2(floats.flip(0)),
      floats.hypot(floats.flip(0)),
    )
    return (
      *wrapped,
      *odd,
      *order,
      *bits,
      *whole,
      *powers,
      floats.isfinite(),
      ints.float(),
      floats.half(),
    )

  ends = torch.iinfo(torch.int64)
  ints = torch.tensor([ends.min, ends.max, 0, -1, 7, -7, 1 << 40, -(1 << 33)])
  floats = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 0.5, -2.5, 1e-42, 3e38])
  bytes_ = torch.tensor([0, 255, 128, 127, 1, 200, 64, 85], dtype=torch.uint8)
  shorts = torch.tensor([32767, -32768, 0, -1, 255, 256, 181, 182], dtype=torch.int16)
  return of(function, bytes_, ints, floats, shorts)


@program
def exits_of_a_classifier():
  """A second part of a network that runs only if the first one is not sure, and a mask of words."""

  class Exits(nn.Module):
    def __init__(self):
      super().__init__()
      self.words = nn.EmbeddingBag(30, 12, mode="mean", padding_idx=0)
      self.first, self.deep = (
        nn.Linear(12, 4),
        nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 4)),
      )

    def forward(self, words, temperature: float = 0.5):
      x = self.words(words)
      early = self.first(x) / temperature
      sure = early.softmax(-1).amax(-1).min() > 0.9

      def keep(early, x):
        return early.clone(), torch.zeros((), dtype=torch.bool)

      def more(early, x):
        return early + self.deep(x), torch.ones((), dtype=torch.bool)

      scores, ran = torch.cond(sure, keep, more, (early, x))
      return {"scores": scores.log_softmax(-1), "ran": ran}

  return vary(Exits(), lambda n: (torch.randint(0, 30, (n, 7)),), [{0: "n"}], (3, 2, 8))


if __name__ == "__main__":
  program_table.main(__doc__, PROGRAMS, REFUSED)
