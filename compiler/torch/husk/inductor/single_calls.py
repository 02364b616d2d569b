"""Decomposes the calls of a few operators in a program, each by itself.

torch decomposes a program by tracing all of it twice, which takes a third of the time of an export.
Most programs have only a few calls to decompose, and the others stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from . import assumed, exported_programs, graphs, inlining, shape_functions, writes
from .layouts import known_equal
from .replace import replaced

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram


def decomposed(
  exported: ExportedProgram, wanted: Mapping[Any, Callable[..., Any]], in_place: bool = False
) -> ExportedProgram | None:
  """The program with the operators of `wanted` decomposed. Other nodes are not traced again, so
  their values must stay as they are: None if a decomposition has another shape, other strides or
  another dtype than its operator says, returns an input, brings constants, or makes sizes that only
  the data decides. With `in_place`, the program itself is changed, but not if the result is
  None."""
  if any(_writes_like(node, wanted) for node in graphs.nodes(exported)):
    return None
  calls = [node for node in graphs.nodes(exported) if node.target in wanted]
  shapes = assumed.environment(exported)
  with assumed.restored(shapes), replaced(shape_functions.smaller_sizes()):
    parts = []
    for node in calls:
      traced = _traced(node, wanted)
      if traced is None:
        return None
      parts.append(traced)
    assumptions = [*exported_programs.assumptions(exported), *assumed.found(shapes)]
  changed = exported if in_place else exported_programs.copied(exported)
  # Copies of graphs have their nodes in the same order.
  calls = [node for node in graphs.nodes(changed) if node.target in wanted]
  for node, part in zip(calls, parts, strict=True):
    if part is not _STAYS:
      inlining.replace_by_graph(node, part)
  for module in graphs.modules(changed):
    module.recompile()
  exported_programs.set_assumptions(changed, assumptions)
  return changed


# In place of a graph: the decomposition leaves the call as it is.
_STAYS: Any = object()


def _writes_like(node: torch.fx.Node, wanted: Mapping[Any, Callable[..., Any]]) -> bool:
  """Whether a node writes what a wanted operator computes (`scatter_`, `scatter`): torch makes the
  one of the other when it decomposes a program."""
  if not writes.written(node):
    return False
  target: Any = node.target
  name = target._schema.name.removesuffix("_")
  return any(getattr(op, "_schema", None) and op._schema.name == name for op in wanted)


def _traced(node: torch.fx.Node, wanted: Mapping[Any, Callable[..., Any]]) -> Any:
  """What a call consists of, as a graph of its inputs; `_STAYS` if it is not decomposed, and None
  if the program has to be traced as a whole."""
  import torch
  from torch._dispatch.python import enable_python_dispatcher
  from torch.fx.experimental.proxy_tensor import make_fx
  from torch.fx.node import map_arg

  inputs, mode = node.all_input_nodes, inlining.mode(node)
  if mode is None or any("val" not in each.meta for each in inputs):
    return None
  values = [each.meta["val"] for each in inputs]
  stays = False

  def call(*operands: Any) -> Any:
    nonlocal stays
    known = dict(zip(inputs, operands, strict=True))
    arguments, keywords = map_arg((node.args, node.kwargs), known.__getitem__)
    result = wanted[node.target](*arguments, **keywords)
    stays = result is NotImplemented
    return () if stays else result

  try:
    with mode, torch.no_grad(), enable_python_dispatcher():
      parts = make_fx(call, pre_dispatch=True)(*values)
  except Exception:
    return None  # torch traces the program, and says where in the model it fails.
  if stays:
    return _STAYS
  parts.graph.eliminate_dead_code()  # such as questions about dtypes, which have no value
  nodes = [part for part in parts.graph.nodes if part.op != "output"]
  if any(part.op == "get_attr" or "val" not in part.meta for part in nodes):
    return None
  for part in [part for part in parts.graph.nodes if part.target in wanted]:
    within = _traced(part, wanted)
    if within is None:
      return None
    if within is not _STAYS:
      inlining.replace_by_graph(part, within)
  result = parts.graph.output_node().args[0]
  found = map_arg(result, graphs.value)
  return parts if _is_like(found, node.meta.get("val"), values) else None


def _is_like(found: Any, value: Any, inputs: list[Any]) -> bool:
  """Whether the results of a decomposition are what other nodes take them for."""
  import torch
  from torch.utils import _pytree as pytree

  left, right = pytree.tree_leaves(found), pytree.tree_leaves(value)
  memory = {one.untyped_storage()._cdata for one in inputs if isinstance(one, torch.Tensor)}
  return len(left) == len(right) and all(
    isinstance(one, torch.Tensor)
    and isinstance(other, torch.Tensor)
    and one.untyped_storage()._cdata not in memory
    and (one.dtype, one.device, one.dim()) == (other.dtype, other.device, other.dim())
    and all(map(known_equal, one.shape, other.shape))
    and all(map(known_equal, one.stride(), other.stride()))
    for one, other in zip(left, right)
  )
