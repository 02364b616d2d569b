"""Numbers that a while_loop carries. Inductor carries tensors only."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch


def carry_ints_as_tensors(module: torch.fx.GraphModule) -> None:
  """Rewrites the while_loops of a graph module that carry numbers, so that they carry tensors of
  one element. Subgraphs are copied before they are changed, because they belong to the exported
  program."""
  import torch

  if not any(map(_has_loop, module.modules())):
    return
  for node in list(module.graph.nodes):
    subgraph = getattr(module, str(node.target), None) if node.op == "get_attr" else None
    if isinstance(subgraph, torch.fx.GraphModule):
      subgraph = copy.deepcopy(subgraph)
      setattr(module, str(node.target), subgraph)
      carry_ints_as_tensors(subgraph)
  for node in module.graph.find_nodes(op="call_function", target=torch.ops.higher_order.while_loop):
    _rewrite_loop(module, node)
  module.recompile()


def _has_loop(module: torch.nn.Module) -> bool:
  import torch

  return isinstance(module, torch.fx.GraphModule) and bool(
    module.graph.find_nodes(op="call_function", target=torch.ops.higher_order.while_loop)
  )


def _rewrite_loop(module: torch.fx.GraphModule, node: torch.fx.Node) -> None:
  cond: Any
  body: Any
  carried: Any
  additional: Any
  cond, body, carried, additional = node.args
  dtypes = {
    index: dtype
    for index, value in enumerate(carried)
    if (dtype := _number_dtype(value)) is not None
  }
  if not dtypes:
    return
  device = _device_of((*carried, *additional))
  for name in {cond.target, body.target}:
    _unbox_inputs(getattr(module, name), dtypes)
  _box_results(getattr(module, body.target), dtypes, device)
  with module.graph.inserting_before(node):
    carried = tuple(
      _boxed(module.graph, value, dtypes[index], device) if index in dtypes else value
      for index, value in enumerate(carried)
    )
  node.args = (cond, body, carried, additional)
  _unbox_results(module, node, dtypes)


def _device_of(values: Iterable[Any]) -> torch.device:
  """The device of the first tensor among the operands of a loop, else the CPU."""
  import torch

  for node in values:
    value = _value(node)
    if isinstance(value, torch.Tensor):
      return value.device
  return torch.device("cpu")


def _boxed(
  graph: torch.fx.Graph, value: Any, dtype: torch.dtype, device: torch.device
) -> torch.fx.Node:
  """A tensor of one element that holds `value`."""
  import torch

  return graph.call_function(
    torch.ops.aten.scalar_tensor.default, (value,), {"dtype": dtype, "device": device}
  )


def _unbox_inputs(subgraph: torch.fx.GraphModule, dtypes: dict[int, torch.dtype]) -> None:
  """Makes a subgraph read each carried number from the tensor that it is given now."""
  import torch

  placeholders = subgraph.graph.find_nodes(op="placeholder")
  for index in dtypes:
    first = next(node for node in subgraph.graph.nodes if node.op != "placeholder")
    with subgraph.graph.inserting_before(first):
      number = subgraph.graph.call_function(
        torch.ops.aten._local_scalar_dense.default, (placeholders[index],)
      )
    placeholders[index].replace_all_uses_with(
      number, delete_user_cb=lambda user, number=number: user is not number
    )
  subgraph.recompile()


def _box_results(
  body: torch.fx.GraphModule, dtypes: dict[int, torch.dtype], device: torch.device
) -> None:
  """Makes the body of a loop return tensors in place of numbers."""
  output: Any = body.graph.output_node()
  results = list(output.args[0])
  with body.graph.inserting_before(output):
    for index, dtype in dtypes.items():
      results[index] = _boxed(body.graph, results[index], dtype, device)
  output.args = (tuple(results),)
  body.recompile()


def _unbox_results(
  module: torch.fx.GraphModule, node: torch.fx.Node, dtypes: dict[int, torch.dtype]
) -> None:
  """Reads the numbers that a loop returns from its tensors. Symbols that the loop defined are
  defined by these reads from now on."""
  import torch

  bindings = node.meta.pop("unbacked_bindings", None) or {}
  for key in ("val", "example_value"):
    node.meta.pop(key, None)
  for user in list(node.users):
    index = user.args[1]
    if index not in dtypes:
      continue
    with module.graph.inserting_after(user):
      number = module.graph.call_function(torch.ops.aten._local_scalar_dense.default, (user,))
    number.meta = {
      **user.meta,
      "unbacked_bindings": {
        symbol: () for symbol, keys in bindings.items() if getattr(keys[0], "idx", None) == index
      },
    }
    for key in ("val", "example_value"):
      user.meta.pop(key, None)
    user.replace_all_uses_with(
      number, delete_user_cb=lambda other, number=number: other is not number
    )


def _number_dtype(value: Any) -> torch.dtype | None:
  """The dtype of the tensor that carries a number; None for a tensor."""
  import torch

  value = _value(value)
  kinds = (
    ((bool, torch.SymBool), torch.bool),
    ((int, torch.SymInt), torch.int64),
    ((float, torch.SymFloat), torch.float64),
  )
  return next((dtype for types, dtype in kinds if isinstance(value, types)), None)


def _value(node: Any) -> Any:
  """The value of a node in the example, in a graph of torch.export's or of Dynamo's, or the value
  itself if it is no node."""
  import torch

  if not isinstance(node, torch.fx.Node):
    return node
  return node.meta.get("val", node.meta.get("example_value"))
