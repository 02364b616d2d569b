"""Small programs of signals, fields, statistics, geometry and search, as engineers and scientists
write them without neural networks, or beside them.

  python tests/torch/nets/science_programs.py, with the options of program_table.py"""

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
REFUSED = {
  "windows_that_are_shifted": "Cannot create Dim with inconsistent min=0",
}


@program
def path_of_a_hidden_chain():
  """The likeliest path (Viterbi) of a chain and the sum over all paths, both by scans."""
  from torch._higher_order_ops.scan import scan

  def function(emissions, transitions):
    def best(score, emission):
      value, place = (score[:, :, None] + transitions).max(1)
      return value + emission, place

    def total(score, emission):
      after = torch.logsumexp(score[:, :, None] + transitions, 1) + emission
      return after, after.clone()

    rest = emissions[1:]
    last, places = scan(best, emissions[0], rest)
    end, alphas = scan(total, emissions[0], rest)

    def back(state, place):
      before = place.gather(1, state[:, None])[:, 0]
      return before, before.clone()

    state = last.argmax(1)
    _, path = scan(back, state, places, reverse=True)
    return torch.cat((path, state[None])), last.amax(1), end.logsumexp(1), alphas[-1]

  return vary(
    function, lambda n: (torch.randn(n, 2, 5), torch.randn(5, 5)), [{0: "n"}, None], (6, 3, 12)
  )


@program
def distance_of_edits():
  """The Levenshtein distance of rows of letters: a scan over the letters, a running minimum in
  each."""
  from torch._higher_order_ops.scan import scan

  def function(one, other):
    places = torch.arange(other.shape[1] + 1).expand(one.shape[0], -1)

    def step(row, letter):
      changed = row[:, :-1] + (other != letter[:, None]).long()
      removed = row + 1
      best = torch.cat((removed[:, :1], torch.minimum(changed, removed[:, 1:])), 1)
      after = (best - places).cummin(1).values + places
      return after, after[:, -1].clone()

    row, ends = scan(step, places.clone(), one.t().contiguous())
    return row[:, -1], ends

  def arguments(n):
    return torch.randint(0, 3, (2, n)), torch.randint(0, 3, (2, 7))

  return vary(function, arguments, [{1: "n"}, None], (6, 3, 15))


@program
def wavelets_there_and_back():
  """Three levels of a wavelet transform, coefficients below a threshold set to 0, and back."""
  root = math.sqrt(3.0)
  low = torch.tensor([1 + root, 3 + root, 3 - root, 1 - root]) / (4 * math.sqrt(2.0))
  high = low.flip(0) * torch.tensor([1.0, -1.0, 1.0, -1.0])
  bank = torch.stack((low, high))[:, None]

  def function(x):
    details, now = [], x[:, None]
    for _ in range(3):
      both = F.conv1d(F.pad(now, (1, 1), mode="circular"), bank, stride=2)
      now, detail = both[:, :1], both[:, 1:]
      bound = detail.abs().median(-1, keepdim=True).values * 1.5
      details.append(torch.where(detail.abs() > bound, detail, 0.0))
    for detail in reversed(details):
      both = F.pad(torch.cat((now, detail), 1), (1, 1), mode="circular")
      wide = F.conv_transpose1d(both, bank, stride=2)
      now = wide[..., 3:-3]
    return now[:, 0], *details

  return vary(function, lambda n: (torch.randn(n, 32),), [{0: "n"}], (2, 3, 5))


