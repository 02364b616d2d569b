"""Small programs for what sensors measure: sounds, images, points, structures and series.

python tests/torch/nets/sensor_programs.py, with the options of program_table.py"""

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
def codec_of_levels():
  """A streaming speech codec: causal convolutions that keep the end of the last block, codes of a
  few levels in each channel, their number and the sound again."""

  class Codec(nn.Module):
    def __init__(self):
      super().__init__()
      self.down, self.narrow = nn.Conv1d(1, 8, 8, stride=4), nn.Conv1d(8, 4, 1)
      self.wide, self.up = nn.Conv1d(4, 8, 1), nn.ConvTranspose1d(8, 1, 8, stride=4)
      self.register_buffer("before", torch.zeros(1, 1, 4))
      self.register_buffer("rest", torch.zeros(1, 1, 4))
      self.register_buffer("levels", torch.tensor([8, 5, 5, 3]))
      self.register_buffer("places", torch.tensor([1, 8, 40, 200]))

    def forward(self, sound):
      x = torch.cat((self.before, sound), 2)
      self.before.copy_(x[..., -4:])
      z = self.narrow(F.elu(self.down(x))).mT
      half = (self.levels - 1) * (1 + 1e-3) / 2
      shift = torch.where(self.levels % 2 == 0, 0.5, 0.0)
      bounded = torch.tanh(z + torch.atanh(shift / half)) * half - shift
      whole = bounded.round()
      codes = ((whole + self.levels // 2) * self.places).sum(-1).long()
      digits = codes[..., None] // self.places % self.levels
      back = (digits - self.levels // 2) / (self.levels // 2)
      y = self.up(F.elu(self.wide(back.mT)))
      y = torch.cat((y[..., :4] + self.rest, y[..., 4:]), 2)
      self.rest.copy_(y[..., -4:] - self.up.bias[:, None])
      return codes, y[..., :-4], bounded

  return vary(Codec(), lambda n: (torch.randn(1, 1, n),), [{2: "n"}], (24, 9, 50), least={"n": 8})


@program
def sampler_with_guidance():
  """Ten steps of a diffusion sampler with guidance inside: both conditions as one batch, the
  guided prediction rescaled, second order after the first step (DPM-Solver++)."""

  class Sampler(nn.Module):
    def __init__(self):
      super().__init__()
      self.time, self.kind = nn.Linear(8, 16), nn.Embedding(5, 16)
      self.first, self.last = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 3, 3, padding=1)
      self.norm = nn.GroupNorm(4, 16)
      betas = torch.linspace(0.01, 0.3, 10)
      signal = (1 - betas).cumprod(0)
      self.register_buffer("alpha", signal.sqrt())
      self.register_buffer("sigma", (1 - signal).sqrt())

    def denoise(self, x, t, kind):
      angles = t[:, None] * torch.exp(-torch.arange(4) * math.log(1000.0) / 4)
      shift = self.time(torch.cat((angles.sin(), angles.cos()), -1)) + self.kind(kind)
      return self.last(F.silu(self.norm(self.first(x) + shift[..., None, None])))

    def forward(self, noise, kind, strength):
      x, before = noise, None
      none = torch.full_like(kind, 4)
      for turn in range(9, 0, -1):
        t = torch.full((2 * x.shape[0],), float(turn))
        both = self.denoise(torch.cat((x, x)), t, torch.cat((kind, none)))
        yes, no = both.chunk(2)
        guided = no + strength[:, None, None, None] * (yes - no)
        scale = yes.std((1, 2, 3), keepdim=True) / guided.std((1, 2, 3), keepdim=True)
        guided = guided * (0.7 * scale + 0.3)
        a, s = self.alpha[turn], self.sigma[turn]
        clean = ((x - s * guided) / a).clamp(-3, 3)
        now = clean if before is None else 1.5 * clean - 0.5 * before
        after, s_after = self.alpha[turn - 1], self.sigma[turn - 1]
        step = torch.log(after / s_after) - torch.log(a / s)
        x = s_after / s * x - after * torch.expm1(-step) * now
        before = clean
      return x

  def arguments(n):
    return torch.randn(n, 3, 6, 6), torch.randint(0, 4, (n,)), torch.rand(n) * 5 + 1

  return vary(Sampler().eval(), arguments, [{0: "n"}] * 3, (2, 3, 5))


@program
def flow_between_two_images():
  """Optical flow: all pairs of features, a window of each level around the present guess, two turns
  of a convolutional GRU, and a finer map as mixtures of neighbours (RAFT)."""

  class Flow(nn.Module):
    def __init__(self):
      super().__init__()
      self.features = nn.Conv2d(3, 8, 3, stride=2, padding=1)
      self.inner = nn.Conv2d(18 + 2, 8, 3, padding=1)
      self.gates, self.new = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 8, 3, padding=1)
      self.change, self.mask = nn.Conv2d(8, 2, 3, padding=1), nn.Conv2d(8, 36, 1)

    def forward(self, one, two):
      a, b = self.features(one), self.features(two)
      batch, channels, height, width = a.shape
      pairs = torch.einsum("bchw,bcij->bhwij", a, b) / channels**0.5
      pairs = pairs.reshape(batch * height * width, 1, height, width)
      levels = [pairs, F.avg_pool2d(pairs, 2)]
      rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
      grid = torch.stack((columns, rows)).float()
      flow, h = torch.zeros(batch, 2, height, width), torch.tanh(a)
      around = torch.stack(torch.meshgrid(*[torch.arange(-1.0, 2)] * 2, indexing="xy"), -1)
      for _ in range(2):
        found = []
        for level, volume in enumerate(levels):
          centre = (grid + flow).permute(0, 2, 3, 1).reshape(-1, 1, 1, 2) / 2**level
          size = torch.tensor([volume.shape[3] - 1, volume.shape[2] - 1])
          places = 2 * (centre + around) / size - 1
          part = F.grid_sample(volume, places, align_corners=True)
          found.append(part.view(batch, height, width, 9))
        x = torch.cat((*found, flow.permute(0, 2, 3, 1)), -1).permute(0, 3, 1, 2)
        x = F.relu(self.inner(x))
        z, r = self.gates(torch.cat((h, x), 1)).sigmoid().chunk(2, 1)
        h = (1 - z) * h + z * torch.tanh(self.new(torch.cat((r * h, x), 1)))
        flow = flow + self.change(h)
      weights = self.mask(h).view(batch, 1, 9, 2, 2, height, width).softmax(2)
      near = F.unfold(2 * flow, 3, padding=1).view(batch, 2, 9, 1, 1, height, width)
      fine = (weights * near).sum(2).permute(0, 1, 4, 2, 5, 3)
      return flow, fine.reshape(batch, 2, 2 * height, 2 * width)

  def arguments(n):
    return torch.randn(1, 3, n, 12), torch.randn(1, 3, n, 12)

  return vary(Flow(), arguments, [{2: "n"}] * 2, (16, 10, 21), least={"n": 8})


@program
def points_in_voxels_and_balls():
  """Means of the points of each voxel, the first few neighbours within a ball, and features of
  coarse points for all points by their three nearest."""

  def function(points, features):
    cells = torch.floor(points / 0.5).long()
    cells = cells - cells.amin(0)
    shape = cells.amax(0) + 1
    key = (cells[:, 0] * shape[1] + cells[:, 1]) * shape[2] + cells[:, 2]
    voxels, of, counts = torch.unique(key, return_inverse=True, return_counts=True)
    coarse = torch.zeros(points.shape[0], 3).index_add(0, of, points)
    coarse = coarse[: voxels.shape[0]] / counts[:, None]
    distance = torch.cdist(points[:6], points)
    order = torch.where(distance < 0.8, torch.arange(points.shape[0]), points.shape[0])
    order = order.sort(-1).values[:, :4]
    ball = torch.where(order < points.shape[0], order, order[:, :1])
    local = points[ball] - points[:6, None]
    pooled = torch.cat((local, features[ball]), -1).amax(1)
    near = torch.cdist(points, points[:6]).topk(3, largest=False)
    weights = 1 / (near.values + 1e-6)
    weights = weights / weights.sum(-1, keepdim=True)
    fine = (pooled[near.indices] * weights[..., None]).sum(1)
    return coarse, counts, ball, fine

  def arguments(n):
    return torch.rand(n, 3) * 2, torch.randn(n, 4)

  return vary(function, arguments, [{0: "n"}] * 2, (14, 8, 40), least={"n": 6})


@program
def series_with_periods():
  """A trend that a moving mean takes away, delays that correlate most by Fourier transforms, and
  the series at these delays (Autoformer)."""

  class Periods(nn.Module):
    def __init__(self):
      super().__init__()
      self.q, self.k, self.v = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
      ends = x[:, :1].expand(-1, 2, -1), x, x[:, -1:].expand(-1, 2, -1)
      trend = F.avg_pool1d(torch.cat(ends, 1).mT, 5, 1).mT
      season = x - trend
      length = x.shape[1]
      q, k, v = self.q(season), self.k(season), self.v(season)
      spectrum = torch.fft.rfft(q, dim=1) * torch.fft.rfft(k, dim=1).conj()
      correlation = torch.fft.irfft(spectrum, n=length, dim=1).mean(-1)
      weights, delays = correlation.topk(3, dim=1)
      places = (torch.arange(length)[None, :, None] + delays[:, None]) % length
      batch = torch.arange(x.shape[0])[:, None, None]
      delayed = (v[batch, places] * weights.softmax(-1)[:, None, :, None]).sum(2)
      return delayed + trend, delays

  return vary(Periods(), lambda n: (torch.randn(2, n, 4),), [{1: "n"}], (16, 9, 25), least={"n": 4})


@program
def patches_with_axial_rotation():
  """Images of several sizes whose patches lie in one row: rotations by row and column, attention
  within each image, and the mean of each."""

  class Packed(nn.Module):
    def __init__(self):
      super().__init__()
      self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
      self.register_buffer("rates", 100.0 ** -(torch.arange(0, 4, 2) / 4))

    def turned(self, x, places):
      angles = (places[:, :, None] * self.rates).flatten(1)
      cos, sin = angles.cos(), angles.sin()
      even, odd = x[..., ::2], x[..., 1::2]
      return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)

    def forward(self, patches, places, image):
      q, k, v = self.qkv(patches).unflatten(-1, (3, 2, 8)).permute(1, 2, 0, 3)
      q, k = self.turned(q, places), self.turned(k, places)
      same = image[:, None] == image
      y = F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=same)[0]
      y = patches + self.out(y.transpose(0, 1).flatten(1))
      index = image[:, None].expand_as(y)
      pooled = torch.zeros(4, 16).scatter_reduce(0, index, y, "mean", include_self=False)
      return y, pooled

  def arguments(n):
    image = torch.randint(0, 4, (n,)).sort().values
    return torch.randn(n, 16), torch.randint(0, 9, (n, 2)).float(), image

  return vary(Packed(), arguments, [{0: "n"}] * 3, (10, 4, 33))


