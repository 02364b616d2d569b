"""Forecasts of time series, written as their papers describe them."""

from __future__ import annotations

import torch
from torch import nn
from torch.export import Dim

from .row import Row

PAST, FUTURE = 24, 6


class NBeats(nn.Module):
  """Oreshkin et al., 2020: stacks of a trend, of seasons and of learnt bases."""

  def __init__(self, width: int = 32) -> None:
    super().__init__()
    when = torch.arange(PAST + FUTURE) / FUTURE
    trend = torch.stack([when**power for power in range(3)])
    angles = 2 * torch.pi * when * torch.arange(1, 4).unsqueeze(1)
    self.register_buffer("trend", trend)
    self.register_buffer("seasons", torch.cat([angles.cos(), angles.sin()]))
    self.blocks, self.out = nn.ModuleList(), nn.ModuleList()
    for terms in (6, 12, PAST + FUTURE):
      parts = [nn.Linear(PAST, width), nn.ReLU()]
      for _ in range(3):
        parts += [nn.Linear(width, width), nn.ReLU()]
      self.blocks.append(nn.Sequential(*parts))
      self.out.append(nn.Linear(width, terms))

  def expanded(self, number, terms):
    if number == 2:
      return terms[:, :PAST], terms[:, PAST:]
    basis = self.seasons if number else self.trend
    back, ahead = terms.chunk(2, dim=1)
    return back @ basis[:, :PAST], ahead @ basis[:, PAST:]

  def forward(self, x):
    forecast = torch.zeros(x.shape[0], FUTURE, device=x.device)
    for number, (block, out) in enumerate(zip(self.blocks, self.out)):
      back, ahead = self.expanded(number, out(block(x)))
      x, forecast = x - back, forecast + ahead
    return forecast


class GatedResidual(nn.Module):
  def __init__(self, width: int, context: int = 0) -> None:
    super().__init__()
    self.one, self.two = nn.Linear(width, width), nn.Linear(width, 2 * width)
    self.context = nn.Linear(context, width, bias=False) if context else None
    self.norm = nn.LayerNorm(width)

  def forward(self, x, context=None):
    inner = self.one(x)
    if self.context is not None:
      inner = inner + self.context(context).unsqueeze(1)
    return self.norm(x + nn.functional.glu(self.two(nn.functional.elu(inner)), dim=-1))


class TemporalFusion(nn.Module):
  """Lim et al., 2021: chosen variables, an LSTM, attention, and quantiles."""

  def __init__(self, width: int = 16, variables: int = 3) -> None:
    super().__init__()
    self.scale = nn.ModuleList(nn.Linear(1, width) for _ in range(variables))
    self.choice = nn.Linear(variables * width, variables)
    self.each = nn.ModuleList(GatedResidual(width) for _ in range(variables))
    self.static = nn.Embedding(10, width)
    self.encoder, self.decoder = (nn.LSTM(width, width, batch_first=True) for _ in range(2))
    self.enrich = GatedResidual(width, width)
    self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
    self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, 3)

  def forward(self, values, place):
    scaled = [layer(values[..., n : n + 1]) for n, layer in enumerate(self.scale)]
    weights = self.choice(torch.cat(scaled, dim=-1)).softmax(-1)
    parts = torch.stack([layer(x) for layer, x in zip(self.each, scaled)], dim=-1)
    x = (parts * weights.unsqueeze(2)).sum(-1)
    context = self.static(place)
    state = context.unsqueeze(0), torch.zeros_like(context).unsqueeze(0)
    past, state = self.encoder(x[:, :PAST], state)
    future, _ = self.decoder(x[:, PAST:], state)
    x = self.enrich(torch.cat([past, future], dim=1) + x, context)
    length = x.shape[1]
    later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
    attended, weights = self.attention(x, x, x, attn_mask=later)
    return self.out(self.norm(x + attended)[:, PAST:]), weights


