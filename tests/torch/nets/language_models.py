"""Language models of many architectures, from small random configurations: their texts from a file
of Husk against those of transformers' `generate`.

    python tests/torch/nets/language_models.py [ARCHITECTURE...] [--target host:avx2] [--eager]
        [--pages N] [--folder DIR [--dry]]

Needs transformers. Each model is exported with three slots; prompts of 1 to 300 tokens are
continued by up to 64 tokens, greedily, each alone, and then all of them in the slots, which they
join and leave. With --target cuda:h100 they run on that GPU. --part 0/4 takes every fourth
architecture. --eager compares the logits of the way that is exported, those of `verify`, those
after `copy` and hidden states, also with adapters (LoRA) of random numbers, and exports nothing.
With --pages the caches are in N pages, which with less than 18 do not suffice for all slots. An
architecture that is refused by name is counted apart. A text that differs first where two tokens
had the same logit up to rounding is counted as a tie. The exit status is 1 if another token is
wrong or an exception is raised.

DIR keeps the files and the expected texts. `--dry` only makes these; without it, those that DIR has
are not made again, for which a machine with a GPU needs no transformers."""

import argparse
import json
import logging
import pathlib
import sys
import tempfile

import torch

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "compiler" / "torch"))

import compared  # noqa: E402
import husk  # noqa: E402

