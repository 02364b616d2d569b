"""Models of recommenders, written as their papers describe them."""

from __future__ import annotations

import torch
from torch import nn
from torch.export import Dim

from .row import Call, Row

CARDINALITIES = (40, 7, 90, 13)
WIDTH = 8


def layers(*widths: int) -> nn.Sequential:
  parts: list[nn.Module] = []
  for inside, outside in zip(widths, widths[1:]):
    parts += [nn.Linear(inside, outside), nn.ReLU()]
  return nn.Sequential(*parts[:-1])


class Dlrm(nn.Module):
  """Naumov et al., 2019: bags of embeddings, and the products of all pairs of vectors."""

  def __init__(self) -> None:
    super().__init__()
    self.bottom = layers(5, 16, WIDTH)
    self.bags = nn.ModuleList(nn.EmbeddingBag(n, WIDTH, mode="sum") for n in CARDINALITIES)
    vectors = 1 + len(CARDINALITIES)
    self.top = layers(WIDTH + vectors * (vectors - 1) // 2, 16, 1)
    self.register_buffer("pairs", torch.tril_indices(vectors, vectors, -1), persistent=False)

  def forward(self, dense, indices, offsets):
    bottom = self.bottom(dense)
    bags = [bag(indices[n], offsets[n]) for n, bag in enumerate(self.bags)]
    vectors = torch.stack([bottom, *bags], dim=1)
    products = torch.bmm(vectors, vectors.transpose(1, 2))
    chosen = products[:, self.pairs[0], self.pairs[1]]
    return torch.sigmoid(self.top(torch.cat([bottom, chosen], dim=1)))


class DeepFm(nn.Module):
  """Guo et al., 2017: a factorization machine beside a network."""

  def __init__(self) -> None:
    super().__init__()
    self.register_buffer("first", torch.tensor([0, *CARDINALITIES[:-1]]).cumsum(0))
    self.linear = nn.Embedding(sum(CARDINALITIES), 1)
    self.vectors = nn.Embedding(sum(CARDINALITIES), WIDTH)
    self.deep = nn.Sequential(
      nn.Linear(len(CARDINALITIES) * WIDTH, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2)
    )
    self.out = nn.Linear(16, 1)

  def forward(self, fields):
    rows = fields + self.first
    vectors = self.vectors(rows)
    square = vectors.sum(1) ** 2 - (vectors**2).sum(1)
    linear = self.linear(rows).sum(1)
    deep = self.out(self.deep(vectors.flatten(1)))
    return torch.sigmoid(linear + 0.5 * square.sum(1, keepdim=True) + deep).squeeze(1)


class TwoTowers(nn.Module):
  """Yi et al., 2019: cosines of users and items, and the best items of each user."""

  def __init__(self) -> None:
    super().__init__()
    self.users, self.items = nn.Embedding(50, 16), nn.Embedding(200, 16, padding_idx=0)
    self.user, self.item = layers(16, 32, 12), layers(16, 32, 12)

  def forward(self, user, history):
    mask = (history != 0).unsqueeze(-1)
    mean = (self.items(history) * mask).sum(1) / mask.sum(1).clamp(min=1)
    users = nn.functional.normalize(self.user(self.users(user) + mean), dim=1)
    items = nn.functional.normalize(self.item(self.items.weight), dim=1)
    scores, places = torch.topk(users @ items.T / 0.05, 10)
    return scores, places


class DeepCross(nn.Module):
  """Wang et al., 2021: DCN-V2, with crosses of low rank."""

  def __init__(self) -> None:
    super().__init__()
    width = 5 + len(CARDINALITIES) * WIDTH
    self.tables = nn.ModuleList(nn.Embedding(n, WIDTH) for n in CARDINALITIES)
    self.down = nn.ModuleList(nn.Linear(width, 4, bias=False) for _ in range(3))
    self.up = nn.ModuleList(nn.Linear(4, width) for _ in range(3))
    self.deep = layers(width, 24, 12)
    self.out = nn.Linear(width + 12, 1)

  def forward(self, dense, fields):
    vectors = [table(fields[:, n]) for n, table in enumerate(self.tables)]
    first = torch.cat([dense, *vectors], dim=1)
    crossed = first
    for down, up in zip(self.down, self.up):
      crossed = first * up(down(crossed)) + crossed
    return torch.sigmoid(self.out(torch.cat([crossed, self.deep(first)], dim=1)))


class Interest(nn.Module):
  """Zhou et al., 2018: DIN, a history that is weighted by the item."""

  def __init__(self) -> None:
    super().__init__()
    self.items = nn.Embedding(200, WIDTH, padding_idx=0)
    self.weight = nn.Sequential(nn.Linear(4 * WIDTH, 16), nn.PReLU(), nn.Linear(16, 1))
    self.top = nn.Sequential(nn.Linear(2 * WIDTH, 16), nn.PReLU(), nn.Linear(16, 1))

  def forward(self, item, history):
    wanted, past = self.items(item), self.items(history)
    each = wanted.unsqueeze(1).expand_as(past)
    weights = self.weight(torch.cat([each, past, each - past, each * past], dim=-1))
    weights = weights.masked_fill((history == 0).unsqueeze(-1), 0.0)
    return torch.sigmoid(self.top(torch.cat([wanted, (weights * past).sum(1)], dim=1)))


class SelfAttentive(nn.Module):
  """Kang and McAuley, 2018: SASRec, the next item by causal attention."""

  def __init__(self) -> None:
    super().__init__()
    self.items, self.places = nn.Embedding(100, 16, padding_idx=0), nn.Embedding(32, 16)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
    self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

  def forward(self, history):
    length = history.shape[1]
    x = self.items(history) * 4 + self.places(torch.arange(length, device=history.device))
    mask = nn.Transformer.generate_square_subsequent_mask(length, device=history.device)
    return self.encoder(x, mask=mask, is_causal=True)[:, -1] @ self.items.weight.T


def fields(batch: int) -> torch.Tensor:
  return torch.stack([torch.randint(0, n, (batch,)) for n in CARDINALITIES], dim=1)


def bags(batch: int) -> Call:
  indices = [torch.randint(0, n, (3 * batch,)) for n in CARDINALITIES]
  return (torch.randn(batch, 5), indices, [torch.arange(0, 3 * batch, 3)] * 4), {}


BATCH = Dim("batch", min=1, max=64)
ROWS = {"size": 6, "others": (1, 17)}


def rows() -> list[Row]:
  first = {0: BATCH}

  def row(name, model, inputs, shapes) -> Row:
    return Row("recommender", name, model, inputs, shapes=shapes, **ROWS)

  def histories(batch: int) -> torch.Tensor:
    return torch.randint(0, 90, (batch, 9)) * (torch.arange(9) < 7)

  return [
    row("dlrm", Dlrm, bags, (first, [{0: 3 * BATCH} for _ in CARDINALITIES], [first] * 4)),
    row("deep_fm", DeepFm, lambda n: ((fields(n),), {}), (first,)),
    row(
      "two_towers",
      TwoTowers,
      lambda n: ((torch.randint(0, 50, (n,)), histories(n)), {}),
      (first, first),
    ),
    row("deep_cross", DeepCross, lambda n: ((torch.randn(n, 5), fields(n)), {}), (first, first)),
    row(
      "interest",
      Interest,
      lambda n: ((torch.randint(1, 90, (n,)), histories(n)), {}),
      (first, first),
    ),
    row("self_attentive", SelfAttentive, lambda n: ((histories(n),), {}), (first,)),
  ]