@program
def forecast_by_quantiles():
  """A forecast by quantiles that do not cross: the pinball loss, the CRPS, a Winkler score,
  coverage and a conformal correction by the errors of another set."""

  class Forecast(nn.Module):
    def __init__(self):
      super().__init__()
      self.net = nn.Linear(6, 5)
      self.register_buffer("levels", torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95]))

    def quantiles(self, x):
      first, *rest = self.net(x).split([1, 4], -1)
      return torch.cat((first, first + F.softplus(rest[0]).cumsum(-1)), -1)

    def forward(self, x, y, kept, truth):
      q = self.quantiles(x)
      error = y[:, None] - q
      loss = torch.maximum(self.levels * error, (self.levels - 1) * error)
      low, high = q[:, 0], q[:, -1]
      outside = F.relu(low - y) + F.relu(y - high)
      winkler = high - low + 2 / 0.1 * outside
      of_kept = self.quantiles(kept)
      score = torch.maximum(of_kept[:, 0] - truth, truth - of_kept[:, -1])
      rank = torch.ceil(torch.tensor(0.9) * (kept.shape[0] + 1)).long() - 1
      bound = score.sort().values[rank.clamp(max=kept.shape[0] - 1)]
      covered = ((y >= low - bound) & (y <= high + bound)).float().mean()
      crps = 2 * torch.trapezoid(loss, self.levels, dim=-1)
      interval = torch.stack((low - bound, high + bound), -1)
      return loss.mean(0), winkler, interval, covered, crps, torch.quantile(outside, 0.8)

  def arguments(n):
    return torch.randn(n, 6), torch.randn(n), torch.randn(n + 5, 6), torch.randn(n + 5)

  dims = [{0: "n"}, {0: "n"}, {0: "m"}, {0: "m"}]
  return vary(Forecast(), arguments, dims, (6, 2, 25))