@program
def histogram_of_an_image_made_equal():
  """Equalized brightness by a histogram of bytes, gradients, their angles and cells of a HOG."""

  def function(image):
    counts = torch.zeros(image.shape[0], 256, dtype=torch.long)
    flat = image.flatten(1).long()
    counts = counts.scatter_add(1, flat, torch.ones_like(flat))
    table = counts.cumsum(1)
    least = torch.where(table > 0, table, flat.shape[1]).amin(1, keepdim=True)
    level = (table - least).clamp(min=0) * 255 // (flat.shape[1] - least).clamp(min=1)
    equal = level.gather(1, flat).view_as(image).to(torch.uint8)
    x = equal.float() / 255
    dx, dy = torch.gradient(x, dim=(2, 1))
    size = torch.hypot(dx, dy)
    angle = torch.rad2deg(torch.atan2(dy, dx)) % 180
    bin_ = (angle / 20).floor().long() % 9
    cells = torch.zeros(9, *x.shape).scatter(0, bin_[None], size[None])
    pooled = F.avg_pool2d(cells.transpose(0, 1), 4)
    return equal, F.normalize(pooled.flatten(2), dim=1), counts.argmax(1)

  def arguments(n):
    return (torch.randint(0, 200, (n, 12, 16), dtype=torch.uint8),)

  return vary(function, arguments, [{0: "n"}], (2, 3, 5))


@program
def regions_of_a_mask():
  """Labels of connected regions: the largest number of the neighbours until nothing changes, then
  the area, the box and the centre of each region."""

  def function(mask):
    height, width = mask.shape[-2:]
    numbers = torch.arange(1, height * width + 1, dtype=torch.float32).view(height, width)
    start = torch.where(mask, numbers, 0.0)

    def goes_on(labels, changed):
      return changed > 0

    def spread(labels, changed):
      after = F.max_pool2d(labels[None, None], 3, 1, 1)[0, 0]
      after = torch.where(mask, after, 0.0)
      return after, (after != labels).sum()

    labels, _ = torch._higher_order_ops.while_loop(
      goes_on, spread, (start, torch.ones((), dtype=torch.long))
    )
    flat = labels.long().flatten()
    area = torch.bincount(flat, minlength=height * width + 1)
    rows = torch.arange(height).repeat_interleave(width)
    bounds = [
      torch.full((height * width + 1,), start).scatter_reduce(0, flat, rows, reduce)
      for start, reduce in ((height, "amin"), (-1, "amax"))
    ]
    places = torch.zeros(height * width + 1).index_add(0, flat, rows.float())
    return labels, area, *bounds, places / area.clamp(min=1)

  def arguments(n):
    return (torch.rand(n, 9) > 0.55,)

  return vary(function, arguments, [{0: "n"}], (8, 4, 17))


@program
def process_of_gauss():
  """A Gaussian process: the posterior at other places, and the evidence of what was measured."""

  def kernel(a, b):
    return torch.exp(-0.5 * torch.cdist(a, b).square() / 0.7**2)

  def function(x, y, places):
    covariance = kernel(x, x) + 0.1 * torch.eye(x.shape[0])
    factor, info = torch.linalg.cholesky_ex(covariance)
    weights = torch.cholesky_solve(y[:, None], factor)
    between = kernel(x, places)
    mean = (between.mT @ weights)[:, 0]
    half = torch.linalg.solve_triangular(factor, between, upper=False)
    variance = 1 - half.square().sum(0)
    evidence = -0.5 * (y @ weights[:, 0]) - factor.diagonal().log().sum()
    evidence = evidence - 0.5 * x.shape[0] * math.log(2 * math.pi)
    return mean, variance, evidence, info, torch.logdet(covariance)

  def arguments(n):
    return torch.randn(n, 2), torch.randn(n), torch.randn(4, 2)

  return vary(function, arguments, [{0: "n"}, {0: "n"}, None], (7, 3, 20))


