"""Puts graphs into other graphs, in place of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch


def replace_by_parts(
  node: torch.fx.Node, call: Callable[..., Any], decompositions: Mapping[Any, Any] | None = None
) -> None:
  """Replaces a call by the operators that `call` calls, a function of the values of the nodes that
  are the inputs of the call (`tensor_inputs`). They are decomposed as a table says."""
  import torch
  from torch._dispatch.python import enable_python_dispatcher
  from torch.fx.experimental.proxy_tensor import make_fx

  inputs = tensor_inputs(node)
  # The dispatcher in Python keeps sizes that vary.
  with mode(node), torch.no_grad(), enable_python_dispatcher():
    parts = make_fx(call, dict(decompositions or {}))(*(each.meta["val"] for each in inputs))
  replace_by_graph(node, parts)


def replace_by_graph(node: torch.fx.Node, parts: torch.fx.GraphModule) -> None:
  """Replaces a call by the nodes of a graph, whose inputs are the `tensor_inputs` of the call."""
  module, inputs = node.graph.owning_module, tensor_inputs(node)
  assert module is not None
  values = dict(zip(parts.graph.find_nodes(op="placeholder"), inputs, strict=True))
  for part in parts.graph.nodes:
    part.meta = {**place(node), **part.meta}
  _take_place(node, inlined(module, node, parts, values), inputs)


def _take_place(node: torch.fx.Node, result: Any, inputs: list[torch.fx.Node]) -> None:
  """Puts a result in the place of a node, under its name, by which signatures know outputs. The
  users of a node with several results, one of which may be a list, take these one by one."""
  import torch

  if not isinstance(result, torch.fx.Node):
    for user in list(node.users):
      _take_place(user, result[user.args[1]], inputs)
    node.graph.erase_node(node)
    return
  name = node.name
  node.replace_all_uses_with(result)
  node.graph.erase_node(node)
  if result not in inputs:
    result.name = name


def tensor_inputs(node: torch.fx.Node) -> list[torch.fx.Node]:
  """The inputs of a call that have a value: all but the graphs that it calls."""
  return [each for each in node.all_input_nodes if "val" in each.meta]


def inlined(
  module: torch.fx.GraphModule,
  before: torch.fx.Node,
  graph_module: torch.fx.GraphModule,
  values: dict[torch.fx.Node, Any],
) -> Any:
  """Copies the nodes of another module before a node, and returns the results. `values` are those
  of its placeholders."""
  from torch.fx.node import map_arg

  with module.graph.inserting_before(before):
    for node in graph_module.graph.nodes:
      if node.op == "placeholder":
        continue
      if node.op == "output":
        return map_arg(node.args[0], lambda each: values[each])
      values[node] = module.graph.node_copy(node, lambda each: values[each])
      if node.op == "get_attr":
        name = free_name(module, str(node.target))
        setattr(module, name, attribute(graph_module, str(node.target)))
        values[node].target = name
  raise AssertionError("a graph without an output")


def attribute(module: Any, path: str) -> Any:
  """The attribute of a module, or of one in it, at a dotted path."""
  for name in path.split("."):
    module = getattr(module, name)
  return module


def free_name(module: torch.fx.GraphModule, path: str) -> str:
  """A name like a dotted path that the module does not have yet."""
  name, count = path.replace(".", "_"), 0
  while hasattr(module, f"{name}_{count}"):
    count += 1
  return f"{name}_{count}"


def mode(node: torch.fx.Node) -> Any:
  """The mode of the fake tensors that are the inputs of a call; None if it has no such input."""
  from torch._guards import detect_fake_mode
  from torch.utils import _pytree as pytree

  return detect_fake_mode(
    pytree.tree_leaves([each.meta.get("val") for each in node.all_input_nodes])
  )


def place(node: torch.fx.Node) -> dict[str, Any]:
  """What is known of the model's line of a node."""
  keys = ("stack_trace", "nn_module_stack", "torch_fn")
  return {key: node.meta[key] for key in keys if key in node.meta}
