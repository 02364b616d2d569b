"""Language models of transformers on several ranks, by tensor parallelism: each rank has a part of
the heads of attention, of the columns between the products of an MLP, and of the vocabulary. Layers
of experts are divided by experts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import experts

if TYPE_CHECKING:
  import torch
  from torch.distributed.device_mesh import DeviceMesh

# The last part of a layer's name, and how its weight is divided: by the rows of the result, or by
# the elements that it sums up, after which ranks add their results.
_COLUMNS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
_ROWS = ("o_proj", "down_proj")
_EMBEDDINGS = ("embed_tokens",)
_HEADS = ("lm_head",)
# Norms of queries and keys, and the projections before them.
_NORMS = {"q_norm": "q_proj", "k_norm": "k_proj"}


def shard(model: torch.nn.Module, mesh: DeviceMesh) -> torch.nn.Module:
  """Divides a decoder of transformers (Llama, Qwen, Mistral, Gemma and others with layers of the
  same names) among the ranks of a mesh of one dimension, in place, and returns it. The number of
  heads of queries and of keys, the width of the MLP, the number of experts and the vocabulary must
  be multiples of the number of ranks; the vocabulary stays whole on each rank if it is not. The
  router of a mixture of experts (Qwen3-MoE, Mixtral) is whole on each rank.


  Attention must take its number of heads from the shapes of the projections, as the models of
  transformers do. Caches then have the heads of one rank."""
  from torch.distributed.tensor import Replicate
  from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
  )

  count = mesh.size()
  plan: dict[str, Any] = {}
  for name, module in model.named_modules():
    weight = getattr(module, "weight", None)
    if weight is None or weight.dim() != 2:
      continue
    last = name.rpartition(".")[2]
    rows, columns = weight.shape
    if last in _COLUMNS:
      _check(name, rows, count)
      plan[name] = ColwiseParallel()
    elif last in _ROWS:
      _check(name, columns, count)
      plan[name] = RowwiseParallel()
    elif last in _EMBEDDINGS and rows % count == 0:
      plan[name] = RowwiseParallel(input_layouts=Replicate())
    elif last in _HEADS and rows % count == 0:
      plan[name] = ColwiseParallel(output_layouts=Replicate())
  _check_heads(model, count)
  _check_norms(model)
  mixtures = experts.stacks(model)
  for name, module in mixtures.items():
    experts.check(name, module, count)
  if not any(name.rpartition(".")[2] in _ROWS for name in plan):
    raise ValueError(
      f"{type(model).__name__} has no layers named {', '.join(_COLUMNS + _ROWS)}: divide it by "
      "torch.distributed.tensor.parallel.parallelize_module"
    )
  parallelize_module(model, mesh, plan)
  for module in mixtures.values():
    experts.divide(module, mesh)
  return model


def _check(name: str, size: int, count: int) -> None:
  if size % count:
    raise ValueError(f"{name}: {size} is no multiple of {count}, the number of ranks")


def _check_heads(model: Any, count: int) -> None:
  """Refuses a number of heads that does not divide, whose projections may do so."""
  config = getattr(model, "config", None)
  for name in ("num_attention_heads", "num_key_value_heads"):
    heads = getattr(config, name, None)
    if isinstance(heads, int) and heads % count:
      raise ValueError(f"{name} is {heads}, no multiple of {count}, the number of ranks")


def _check_norms(model: Any) -> None:
  """Refuses a norm over all heads: a rank has some of them."""
  for name, module in model.named_modules():
    for norm, projection in _NORMS.items():
      weight = getattr(getattr(module, norm, None), "weight", None)
      before = getattr(getattr(module, projection, None), "weight", None)
      heads = getattr(getattr(model, "config", None), "num_attention_heads", 1)
      if weight is not None and before is not None and heads > 1 and len(weight) == len(before):
        raise ValueError(f"{name}.{norm} is a norm over all heads, of which each rank has some")