@program
def transport_between_clouds():
  """The entropic transport between two clouds (Sinkhorn), until it rests, and its rounded plan."""

  def function(x, y):
    cost = torch.cdist(x, y, p=1.0)
    a = -math.log(1.0) - torch.full((x.shape[0],), 1.0 * x.shape[0]).log()
    b = -torch.full((y.shape[0],), 1.0 * y.shape[0]).log()

    def goes_on(turn, f, g, change):
      return (turn < 50) & (change > 1e-3)

    def step(turn, f, g, change):
      after = 0.5 * (a - torch.logsumexp((g[None] - cost) / 0.5, 1))
      other = 0.5 * (b - torch.logsumexp((after[:, None] - cost) / 0.5, 0))
      return turn + 1, after, other, (after - f).abs().amax()

    start = (
      torch.zeros((), dtype=torch.long),
      torch.zeros_like(x[:, 0]),
      torch.zeros_like(y[:, 0]),
      torch.ones(()),
    )
    turns, f, g, _ = torch._higher_order_ops.while_loop(goes_on, step, start)
    plan = ((f[:, None] + g[None] - cost) / 0.5).exp()
    return turns, (plan * cost).sum(), plan.argmax(1), plan.sum(0)

  def arguments(n):
    return torch.randn(n, 3), torch.randn(5, 3)

  return vary(function, arguments, [{0: "n"}, None], (6, 3, 12))


@program
def sums_that_check_bytes():
  """CRC-32, Adler-32 and FNV-1a of rows of bytes, and bits that are packed and unpacked."""
  from torch._higher_order_ops.scan import scan

  table = []
  for number in range(256):
    for _ in range(8):
      number = (number >> 1) ^ (0xEDB88320 if number & 1 else 0)
    table.append(number)
  table = torch.tensor(table)

  def function(rows):
    def step(state, byte):
      crc, fnv = state
      crc = table[(crc ^ byte) & 255] ^ (crc >> 8)
      fnv = ((fnv ^ byte) * 16777619) & 0xFFFFFFFF
      return (crc, fnv), byte.clone()

    start = torch.full((rows.shape[0],), 0xFFFFFFFF), torch.full((rows.shape[0],), 0x811C9DC5)
    (crc, fnv), _ = scan(step, start, rows.long().t().contiguous())
    sums = rows.long().cumsum(1)
    a = (1 + sums[:, -1]) % 65521
    b = (rows.shape[1] + sums.sum(1)) % 65521
    bits = (rows[..., None] >> torch.arange(8, dtype=torch.uint8)) & 1
    weights = 2 ** torch.arange(7, -1, -1, dtype=torch.uint8)
    mirrored = (bits * weights).sum(-1, dtype=torch.uint8)
    return crc ^ 0xFFFFFFFF, fnv, (b << 16) | a, bits.sum((1, 2)), mirrored, bits.bool()

  def arguments(n):
    return (torch.randint(0, 256, (3, n), dtype=torch.uint8),)

  return vary(function, arguments, [{1: "n"}], (9, 4, 30))


@program
def clouds_that_are_aligned():
  """Iterative closest points: nearest neighbours, a rotation from singular values without a mirror,
  and the result as a quaternion."""

  def function(moving, fixed):
    for _ in range(3):
      nearest = torch.cdist(moving, fixed).argmin(1)
      target = fixed[nearest]
      centre, other = moving.mean(0), target.mean(0)
      u, _, vh = torch.linalg.svd((moving - centre).mT @ (target - other))
      sign = torch.sign(torch.linalg.det(vh.mT @ u.mT))
      turn = vh.mT @ torch.diag(torch.stack((torch.ones(()), torch.ones(()), sign))) @ u.mT
      moving = (moving - centre) @ turn.mT + other
    w = 0.5 * (1 + turn.diagonal().sum()).clamp(min=1e-6).sqrt()
    skew = torch.stack((turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]))
    return moving, nearest, torch.cat((w[None], skew / (4 * w)))

  def arguments(n):
    fixed = torch.randn(9, 3)
    angle = torch.tensor(0.15)
    turn = torch.eye(3)
    turn[0, 0] = turn[1, 1] = angle.cos()
    turn[0, 1], turn[1, 0] = -angle.sin(), angle.sin()
    return fixed[torch.arange(n) % 9] @ turn + 0.02 * torch.randn(n, 3), fixed

  return vary(function, arguments, [{0: "n"}, None], (9, 5, 16))


