"""Mixtures of experts on several ranks, in the forms in which transformers computes them."""

import re

import husk
import pytest
import torch
import torch.nn.functional as F
from torch import nn

TARGETS = ("host:avx2",)
EXPERTS, ACTIVE, WIDTH, BETWEEN = 4, 2, 16, 24


class Experts(nn.Module):
  """The layers of experts of transformers: a stack of matrices for each product."""

  def __init__(self, product):
    super().__init__()
    self.num_experts, self.product = EXPERTS, product
    self.gate_up_proj = nn.Parameter(torch.randn(EXPERTS, 2 * BETWEEN, WIDTH) / 4)
    self.down_proj = nn.Parameter(torch.randn(EXPERTS, WIDTH, BETWEEN) / 4)

  def forward(self, hidden_states, top_k_index, top_k_weights):
    return self.product(self, hidden_states, top_k_index, top_k_weights)


class KnowingExperts(Experts):
  """As in newer versions: experts of other ranks have the number `num_experts`."""

  def __init__(self, product):
    super().__init__(product)
    self._is_expert_parallel = False


def activated(both):
  gate, up = both.chunk(2, -1)
  return F.silu(gate) * up


def batched(layer, x, index, weights):
  index = index.reshape(-1)
  if getattr(layer, "_is_expert_parallel", False):
    index = index.clamp(0, layer.num_experts - 1)
  x = x.repeat_interleave(ACTIVE, 0)
  both = torch.bmm(layer.gate_up_proj[index], x.unsqueeze(-1)).squeeze(-1)
  y = torch.bmm(layer.down_proj[index], activated(both).unsqueeze(-1)).squeeze(-1)
  return (y * weights.reshape(-1, 1)).view(-1, ACTIVE, WIDTH).sum(1)


def product_of_groups(x, stack, ends):
  """PyTorch traces it in bf16 only."""
  return torch._grouped_mm(x.bfloat16(), stack.bfloat16().transpose(-2, -1), offs=ends).float()


