"""Checks of booleans that the data decides, as `torch._check((x > 0).all().item())`."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import graphs, origins

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram


def rewrite(exported: ExportedProgram) -> None:
  """Lets a program, which is changed, check the tensors themselves. torch.export reads a boolean as
  a number and compares it with 1, and cannot trace that number again. It has a name of its own for
  `all` where `torch._check_tensor_all` calls it."""
  import torch

  aten = torch.ops.aten
  for module in graphs.modules(exported):
    graph = module.graph
    for check, item in list(_checks(graph)):
      line = origins.place(item.meta.get("stack_trace"))
      text = f"a check of the model failed ({line})" if line else "a check of the model failed"
      with graph.inserting_before(check):
        node = graph.call_function(aten._assert_async.msg, (item.args[0], text))
      node.meta = {key: value for key, value in check.meta.items() if key != "val"}
      _erase(check)
    for node in graph.find_nodes(op="call_function", target=aten._is_all_true.default):
      node.target = aten.all.default
    module.recompile()


def _checks(graph: torch.fx.Graph) -> Iterator[tuple[torch.fx.Node, torch.fx.Node]]:
  """The checks, each with the node that reads its tensor, which has the line of the model."""
  import torch
  from torch.fx.experimental import symbolic_shapes

  aten, to_number = torch.ops.aten, symbolic_shapes.cast_symbool_to_symint_guardless
  for check in graph.find_nodes(op="call_function", target=aten._assert_scalar.default):
    equal: Any = check.args[0]
    if not isinstance(equal, torch.fx.Node) or equal.target is not operator.eq:
      continue
    number, one = equal.args
    if not isinstance(number, torch.fx.Node) or number.target is not to_number or one != 1:
      continue
    item: Any = number.args[0]
    if isinstance(item, torch.fx.Node) and item.target is aten.item.default:
      yield check, item


def _erase(node: torch.fx.Node) -> None:
  """Removes a node, and then the operands that nothing else uses, up to the tensor."""
  operands = node.all_input_nodes
  node.graph.erase_node(node)
  for operand in operands:
    value = operand.meta.get("val")
    if not operand.users and operand.op == "call_function" and not hasattr(value, "device"):
      _erase(operand)