@program
def orbit_with_steps_of_its_own():
  """Two bodies by Dormand and Prince's steps, whose lengths the error decides."""

  def speed(state):
    place, velocity = state[:, :2], state[:, 2:]
    return torch.cat((velocity, -place / place.norm(dim=1, keepdim=True) ** 3), 1)

  def function(start, end):
    def goes_on(time, length, state, turns):
      return (time < end - 1e-6) & (turns < 200)

    def step(time, length, state, turns):
      length = torch.minimum(length, end - time)
      k1 = speed(state)
      k2 = speed(state + length * k1 / 2)
      k3 = speed(state + length * 3 / 4 * k2)
      after = state + length * (2 * k1 + 3 * k2 + 4 * k3) / 9
      k4 = speed(after)
      error = (length * (-5 * k1 + 6 * k2 + 8 * k3 - 9 * k4) / 72).abs().amax() / 1e-3
      good = error <= 1
      factor = (0.9 * error.clamp(min=1e-8) ** (-1 / 3)).clamp(0.2, 5.0)
      return (
        torch.where(good, time + length, time),
        length * factor,
        torch.where(good, after, state),
        turns + 1,
      )

    first = torch.zeros(()), torch.full((), 0.1), start.clone(), torch.zeros((), dtype=torch.long)
    time, length, state, turns = torch._higher_order_ops.while_loop(goes_on, step, first)
    energy = state[:, 2:].square().sum(1) / 2 - 1 / state[:, :2].norm(dim=1)
    return time, state, turns, energy

  def arguments(n):
    angle = torch.rand(n) * 6
    start = torch.stack((angle.cos(), angle.sin(), -angle.sin(), angle.cos()), 1)
    return start * torch.tensor([1.0, 1.0, 0.9, 0.9]), torch.tensor(1.5)

  return vary(function, arguments, [{0: "n"}, None], (2, 3, 6))


@program
def filters_with_feedback():
  """Two biquads in a row by scans that keep their state between calls, as audio arrives in
  blocks."""
  from torch._higher_order_ops.scan import scan

  class Biquads(nn.Module):
    def __init__(self):
      super().__init__()
      self.register_buffer("kept", torch.zeros(2, 2, 3))
      b = torch.tensor([[0.2, 0.4, 0.2], [0.9, -1.8, 0.9]])
      self.register_buffer("b", b)
      self.register_buffer("a", torch.tensor([[-0.4, 0.2], [-1.7, 0.8]]))

    def forward(self, sound):
      for place in range(2):
        b, a = self.b[place].clone(), self.a[place].clone()

        def step(state, x, b=b, a=a):
          y = b[0] * x + state[0]
          first = b[1] * x - a[0] * y + state[1]
          return torch.stack((first, b[2] * x - a[1] * y)), y

        state, sound = scan(step, self.kept[place].clone(), sound)
        self.kept[place] = state
      return sound, self.kept.clone()

  return vary(Biquads(), lambda n: (torch.randn(n, 3),), [{0: "n"}], (8, 3, 21))