@program
def transducer_that_decodes():
  """Greedy decoding of a transducer (RNN-T): a frame gives tokens until a blank, at most as many as
  are allowed, and the predictor goes on with tokens alone."""

  class Transducer(nn.Module):
    def __init__(self):
      super().__init__()
      self.encoder, self.words = nn.Linear(5, 8), nn.Embedding(7, 8)
      self.cell, self.joint = nn.LSTMCell(8, 8), nn.Linear(8, 7)

    def forward(self, frames, lengths):
      x = self.encoder(frames)
      batch, most = x.shape[0], 2 * x.shape[1]

      def goes_on(turn, time, *rest):
        return (time < lengths).any() & (turn < 4 * most)

      def step(turn, time, count, again, token, h, c, found):
        frame = x.gather(1, time.clamp(max=x.shape[1] - 1)[:, None, None].expand(-1, 1, 8))[:, 0]
        new_h, new_c = self.cell(self.words(token), (h, c))
        guess = (self.joint(torch.tanh(frame + new_h)) * 4).argmax(-1)
        goes = (guess != 0) & (again < 2) & (time < lengths)
        place = torch.where(goes, count, most)
        found = found.scatter(1, place[:, None], guess[:, None])
        count, again = count + goes, torch.where(goes, again + 1, 0)
        time = torch.where(goes, time, time + 1)
        keep = goes[:, None]
        h, c = torch.where(keep, new_h, h), torch.where(keep, new_c, c)
        return turn + 1, time, count, again, torch.where(goes, guess, token), h, c, found

      zero = torch.zeros(batch, dtype=torch.long)
      state = torch.zeros(batch, 8)
      found = torch.zeros(batch, most + 1, dtype=torch.long)
      first = zero[:1].sum(), zero, zero.clone(), zero.clone(), zero.clone(), state, state.clone()
      result = torch._higher_order_ops.while_loop(goes_on, step, (*first, found))
      return result[-1][:, :most], result[2]

  def arguments(n):
    return torch.randn(2, n, 5), torch.tensor([n, n - 1])

  return vary(Transducer(), arguments, [{1: "n"}, None], (6, 3, 13))