VOCABULARY, MOST, SLOTS, NEW = 256, 384, 3, 64
LENGTHS = (1, 2, 5, 17, 64, 130, 300)
COMMON = {
  "vocab_size": VOCABULARY,
  "hidden_size": 64,
  "intermediate_size": 128,
  "num_hidden_layers": 2,
  "num_attention_heads": 4,
  "num_key_value_heads": 2,
  "head_dim": 16,
  "max_position_embeddings": 512,
  "pad_token_id": 0,
  "bos_token_id": 1,
  "eos_token_id": 2,
}
WINDOW = {"sliding_window": 16}
BOTH = {**WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
EXPERTS = {
  "num_experts": 4,
  "num_local_experts": 4,
  "n_routed_experts": 4,
  "num_experts_per_tok": 2,
  "moe_intermediate_size": 32,
  "shared_expert_intermediate_size": 32,
}
LATENT = {
  **EXPERTS,
  "n_group": 1,
  "topk_group": 1,
  "kv_lora_rank": 16,
  "q_lora_rank": 16,
  "qk_rope_head_dim": 8,
  "qk_nope_head_dim": 8,
  "v_head_dim": 16,
  "first_k_dense_replace": 1,
  "head_dim": 8,
  "num_key_value_heads": 4,
}
# Layers with states: a state-space model, a short convolution or linear attention.
STATES = {
  "initializer_range": 0.2,
  "num_hidden_layers": 3,
  "state_size": 8,
  "chunk_size": 32,
  "n_groups": 2,
}
MAMBA = {
  **STATES,
  "mamba_n_heads": 8,
  "mamba_d_head": 16,
  "mamba_n_groups": 2,
  "mamba_d_state": 8,
  "mamba_d_ssm": 128,
  "mamba_chunk_size": 32,
}
LINEAR = {
  **STATES,
  "linear_key_head_dim": 16,
  "linear_value_head_dim": 16,
  "linear_num_key_heads": 2,
  "linear_num_value_heads": 4,
  "layer_types": ["linear_attention", "linear_attention", "full_attention"],
}
# Configurations with other names of fields.
GPT2 = {"vocab_size": VOCABULARY, "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 512}
GPT2 |= {"bos_token_id": 1, "eos_token_id": 2, "rotary_dim": 8}
FALCON = {**GPT2, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
# The configurations by the names of architectures; after a colon is that of a variant.
ARCHITECTURES = {
  "apertus": {},
  "arcee": {},
  "bitnet": {},
  "codegen": GPT2,
  "cohere": {},
  "cohere2": BOTH,
  "deepseek_v2": LATENT,
  "deepseek_v3": LATENT,
  "diffllama": {},
  "doge": {},
  "ernie4_5": {},
  "exaone4": BOTH,
  "gemma": {},
  "gemma2": {**BOTH, "query_pre_attn_scalar": 16},
  "gemma3_text": {**BOTH, "query_pre_attn_scalar": 16},
  "glm": {},
  "glm4": {},
  "gpt2": GPT2,
  "gpt_bigcode": GPT2,
  "gpt_neox": {},
  "gpt_oss": {**BOTH, **EXPERTS},
  "gptj": GPT2,
  "granite": {},
  "granitemoe": EXPERTS,
  "helium": {},
  "hunyuan_v1_dense": {},
  "jetmoe": {},
  "llama": {},
  "mistral": WINDOW,
  "mixtral": EXPERTS,
  "nemotron": {},
  "olmo": {},
  "olmo2": {},
  "olmo3": BOTH,
  "olmoe": EXPERTS,
  "persimmon": {},
  "phi": {},
  "phi3": WINDOW,
  "phimoe": EXPERTS,
  "qwen2": {},
  "qwen2_moe": EXPERTS,
  "qwen3": {},
  "qwen3_moe": EXPERTS,
  "seed_oss": {},
  "smollm3": {},
  "stablelm": {},
  "starcoder2": {},
  "vaultgemma": {**BOTH, "query_pre_attn_scalar": 16},
  # Architectures of transformers 5.
  **dict.fromkeys(
    (
      "apertus1p5_text",
      "aria_text",
      "beam",
      "cohere2_moe",
      "ctrl",
      "cwm",
      "exaone",
      "flex_olmo",
      "flint",
      "gemma4_unified_text",
      "gpt-sw3",
      "granite_swa",
      "granitemoe_swa",
      "granitemoeshared",
      "hunyuan_v1_moe",
      "hyperclovax",
      "internlm3",
      "iquestcoder",
      "jais2",
      "lfm3",
      "ministral",
      "ministral3",
      "modernbert-decoder",
      "nanochat",
    ),
    {},
  ),
  **dict.fromkeys(
    (
      "afmoe",
      "ernie4_5_moe",
      "exaone_moe",
      "glm4_moe",
      "hy_v3",
      "kolibri1",
      "laguna",
      "lara_mini",
      "mellum",
      "mimo_v2_flash",
      "minimax_m2",
      "minimax_m3_vl_text",
      "sarvam_moe",
      "solar_open",
    ),
    EXPERTS,
  ),
  "dbrx": {
    **GPT2,
    "d_model": 64,
    "n_heads": 4,
    "n_layers": 2,
    "max_seq_len": 512,
    "attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8.0},
    "ffn_config": {"hidden_size": 64, "ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2},
  },
  "dots1": {**EXPERTS, "n_shared_experts": 1},
  "falcon": {**FALCON, "num_kv_heads": 2, "new_decoder_architecture": True},
  "falcon:alibi": {**FALCON, "multi_query": False, "alibi": True},
  "falcon:multi_query": FALCON,
  "gemma3n_text": {
    **BOTH,
    "num_kv_shared_layers": 0,
    "vocab_size_per_layer_input": VOCABULARY,
    "hidden_size_per_layer_input": 16,
    "laurel_rank": 8,
    "activation_sparsity_pattern": [0.0, 0.0],
  },
  "gemma4_text": {
    **BOTH,
    **EXPERTS,
    "num_kv_shared_layers": 0,
    "vocab_size_per_layer_input": VOCABULARY,
    "hidden_size_per_layer_input": 16,
  },
  "llama4_text": EXPERTS,
  "longcat_flash": LATENT,
  "zaya": {**EXPERTS, "num_experts_per_tok": 1},
  **dict.fromkeys(("axk1", "glm4_moe_lite", "minicpm3", "sarvam_mla", "youtu"), LATENT),
  # Architectures with states.
  "bailing_hybrid": {**LATENT, **LINEAR},
  "bamba": {**MAMBA, "attn_layer_indices": [1]},
  "falcon_h1": MAMBA,
  "falcon_mamba": STATES,
  "granitemoehybrid": {
    **EXPERTS,
    **MAMBA,
    "shared_intermediate_size": 64,
    "layer_types": ["mamba", "attention", "mamba"],
  },
  "jamba": {**STATES, "attn_layer_period": 3, "attn_layer_offset": 1, "num_experts": 4},
  "kimi_linear": {**LATENT, **LINEAR},
  "lfm2": {**STATES, "layer_types": ["conv", "full_attention", "conv"]},
  "lfm2_moe": {**STATES, **EXPERTS, "layer_types": ["conv", "full_attention", "conv"]},
  "mamba": STATES,
  "mamba2": {**STATES, "num_heads": 8, "head_dim": 16},
  "nemotron_h": {
    **EXPERTS,
    **STATES,
    "layers_block_type": ["mamba", "attention", "moe", "mamba"],
    "mamba_num_heads": 8,
    "mamba_head_dim": 16,
    "ssm_state_size": 8,
    "moe_shared_expert_intermediate_size": 32,
  },
  "olmo_hybrid": LINEAR,
  "qwen3_5_text": LINEAR,
  "qwen3_5_moe_text": {**EXPERTS, **LINEAR},
  "qwen3_next": {**EXPERTS, **LINEAR},
  "zamba2": {
    **STATES,
    "layers_block_type": ["mamba", "hybrid", "mamba"],
    "mamba_d_state": 8,
    "mamba_ngroups": 2,
    "n_mamba_heads": 8,
  },
  # Models with rotary frequencies that belong to the length of a text.
  "llama:dynamic": {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
  "phi3:longrope": {
    "initializer_range": 0.1,
    "original_max_position_embeddings": MOST,
    "rope_parameters": {
      "rope_type": "longrope",
      "rope_theta": 1e4,
      "short_factor": [1.0] * 8,
      "long_factor": [1.5 + k / 2 for k in range(8)],
      "original_max_position_embeddings": MOST,
    },
  },
  # Models that compute attention by themselves, or take a mask for positions.
  "biogpt": {},
  "bloom": {"vocab_size": VOCABULARY, "hidden_size": 64, "n_head": 4, "n_layer": 2},
  "gpt_neox_japanese": {},
  "opt": {**COMMON, "ffn_dim": 128, "word_embed_proj_dim": 64},
  # Models that are refused by name.
  **dict.fromkeys(("cpmant", "deepseek_v4", "dory", "hrm_text"), {}),
  **dict.fromkeys(("minimax", "mpt", "openai-gpt", "rwkv", "xglm"), {}),
  **dict.fromkeys(("axk2", "deepseek_v32", "dots3_note_text", "glm_moe_dsa"), LATENT),
  **dict.fromkeys(("hy_v4", "inkling_text"), EXPERTS),
  "gpt_neo": {
    **GPT2,
    "num_layers": 2,
    "num_heads": 4,
    "attention_types": [[["global", "local"], 1]],
    "window_size": 16,
  },
  "recurrent_gemma": {},
  "zamba": {**STATES, "layers_block_type": ["mamba", "hybrid", "hybrid"]},
}


# Layers that adapters may change, if these are not all linear ones.
TARGETS = dict.fromkeys(("falcon_mamba", "jamba", "mamba"), ("in_proj", "out_proj"))
TARGETS |= dict.fromkeys(("llama4_text", "phimoe"), ("q_proj", "v_proj"))
TARGETS["longcat_flash"] = ("o_proj",)


def model_of(name):
  import transformers

  torch.manual_seed(0)
  fields = ARCHITECTURES[name]
  if "n_layer" not in fields:
    fields = {**COMMON, **fields}
  config = transformers.AutoConfig.for_model(name.partition(":")[0], **fields)
  model = transformers.AutoModelForCausalLM.from_config(config).eval()
  for weight in model.parameters():
    if not weight.any():  # routers of zeros choose among equal experts
      torch.nn.init.normal_(weight, std=0.02)
  return model


def prompts():
  random = torch.Generator().manual_seed(1)
  return [torch.randint(3, VOCABULARY, (n,), generator=random).tolist() for n in LENGTHS]


def right_tokens(model, prompt, new, most, **options):
  """At most `new` tokens that follow a prompt in a text of at most `most`, and the lead of each
  over the next best one, as a part of the largest logit. `options` are further ones of `generate`.
  """
  tokens = torch.tensor([prompt])
  with torch.no_grad():
    found = model.generate(
      tokens,
      attention_mask=torch.ones_like(tokens),
      max_new_tokens=min(new, most + 1 - len(prompt)),
      do_sample=False,
      pad_token_id=0,
      return_dict_in_generate=True,
      output_logits=True,
      **options,
    )
  logits = torch.stack(found.logits)[:, 0].float()
  best = logits.topk(2, dim=-1).values
  leads = (best[:, 0] - best[:, 1]) / logits.abs().amax(-1)
  return found.sequences[0, len(prompt) :].tolist(), leads.tolist()


def prepare(name, folder, options):
  """Writes the file of an architecture, and the texts that it has to give."""
  model = model_of(name)
  husk.language.export(
    model,
    folder / f"{name}.husk",
    slots=SLOTS,
    max_tokens=MOST,
    pages=options.pages,
    targets=(options.target,),
  )
  right = [right_tokens(model, prompt, NEW, MOST, eos_token_id=2) for prompt in prompts()]
  (folder / f"{name}.json").write_text(json.dumps(right))


def compare(name, folder, target):
  """Whether texts differ, alone and together, and a text about them."""
  right = json.loads((folder / f"{name}.json").read_text())
  loaded = husk.text.load(
    folder / f"{name}.husk", device="cuda" if target.startswith("cuda") else "cpu"
  )
  alone = []
  for prompt in prompts():
    request = loaded.submit(prompt, max_new_tokens=NEW)
    loaded.run()
    alone.append(request.tokens)
  together = [loaded.submit(prompt, max_new_tokens=NEW) for prompt in prompts()]
  loaded.run()
  texts = alone, [request.tokens for request in together]
  kinds = [[compared.text(*pair) for pair in zip(one, right, strict=True)] for one in texts]
  counts = [[kind.count(what) for kind in kinds] for what in ("different", "tie")]
  return any(counts[0]), "{} and {} of {} texts differ, {} and {} at ties".format(
    *counts[0], len(LENGTHS), *counts[1]
  )


def compare_logits(name, pages):
  from husk.language import adapters, decoder, exporting

  model, tokens = model_of(name), torch.tensor(prompts()[3])
  with exporting.decoder_of(model, SLOTS, MOST, None, pages=pages) as module, torch.no_grad():
    decoder.check_features(module, tokens)
    if model.base_model is not model:
      hidden = model.base_model(input_ids=tokens[None], use_cache=False).last_hidden_state[0]
      error = (module.embed(tokens)[0] - hidden).abs().max() / hidden.abs().max()
      assert error < 1e-4, f"the hidden states differ by {error:.2g}"
  wanted = adapters.chosen(2, 4, TARGETS.get(name))
  with exporting.decoder_of(model, SLOTS, MOST, None, wanted, pages=pages) as module:
    adapters.check(module, tokens, verifies=not module.has_states)


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("names", nargs="*", metavar="ARCHITECTURE")
  parser.add_argument("--target", default="host:avx2")
  parser.add_argument("--part", default="0/1", help="every n-th architecture: 0/4, 1/4 and so on")
  parser.add_argument("--eager", action="store_true")
  parser.add_argument("--pages", type=int)
  parser.add_argument("--folder", type=pathlib.Path)
  parser.add_argument("--dry", action="store_true")
  options = parser.parse_args()
  logging.getLogger("transformers").setLevel(logging.ERROR)
  first, step = map(int, options.part.split("/"))
  with tempfile.TemporaryDirectory() as temporary:
    folder = options.folder or pathlib.Path(temporary)
    folder.mkdir(exist_ok=True, parents=True)

    def one(name):
      if options.eager:
        compare_logits(name, options.pages)
        return False, "logits"
      if not (folder / f"{name}.json").exists():
        prepare(name, folder, options)
      return (False, "exported") if options.dry else compare(name, folder, options.target)

    kept = [] if options.dry else sorted(path.stem for path in folder.glob("*.json"))
    return compared.each((options.names or kept or list(ARCHITECTURES))[first::step], one)


if __name__ == "__main__":
  sys.exit(main())