@program
def operator_in_the_space_of_frequencies():
  """A Fourier neural operator of two dimensions: low frequencies times complex weights."""

  class Spectral(nn.Module):
    def __init__(self):
      super().__init__()
      self.low = nn.Parameter(torch.randn(3, 4, 3, 3, dtype=torch.cfloat) / 4)
      self.high = nn.Parameter(torch.randn(3, 4, 3, 3, dtype=torch.cfloat) / 4)
      self.beside = nn.Conv2d(3, 4, 1)

    def forward(self, x):
      waves = torch.fft.rfft2(x, norm="ortho")
      result = torch.zeros(x.shape[0], 4, x.shape[2], x.shape[3] // 2 + 1, dtype=torch.cfloat)
      result[:, :, :3, :3] = torch.einsum("bixy,ioxy->boxy", waves[:, :, :3, :3], self.low)
      result[:, :, -3:, :3] = torch.einsum("bixy,ioxy->boxy", waves[:, :, -3:, :3], self.high)
      back = torch.fft.irfft2(result, s=x.shape[-2:], norm="ortho")
      energy = waves.abs().square().mean((-2, -1))
      return F.gelu(back + self.beside(x)), energy, waves.angle()[:, :, 0, 1]

  return vary(Spectral(), lambda n: (torch.randn(n, 3, 10, 12),), [{0: "n"}], (2, 3, 5))


@program
def ranks_and_their_correlations():
  """Spearman's and Kendall's correlations, medians, modes, running extremes, quantiles and a
  trimmed mean."""

  def function(x, y):
    ranks = [one.argsort(dim=0, stable=True).argsort(dim=0).float() for one in (x, y)]
    centred = [one - one.mean(0) for one in ranks]
    spearman = (centred[0] * centred[1]).sum(0) / (
      centred[0].norm(dim=0) * centred[1].norm(dim=0)
    ).clamp(min=1e-9)
    signs = [torch.sign(one[:, None] - one[None]) for one in (x, y)]
    kendall = (signs[0] * signs[1]).sum((0, 1)) / (x.shape[0] * (x.shape[0] - 1))
    part = x.shape[0] // 4
    trimmed = x.sort(0).values[part : x.shape[0] - part].mean(0)
    coarse = (x * 2).round().long()
    mode = coarse.mode(0)
    return (
      spearman,
      kendall,
      trimmed,
      mode.values,
      x.median(0),
      x.nanquantile(torch.tensor([0.1, 0.5, 0.9]), dim=0),
      x.cummax(0),
      x.cummin(0),
      x.logcumsumexp(0),
      x.kthvalue(2, 0),
      torch.histc(x, 6, -2.0, 2.0),
    )

  return vary(
    function, lambda n: (torch.randn(n, 3), torch.randn(n, 3)), [{0: "n"}] * 2, (8, 5, 23)
  )


@program
def windows_that_are_shifted():
  """Attention within windows of an image whose size is no multiple of them: padded, rolled, cut
  into windows, masked, and put together again."""

  class Windows(nn.Module):
    def __init__(self):
      super().__init__()
      self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
      batch, height, width, _ = x.shape
      bottom, right = -height % 4, -width % 4
      x = F.pad(x, (0, 0, 0, right, 0, bottom))
      x = torch.roll(x, (-2, -2), (1, 2))
      rows, columns = (height + bottom) // 4, (width + right) // 4
      area = torch.zeros(rows * 4, columns * 4)
      for number, part in enumerate((slice(0, -4), slice(-4, -2), slice(-2, None))):
        area[part] += 3 * number
        area[:, part] += number
      area = area.view(rows, 4, columns, 4).transpose(1, 2).reshape(-1, 16)
      mask = area[:, None] == area[:, :, None]
      x = x.view(batch, rows, 4, columns, 4, 8).permute(0, 1, 3, 2, 4, 5).reshape(batch, -1, 16, 8)
      q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(3, 0, 1, 4, 2, 5)
      y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[None, :, None])
      y = self.out(y.transpose(2, 3).flatten(3))
      y = y.view(batch, rows, columns, 4, 4, 8).transpose(2, 3).reshape(batch, rows * 4, -1, 8)
      return torch.roll(y, (2, 2), (1, 2))[:, :height, :width]

  def arguments(n):
    return (torch.randn(2, n, 10, 8),)

  return vary(Windows(), arguments, [{1: "n"}], (10, 8, 13), least={"n": 5})


@program
def runs_of_equal_values():
  """Lengths of runs of equal values and the values again, flags of local peaks, distances to the
  last event."""

  def function(x, wave):
    values, counts = torch.unique_consecutive(x, return_counts=True)
    again = torch.repeat_interleave(values, counts, output_size=x.shape[0])
    peaks = (wave[1:-1] > wave[:-2]) & (wave[1:-1] >= wave[2:])
    places = torch.arange(x.shape[0])
    event = F.pad(peaks, (1, 1))
    since = places - torch.where(event, places, -1).cummax(0).values
    crossed = torch.diff(torch.signbit(wave).long()).abs().sum()
    return counts.amax(), again, peaks.nonzero()[:, 0], since, crossed, wave[event]

  def arguments(n):
    return torch.randint(0, 2, (n,)), torch.randn(n)

  return vary(function, arguments, [{0: "n"}] * 2, (12, 5, 40), least={"n": 3})