@program
def outliers_by_sliding_medians():
  """Hampel's filter by medians of windows, a lower envelope, drift that a line removes, and the
  largest changes of the level (CUSUM)."""

  def function(x):
    wide = F.pad(x[:, None], (3, 3), mode="reflect")[:, 0].unfold(1, 7, 1)
    middle = wide.median(-1).values
    spread = 1.4826 * (wide - middle[..., None]).abs().median(-1).values
    odd = (x - middle).abs() > 2 * spread
    clean = torch.where(odd, middle, x)
    lower = -F.max_pool1d(F.pad(-clean[:, None], (3, 3), value=-1e9), 7, 1)[:, 0]
    t = torch.arange(x.shape[1], dtype=x.dtype)
    t = t - t.mean()
    slope = (clean * t).sum(1) / t.square().sum()
    flat = clean - clean.mean(1, keepdim=True) - slope[:, None] * t
    total = flat.cumsum(1)
    above = total - total.cummin(1).values
    return clean, odd.sum(1), lower, slope, above.amax(1), above.argmax(1), flat.std(1)

  return vary(function, lambda n: (torch.randn(3, n),), [{1: "n"}], (16, 7, 40), least={"n": 5})


@program
def suppression_that_is_soft():
  """Boxes whose scores their better neighbours lower, by a matrix, one after the other, and with
  kinds and fused boxes."""

  def function(boxes, scores, kinds):
    scores, order = scores.sort(descending=True, stable=True)
    boxes, kinds = boxes[order], kinds[order]
    area = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    low = torch.maximum(boxes[:, None, :2], boxes[:, :2])
    high = torch.minimum(boxes[:, None, 2:], boxes[:, 2:])
    both = (high - low).clamp(min=0).prod(-1)
    overlap = both / (area[:, None] + area - both)
    overlap = overlap * (kinds[:, None] == kinds)
    before = overlap.triu(1)
    most = before.amax(0)
    decay = torch.exp(-(before.square() - most[:, None].square()) / 0.5)
    matrix = scores * decay.amin(0).clamp(max=1)
    soft = scores.clone()
    left = torch.ones_like(scores, dtype=torch.bool)
    for _ in range(4):
      best = torch.where(left, soft, -1.0).argmax()
      left = left & (torch.arange(scores.shape[0]) != best)
      soft = torch.where(left, soft * torch.exp(-overlap[best].square() / 0.5), soft)
    weights = torch.where(overlap > 0.4, scores, 0.0)
    weights = weights + torch.diag(scores)
    fused = (weights @ boxes) / weights.sum(1, keepdim=True)
    kept = torch.nonzero(matrix > 0.3)[:, 0]
    return matrix, soft, fused, order[kept], boxes[kept]

  def arguments(n):
    corner = torch.rand(n, 2) * 4
    boxes = torch.cat((corner, corner + torch.rand(n, 2) * 3 + 0.5), 1)
    return boxes, torch.rand(n), torch.randint(0, 2, (n,))

  return vary(function, arguments, [{0: "n"}] * 3, (9, 4, 35))


