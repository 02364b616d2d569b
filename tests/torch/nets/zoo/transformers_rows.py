"""Models of transformers with the library's own defaults, but for sizes. Decoders and encoders of
text have a length that varies; some decoders run once more with the static cache, a token at a
time."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch.export import Dim

from .row import Call, Row

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
# Rows of experts' weights are multiples of 16 bytes in eager mode.
ALIGNED = {**GROUPED, "intermediate_size": 48}
EXPERTS = {**GROUPED, "moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2}
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
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2}
FORECAST = {
  "prediction_length": 4,
  "context_length": 12,
  "lags_sequence": [1, 2, 3],
  "num_time_features": 2,
  **{key: value for key, value in SEQ2SEQ.items() if "vocab" not in key and "max_" not in key},
}
WAVE = {"conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3)}

# name: class of the configuration, its sizes, class of the model, kind of the inputs
MODELS: dict[str, tuple[str, dict[str, Any], str, str]] = {
  "bert": ("BertConfig", TEXT, "BertForMaskedLM", "text"),
  "llama": ("LlamaConfig", GROUPED, "LlamaForCausalLM", "text"),
  "t5": (
    "T5Config",
    {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": 4},
    "T5ForConditionalGeneration",
    "seq2seq",
  ),
  "vit": ("ViTConfig", IMAGE, "ViTForImageClassification", "image"),
  "smolvlm": (
    "SmolVLMConfig",
    {
      "vision_config": {**IMAGE, "max_position_embeddings": 64},
      "text_config": {**GROUPED, "model_type": "llama"},
      "image_token_id": 98,
      "scale_factor": 2,
      "pad_token_id": 0,
    },
    "SmolVLMForConditionalGeneration",
    "images_in_text",
  ),
  "gpt2": (
    "GPT2Config",
    {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "GPT2LMHeadModel",
    "text",
  ),
  "whisper": (
    "WhisperConfig",
    {
      **{key: value for key, value in SEQ2SEQ.items() if key != "max_position_embeddings"},
      **SPECIAL,
      "num_mel_bins": 16,
      "max_source_positions": 20,
      "max_target_positions": 64,
      "pad_token_id": 1,
      "decoder_start_token_id": 3,
    },
    "WhisperForConditionalGeneration",
    "speech",
  ),
  "clip": (
    "CLIPConfig",
    {"text_config": TEXT, "vision_config": IMAGE, "projection_dim": 16},
    "CLIPModel",
    "both",
  ),
  "mixtral": ("MixtralConfig", {**ALIGNED, "num_local_experts": 4}, "MixtralForCausalLM", "text"),
  "mamba": (
    "MambaConfig",
    {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
    "MambaForCausalLM",
    "text_of_one_length",
  ),
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
    {**TEXT, **SPECIAL, "cls_token_id": 1, "sep_token_id": 2},
    "ModernBertModel",
    "text",
  ),
  "mpnet": ("MPNetConfig", {**TEXT, **SPECIAL}, "MPNetModel", "text"),
  "fnet": ("FNetConfig", {**TEXT, "tpu_short_seq_length": 64}, "FNetModel", "tokens"),
  "gpt_neox": ("GPTNeoXConfig", TEXT, "GPTNeoXForCausalLM", "text"),
  "opt": (
    "OPTConfig",
    {**TEXT, "ffn_dim": 37, "word_embed_proj_dim": 32},
    "OPTForCausalLM",
    "text",
  ),
  "mistral": ("MistralConfig", GROUPED, "MistralForCausalLM", "text"),
  "qwen2": ("Qwen2Config", GROUPED, "Qwen2ForCausalLM", "text"),
  "qwen3": ("Qwen3Config", {**GROUPED, "head_dim": 8}, "Qwen3ForCausalLM", "text"),
  "qwen3_moe": ("Qwen3MoeConfig", {**EXPERTS, "head_dim": 8}, "Qwen3MoeForCausalLM", "text"),
  "gpt_oss": (
    "GptOssConfig",
    {**ALIGNED, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2},
    "GptOssForCausalLM",
    "text",
  ),
  "deepseek_v3": (
    "DeepseekV3Config",
    {
      **TEXT,
      "num_key_value_heads": 4,
      "moe_intermediate_size": 16,
      "first_k_dense_replace": 1,
      "n_routed_experts": 4,
      "num_experts_per_tok": 2,
      "n_group": 2,
      "topk_group": 1,
      "kv_lora_rank": 8,
      "q_lora_rank": 8,
      "qk_rope_head_dim": 4,
      "qk_nope_head_dim": 8,
      "v_head_dim": 8,
    },
    "DeepseekV3ForCausalLM",
    "text",
  ),
  "gemma2": ("Gemma2Config", {**GROUPED, "head_dim": 8}, "Gemma2ForCausalLM", "text"),
  "gemma3": ("Gemma3TextConfig", {**GROUPED, "head_dim": 8}, "Gemma3ForCausalLM", "text"),
  "phi3": ("Phi3Config", GROUPED, "Phi3ForCausalLM", "text"),
  "olmo2": ("Olmo2Config", GROUPED, "Olmo2ForCausalLM", "text"),
  "granite": ("GraniteConfig", GROUPED, "GraniteForCausalLM", "text"),
  "falcon": ("FalconConfig", TEXT, "FalconForCausalLM", "text"),
  "bloom": (
    "BloomConfig",
    {"vocab_size": 99, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "BloomForCausalLM",
    "text",
  ),
  "mamba2": (
    "Mamba2Config",
    {
      "vocab_size": 99,
      "hidden_size": 32,
      "num_hidden_layers": 2,
      "state_size": 8,
      "num_heads": 8,
      "head_dim": 8,
      "n_groups": 2,
      "chunk_size": 4,
    },
    "Mamba2ForCausalLM",
    "tokens",
  ),
  "bart": ("BartConfig", SEQ2SEQ, "BartForConditionalGeneration", "seq2seq"),
  "marian": (
    "MarianConfig",
    {**SEQ2SEQ, "pad_token_id": 1, "decoder_start_token_id": 1},
    "MarianMTModel",
    "seq2seq",
  ),
  "wav2vec2": ("Wav2Vec2Config", {**TEXT, **WAVE}, "Wav2Vec2ForCTC", "wave"),
  "hubert": ("HubertConfig", {**TEXT, **WAVE}, "HubertForCTC", "wave"),
  "encodec": (
    "EncodecConfig",
    {"hidden_size": 16, "codebook_size": 32, "num_filters": 4, "upsampling_ratios": [4, 2]}
    | {"codebook_dim": 16},
    "EncodecModel",
    "codec",
  ),
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
  "convnext_v1": (
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
  "yolos": (
    "YolosConfig",
    {**IMAGE, "image_size": [32, 32], "num_detection_tokens": 6},
    "YolosForObjectDetection",
    "image",
  ),
  "dpt": (
    "DPTConfig",
    {**IMAGE, "num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3]}
    | {"neck_hidden_sizes": [8, 8, 16, 16], "fusion_hidden_size": 8, "is_hybrid": False},
    "DPTForDepthEstimation",
    "image",
  ),
  "videomae": (
    "VideoMAEConfig",
    {**IMAGE, "num_frames": 4},
    "VideoMAEForVideoClassification",
    "video",
  ),
  "siglip": ("SiglipConfig", {"text_config": TEXT, "vision_config": IMAGE}, "SiglipModel", "both"),
  "vilt": ("ViltConfig", {**TEXT, **IMAGE}, "ViltModel", "both"),
  "patchtst": (
    "PatchTSTConfig",
    {"num_input_channels": 3, "context_length": 24, "patch_length": 6, "patch_stride": 3}
    | {"d_model": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 32}
    | {"prediction_length": 6},
    "PatchTSTForPrediction",
    "series",
  ),
  "autoformer": ("AutoformerConfig", FORECAST, "AutoformerForPrediction", "forecast"),
}
# Decoders that are exported once more with transformers' static cache, one token at a time.
CACHED = ("llama", "qwen3", "gemma3", "mistral", "phi3", "gpt2")


def model_of(name: str) -> torch.nn.Module:
  config_class, sizes, model_class, _ = MODELS[name]
  config = getattr(transformers, config_class)(**sizes)
  return getattr(transformers, model_class)(config)


def inputs_of(kind: str, length: int) -> Call:
  """The keyword arguments of a call."""
  tokens = torch.randint(3, 98, (2, length or 7))
  image = torch.randn(2, 3, 32, 32)
  mask = torch.ones_like(tokens)
  decoder = {"decoder_input_ids": torch.randint(3, 99, (2, 4))}
  if kind == "images_in_text":  # 4 x 4 patches are 2 x 2 tokens
    tokens = torch.cat([tokens[:, :3], torch.full((2, 4), 98), tokens[:, 3:]], dim=1)
    mask = torch.ones_like(tokens)
    return (), {"input_ids": tokens, "attention_mask": mask, "pixel_values": image[:, None]}
  kinds = {
    "text": {"input_ids": tokens, "attention_mask": mask},
    "text_of_one_length": {"input_ids": tokens, "attention_mask": mask},
    "tokens": {"input_ids": tokens},
    "seq2seq": {"input_ids": tokens, **decoder},
    "speech": {"input_features": torch.randn(2, 16, 40), **decoder},
    "wave": {"input_values": torch.randn(2, 400)},
    "codec": {"input_values": torch.randn(2, 1, 400)},
    "both": {"input_ids": tokens, "pixel_values": image, "attention_mask": mask},
    "image": {"pixel_values": image},
    "video": {"pixel_values": torch.randn(2, 4, 3, 32, 32)},
    "series": {"past_values": torch.randn(2, 24, 3)},
    "forecast": {
      "past_values": torch.randn(2, 15),
      "past_time_features": torch.randn(2, 15, 2),
      "past_observed_mask": torch.ones(2, 15),
      "future_values": torch.randn(2, 4),
      "future_time_features": torch.randn(2, 4, 2),
    },
  }
  return (), kinds[kind]


# The models' own code excludes length 1 in these.
AT_LEAST_TWO = ("opt", "falcon", "gemma3")


def row_of(name: str) -> Row:
  kind = MODELS[name][3]

  def build() -> torch.nn.Module:
    return model_of(name)

  def inputs(length: int) -> Call:
    return inputs_of(kind, length)

  if kind != "text":
    return Row("transformers", name, build, inputs)
  length = Dim("length", min=1, max=32)
  shapes = {"input_ids": {1: length}, "attention_mask": {1: length}}
  others = (2 if name in AT_LEAST_TWO else 1, 12)
  return Row("transformers", name, build, inputs, 7, shapes, others)


def cached(name: str) -> Row:
  """A decoder with a static cache, as transformers exports it, and five tokens."""
  from transformers.integrations.executorch import TorchExportableModuleForDecoderOnlyLM

  def build() -> torch.nn.Module:
    model = model_of(name)
    model.generation_config.use_cache = True
    model.generation_config.cache_implementation = "static"
    model.generation_config.cache_config = {"batch_size": 1, "max_cache_len": 16}
    whole = TorchExportableModuleForDecoderOnlyLM(model, batch_size=1, max_cache_len=16)
    return getattr(whole, "model", whole)

  def inputs(place: int) -> Call:
    token = torch.randint(3, 99, (1, 1))
    return (), {"input_ids": token, "cache_position": torch.tensor([place])}

  return Row("transformers", f"{name}_static_cache", build, inputs, steps=5)


def rows() -> list[Row]:
  found = [row_of(name) for name in MODELS]
  found[10:10] = map(cached, CACHED[:2])
  return [*found, *map(cached, CACHED[2:])]
