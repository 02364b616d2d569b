"""Matrices of experts that a rank has, of which kernels of GPUs read no others. A step of a
language model takes the time in which its weights are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..fusion import rewriting
from ..inductor import graphs, rank_experts

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram


def rewrite(exported: ExportedProgram) -> ExportedProgram:
  """A copy of a program in which matrices that are selected by `husk::expert_of_rank` are
  `husk::matrices_of_rank`. A program without them is returned itself."""
  return rewriting.rewrite(exported, lambda node: _selected(node) is not None, _rewrite_graph)


def _rewrite_graph(graph: torch.fx.Graph) -> None:
  import torch

  for node in list(graph.nodes):
    if (found := _selected(node)) is None:
      continue
    stack, (index, first, count, _) = found
    with graph.inserting_before(node):
      flat = graph.call_function(torch.ops.aten.reshape.default, (index, [-1]))
      flat.meta["val"] = index.meta["val"].reshape(-1)
      call = graph.call_function(rank_experts.matrices(), (stack, flat, first, count))
    call.meta = dict(node.meta)
    node.replace_all_uses_with(call)
    graph.erase_node(node)


def _selected(node: torch.fx.Node) -> tuple[torch.fx.Node, tuple[Any, ...]] | None:
  """The stack of which a node selects matrices by a vector, and the arguments of the operator that
  made the vector."""
  import torch

  if node.target != torch.ops.aten.index.Tensor:
    return None
  stack, indices = graphs.arguments(node).values()
  if len(indices) != 1 or stack.meta["val"].dim() != 3 or indices[0].meta["val"].dim() != 1:
    return None
  made = _below(indices[0], stack.meta["val"].shape[0])
  if made.target is not rank_experts.number():
    return None
  return stack, tuple(graphs.arguments(made).values())


def _below(node: torch.fx.Node, count: Any) -> torch.fx.Node:
  """What lies below other shapes of a tensor, and below bounds that its numbers keep already."""
  import torch

  aten = torch.ops.aten
  while True:
    arguments = graphs.arguments(node) if hasattr(node.target, "_schema") else {}
    if node.target == aten.clamp.default:
      if (arguments["min"], arguments["max"]) not in ((0, count - 1), (None, count - 1)):
        return node
    elif node.target not in (aten.reshape.default, aten.view.default, aten.flatten.using_ints):
      return node
    below: Any = arguments["self"]
    node = below


def lowerings() -> dict[Any, Callable[..., Any]]:
  """Inductor's lowerings by operator."""
  return {rank_experts.matrices(): _lowered}


def _lowered(stack: Any, index: Any, first: int, count: int) -> Any:
  import sympy
  import torch
  from torch._inductor import ir
  from torch._inductor.virtualized import ops

  load, load_index = stack.make_loader(), index.make_loader()

  def number(at: Any) -> Any:
    return ops.sub(load_index(at[:1]), ops.constant(first, torch.int64))

  def element(at: Any) -> Any:
    own = number(at)
    is_own = ops.and_(
      ops.ge(own, ops.constant(0, torch.int64)), ops.lt(own, ops.constant(count, torch.int64))
    )

    def read() -> Any:  # which uses no value from outside
      place = ops.indirect_indexing(number(at), sympy.Integer(count), check=False, wrap_neg=False)
      return load([place, *at[1:]])

    return ops.masked(is_own, read, 0.0)

  return ir.Pointwise.create(
    device=stack.get_device(),
    dtype=stack.get_dtype(),
    inner_fn=element,
    ranges=[index.get_size()[0], *stack.get_size()[1:]],
  )
