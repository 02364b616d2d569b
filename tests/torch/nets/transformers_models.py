"""Small models of transformers with random weights and the library's own defaults, exported and
compared with eager mode at the example's size and, if sizes vary, at two others.

It needs an environment with transformers besides what the tests need. `--target cuda:h100` exports
alone. `--only NAME...` takes some models."""

from __future__ import annotations

import argparse
import os
import pathlib
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import husk
import torch
import transformers
from torch.export import Dim
from torch.utils import _pytree as pytree

# Sizes of all models: small, with two key heads for four query heads where the model has groups.
TEXT = {
  "vocab_size": 99,
  "hidden_size": 32,
  "num_hidden_layers": 2,
  "num_attention_heads": 4,
  "intermediate_size": 37,
  "max_position_embeddings": 64,
  "pad_token_id": 0,
}
GROUPED = {**TEXT, "num_key_value_heads": 2}
IMAGE = {
  "image_size": 32,
  "patch_size": 8,
  "hidden_size": 32,
  "num_hidden_layers": 2,
  "num_attention_heads": 4,
  "intermediate_size": 37,
}
SEQ2SEQ = {
  "vocab_size": 99,
  "d_model": 32,
  "encoder_layers": 2,
  "decoder_layers": 2,
  "encoder_attention_heads": 4,
  "decoder_attention_heads": 4,
  "encoder_ffn_dim": 37,
  "decoder_ffn_dim": 37,
  "max_position_embeddings": 64,
}

