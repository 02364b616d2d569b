"""Which memory the operators of a graph write, by themselves or through a view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import graphs

if TYPE_CHECKING:
  import torch

# The results of these operators are views or copies, depending on the strides of the argument.
_VIEWS_OR_COPIES = {
  f"aten::{name}" for name in ("contiguous", "flatten", "ravel", "reshape", "reshape_as", "to")
}


def placeholders(module: torch.fx.GraphModule) -> set[torch.fx.Node]:
  """The placeholders whose memory may be written."""
  return {node for node in Memory(module).written if node.op == "placeholder"}


def depend_on_strides(module: torch.fx.GraphModule) -> bool:
  """Whether the strides of a computed tensor may decide if a write changes it: the graph has a view
  of it that would be a copy for other strides, and writes to one of the two after that."""
  return Memory(module).writes_to_views_or_copies


def may_write(node: torch.fx.Node) -> bool:
  """Whether a node may write memory that other nodes read. Nodes with graphs or with kernels of the
  model may: this function does not look into them."""
  import torch

  if node.op != "call_function":
    return False
  return isinstance(node.target, torch._ops.HigherOrderOperator) or bool(written(node))


def written(node: torch.fx.Node) -> list[Any]:
  """The arguments that a call of an operator may write. `detach_` writes no elements."""
  import torch

  if not isinstance(node.target, torch._ops.OpOverload):
    return []
  schema = node.target._schema
  if not schema.is_mutable and schema.name not in _NORMS or schema.name == "aten::detach_":
    return []
  values = graphs.arguments(node)
  found = [values[each.name] for each in schema.arguments if _is_written(schema, each, values)]
  return [value for value in found if value is not None]


class Memory:
  """`roots` has the nodes whose memory a node may share, `written` those whose memory may be
  written. The root of a tensor is a placeholder or what an operator has computed."""

  def __init__(self, module: torch.fx.GraphModule) -> None:
    import torch

    self.roots: dict[torch.fx.Node, set[torch.fx.Node]] = {}
    self.written: set[torch.fx.Node] = set()
    self.writes_to_views_or_copies = False
    viewed: set[torch.fx.Node] = set()  # computed, and have a view that might be a copy
    for node in module.graph.nodes:
      if node.op == "placeholder":
        self.roots[node] = {node}
      if node.op != "call_function":
        continue
      inputs: set[torch.fx.Node] = set().union(
        *(self.roots.get(each, set()) for each in node.all_input_nodes)
      )
      written = self._written(module, node, inputs)
      self.written |= written
      self.writes_to_views_or_copies |= bool(written & viewed)
      schema = getattr(node.target, "_schema", None)
      if isinstance(node.target, torch._ops.HigherOrderOperator):
        self.roots[node] = inputs | {node}
        continue
      shares = schema is None or _may_share(node.target)
      self.roots[node] = inputs if shares and inputs else {node}
      if schema is not None and schema.name in _VIEWS_OR_COPIES:
        viewed |= {root for root in inputs if root.op != "placeholder"}

  def _written(
    self, module: torch.fx.GraphModule, node: torch.fx.Node, inputs: set[torch.fx.Node]
  ) -> set[torch.fx.Node]:
    """The roots that a node may write; `inputs` are those of its arguments."""
    import torch

    if isinstance(node.target, torch._ops.HigherOrderOperator):
      return inputs if _region_writes(module, node) else set()
    roots: set[torch.fx.Node] = set()
    for value in written(node):
      for tensor in value if isinstance(value, (list, tuple)) else [value]:
        roots |= self.roots.get(tensor, set())
    return roots


# Norms that write the statistics of their arguments `running_mean` and `running_var` if they train,
# of which their schemas tell nothing.
_NORMS = {
  f"aten::{name}"
  for name in (
    "batch_norm",
    "instance_norm",
    "native_batch_norm",
    "_batch_norm_impl_index",
    "cudnn_batch_norm",
    "miopen_batch_norm",
    "batch_norm_update_stats",
    "batch_norm_gather_stats",
    "batch_norm_gather_stats_with_counts",
  )
}


def _is_written(schema: Any, argument: Any, values: dict[str, Any]) -> bool:
  """Whether an operator with these values of its arguments may write one of them."""
  if argument.alias_info is not None and argument.alias_info.is_write:
    return True
  if schema.name not in _NORMS or argument.name not in ("running_mean", "running_var"):
    return False
  return not any(values.get(name) is False for name in ("training", "use_input_stats"))


def _may_share(op: Any) -> bool:
  """Whether the results of an operator may share memory with its arguments. The schemas of
  operators that consist of others, as `reshape`, do not tell."""
  import torch

  return any(result.alias_info is not None for result in op._schema.returns) or bool(
    torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")
  )


def _region_writes(module: torch.fx.GraphModule, node: torch.fx.Node) -> bool:
  """Whether a region may write an operand. An operator with operands alone, as a kernel of the
  model, may."""
  import torch

  regions = [
    getattr(module, str(each.target)) for each in node.all_input_nodes if each.op == "get_attr"
  ]
  graphs = [region for region in regions if isinstance(region, torch.fx.GraphModule)]
  return not graphs or any(placeholders(graph) for graph in graphs)
