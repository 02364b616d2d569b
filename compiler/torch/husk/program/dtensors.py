"""Models whose parameters are DTensors, as `parallelize_module` and `distribute_tensor` make them.

torch.export does not trace such a parameter. `Local` is a module whose parameters are the shards of
this rank, plain tensors. Its forward makes DTensors of them and calls the model, so the program has
what DTensor does with the shards: operators on plain tensors, and collective operators."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..inductor.replace import replaced

if TYPE_CHECKING:
  import torch


def has_dtensors(model: torch.nn.Module) -> bool:
  """Whether parameters or buffers of a model are DTensors."""
  import sys

  if "torch.distributed.tensor" not in sys.modules:  # which takes a second to import
    return False
  from torch.distributed.tensor import DTensor

  tensors = [*model.parameters(), *model.buffers()]
  return any(isinstance(tensor, DTensor) for tensor in tensors)


def local(model: torch.nn.Module) -> torch.nn.Module:
  """The model with the shards of this rank as its parameters and buffers, under their names."""
  import torch
  from torch.distributed.tensor import DTensor
  from torch.func import functional_call
  from torch.utils import _pytree as pytree

  specs: dict[str, Any] = {}

  class Local(torch.nn.Module):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
      own = {**dict(self.named_parameters()), **dict(self.named_buffers())}
      values: dict[str, torch.Tensor] = {
        name: DTensor(tensor, specs[name], requires_grad=False) if name in specs else tensor
        for name, tensor in own.items()
      }
      return pytree.tree_map(_plain, functional_call(model, values, args, kwargs))

  def _plain(value: Any) -> Any:
    return value.full_tensor() if isinstance(value, DTensor) else value

  Local.forward.__signature__ = inspect.signature(type(model).forward)
  holder = Local()
  for prefix, module in model.named_modules():
    owner: torch.nn.Module = holder
    for part in prefix.split(".") if prefix else ():
      if part not in owner._modules:
        owner.add_module(part, torch.nn.Module())
      owner = owner._modules[part]  # type: ignore[assignment]
    for name, tensor in module.named_parameters(recurse=False, remove_duplicate=False):
      plain = _shard(tensor, specs, f"{prefix}.{name}" if prefix else name)
      owner.register_parameter(name, torch.nn.Parameter(plain, requires_grad=False))
    for name, tensor in module.named_buffers(recurse=False, remove_duplicate=False):
      plain = _shard(tensor, specs, f"{prefix}.{name}" if prefix else name)
      owner.register_buffer(name, plain)
  return holder


def _shard(tensor: torch.Tensor, specs: dict[str, Any], name: str) -> torch.Tensor:
  """The shard of this rank. `specs` gets the DTensor's description."""
  from torch.distributed.tensor import DTensor

  if isinstance(tensor, DTensor):
    specs[name] = tensor._spec
    tensor = tensor.to_local()
  return tensor.detach()


def export(*args: Any, **kwargs: Any) -> Any:
  """torch.export.export that traces operators of tensors, and not calls of functions, which DTensor
  takes apart."""
  from torch.export import _trace

  return _trace._export(*args, **kwargs, pre_dispatch=False)


@contextlib.contextmanager
def exporting() -> Iterator[None]:
  """While open, DTensors are made while torch.export traces. Their constructor would else write
  itself into the program, and gathering along another dimension than the first, and the choice of
  how to divide a result, would ask about sizes that vary."""
  from torch._export import wrappers
  from torch.distributed import _functional_collectives as functional
  from torch.distributed.tensor._ops import utils

  with replaced(
    (wrappers, "_maybe_find_pre_dispatch_tf_mode_for_export", lambda: None),
    (functional, "_maybe_view_chunk_cat", _beside_each_other),
    (utils, "is_tensor_shardable", _is_shardable(utils.is_tensor_shardable)),
  ):
    yield


def _is_shardable(before: Callable[..., bool]) -> Callable[..., bool]:
  """Whether a tensor has as many elements along a dimension as there are ranks. One that varies is
  taken for large: a way to divide it is only a candidate, and ranks may have shards of nothing."""
  large = 1 << 30

  def of_known_sizes(shape: Sequence[int], *args: Any, **kwargs: Any) -> bool:
    known = [size if isinstance(size, int) else large for size in shape]
    return before(known, *args, **kwargs)

  return of_known_sizes


def _beside_each_other(gathered: torch.Tensor, count: int, dim: int) -> torch.Tensor:
  """The parts of all ranks, which lie behind one another along dimension 0, along `dim`."""
  if dim == 0:
    return gathered
  return gathered.unflatten(0, (count, -1)).movedim(0, dim).flatten(dim, dim + 1)


@contextlib.contextmanager
def local_shards() -> Iterator[None]:
  """While open, `distribute_tensor` and `parallelize_module` take each rank's shard from the tensor
  that this rank has, in place of receiving it from another rank. Replicated tensors stay as they
  are when the fake process group broadcasts them."""
  from torch.distributed.tensor import placement_types as placements

  shard, strided = placements.Shard._shard_tensor, placements._StridedShard._shard_tensor

  def own(before: Any) -> Any:
    def without_source(
      self: Any, tensor: Any, mesh: Any, mesh_dim: int, src_data_rank: int | None = 0
    ) -> Any:
      return before(self, tensor, mesh, mesh_dim, None)

    return without_source

  with replaced(
    (placements.Shard, "_shard_tensor", own(shard)),
    (placements._StridedShard, "_shard_tensor", own(strided)),
  ):
    yield