# name: class of the configuration, its sizes, class of the model, kind of the inputs
MODELS: dict[str, tuple[str, dict[str, Any], str, str]] = {
  "bert": ("BertConfig", TEXT, "BertForMaskedLM", "text"),
  "roberta": ("RobertaConfig", TEXT, "RobertaForSequenceClassification", "text"),
  "electra": ("ElectraConfig", {**TEXT, "embedding_size": 32}, "ElectraModel", "text"),
  "albert": ("AlbertConfig", {**TEXT, "embedding_size": 16}, "AlbertModel", "text"),
  "distilbert": (
    "DistilBertConfig",
    {"vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 37},
    "DistilBertModel",
    "text",
  ),
  "deberta_v2": (
    "DebertaV2Config",
    {**TEXT, "relative_attention": True, "position_buckets": 16, "pos_att_type": ["p2c", "c2p"]},
    "DebertaV2Model",
    "text",
  ),
  "modernbert": (
    "ModernBertConfig",
    {**TEXT, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2},
    "ModernBertModel",
    "text",
  ),
  "gpt2": (
    "GPT2Config",
    {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "GPT2LMHeadModel",
    "text",
  ),
  "gpt_neox": ("GPTNeoXConfig", TEXT, "GPTNeoXForCausalLM", "text"),
  "opt": (
    "OPTConfig",
    {**TEXT, "ffn_dim": 37, "word_embed_proj_dim": 32},
    "OPTForCausalLM",
    "text",
  ),
  "llama": ("LlamaConfig", GROUPED, "LlamaForCausalLM", "text"),
  "mistral": ("MistralConfig", GROUPED, "MistralForCausalLM", "text"),
  "qwen2": ("Qwen2Config", GROUPED, "Qwen2ForCausalLM", "text"),
  "qwen3": ("Qwen3Config", {**GROUPED, "head_dim": 8}, "Qwen3ForCausalLM", "text"),
  "gemma2": ("Gemma2Config", {**GROUPED, "head_dim": 8}, "Gemma2ForCausalLM", "text"),
  "gemma3": ("Gemma3TextConfig", {**GROUPED, "head_dim": 8}, "Gemma3ForCausalLM", "text"),
  "phi3": ("Phi3Config", GROUPED, "Phi3ForCausalLM", "text"),
  "falcon": ("FalconConfig", TEXT, "FalconForCausalLM", "text"),
  "bloom": (
    "BloomConfig",
    {"vocab_size": 99, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "BloomForCausalLM",
    "text",
  ),
  "mixtral": (
    "MixtralConfig",
    {**GROUPED, "num_local_experts": 4},
    "MixtralForCausalLM",
    "text",
  ),
  "mamba": (
    "MambaConfig",
    {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
    "MambaForCausalLM",
    "text",
  ),
  "t5": (
    "T5Config",
    {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": 4},
    "T5ForConditionalGeneration",
    "seq2seq",
  ),
  "bart": ("BartConfig", SEQ2SEQ, "BartForConditionalGeneration", "seq2seq"),
  "marian": (
    "MarianConfig",
    {**SEQ2SEQ, "pad_token_id": 1, "decoder_start_token_id": 1},
    "MarianMTModel",
    "seq2seq",
  ),
  "whisper": (
    "WhisperConfig",
    {
      **{key: value for key, value in SEQ2SEQ.items() if key != "max_position_embeddings"},
      "num_mel_bins": 16,
      "max_source_positions": 20,
      "max_target_positions": 64,
      "pad_token_id": 1,
      "bos_token_id": 1,
      "eos_token_id": 2,
      "decoder_start_token_id": 3,
    },
    "WhisperForConditionalGeneration",
    "speech",
  ),
  "wav2vec2": (
    "Wav2Vec2Config",
    {**TEXT, "conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3)},
    "Wav2Vec2ForCTC",
    "wave",
  ),
  "vit": ("ViTConfig", IMAGE, "ViTForImageClassification", "image"),
  "deit": ("DeiTConfig", IMAGE, "DeiTForImageClassification", "image"),
  "beit": ("BeitConfig", IMAGE, "BeitForImageClassification", "image"),
  "dinov2": ("Dinov2Config", IMAGE, "Dinov2Model", "image"),
  "swin": (
    "SwinConfig",
    {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 2], "num_heads": [2, 4]}
    | {"window_size": 4},
    "SwinForImageClassification",
    "image",
  ),
  "convnext": (
    "ConvNextConfig",
    {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "image_size": 32},
    "ConvNextForImageClassification",
    "image",
  ),
  "resnet": (
    "ResNetConfig",
    {"embedding_size": 8, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]},
    "ResNetForImageClassification",
    "image",
  ),
  "segformer": (
    "SegformerConfig",
    {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 8, 16, 16], "decoder_hidden_size": 16}
    | {"num_attention_heads": [1, 1, 2, 2]},
    "SegformerForSemanticSegmentation",
    "image",
  ),
  "clip": (
    "CLIPConfig",
    {"text_config": TEXT, "vision_config": IMAGE, "projection_dim": 16},
    "CLIPModel",
    "both",
  ),
  "siglip": (
    "SiglipConfig",
    {"text_config": TEXT, "vision_config": IMAGE},
    "SiglipModel",
    "both",
  ),
}
# Decoders that are exported once more with transformers' static cache, one token at a time.
CACHED = ("llama", "qwen3", "gemma3", "mistral", "phi3", "gpt2")


def model_of(name: str) -> torch.nn.Module:
  config_class, sizes, model_class, _ = MODELS[name]
  torch.manual_seed(0)
  config = getattr(transformers, config_class)(**sizes)
  return getattr(transformers, model_class)(config).eval()


def inputs_of(kind: str, length: int = 7) -> dict[str, Any]:
  """The keyword arguments of a call."""
  torch.manual_seed(length)
  tokens = torch.randint(3, 99, (2, length))
  image = torch.randn(2, 3, 32, 32)
  if kind == "text":
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
  if kind == "seq2seq":
    return {"input_ids": tokens, "decoder_input_ids": torch.randint(3, 99, (2, 4))}
  if kind == "speech":
    return {
      "input_features": torch.randn(2, 16, 40),
      "decoder_input_ids": torch.randint(3, 99, (2, 4)),
    }
  if kind == "wave":
    return {"input_values": torch.randn(2, 400)}
  if kind == "both":
    mask = torch.ones_like(tokens)
    return {"input_ids": tokens, "pixel_values": image, "attention_mask": mask}
  return {"pixel_values": image}


def shapes_of(kind: str) -> dict[str, Any] | None:
  """The dynamic shapes of a kind of inputs whose length may vary, in the form of the pages."""
  if kind != "text":
    return None
  length = Dim("length", min=1, max=32)
  return {"input_ids": {1: length}, "attention_mask": {1: length}}


def leaves(value: Any) -> list[torch.Tensor]:
  """The tensors of a result, those of caches included."""
  found = []
  for leaf in pytree.tree_leaves(value):
    if isinstance(leaf, torch.Tensor):
      found.append(leaf)
    elif hasattr(leaf, "__dict__") and not isinstance(leaf, type):
      found += leaves(list(vars(leaf).values()))
  return found


def differs(got: Any, expected: Any) -> str:
  one, other = leaves(got), leaves(expected)
  if len(one) != len(other):
    return f"{len(one)} results, eager mode has {len(other)}"
  for index, (left, right) in enumerate(zip(one, other)):
    if left.shape != right.shape or left.dtype != right.dtype:
      return (
        f"result {index} is {left.dtype}{list(left.shape)}, not {right.dtype}{list(right.shape)}"
      )
    if not torch.allclose(left, right, rtol=1e-3, atol=1e-4):
      return f"result {index} differs by {(left - right).abs().max().item():.2g}"
  return ""


def check(name: str, sized: bool, target: str, folder: pathlib.Path) -> str:
  """Exports a model and compares it; returns what happened."""
  model, kind = model_of(name), MODELS[name][3]
  path = folder / "model.husk"
  inputs = inputs_of(kind)
  shapes = shapes_of(kind) if sized else None
  husk.export(model, (), path, kwargs=inputs, dynamic_shapes=shapes, targets=(target,), tune="none")
  if target != "host":
    return "exported"
  program = husk.load(path)
  (least, _) = program.forward.inputs[0]["ranges"][1] if sized else (7, 7)
  for length in dict.fromkeys((7, least, 12)) if sized else (7,):
    arguments = inputs_of(kind, length)
    with torch.no_grad():
      expected = model(**arguments)
    if text := differs(program(**arguments), expected):
      return f"WRONG at {length}: {text}"
  return "equal" if least in (1, 7) else f"equal from {least} on"


def check_cached(name: str, target: str, folder: pathlib.Path) -> str:
  """Exports a decoder with a static cache as transformers does, and compares five tokens."""
  from transformers.integrations.executorch import TorchExportableModuleForDecoderOnlyLM

  def exportable() -> torch.nn.Module:
    model = model_of(name)
    model.generation_config.use_cache = True
    model.generation_config.cache_implementation = "static"
    model.generation_config.cache_config = {"batch_size": 1, "max_cache_len": 16}
    return TorchExportableModuleForDecoderOnlyLM(model, batch_size=1, max_cache_len=16)

  model, path = exportable(), folder / "model.husk"
  inner = model.model if hasattr(model, "model") else model

  def call(token: int, position: int) -> dict[str, Any]:
    return {"input_ids": torch.tensor([[token]]), "cache_position": torch.tensor([position])}

  husk.export(inner, (), path, kwargs=call(5, 0), targets=(target,), tune="none")
  if target != "host":
    return "exported"
  program, eager = husk.load(path), exportable()
  eager = eager.model if hasattr(eager, "model") else eager
  for position, token in enumerate((5, 17, 42, 3, 8)):
    with torch.no_grad():
      expected = eager(**call(token, position))
    if text := differs(program(**call(token, position)), expected):
      return f"WRONG at token {position}: {text}"
  return "equal"


def cases(only: list[str]) -> Iterator[tuple[str, Callable[[str, pathlib.Path], str]]]:
  for name, (_, _, _, kind) in MODELS.items():
    for sized in (False, True) if shapes_of(kind) else (False,):
      title = f"{name}, length varies" if sized else name
      if not only or name in only:
        yield title, lambda target, folder, n=name, s=sized: check(n, s, target, folder)
  for name in CACHED:
    if not only or name in only or "cached" in only:
      yield (
        f"{name}, static cache",
        lambda target, folder, n=name: check_cached(n, target, folder),
      )


def main() -> None:
  parser = argparse.ArgumentParser()
  parser.add_argument("--target", default="host")
  parser.add_argument("--only", nargs="*", default=[])
  parser.add_argument("--traceback", action="store_true")
  options = parser.parse_args()
  warnings.simplefilter("ignore")
  counts: dict[str, int] = {}
  for title, run in cases(options.only):
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
      try:
        result = run(options.target, pathlib.Path(folder))
      except Exception as error:
        if options.traceback:
          traceback.print_exc()
        result = f"refused: {' '.join(husk.errors.message(error).split())[:600]}"
    word = result.split()[0].rstrip(":")
    counts[word] = counts.get(word, 0) + 1
    print(f"{title}: {result} ({time.perf_counter() - begin:.0f} s)", flush=True)
  print(", ".join(f"{count} {word}" for word, count in counts.items()))


if __name__ == "__main__":
  os.environ.setdefault("HF_HUB_OFFLINE", "1")
  main()