@program
def densities_of_distributions():
  """Densities, entropies and divergences of torch.distributions, without samples."""
  from torch import distributions as d

  d.Distribution.set_default_validate_args(False)  # checks are branches on the data

  def function(x, rate):
    normal = d.Normal(x, rate)
    gamma = d.Gamma(rate, 1 + rate)
    beta = d.Beta(rate, 2 * rate)
    student = d.StudentT(rate + 2, x, rate)
    words = d.Categorical(logits=x)
    of_rows = d.Dirichlet(rate)
    half = torch.eye(3) + 0.1 * torch.ones(3, 3).tril()
    joint = d.MultivariateNormal(x, scale_tril=half)
    mixed = d.MixtureSameFamily(words, normal)
    changed = d.TransformedDistribution(normal, [d.transforms.TanhTransform()])
    return (
      normal.log_prob(x + 1),
      normal.cdf(x * 2),
      normal.icdf(torch.sigmoid(x)),
      gamma.log_prob(rate * 2),
      gamma.entropy(),
      beta.log_prob(torch.sigmoid(x)),
      student.log_prob(x * 2),
      words.entropy(),
      of_rows.log_prob(x.softmax(-1)),
      joint.log_prob(x.flip(-1)),
      mixed.log_prob(x[:, 0]),
      changed.log_prob(torch.tanh(x) * 0.9),
      d.Poisson(rate).log_prob(torch.floor(rate * 3)),
      d.NegativeBinomial(rate, logits=x).log_prob(torch.floor(rate)),
      d.VonMises(x, rate).log_prob(x + 1),
      d.kl_divergence(gamma, d.Gamma(rate + 1, rate)),
      d.kl_divergence(beta, d.Beta(rate, rate)),
    )

  def arguments(n):
    return torch.randn(n, 3), torch.rand(n, 3) + 0.5

  return vary(function, arguments, [{0: "n"}] * 2, (4, 2, 7))


@program
def heat_on_a_plate():
  """Implicit steps of heat: conjugate gradients with a stencil, until the rest is small, with an
  edge that reflects."""

  def function(start, source):
    def applied(x):
      wide = F.pad(x[None, None], (1, 1, 1, 1), mode="replicate")[0, 0]
      around = wide[2:, 1:-1] + wide[:-2, 1:-1] + wide[1:-1, 2:] + wide[1:-1, :-2]
      return x - 0.2 * (around - 4 * x)

    right = start + source
    rest = right - applied(start)

    def goes_on(turn, x, rest, way, size):
      return (turn < 40) & (size > 1e-8)

    def step(turn, x, rest, way, size):
      image = applied(way)
      length = size / (way * image).sum().clamp(min=1e-20)
      after = rest - length * image
      new = after.square().sum()
      return turn + 1, x + length * way, after, after + new / size * way, new

    first = torch.zeros((), dtype=torch.long), start.clone(), rest, rest.clone()
    found = torch._higher_order_ops.while_loop(goes_on, step, (*first, rest.square().sum()))
    return found[1], found[1].mean()

  def arguments(n):
    return torch.randn(n, 7), torch.rand(n, 7)

  return vary(function, arguments, [{0: "n"}] * 2, (6, 3, 12))


