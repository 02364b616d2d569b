"""The graphs of an exported program, and the calls in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram


def modules(exported: ExportedProgram) -> list[torch.fx.GraphModule]:
  """The graph of a program, and the graphs that it calls: branches and bodies of loops."""
  import torch

  return [
    module for module in exported.graph_module.modules() if isinstance(module, torch.fx.GraphModule)
  ]


def nodes(exported: ExportedProgram) -> list[torch.fx.Node]:
  """The nodes of all graphs of a program."""
  return [node for module in modules(exported) for node in module.graph.nodes]


def arguments(node: torch.fx.Node) -> dict[str, Any]:
  """The arguments of a call of an operator by their names in its schema. An argument that the call
  lacks has its default, or None if it has no default."""
  target: Any = node.target
  values: dict[str, Any] = {
    argument.name: argument.default_value if argument.has_default_value() else None
    for argument in target._schema.arguments
  }
  values.update(zip(list(values), node.args))
  values.update(node.kwargs)
  return values


def value(argument: Any) -> Any:
  """The tensor or number that an argument of a call is; another argument itself."""
  import torch

  return argument.meta["val"] if isinstance(argument, torch.fx.Node) else argument