class DLinear(nn.Module):
  """Zeng et al., 2023: a moving mean and the rest, each with a linear layer."""

  def __init__(self) -> None:
    super().__init__()
    self.mean = nn.AvgPool1d(5, stride=1)
    self.trend, self.rest = nn.Linear(PAST, FUTURE), nn.Linear(PAST, FUTURE)

  def forward(self, x):
    x = x.transpose(1, 2)
    trend = self.mean(nn.functional.pad(x, (2, 2), mode="replicate"))
    return (self.trend(trend) + self.rest(x - trend)).transpose(1, 2)


class Tcn(nn.Module):
  """Bai et al., 2018: causal, dilated convolutions with normalized weights."""

  def __init__(self) -> None:
    super().__init__()
    norm = nn.utils.parametrizations.weight_norm
    widths = (3, 12, 12, 12)
    self.layers = nn.ModuleList(
      norm(nn.Conv1d(inside, outside, 3, dilation=2**n))
      for n, (inside, outside) in enumerate(zip(widths, widths[1:]))
    )
    self.skips = nn.ModuleList(nn.Conv1d(inside, 12, 1) for inside in widths[:-1])

  def forward(self, x):
    x = x.transpose(1, 2)
    for n, (layer, skip) in enumerate(zip(self.layers, self.skips)):
      x = (layer(nn.functional.pad(x, (2 * 2**n, 0))).relu() + skip(x)).relu()
    return x[:, :, -1]


class DeepAr(nn.Module):
  """Salinas et al., 2020: an LSTM that goes on with its own means."""

  def __init__(self) -> None:
    super().__init__()
    self.lstm, self.out = nn.LSTM(1, 16, num_layers=2, batch_first=True), nn.Linear(16, 2)

  def forward(self, x):
    scale = x.abs().mean(1, keepdim=True) + 1e-6
    output, state = self.lstm(x / scale)
    found = []
    for _ in range(FUTURE):
      mean, width = self.out(output[:, -1:]).chunk(2, dim=-1)
      found.append(torch.cat([mean * scale, nn.functional.softplus(width) * scale], dim=-1))
      output, state = self.lstm(mean, state)
    return torch.cat(found, dim=1)


class PatchMixer(nn.Module):
  """Nie et al., 2023: PatchTST, each channel by itself, with reversible normalization."""

  def __init__(self, patch: int = 6, stride: int = 3) -> None:
    super().__init__()
    self.patch, self.stride = patch, stride
    count = (PAST - patch) // stride + 1
    self.embed = nn.Linear(patch, 16)
    self.place = nn.Parameter(torch.randn(count, 16) * 0.02)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu")
    self.encoder = nn.TransformerEncoder(layer, 2)
    self.head = nn.Linear(count * 16, FUTURE)

  def forward(self, x):
    batch, _, channels = x.shape
    mean, width = x.mean(1, keepdim=True), x.std(1, keepdim=True) + 1e-5
    patches = ((x - mean) / width).transpose(1, 2).unfold(2, self.patch, self.stride)
    tokens = self.embed(patches.flatten(0, 1)) + self.place
    ahead = self.head(self.encoder(tokens).flatten(1)).view(batch, channels, FUTURE)
    return ahead.transpose(1, 2) * width + mean


def rows() -> list[Row]:
  batch = {0: Dim("batch", min=1, max=64)}

  def row(name, model, *kinds) -> Row:
    return Row(
      "series",
      name,
      model,
      lambda n: (tuple(kind(n) for kind in kinds), {}),
      5,
      (batch,) * len(kinds),
      (1, 13),
    )

  def three(n: int) -> torch.Tensor:
    return torch.randn(n, PAST, 3).cumsum(1)

  return [
    row("n_beats", NBeats, lambda n: torch.randn(n, PAST).cumsum(1)),
    row(
      "temporal_fusion",
      TemporalFusion,
      lambda n: torch.randn(n, PAST + FUTURE, 3),
      lambda n: torch.randint(0, 10, (n,)),
    ),
    row("patch_mixer", PatchMixer, three),
    row("d_linear", DLinear, three),
    row("tcn", Tcn, three),
    row("deep_ar", DeepAr, lambda n: torch.randn(n, PAST, 1).cumsum(1)),
  ]
