"""Mixtures of experts on several ranks: each rank has some of the experts, computes them for the
tokens that go to them, and the ranks add their results."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..inductor import rank_experts

if TYPE_CHECKING:
  from torch.distributed.device_mesh import DeviceMesh

# Parameters that hold a matrix of each expert, as the layers of transformers call them.
_STACKS = ("gate_up_proj", "up_proj", "down_proj")
# An attribute of layers of transformers that know of experts on other ranks: they skip those with
# the number `num_experts`.
_KNOWS_OTHERS = "_is_expert_parallel"
_ARGUMENTS = ("hidden_states", "top_k_index", "top_k_weights")


def stacks(model: nn.Module) -> dict[str, nn.Module]:
  """The layers of experts of a model, by name: those with stacks of matrices."""
  return {
    name: module
    for name, module in model.named_modules()
    if any(
      isinstance(stack, nn.Parameter) and stack.dim() == 3
      for stack in (getattr(module, one, None) for one in _STACKS)
    )
  }


def check(name: str, experts: nn.Module, ranks: int) -> None:
  """Refuses a layer of experts that cannot be divided."""
  kind, count = type(experts).__name__, getattr(experts, "num_experts", None)
  arguments = tuple(inspect.signature(type(experts).forward).parameters)[1:]
  if arguments != _ARGUMENTS or not isinstance(count, int):
    raise ValueError(
      f"{name}: {kind} has stacks of experts, but no num_experts or other arguments than "
      f"{', '.join(_ARGUMENTS)}: divide its experts in a model of your own"
    )
  if count % ranks:
    raise ValueError(f"{name}: {count} experts are no multiple of {ranks}, the number of ranks")


def divide(experts: nn.Module, mesh: DeviceMesh) -> None:
  """Leaves the experts of this rank in a layer, which `check` has not refused. Tokens of other
  experts have weights of 0 in it. The ranks add what the layers compute."""
  layer: Any = experts
  all_experts = layer.num_experts
  count = all_experts // mesh.size()
  first = mesh.get_local_rank() * count
  for name, parameter in list(experts.named_parameters(recurse=False)):
    if parameter.dim() >= 2 and parameter.shape[0] == all_experts:
      own = parameter.detach()[first : first + count].clone()
      setattr(experts, name, nn.Parameter(own, requires_grad=parameter.requires_grad))
  layer.num_experts = count
  other = count - 1  # the number of an expert of another rank
  if hasattr(experts, _KNOWS_OTHERS):
    setattr(experts, _KNOWS_OTHERS, True)
    other = count

  def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
    given = inspect.signature(type(module).forward).bind(module, *args, **kwargs).arguments
    x, index, weights = (given[name] for name in _ARGUMENTS)
    own = (index >= first) & (index < first + count)
    # Only exports know the operator.
    if torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling():
      numbers = rank_experts.number()(index, first, count, other)
    else:
      numbers = torch.where(own, index - first, other)
    return (x, numbers, torch.where(own, weights, 0)), {}

  def after(module: nn.Module, args: Any, result: torch.Tensor) -> torch.Tensor:
    from torch.distributed import _functional_collectives as functional

    return functional.all_reduce(result, "sum", (mesh, 0))

  experts.register_forward_pre_hook(before, with_kwargs=True)
  experts.register_forward_hook(after)