@program
def images_that_are_augmented():
  """Images that the model itself changes: a turn around the middle, brightness, saturation, hue
  as a rotation of colours, a box that is erased, a mixture of two, and a normalization."""

  def function(images, angle, colour, box, share):
    x = images.permute(0, 3, 1, 2).float() / 255
    cos, sin = angle.cos(), angle.sin()
    zero = torch.zeros_like(cos)
    theta = torch.stack((torch.stack((cos, -sin, zero), -1), torch.stack((sin, cos, zero), -1)), 1)
    grid = F.affine_grid(theta, x.shape, align_corners=False)
    x = F.grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
    light, saturation, hue = colour[:, :, None, None, None].unbind(1)
    x = (x * light).clamp(0, 1)
    grey = (x * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(1, keepdim=True)
    x = torch.lerp(grey, x, saturation)
    yiq = torch.tensor([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])
    y, i, q = torch.einsum("ij,bjhw->bihw", yiq, x).split(1, 1)
    turned = torch.cat((y, i * hue.cos() - q * hue.sin(), i * hue.sin() + q * hue.cos()), 1)
    x = torch.einsum("ij,bjhw->bihw", torch.linalg.inv(yiq), turned).clamp(0, 1)
    rows = torch.arange(x.shape[2])[:, None]
    columns = torch.arange(x.shape[3])
    top, left, bottom, right = box[:, :, None, None].unbind(1)
    inside = (rows >= top) & (rows < bottom) & (columns >= left) & (columns < right)
    x = torch.where(inside[:, None], x.mean((2, 3), keepdim=True), x)
    x = torch.lerp(x.flip(0), x, share[:, None, None, None])
    x = F.interpolate(x, size=(7, 9), mode="bicubic", antialias=True)
    mean = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
    small = (x.clamp(0, 1) * 255).round().to(torch.uint8)
    return (x - mean) / 0.225, small

  def arguments(n):
    box = torch.randint(0, 6, (n, 2))
    return (
      torch.randint(0, 256, (n, 12, 14, 3), dtype=torch.uint8),
      torch.randn(n) / 3,
      torch.rand(n, 3) + 0.5,
      torch.cat((box, box + 4), 1),
      torch.rand(n),
    )

  return vary(function, arguments, [{0: "n"}] * 5, (3, 2, 6))


@program
def attention_of_frames_in_space():
  """Invariant point attention: points in the frames of residues, distances between them in space,
  and points back in each frame."""

  class Points(nn.Module):
    def __init__(self):
      super().__init__()
      self.scalars, self.points = nn.Linear(8, 24), nn.Linear(8, 36)
      self.pair, self.weight = nn.Linear(4, 2), nn.Parameter(torch.zeros(2))
      self.out = nn.Linear(8 + 8 + 16, 8)

    def forward(self, x, pairs, raw, origin):
      a, b = F.normalize(raw[:, 0], dim=-1), raw[:, 1]
      b = F.normalize(b - (a * b).sum(-1, keepdim=True) * a, dim=-1)
      frames = torch.stack((a, b, torch.linalg.cross(a, b)), -1)
      q, k, v = self.scalars(x).unflatten(-1, (3, 2, 4)).permute(1, 2, 0, 3)
      local = self.points(x).unflatten(-1, (12, 3))
      world = torch.einsum("nij,npj->npi", frames, local) + origin[:, None]
      pq, pk, pv = world.unflatten(1, (3, 2, 2)).permute(1, 2, 0, 3, 4)
      gap = (pq[:, :, None] - pk[:, None]).square().sum((-1, -2))
      bias = self.pair(pairs).permute(2, 0, 1)
      scores = q @ k.mT / 2 + bias - F.softplus(self.weight)[:, None, None] * gap / 6
      weights = (scores / 3**0.5).softmax(-1)
      points = torch.einsum("hij,hjpc->ihpc", weights, pv) - origin[:, None, None]
      points = torch.einsum("nji,nhpj->nhpi", frames, points)
      sizes = points.norm(dim=-1)
      of_pairs = torch.einsum("hij,ijc->ihc", weights, pairs)
      parts = (weights @ v).transpose(0, 1).flatten(1), of_pairs.flatten(1), points.flatten(1)
      return self.out(torch.cat((*parts, sizes.flatten(1)), -1)), frames

  def arguments(n):
    return torch.randn(n, 8), torch.randn(n, n, 4), torch.randn(n, 2, 3), torch.randn(n, 3)

  dims = [{0: "n"}, {0: "n", 1: "n"}, {0: "n"}, {0: "n"}]
  return vary(Points(), arguments, dims, (6, 2, 15))


@program
def tiles_that_are_blended():
  """A network over tiles of an image that overlap, put together again with weights that fall to the
  edges."""

  class Tiles(nn.Module):
    def __init__(self):
      super().__init__()
      self.net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GELU(), nn.Conv2d(8, 2, 1))
      ramp = 1 - (torch.arange(8) - 3.5).abs() / 4.5
      self.register_buffer("weight", ramp[:, None] * ramp)

    def forward(self, image):
      height, width = image.shape[-2:]
      bottom, right = (height + 3) // 4 * 4 + 4, (width + 3) // 4 * 4 + 4
      wide = F.pad(image[None], (4, right - width, 4, bottom - height))
      tiles = wide.unfold(2, 8, 4).unfold(3, 8, 4)
      rows, columns = tiles.shape[2], tiles.shape[3]
      tiles = tiles.permute(0, 2, 3, 1, 4, 5).reshape(-1, 3, 8, 8)
      found = (self.net(tiles) * self.weight).view(rows * columns, -1).mT[None]
      weight = self.weight.flatten().repeat(1, 1, 1).mT.expand(1, 64, rows * columns)
      size = (bottom + 4, right + 4)
      total = F.fold(found, size, 8, stride=4) / F.fold(weight, size, 8, stride=4)
      return total[0, :, 4 : 4 + height, 4 : 4 + width]

  return vary(Tiles(), lambda n: (torch.randn(3, n, 10),), [{1: "n"}], (11, 5, 22))


if __name__ == "__main__":
  program_table.main(__doc__, PROGRAMS, REFUSED)
