"""flex_attention of host targets.

Inductor's template for hosts is C++ that includes the headers of PyTorch, so that its kernels need
PyTorch when they run. `rewrite` and `rewrite_graph` therefore replace the operator by what eager
mode computes: all products of queries and keys, what the model's functions make of them, and a
softmax. Their memory grows with the number of queries times that of keys, as in eager mode."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..fusion import rewriting
from ..inductor import inlining

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram


def rewrite(exported: ExportedProgram, in_place: bool = False) -> ExportedProgram:
  """A copy of a program without flex_attention. A program that has none is returned itself. With
  `in_place`, the program itself is changed."""
  return rewriting.rewrite(exported, _is_flex_attention, rewrite_graph, in_place)


def rewrite_graph(graph: torch.fx.Graph, decompositions: Mapping[Any, Any] | None = None) -> None:
  """Replaces flex_attention in a graph. What replaces it is decomposed as a table says."""
  for node in list(graph.nodes):
    if _is_flex_attention(node):
      _replace(node, decompositions)


def _is_flex_attention(node: torch.fx.Node) -> bool:
  import torch

  return node.target is torch.ops.higher_order.flex_attention


def _replace(node: torch.fx.Node, decompositions: Mapping[Any, Any] | None) -> None:
  from torch.fx.node import map_arg

  # The package has the operator under the name of the module.
  module = importlib.import_module("torch._higher_order_ops.flex_attention")
  inputs, owner = inlining.tensor_inputs(node), node.graph.owning_module

  def call(*values: Any) -> Any:
    known = dict(zip(inputs, values))

    def value_of(each: torch.fx.Node) -> Any:
      return known[each] if each in known else inlining.attribute(owner, str(each.target))

    args, kwargs = map_arg((node.args, node.kwargs), value_of)
    queries: Any = args[0]
    result, *sums = module.math_attention(*args, **kwargs)
    return _in_order_of(queries, result), *sums

  inlining.replace_by_parts(node, call, decompositions)


def _in_order_of(queries: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
  """The result with its dimensions in the order in which those of the queries are in memory."""
  order = sorted(range(queries.dim()), key=queries.stride, reverse=True)
  places = [order.index(dim) for dim in range(len(order))]
  return result.permute(order).contiguous().permute(places)
