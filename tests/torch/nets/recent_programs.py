"""Small programs of kinds that people write in 2026, each written for this net.

  python tests/torch/nets/recent_programs.py, with the options of program_table.py

Parts of language models and their serving, of robots, of images and point clouds, and of training.
Most have a size that varies, and run at others than the example's."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

import program_table  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from program_table import of  # noqa: E402
from torch import nn  # noqa: E402

PROGRAMS = {}
# By program, words of a refusal that is known.
REFUSED: dict[str, str] = {}


def program(build):
  PROGRAMS[build.__name__] = build
  return build


def vary(function, arguments, dims, sizes, **options):
  """A program with arguments of the first of `sizes`, and of the others."""
  first, *others = map(arguments, sizes)
  return of(function, *first, dims=dims, others=others, **options)


@program
def acceptance_of_draft_tokens():
  """Speculative sampling: how many drafts are taken, and the token after them."""

  def function(target, draft, tokens, uniform):
    p = target[:, :-1].softmax(-1).gather(-1, tokens[..., None])[..., 0]
    q = draft.softmax(-1).gather(-1, tokens[..., None])[..., 0]
    taken = (uniform < (p / q).clamp(max=1)).long().cumprod(-1).sum(-1)
    at = taken[:, None, None].expand(-1, 1, target.shape[-1])
    rest = target.softmax(-1).gather(1, at)[:, 0]
    drafts = F.pad(draft.softmax(-1), (0, 0, 0, 1)).gather(1, at)[:, 0]
    residual = (rest - drafts).clamp(min=0)
    return taken, torch.where(residual.sum(-1, keepdim=True) > 0, residual, rest).argmax(-1)

  def arguments(n):
    tokens = torch.randint(0, 11, (3, n))
    return torch.randn(3, n + 1, 11), torch.randn(3, n, 11), tokens, torch.rand(3, n)

  dims = [None, {1: "n"}, {1: "n"}, {1: "n"}]
  first, *others = map(arguments, (4, 2, 7))
  one = of(function, *first, dims=dims, others=others)
  n = one.shapes[0][1][1]
  one.shapes = ((({1: n + 1}, *one.shapes[0][1:])),)
  return one


@program
def attention_over_pages():
  """Keys and values in pages of a cache, by a table of pages for each sequence."""

  def function(query, keys, values, table, lengths):
    batch, pages = table.shape
    k = keys[table].reshape(batch, pages * keys.shape[1], *keys.shape[2:]).transpose(1, 2)
    v = values[table].reshape(batch, pages * keys.shape[1], *keys.shape[2:]).transpose(1, 2)
    places = torch.arange(k.shape[2])
    mask = (places < lengths[:, None])[:, None, None]
    return F.scaled_dot_product_attention(query[:, :, None], k, v, attn_mask=mask)[:, :, 0]

  def arguments(n):
    table = torch.stack([torch.randperm(9)[:n] for _ in range(2)])
    lengths = torch.tensor([4 * n, 4 * n - 3])
    return torch.randn(2, 2, 8), torch.randn(9, 4, 2, 8), torch.randn(9, 4, 2, 8), table, lengths

  return vary(function, arguments, [None, None, None, {1: "n"}, None], (3, 2, 7))


@program
def attention_with_a_gate_and_normed_heads():
  class Gated(nn.Module):
    def __init__(self):
      super().__init__()
      self.queries, self.keys = nn.Linear(32, 64), nn.Linear(32, 32)
      self.norm_q, self.norm_k = nn.RMSNorm(8), nn.RMSNorm(8)
      self.out = nn.Linear(32, 32)

    def forward(self, x):
      batch, n, _ = x.shape
      q, gate = self.queries(x).view(batch, n, 4, 16).chunk(2, -1)
      k, v = self.keys(x).view(batch, n, 2, 16).chunk(2, -1)
      q, k = (norm(one).transpose(1, 2) for norm, one in ((self.norm_q, q), (self.norm_k, k)))
      angles = torch.outer(torch.arange(n), 100.0 ** -torch.arange(2))  # of a half of each head
      cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)

      def turned(one):
        turning, rest = one[..., :4], one[..., 4:]
        other = torch.cat((-turning[..., 2:], turning[..., :2]), -1)
        return torch.cat((turning * cos + other * sin, rest), -1)

      y = F.scaled_dot_product_attention(
        turned(q), turned(k), v.transpose(1, 2), is_causal=True, enable_gqa=True
      )
      y = y.transpose(1, 2) * torch.sigmoid(gate)
      return self.out(y.reshape(batch, n, 32))

  return vary(Gated(), lambda n: (torch.randn(2, n, 32),), [{1: "n"}], (6, 3, 17))


@program
def filters_of_a_sampler():
  """A penalty for tokens that were there, temperature, min-p, top-p, and noise that chooses."""

  def function(logits, before, noise):
    scores = logits.gather(1, before)
    scores = torch.where(scores > 0, scores / 1.3, scores * 1.3)
    logits = logits.scatter(1, before, scores) / 0.7
    p = logits.softmax(-1)
    logits = logits.masked_fill(p < 0.05 * p.amax(-1, keepdim=True), float("-inf"))
    ordered, places = logits.sort(-1, descending=True)
    mass = ordered.softmax(-1).cumsum(-1)
    drop = (mass - ordered.softmax(-1) > 0.9).scatter(1, places, mass - ordered.softmax(-1) > 0.9)
    logits = logits.masked_fill(drop, float("-inf"))
    return (logits - (-noise.log()).log()).argmax(-1), logits.log_softmax(-1).amax(-1)

  def arguments(n):
    return torch.randn(2, 50) * 3, torch.randint(0, 50, (2, n)), torch.rand(2, 50)

  return vary(function, arguments, [None, {1: "n"}, None], (5, 2, 30))


@program
def mask_of_a_grammar():
  """A bitmask of the tokens that a grammar allows, in words of 32 bits."""

  def function(logits, words):
    places = torch.arange(logits.shape[-1])
    allowed = (words[:, places // 32] >> (places % 32).int()) & 1
    logits = logits.masked_fill(allowed == 0, float("-inf"))
    return logits.argmax(-1), allowed.sum(-1), logits.softmax(-1)

  def arguments(n):
    return torch.randn(n, 70), torch.randint(-(2**31), 2**31 - 1, (n, 3)).int()

  return vary(function, arguments, [{0: "n"}, {0: "n"}], (4, 2, 9))


@program
def loss_of_groups_of_answers():
  """Advantages within groups, a clipped ratio and an estimate of the divergence (GRPO)."""

  def function(new, old, reference, rewards, lengths):
    groups = rewards.view(-1, 4)
    advantage = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)
    mask = (torch.arange(new.shape[1]) < lengths[:, None]).float()
    ratio = (new - old).exp()
    clipped = ratio.clamp(0.8, 1.28)
    gain = torch.minimum(ratio * advantage.view(-1, 1), clipped * advantage.view(-1, 1))
    apart = (reference - new).exp() - (reference - new) - 1
    loss = -((gain - 0.04 * apart) * mask).sum(1) / mask.sum(1)
    return loss.mean(), ((ratio != clipped) * mask).sum() / mask.sum()

  def arguments(n):
    logs = [-torch.rand(8, n) for _ in range(3)]
    return *logs, torch.randn(8), torch.randint(1, n + 1, (8,))

  return vary(function, arguments, [{1: "n"}] * 3 + [None, None], (6, 3, 20))


@program
def splats_of_gaussians():
  """Gaussians in space, projected to a small image and composed from front to back."""

  def function(means, scales, turns, colours, opacities):
    w, x, y, z = F.normalize(turns, dim=-1).unbind(-1)
    rows = (
      torch.stack((1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)), -1),
      torch.stack((2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)), -1),
      torch.stack((2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)), -1),
    )
    shape = torch.stack(rows, -2) * scales.exp()[:, None]
    spread = shape @ shape.mT
    depth = means[:, 2] + 4
    lens = torch.zeros(means.shape[0], 2, 3)
    lens[:, 0, 0] = lens[:, 1, 1] = 8 / depth
    lens[:, :, 2] = -8 * means[:, :2] / depth[:, None] ** 2
    flat = lens @ spread @ lens.mT + 0.3 * torch.eye(2)
    centre = 8 * means[:, :2] / depth[:, None] + 4
    order = depth.argsort()
    pixels = torch.stack(torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="xy"), -1)
    away = pixels[:, :, None] - centre[order]
    power = torch.einsum("hwni,nij,hwnj->hwn", away, torch.linalg.inv(flat)[order], away)
    alpha = (opacities.sigmoid()[order] * (-0.5 * power).exp()).clamp(max=0.99)
    seen = (1 - alpha).cumprod(-1)
    seen = F.pad(seen[..., :-1], (1, 0), value=1.0)
    return (alpha * seen) @ colours[order]

  def arguments(n):
    return (
      torch.randn(n, 3),
      torch.randn(n, 3) * 0.3 - 1,
      torch.randn(n, 4),
      torch.rand(n, 3),
      torch.randn(n),
    )

  return vary(function, arguments, [{0: "n"}] * 5, (12, 5, 40))


@program
def neighbours_in_a_cloud_of_points():
  """Points that lie far apart, and the features of their neighbours (PointNet++)."""

  class Grouped(nn.Module):
    def __init__(self):
      super().__init__()
      self.layers = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16))

    def forward(self, points, features):
      nearest = torch.full(points.shape[:2], float("inf"))
      chosen, place = [], torch.zeros(points.shape[0], dtype=torch.long)
      for _ in range(4):
        chosen.append(place)
        one = points.gather(1, place[:, None, None].expand(-1, 1, 3))
        nearest = nearest.minimum(((points - one) ** 2).sum(-1))
        place = nearest.argmax(-1)
      at = torch.stack(chosen, 1)
      centres = points.gather(1, at[..., None].expand(-1, -1, 3))
      places = torch.cdist(centres, points).topk(3, largest=False).indices
      batch = torch.arange(points.shape[0])[:, None, None]
      around = torch.cat((points[batch, places] - centres[:, :, None], features[batch, places]), -1)
      return centres, self.layers(around).amax(2)

  def arguments(n):
    return torch.randn(2, n, 3), torch.randn(2, n, 3)

  dims = [{1: "n"}, {1: "n"}]
  return vary(Grouped(), arguments, dims, (20, 9, 50), least={"n": 3})


@program
def tokens_that_are_merged():
  """The most similar pairs of tokens of an image become one (ToMe)."""

  def function(x):
    even, odd = x[:, ::2], x[:, 1::2]
    scores = F.normalize(even, dim=-1) @ F.normalize(odd, dim=-1).mT
    best, to = scores.max(-1)
    order = best.argsort(-1, descending=True)
    merged, kept = order[:, :3], order[:, 3:].sort(-1).values
    target = to.gather(1, merged)[..., None].expand(-1, -1, x.shape[-1])
    source = even.gather(1, merged[..., None].expand(-1, -1, x.shape[-1]))
    odd = odd.scatter_reduce(1, target, source, "mean", include_self=True)
    return torch.cat((even.gather(1, kept[..., None].expand(-1, -1, x.shape[-1])), odd), 1)

  return vary(function, lambda n: (torch.randn(2, n, 8),), [{1: "n"}], (16, 10, 31))


@program
def tokens_that_skip_a_layer():
  """A router sends a part of the tokens through a layer (mixture of depths)."""

  class Depths(nn.Module):
    def __init__(self):
      super().__init__()
      self.router = nn.Linear(16, 1)
      self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)

    def forward(self, x):
      scores = self.router(x)[..., 0]
      weights, places = scores.topk(x.shape[1] // 2, -1)
      places, order = places.sort(-1)
      weights = weights.gather(1, order).sigmoid()
      at = places[..., None].expand(-1, -1, x.shape[-1])
      chosen = x.gather(1, at)
      mask = nn.Transformer.generate_square_subsequent_mask(chosen.shape[1])
      changed = (self.layer(chosen, src_mask=mask) - chosen) * weights[..., None]
      return x.scatter_add(1, at, changed)

  return vary(Depths(), lambda n: (torch.randn(2, n, 16),), [{1: "n"}], (8, 5, 21))


@program
def step_with_a_threshold_of_the_data():
  """A step of a diffusion sampler that clips by a quantile of its own prediction."""

  def function(x, noise, signal):
    predicted = (x - (1 - signal).sqrt() * noise) / signal.sqrt()
    limit = torch.quantile(predicted.flatten(1).abs(), 0.9, dim=1).clamp(min=1)[:, None, None, None]
    predicted = predicted.clamp(-limit, limit) / limit
    return signal.sqrt() * predicted + (1 - signal).sqrt() * noise

  def arguments(n):
    return torch.randn(2, 3, n, n), torch.randn(2, 3, n, n), torch.tensor(0.4)

  return vary(function, arguments, [{2: "n", 3: "n"}, {2: "n", 3: "n"}, None], (8, 5, 12))


@program
def tracks_of_boxes():
  """Boxes that a filter of Kalman predicts, the overlaps with new ones, and their update."""

  def function(state, covariance, boxes):
    forward = torch.eye(8) + torch.diag(torch.ones(4), 4)
    seen = torch.eye(4, 8)
    state = state @ forward.T
    covariance = forward @ covariance @ forward.T + 0.01 * torch.eye(8)
    known = state[:, :4]
    low, high = known[:, None, :2].maximum(boxes[:, :2]), known[:, None, 2:].minimum(boxes[:, 2:])
    inner = (high - low).clamp(min=0).prod(-1)
    areas = [(one[:, 2:] - one[:, :2]).clamp(min=0).prod(-1) for one in (known, boxes)]
    overlap = inner / (areas[0][:, None] + areas[1] - inner + 1e-6)
    best, match = overlap.max(1)
    innovation = seen @ covariance @ seen.T + 0.1 * torch.eye(4)
    gain = torch.linalg.solve(innovation, seen @ covariance).mT
    change = (gain @ (boxes[match] - known)[..., None])[..., 0]
    found = (best > 0.1)[:, None]
    after = (torch.eye(8) - gain @ seen) @ covariance
    return torch.where(found, state + change, state), torch.where(
      found[..., None], after, covariance
    )

  def arguments(n):
    corners = torch.rand(n, 2) * 4
    boxes = torch.cat((corners, corners + 1 + torch.rand(n, 2)), -1)
    state = torch.cat((boxes[:3] + 0.1, torch.randn(3, 4) * 0.05), -1)
    return state, torch.eye(8).expand(3, 8, 8).clone(), boxes

  return vary(function, arguments, [None, None, {0: "n"}], (5, 3, 9))


@program
def attention_along_edges():
  """A softmax over the edges that end in each node of a graph, and a sum of their messages."""

  class Edges(nn.Module):
    def __init__(self):
      super().__init__()
      self.layer, self.score = nn.Linear(6, 2 * 8), nn.Parameter(torch.randn(2, 24))
      self.of_edges = nn.Linear(3, 2 * 8)

    def forward(self, x, edges, features):
      source, target = edges
      h = self.layer(x).view(-1, 2, 8)
      e = self.of_edges(features).view(-1, 2, 8)
      scores = F.leaky_relu((torch.cat((h[source], h[target], e), -1) * self.score).sum(-1), 0.2)
      index = target[:, None].expand(-1, 2)
      largest = torch.full((x.shape[0], 2), float("-inf")).scatter_reduce(0, index, scores, "amax")
      weights = (scores - largest[target]).exp()
      total = torch.zeros(x.shape[0], 2).scatter_add(0, index, weights)
      messages = (weights / total[target])[..., None] * (h[source] + e)
      return torch.zeros_like(h).index_add(0, target, messages).flatten(1)

  def arguments(n):
    return torch.randn(7, 6), torch.randint(0, 7, (2, n)), torch.randn(n, 3)

  return vary(Edges(), arguments, [None, {1: "n"}, {0: "n"}], (12, 5, 40))


@program
def actions_of_a_robot():
  """A chunk of actions from images and joints: a network of one dimension with conditions, denoised
  in steps."""

  class Policy(nn.Module):
    def __init__(self):
      super().__init__()
      self.eyes = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(2, 8), nn.Mish(), nn.Conv2d(8, 8, 3, 2, 1)
      )
      self.condition = nn.Linear(2 * 8 + 5, 32)
      self.enter, self.leave = nn.Conv1d(4, 16, 5, padding=2), nn.Conv1d(16, 4, 1)
      self.norm = nn.GroupNorm(4, 16)

    def forward(self, image, joints, actions):
      features = self.eyes(image)
      where = features.flatten(2).softmax(-1).view_as(features)
      across = torch.linspace(-1, 1, features.shape[-1]), torch.linspace(-1, 1, features.shape[-2])
      points = [(where.sum(2) * across[0]).sum(-1), (where.sum(3) * across[1]).sum(-1)]
      for step in range(3):
        time = torch.full((image.shape[0], 1), step / 3)
        given = self.condition(torch.cat((*points, joints, time), -1))
        scale, shift = given[..., None].chunk(2, 1)
        x = F.mish(self.norm(self.enter(actions)) * (1 + scale) + shift)
        actions = actions + self.leave(x) / 3
      return actions.clamp(-1, 1)

  def arguments(n):
    return torch.randn(n, 3, 16, 16), torch.randn(n, 4), torch.randn(n, 4, 12)

  return vary(Policy(), arguments, [{0: "n"}] * 3, (2, 3, 5))


@program
def words_of_a_greedy_path():
  """The labels of a recognizer without repetitions and blanks, whose number the data decides."""

  def function(logits):
    path = logits.argmax(-1)
    changes = torch.cat((torch.ones(1, dtype=torch.bool), path[1:] != path[:-1]))
    kept = changes & (path != 0)
    labels = path[kept]
    starts = kept.nonzero()[:, 0]
    return labels, starts, logits.log_softmax(-1).amax(-1)[kept]

  return vary(function, lambda n: (torch.randn(n, 6),), [{0: "n"}], (14, 5, 60))


@program
def forecast_of_patches():
  """A window that is normalized by its own statistics, its patches, and levels of a forecast."""

  class Forecast(nn.Module):
    def __init__(self):
      super().__init__()
      self.enter, self.leave = nn.Linear(8, 16), nn.Linear(16, 3 * 4)
      self.mixing = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, x, known):
      middle = torch.where(known, x, float("nan")).nanmedian(-1, keepdim=True).values
      spread = (x - middle).abs().masked_fill(~known, 0).sum(-1, keepdim=True)
      spread = (spread / known.sum(-1, keepdim=True).clamp(min=1)).clamp(min=1e-3)
      scaled = torch.asinh(((x - middle) / spread).masked_fill(~known, 0))
      patches = self.mixing(self.enter(scaled.unfold(-1, 8, 8)))
      levels = self.leave(patches[:, -1]).view(-1, 3, 4).sort(1).values
      return levels.sinh() * spread[..., None] + middle[..., None]

  def arguments(n):
    return torch.randn(n, 32), torch.rand(n, 32) > 0.2

  return vary(Forecast(), arguments, [{0: "n"}] * 2, (3, 2, 6))


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
      self.net = nn.Sequential(nn.Linear(8 + 4, 16), nn.SiLU(), nn.Linear(16, 1))

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