def grouped(layer, x, index, weights):
  index, order = index.reshape(-1).sort()
  count = layer.num_experts
  rows = torch.histc(index.float(), bins=count, min=0, max=count - 1)
  ends = torch.cumsum(rows, 0, dtype=torch.int32)
  both = product_of_groups(x[order // ACTIVE], layer.gate_up_proj, ends)
  y = product_of_groups(activated(both), layer.down_proj, ends)
  y = y * weights.reshape(-1)[order].unsqueeze(-1)
  if getattr(layer, "_is_expert_parallel", False):
    y = y.masked_fill((index >= count).unsqueeze(-1), 0)
  return torch.empty_like(y).index_copy(0, order, y).view(-1, ACTIVE, WIDTH).sum(1)


class Mixture(nn.Module):
  def __init__(self, kind, product):
    super().__init__()
    self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)
    self.experts = kind(product)

  def forward(self, x):
    rows = x.flatten(0, 1)
    weights, index = self.gate(rows).softmax(-1).topk(ACTIVE, -1)
    return self.experts(rows, index, weights / weights.sum(-1, keepdim=True)).view(x.shape)


class Decoder(nn.Module):
  def __init__(self, kind, product, layers):
    super().__init__()
    self.embed_tokens = nn.Embedding(64, WIDTH)
    self.gate_proj = nn.Linear(WIDTH, 32, bias=False)
    self.down_proj = nn.Linear(32, WIDTH, bias=False)
    self.mlp = nn.ModuleList(Mixture(kind, product) for _ in range(layers))
    self.lm_head = nn.Linear(WIDTH, 64, bias=False)

  def forward(self, tokens):
    x = self.embed_tokens(tokens)
    x = x + self.down_proj(F.silu(self.gate_proj(x)))
    for mixture in self.mlp:
      x = x + mixture(x)
    return self.lm_head(x)


def whole(kind=Experts, product=batched, layers=2):
  torch.manual_seed(0)
  return Decoder(kind, product, layers).eval()


# Layers that know of other ranks have one expert on each of four ranks, or two on each of two.
@pytest.mark.parametrize(
  "kind, product, ranks",
  [
    (Experts, batched, 2),
    (Experts, grouped, 2),
    (KnowingExperts, batched, 4),
    (KnowingExperts, grouped, 2),
  ],
)
def test_a_mixture_on_ranks(tmp_path, kind, product, ranks):
  layers = 2 if kind is KnowingExperts and product is grouped else 1
  tokens = torch.arange(21).reshape(3, 7) * 11 % 64
  husk.parallel.export(
    lambda mesh: husk.parallel.shard(whole(kind, product, layers), mesh),
    (tokens,),
    tmp_path / "mixture.husk",
    ranks=ranks,
    dynamic_shapes={"tokens": {0: torch.export.Dim("rows", min=1, max=16)}},
    targets=TARGETS,
    keep=tmp_path,
  )
  programs = husk.load_ranks(tmp_path / "mixture.husk", ["cpu"] * ranks, threads=1)
  model = whole(kind, product, layers)
  for rows in tokens, tokens[1:2]:
    with torch.no_grad():
      expected = model(rows)
    found = programs.on_all(lambda rank, rows=rows: programs.programs[rank](rows).clone())
    rounding = {} if product is batched else {"rtol": 1e-2, "atol": 1e-2}
    for one in found:
      torch.testing.assert_close(one, expected, **rounding)
  # Each rank has its experts, and the whole router.
  weights = [program.weights for program in programs.programs]
  for own in weights:
    count = EXPERTS // ranks
    assert own[f"mlp.{layers - 1}.experts.gate_up_proj"].shape == (count, 2 * BETWEEN, WIDTH)
    assert own["mlp.0.gate.weight"].shape == (EXPERTS, WIDTH)
  # A mixture has one sum of all ranks, as an MLP has.
  text = (tmp_path / "rank1" / "model.hir").read_text()
  assert len(re.findall(r'extern "husk::all_reduce"', text)) == 2 + layers


def test_refusals(tmp_path):
  def export(model, ranks=2):
    husk.parallel.export(
      lambda mesh: husk.parallel.shard(model, mesh),
      (torch.zeros(1, 1, dtype=torch.int64),),
      tmp_path / "x.husk",
      ranks=ranks,
      targets=TARGETS,
    )

  model = whole()
  model.down_proj, model.gate_proj = nn.Linear(33, 3), nn.Linear(3, 33)
  model.embed_tokens, model.lm_head = nn.Identity(), nn.Identity()
  with pytest.raises(ValueError, match=r"mlp\.0\.experts: 4 experts are no multiple of 3, the num"):
    export(model, 3)

  class Rows(Experts):
    def forward(self, hidden_states):
      return hidden_states

  with pytest.raises(ValueError, match="Rows has stacks of experts, but no num_experts or other"):
    export(whole(Rows))

  class Attention(nn.Module):
    def __init__(self):
      super().__init__()
      self.q_proj, self.o_proj = nn.Linear(WIDTH, 8), nn.Linear(8, WIDTH)
      self.q_norm = nn.RMSNorm(8)

  class Config:
    num_attention_heads = 2

  model = whole()
  model.config, model.attention = Config(), Attention()
  with pytest.raises(ValueError, match="attention.q_norm is a norm over all heads"):
    export(model)


@pytest.mark.parametrize("form", ("grouped_mm", "batched_mm"))
@pytest.mark.parametrize("name", ("qwen3_moe", "mixtral"))
def test_a_decoder_of_transformers(tmp_path, name, form):
  """tests/torch/nets/mixtures_on_ranks.py has more of them, with states."""
  transformers = pytest.importorskip("transformers")
  config = transformers.AutoConfig.for_model(
    name,
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    moe_intermediate_size=16,
    num_hidden_layers=1,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    num_experts=4,
    num_local_experts=4,
    num_experts_per_tok=2,
    decoder_sparse_step=1,
  )
  config._experts_implementation = form

  def build():
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config).eval()

  class Logits(nn.Module):
    def __init__(self, model):
      super().__init__()
      self.model = model

    def forward(self, tokens):
      return self.model(tokens, use_cache=False).logits

  tokens = torch.arange(12)[None] * 7 % 64
  husk.parallel.export(
    lambda mesh: Logits(husk.parallel.shard(build(), mesh)),
    (tokens,),
    tmp_path / "x.husk",
    targets=TARGETS,
  )
  programs = husk.load_ranks(tmp_path / "x.husk", ["cpu"] * 2, threads=1)
  with torch.no_grad():
    expected = build()(tokens).logits
  for one in programs.on_all(lambda rank: programs.programs[rank](tokens).clone()):
    torch.testing.assert_close(one, expected)