@program
def lines_in_a_picture():
  """Edges by Sobel's filters with thinning along the gradient, and Hough's lines by votes."""

  def function(image):
    kernel = torch.tensor([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]])
    wide = F.pad(image[None, None], (1, 1, 1, 1), mode="reflect")
    both = F.conv2d(wide, torch.stack((kernel, kernel.t()))[:, None])[0]
    dx, dy = both
    size = torch.linalg.vector_norm(both, dim=0)
    turn = (torch.atan2(dy, dx) / (math.pi / 4)).round().long() % 4
    wide = F.pad(size, (1, 1, 1, 1))
    ways = [(0, 1), (1, 1), (1, 0), (1, -1)]
    height, width = size.shape
    sides = torch.stack(
      [
        torch.maximum(
          wide[1 + r : 1 + r + height, 1 + c : 1 + c + width],
          wide[1 - r : 1 - r + height, 1 - c : 1 - c + width],
        )
        for r, c in ways
      ]
    )
    thin = (size >= sides.gather(0, turn[None])[0]) & (size > size.mean())
    angles = torch.arange(12) * math.pi / 12
    rows = torch.arange(height, dtype=torch.float32)[:, None, None]
    columns = torch.arange(width, dtype=torch.float32)[:, None]
    offset = (columns * angles.cos() + rows * angles.sin()).round().long() + height + width
    votes = torch.zeros(12, 2 * (height + width))
    at = torch.arange(12).expand_as(offset), offset
    votes = votes.index_put(at, thin[..., None].expand_as(offset).float(), accumulate=True)
    best = votes.flatten().topk(3).values
    return thin, votes, best

  return vary(function, lambda n: (torch.randn(n, 11),), [{0: "n"}], (9, 5, 14))


@program
def harmonics_and_polynomials():
  """Spherical harmonics, orthogonal polynomials by their recurrences, and special functions."""

  def function(x):
    unit = F.normalize(x, dim=-1)
    a, b, c = unit.unbind(-1)
    harmonics = torch.stack(
      (torch.ones_like(a), a, b, c, a * b, b * c, 3 * c * c - 1, a * c, a * a - b * b), -1
    )
    before, now, chebyshev = torch.ones_like(a), c, []
    for _ in range(5):
      before, now = now, 2 * c * now - before
      chebyshev.append(now)
    s = torch.special
    return (
      harmonics,
      torch.stack(chebyshev, -1),
      s.bessel_j0(x),
      s.bessel_j1(x.abs()),
      s.modified_bessel_i0(x),
      s.erfcx(x),
      s.log_ndtr(x * 3),
      s.ndtri(torch.sigmoid(x)),
      s.zeta(x.abs() + 1.5, torch.ones_like(x)),
      s.gammainc(x.abs() + 0.5, x.abs()),
      s.polygamma(1, x.abs() + 0.5),
      s.xlog1py(x, x.abs()),
      s.entr(x),
      torch.sinc(x),
      torch.special.spherical_bessel_j0(x),
      torch.vander(c, 4),
      torch.trapezoid(x, dim=0),
      torch.cumulative_trapezoid(x, dim=0),
    )

  return vary(function, lambda n: (torch.randn(n, 3),), [{0: "n"}], (5, 2, 9))


@program
def vocoder_of_phases():
  """Sounds that are stretched: a spectrogram, phases that add up, and a sound again, with the mel
  bands and their cosines."""

  def function(sound):
    window = torch.hann_window(16)
    waves = torch.stft(sound, 16, 4, window=window, return_complex=True)
    size, phase = waves.abs(), waves.angle()
    advance = torch.arange(9) * 2 * math.pi * 4 / 16
    change = torch.diff(phase, dim=-1) - advance[:, None]
    change = change - 2 * math.pi * torch.round(change / (2 * math.pi)) + advance[:, None]
    total = torch.cat((phase[..., :1], change), -1).cumsum(-1)
    slow = torch.polar(size, total * 2)
    again = torch.istft(slow, 16, 8, window=window)
    bands = torch.linspace(0, 8, 6)
    places = torch.arange(9.0)[:, None]
    mel = (1 - (places - bands).abs() / 1.6).clamp(min=0)
    energy = torch.log(size.square().mT @ mel + 1e-4)
    n = torch.arange(6.0)
    cosines = torch.cos(math.pi / 6 * (n + 0.5) * n[:, None])
    return again, energy @ cosines.t(), torch.fft.rfft(again, norm="forward").abs()

  return vary(function, lambda n: (torch.randn(n, 64),), [{0: "n"}], (2, 3, 4))


if __name__ == "__main__":
  program_table.main(__doc__, PROGRAMS, REFUSED)
