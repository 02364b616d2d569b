"""Which tensor of a GGUF file is which parameter of a model of transformers: a row for each
architecture."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .errors import CheckpointError
from .gguf_file import GgufFile

if TYPE_CHECKING:
  import torch

# Parts of names that all these architectures share. `{}` is the number of the layer.
_COMMON = {
  "token_embd": "model.embed_tokens",
  "output_norm": "model.norm",
  "output": "lm_head",
  "blk.{}.attn_norm": "model.layers.{}.input_layernorm",
  "blk.{}.attn_q": "model.layers.{}.self_attn.q_proj",
  "blk.{}.attn_k": "model.layers.{}.self_attn.k_proj",
  "blk.{}.attn_v": "model.layers.{}.self_attn.v_proj",
  "blk.{}.attn_output": "model.layers.{}.self_attn.o_proj",
  "blk.{}.ffn_norm": "model.layers.{}.post_attention_layernorm",
  "blk.{}.ffn_gate": "model.layers.{}.mlp.gate_proj",
  "blk.{}.ffn_up": "model.layers.{}.mlp.up_proj",
  "blk.{}.ffn_down": "model.layers.{}.mlp.down_proj",
}
_HEAD_NORMS = {
  "blk.{}.attn_q_norm": "model.layers.{}.self_attn.q_norm",
  "blk.{}.attn_k_norm": "model.layers.{}.self_attn.k_norm",
}
_FUSED = {
  "blk.{}.attn_qkv": "model.layers.{}.self_attn.qkv_proj",
  "blk.{}.ffn_up": "model.layers.{}.mlp.gate_up_proj",
}
_FOUR_NORMS = {
  "blk.{}.post_attention_norm": "model.layers.{}.post_attention_layernorm",
  "blk.{}.ffn_norm": "model.layers.{}.pre_feedforward_layernorm",
  "blk.{}.post_ffw_norm": "model.layers.{}.post_feedforward_layernorm",
}


@dataclasses.dataclass(frozen=True)
class Architecture:
  """A row. `names` are parts of names; `has_pairs`: the rows of queries and keys are in an order in
  which the two numbers that a rotary embedding turns are adjacent; `norms_add_one`: the file has
  the weights of norms with 1 added; `model_type` is what transformers calls the architecture, empty
  if the metadata does not describe all that its configuration needs; `settings` are fields of that
  configuration which are the same in each file."""

  names: Mapping[str, str]
  has_pairs: bool = False
  norms_add_one: bool = False
  model_type: str = ""
  settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)


# By general.architecture.
ARCHITECTURES = {
  "llama": Architecture(_COMMON, has_pairs=True, model_type="llama"),
  "smollm3": Architecture(_COMMON, has_pairs=True),
  "granite": Architecture(_COMMON, has_pairs=True),
  "qwen2": Architecture(_COMMON, model_type="qwen2"),
  "qwen3": Architecture({**_COMMON, **_HEAD_NORMS}, model_type="qwen3"),
  "phi3": Architecture({**_COMMON, **_FUSED}),
  "gemma": Architecture(
    _COMMON,
    norms_add_one=True,
    model_type="gemma",
    settings={"hidden_activation": "gelu_pytorch_tanh"},
  ),
  "gemma2": Architecture({**_COMMON, **_FOUR_NORMS}, norms_add_one=True),
  "gemma3": Architecture({**_COMMON, **_FOUR_NORMS, **_HEAD_NORMS}, norms_add_one=True),
}

# Factors of rotary embeddings, which the configuration of a model has in another form.
ROPE_FACTORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")


def architecture_of(file: GgufFile) -> Architecture:
  """The row of a file."""
  name = file.architecture()
  if name not in ARCHITECTURES:
    raise CheckpointError(
      f"{file.path}: the names of the architecture {name!r} are not known, only those of "
      f"{', '.join(ARCHITECTURES)}: give names=, a dict or a function from names of the file to "
      "those of the model"
    )
  return ARCHITECTURES[name]


def name_of(row: Architecture, name: str) -> str | None:
  """What the parameter of a model is called; None if the row has no such name."""
  match = re.fullmatch(r"(?:blk\.(\d+)\.)?(.+)\.(weight|bias)", name)
  if not match:
    return None
  layer, part, end = match.groups()
  known = row.names.get(part if layer is None else "blk.{}." + part)
  return None if known is None else f"{known.format(layer)}.{end}"


def order_of_rows(
  file: GgufFile, row: Architecture, name: str
) -> Callable[[torch.Tensor], torch.Tensor] | None:
  """What puts the rows of a tensor in the order of the model, if they are in another one."""
  match = re.fullmatch(r"blk\.\d+\.attn_([qk])\.(weight|bias)", name)
  if not row.has_pairs or not match:
    return None
  key = "head_count" if match[1] == "q" else "head_count_kv"
  heads = number(file, f"attention.{key}", number(file, "attention.head_count"))

  def reordered(rows: torch.Tensor) -> torch.Tensor:
    # The file has the numbers of a head in pairs, the model all first ones before all second ones.
    return rows.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2).contiguous()

  rows = file.tensors[name].shape[0]
  if rows % (2 * heads):
    raise CheckpointError(
      f"{file.path}: {name!r} has {rows} rows, which are no pairs of {heads} heads"
    )
  return reordered


def number(file: GgufFile, key: str, otherwise: Any = None) -> Any:
  """A number of the metadata of the architecture."""
  name = f"{file.architecture()}.{key}"
  value = file.metadata.get(name, otherwise)
  if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
    raise CheckpointError(f"{file.path}: the metadata {name!r} is {value!r}, not a number over 0")
  return value


def configuration(file: GgufFile) -> tuple[str, dict[str, Any]]:
  """The type of transformers' configuration for a file, and its fields."""
  row = architecture_of(file)
  if not row.model_type:
    raise CheckpointError(
      f"{file.path}: the metadata of the architecture {file.architecture()!r} does not say all "
      "that a model needs: give the model"
    )
  vocabulary = file.tensors.get("token_embd.weight")
  if vocabulary is None or len(vocabulary.shape) != 2:
    raise CheckpointError(f"{file.path}: it has no matrix 'token_embd.weight'")
  heads = number(file, "attention.head_count")
  hidden = number(file, "embedding_length")
  fields = {
    "vocab_size": vocabulary.shape[0],
    "hidden_size": hidden,
    "intermediate_size": number(file, "feed_forward_length"),
    "num_hidden_layers": number(file, "block_count"),
    "num_attention_heads": heads,
    "num_key_value_heads": number(file, "attention.head_count_kv", heads),
    "head_dim": number(file, "attention.key_length", hidden // heads),
    "max_position_embeddings": number(file, "context_length"),
    "rms_norm_eps": number(file, "attention.layer_norm_rms_epsilon"),
    "rope_theta": number(file, "rope.freq_base", 10000.0),
    "tie_word_embeddings": "output.weight" not in file.tensors,
    "attention_bias": "blk.0.attn_q.bias" in file.tensors,
    **row.settings,
  }
  for field, key in (("bos_token_id", "bos"), ("eos_token_id", "eos")):
    token = file.metadata.get(f"tokenizer.ggml.{key}_token_id")
    if isinstance(token, int):
      fields[field] = token
  _check_described(file, fields["head_dim"])
  return row.model_type, fields


# Metadata of models that `configuration` does not describe, unless it is 0.
_UNKNOWN = ("expert_count", "attention.sliding_window", "logit_scale", "residual_scale")


def _check_described(file: GgufFile, head_dim: int) -> None:
  """Refuses what `configuration` leaves out."""
  for key in _UNKNOWN:
    if value := file.metadata.get(f"{file.architecture()}.{key}", 0):
      raise CheckpointError(
        f"{file.path}: {key} is {value!r}, which needs a configuration of its own: give the model"
      )
  scaling = file.metadata.get(f"{file.architecture()}.rope.scaling.type", "none")
  if scaling != "none":
    raise CheckpointError(
      f"{file.path}: rope.scaling.type is {scaling!r}, which needs a configuration of its own: "
      "give the model"
    )
  if number(file, "rope.dimension_count", head_dim) != head_dim:
    raise CheckpointError(
      f"{file.path}: rope.dimension_count is not the size of a head, {head_dim}: give the model"
    )
