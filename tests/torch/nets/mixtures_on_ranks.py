"""Mixtures of experts of transformers on several ranks, each with some of the experts: logits of a
prompt and of each token that follows, against those of the whole model in eager mode.

    python tests/torch/nets/mixtures_on_ranks.py [ARCHITECTURE...] [--form grouped_mm] [--ranks 2]

Needs transformers. Small random configurations; all ranks are threads of this process, on the CPU.
A prompt of 9 tokens goes through the model as a whole, and 8 tokens follow one by one, with keys
and values as states. The exit status is 1 if a logit of any rank is wrong."""

import argparse
import pathlib
import sys
import tempfile

import torch
from torch import nn

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "compiler" / "torch"))

import compared  # noqa: E402
import husk  # noqa: E402
from language_models import COMMON, EXPERTS  # noqa: E402

MOST, PROMPT, NEW = 32, 9, 8
SIZES = {**COMMON, **EXPERTS, "num_experts": 8, "num_local_experts": 8, "n_routed_experts": 8}
ARCHITECTURES = {
  "mixtral": {},
  "phimoe": {},
  "qwen2_moe": {"decoder_sparse_step": 1},
  "qwen3_moe": {"decoder_sparse_step": 1},
}
FORMS = ("grouped_mm", "batched_mm")


def whole(name, form):
  """The model of an architecture, always with the same weights."""
  import transformers

  torch.manual_seed(0)
  config = transformers.AutoConfig.for_model(name, **SIZES, **ARCHITECTURES[name])
  config._experts_implementation = form
  model = transformers.AutoModelForCausalLM.from_config(config).eval()
  with torch.no_grad():
    for parameter in model.parameters():  # so that experts matter
      parameter.mul_(3)
  return model


class WithCache(nn.Module):
  """A decoder that keeps the keys and values of one sequence as states."""

  def __init__(self, model, ranks):
    super().__init__()
    self.model = model
    config = model.config
    heads = config.num_key_value_heads // ranks
    for layer in range(config.num_hidden_layers):
      for name in ("keys", "values"):
        self.register_buffer(f"{name}_{layer}", torch.zeros(1, heads, MOST, config.head_dim))
    self.register_buffer("length", torch.zeros((), dtype=torch.int64))

  def forward(self, tokens):
    import transformers

    cache = transformers.StaticCache(self.model.config, max_cache_len=MOST)
    for number, layer in enumerate(cache.layers):
      layer.keys = getattr(self, f"keys_{number}")
      layer.values = getattr(self, f"values_{number}")
      layer.device, layer.is_initialized = tokens.device, True
      layer.cumulative_length = self.length.clone()
    places = (torch.arange(tokens.shape[1]) + self.length)[None]
    logits = self.model(tokens, position_ids=places, past_key_values=cache).logits
    self.length.add_(tokens.shape[1])
    return logits


def compare(name, options, folder):
  tokens = torch.arange(PROMPT + NEW)[None] * 37 % SIZES["vocab_size"]
  with torch.no_grad():
    expected = whole(name, options.form)(tokens).logits
  path = folder / f"{name}.husk"
  husk.parallel.export(
    lambda mesh: WithCache(
      husk.parallel.shard(whole(name, options.form), mesh), options.ranks
    ).eval(),
    (tokens[:, :PROMPT],),
    path,
    ranks=options.ranks,
    dynamic_shapes={"tokens": {1: torch.export.Dim("tokens", min=1, max=MOST)}},
    targets=(options.target,),
    keep=folder,
  )
  ranks = husk.load_ranks(path, ["cpu"] * options.ranks, threads=1)
  parts = [tokens[:, :PROMPT], *(tokens[:, at : at + 1] for at in range(PROMPT, PROMPT + NEW))]

  def continued(rank):
    session = ranks.programs[rank].session()
    return torch.cat([session(part).clone() for part in parts], 1)

  worst = max(
    float((found - expected).abs().max() / expected.abs().max())
    for found in ranks.on_all(continued)
  )
  return worst > 1e-4, f"{options.form}, {options.ranks} ranks, largest difference {worst:.1e}"


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("architectures", nargs="*", default=sorted(ARCHITECTURES))
  parser.add_argument("--form", choices=FORMS)
  parser.add_argument("--ranks", type=int, default=2)
  parser.add_argument("--target", default="host:avx2")
  options = parser.parse_args()
  failed = 0
  for form in (options.form,) if options.form else FORMS:
    options.form = form
    with tempfile.TemporaryDirectory() as folder:
      failed |= compared.each(
        options.architectures, lambda name: compare(name, options, pathlib.Path(folder))
      )
  sys.exit(failed)


if __name__ == "__main__":
  main()
