"""Language models of transformers on several ranks, by pipeline parallelism: each rank has some of
the layers, and sends what they compute to the next one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..inductor import collectives

if TYPE_CHECKING:
  from torch.distributed.device_mesh import DeviceMesh


def send(tensor: torch.Tensor, to: int) -> None:
  """Sends a tensor to the rank `to`, which must receive it by `recv`. Sends and receives of two
  ranks must have the same order, dtypes and numbers of elements. It can be exported, and has no
  eager mode."""
  _check_peer(to, "to")
  collectives.sent()(tensor, to)


def recv(
  size: Sequence[int | torch.SymInt],
  source: int,
  *,
  dtype: torch.dtype = torch.float32,
  device: torch.device | str = "cpu",
) -> torch.Tensor:
  """The tensor that the rank `source` sends by `send`. `device` is where the other tensors of the
  model are."""
  _check_peer(source, "source")
  return collectives.recv()(list(size), source, dtype=dtype, device=torch.device(device))


def _check_peer(rank: int, name: str) -> None:
  import torch.distributed as dist

  if not dist.is_initialized():
    raise RuntimeError(
      "husk.parallel.send and recv belong into a model that husk.parallel.export exports"
    )
  own, world = dist.get_rank(), dist.get_world_size()
  if not 0 <= rank < world or rank == own:
    raise ValueError(
      f"{name}={rank}: this is rank {own} of {world}, give the number of another one"
    )


def pipeline(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
  """Divides the layers of a decoder of transformers (Llama, Qwen, Mistral, Gemma and others with
  `embed_tokens`, `layers`, `norm` and `lm_head`) among the ranks of a mesh of one dimension, in
  place, and returns it. Each rank computes on the same tokens and returns the same logits. Caches
  then have the layers of one rank."""
  import torch.distributed as dist

  ranks = dist.get_process_group_ranks(mesh.get_group())
  rank, world = mesh.get_local_rank(), len(ranks)
  inner = _parent_of_layers(model)
  layers: Any = inner.layers
  if len(layers) < world:
    raise ValueError(
      f"{type(model).__name__} has {len(layers)} layers, fewer than {world}, the number of ranks"
    )
  begin, end = (len(layers) * at // world for at in (rank, rank + 1))
  _keep_layers(model, inner, begin, end)
  hidden = inner.embed_tokens.weight
  if rank > 0:
    inner.embed_tokens = _Received(ranks[rank - 1], hidden.shape[1], hidden.dtype)
  if rank < world - 1:
    inner.norm = _Sent(ranks[rank + 1])
    head: Any = model.lm_head
    model.lm_head = _Logits(head.weight.shape[0])
  last: Any = model.lm_head
  last.register_forward_hook(_shared(ranks))
  return model


def _parent_of_layers(model: Any) -> Any:
  """The module that has the layers of a decoder."""
  inner = getattr(model, "model", model)
  missing = [name for name in ("embed_tokens", "layers", "norm") if not hasattr(inner, name)]
  if not isinstance(getattr(model, "lm_head", None), nn.Module):
    missing.append("lm_head")
  if missing:
    raise ValueError(
      f"{type(model).__name__} has no {', '.join(missing)}: write a model of a rank with "
      "husk.parallel.send and recv"
    )
  return inner


def _keep_layers(model: Any, inner: Any, begin: int, end: int) -> None:
  """Leaves some layers. They keep their names; their numbers and the configuration count the layers
  of a rank, as its cache does."""
  kept = {str(at): inner.layers[at] for at in range(begin, end)}
  inner.layers = nn.ModuleList(kept.values())
  inner.layers._modules = kept
  for number, layer in enumerate(kept.values()):
    for module in layer.modules():
      if isinstance(getattr(module, "layer_idx", None), int):
        module.layer_idx = number
  config = getattr(model, "config", None)
  if config is not None:
    config.num_hidden_layers = len(kept)
    if getattr(config, "layer_types", None):
      config.layer_types = config.layer_types[begin:end]


class _Received(nn.Module):
  """In the place of the embedding: what the rank before has computed."""

  def __init__(self, source: int, width: int, dtype: torch.dtype) -> None:
    super().__init__()
    self.source, self.width, self.dtype = source, width, dtype

  def forward(self, tokens: torch.Tensor) -> torch.Tensor:
    size = [*tokens.shape, self.width]
    return recv(size, self.source, dtype=self.dtype, device=tokens.device)


class _Sent(nn.Module):
  """In the place of the last norm: sends what the layers have computed to the next rank."""

  def __init__(self, to: int) -> None:
    super().__init__()
    self.to_rank = to

  def forward(self, x: torch.Tensor) -> torch.Tensor:
    send(x, self.to_rank)
    return x


class _Logits(nn.Module):
  """In the place of the head on other ranks than the last: memory for the logits."""

  def __init__(self, words: int) -> None:
    super().__init__()
    self.words = words

  def forward(self, x: torch.Tensor) -> torch.Tensor:
    return x.new_empty([*x.shape[:-1], self.words])


def _shared(ranks: list[int]) -> Any:
  """A hook behind the head: the last rank sends its result to all."""

  def hook(module: nn.Module, args: Any, logits: torch.Tensor) -> torch.Tensor:
    return collectives.broadcast()(logits, ranks[-1], ranks)

  return hook
