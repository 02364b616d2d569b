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

PROGRAMS = program_table.Programs()
program = PROGRAMS.add
# By program, words of a refusal that is known.
REFUSED: dict[str, str] = {}


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


if __name__ == "__main__":
  program_table.main(__doc__, PROGRAMS, REFUSED)
