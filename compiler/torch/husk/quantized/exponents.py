"""Scales that are powers of two, of the dtype float8_e8m0fnu, as their bytes.

MX formats have such scales. Artifacts and Inductor's code for CPUs do not have the dtype, and a
model does little with it: it makes it of bytes or takes the bytes of it, moves it, and converts it
to floats. A program that does no more has bytes in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
  """The tensor, as bytes if it has such scales."""
  import torch

  return tensor.view(torch.uint8) if tensor.dtype == torch.float8_e8m0fnu else tensor


def rewrite(exported: ExportedProgram) -> None:
  """Changes the graph of a program so that no node has such scales, if it does no more with them
  than what can be done with bytes."""
  import torch

  view = torch.ops.aten.view.dtype
  graph = exported.graph
  nodes = [node for node in graph.nodes if _has_scales(node)]
  if not nodes or not all(map(_can_be_bytes, nodes)):
    return
  for node in nodes:
    for user in list(node.users):
      if user.target is torch.ops.aten._assert_tensor_metadata.default:
        graph.erase_node(user)
      elif user.target in _conversions():
        with graph.inserting_before(user):
          floats = _as_floats(graph, node)
        user.replace_input_with(node, floats)
  for node in nodes:
    node.meta["val"] = as_bytes(node.meta["val"])
    if node.target is view:
      node.args = (node.args[0], torch.uint8)
  for node in graph.find_nodes(op="call_function", target=view):
    source: Any = node.args[0]
    if node.args[1] == torch.uint8 and source.meta["val"].dtype == torch.uint8:
      node.replace_all_uses_with(source)
      graph.erase_node(node)
  exported.graph_module.recompile()


def _has_scales(node: torch.fx.Node) -> bool:
  import torch

  value = node.meta.get("val")
  return isinstance(value, torch.Tensor) and value.dtype == torch.float8_e8m0fnu


def _can_be_bytes(node: torch.fx.Node) -> bool:
  """Whether a node makes scales of bytes or moves them, and so do those that use it, or take their
  bytes, or convert them to floats."""
  import torch

  view = torch.ops.aten.view.dtype
  if node.op != "call_function":
    return False
  if node.target is not view and not all(map(_has_scales, node.all_input_nodes)):
    return False
  known = (view, torch.ops.aten._assert_tensor_metadata.default, *_conversions())
  return bool(node.all_input_nodes) and all(
    user.target in known or _has_scales(user) for user in node.users
  )


def _conversions() -> tuple[Any, ...]:
  import torch

  aten: Any = torch.ops.aten
  return aten.to.dtype, aten._to_copy.default


def _as_floats(graph: torch.fx.Graph, scales: torch.fx.Node) -> torch.fx.Node:
  """The values of scales, of which `scales` has the bytes then: the byte is the exponent of a
  float. 0 stands for 2^-127, which is half of the smallest float that has an exponent, and 255 for
  NaN."""
  import torch

  aten: Any = torch.ops.aten

  def call(operator: Any, *args: Any) -> torch.fx.Node:
    node = graph.call_function(operator, args)
    values = [one.meta["val"] if isinstance(one, torch.fx.Node) else one for one in args]
    node.meta["val"] = operator(*values)
    return node

  number = graph.call_function(aten.to.dtype, (scales, torch.int32))
  number.meta["val"] = scales.meta["val"].to(torch.int32)
  bits = call(aten.bitwise_left_shift.Tensor_Scalar, number, 23)
  floats = call(aten.view.dtype, bits, torch.float32)
  smallest = call(aten.eq.Scalar, number, 0)
  floats = call(aten.masked_fill.Scalar, floats, smallest, 2.0**-127)
  unknown = call(aten.eq.Scalar, number, 255)
  return call(aten.masked_fill.Scalar, floats, unknown, float("nan"))
