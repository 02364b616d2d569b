"""Graphs whose tensors all lie on one device.

A graph of a GPU may have tensors on the CPU: numbers that the model keeps there, and counters that
Inductor adds. Inductor would write C++ kernels for them, and a program for a GPU launches kernels
of the GPU alone. So these tensors are moved to the GPU, and copied where the graph begins or
ends."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported
from . import origins, torch_compat
from .lines import InductorObject
from .replace import replaced

if TYPE_CHECKING:
  import torch


@dataclasses.dataclass(frozen=True)
class Kept:
  """What a graph that was moved takes and returns on the CPU.

  inputs: the names of the inputs that are tensors there.
  numbers: those of them that have no dimensions and that the graph only reads.
  outputs: of each output whether it is a tensor there.
  """

  inputs: frozenset[str] = frozenset()
  numbers: frozenset[str] = frozenset()
  outputs: tuple[bool, ...] = ()

  def text(self) -> str:
    """What distinguishes the graph from one that takes and returns all on the device; empty if it
    does."""
    if not self.inputs and not any(self.outputs):
      return ""
    return f"{sorted(self.inputs)} {[int(each) for each in self.outputs]}"


def move(module: torch.fx.GraphModule, device: torch.device) -> Kept:
  """Moves the tensors of a graph from the CPU to a device. An input without dimensions stays there
  if nothing but operators of the device read it, since it is an argument of their kernels."""
  inputs = [
    node
    for node in module.graph.find_nodes(op="placeholder")
    if _on_cpu(node.meta.get("val")) and not _is_argument(node)
  ]
  results: Any = module.graph.output_node().args[0]
  kept = Kept(
    frozenset(node.name for node in inputs),
    frozenset(node.name for node in inputs if _is_number(node) and _is_read_only(node)),
    tuple(_on_cpu(getattr(node, "meta", {}).get("val")) for node in results),
  )
  _move(module, device, kept.inputs)
  module.recompile()
  return kept


def values(module: torch.fx.GraphModule, examples: Sequence[Any], kept: Kept) -> list[Any]:
  """The example values of a graph that was moved."""
  placeholders = module.graph.find_nodes(op="placeholder")
  return [
    node.meta["val"] if node.name in kept.inputs else value
    for node, value in zip(placeholders, examples, strict=True)
  ]


@contextlib.contextmanager
def moving() -> Iterator[None]:
  """While open, the loops that Inductor makes of `scan` and `map` count on the device of their
  graph, and a constant that is copied to a device is used there."""
  from torch._inductor import ir
  from torch._inductor.fx_passes import post_grad

  def counting(decompose: Callable[..., None]) -> Callable[..., None]:
    def decomposed(module: torch.fx.GraphModule) -> None:
      decompose(module)
      if (device := _device(module)) is not None:
        _move(module, device, ())
        module.recompile()

    return decomposed

  def constant_to_device(self: InductorObject, device: torch.device) -> InductorObject:
    copy: InductorObject = constant_before(self, device)
    layout = copy.layout
    copy.layout = ir.FixedLayout(device, layout.dtype, layout.size, layout.stride, layout.offset)
    return copy

  constant_before = ir.ConstantBuffer.constant_to_device
  names = ("decompose_scan_to_while_loop", "decompose_map_to_while_loop")
  with replaced(
    (ir.ConstantBuffer, "constant_to_device", constant_to_device),
    *((post_grad, name, counting(getattr(post_grad, name))) for name in names),
  ):
    yield


def _move(module: torch.fx.GraphModule, device: torch.device, inputs: Collection[str]) -> None:
  """Moves the tensors that a graph and its subgraphs compute. `inputs` are the names of the inputs
  that move."""
  import torch
  from torch.utils import _pytree as pytree

  for node in list(module.graph.nodes):
    subgraph = getattr(module, str(node.target), None) if node.op == "get_attr" else None
    if isinstance(subgraph, torch.fx.GraphModule):
      inner = subgraph.graph.find_nodes(op="placeholder")
      _move(subgraph, device, {placeholder.name for placeholder in inner})
      continue
    if node.op == "placeholder" and node.name not in inputs or node.op == "output":
      continue
    if node.op == "get_attr":
      _move_constant(module, node, device)
      continue
    if node.op == "call_function":
      _check(node, device)
      _name_device(node, device)
    if "val" in node.meta:
      node.meta["val"] = pytree.tree_map(
        lambda value: torch_compat.fake_on(value, device) if _on_cpu(value) else value,
        node.meta["val"],
      )


def _move_constant(module: torch.fx.GraphModule, node: torch.fx.Node, device: torch.device) -> None:
  """Copies a constant of the graph to the device. The graph has the tensor itself, which fake
  tensors take from `lift_fresh_copy` alone."""
  import torch

  value: Any = node.meta.get("val")
  if not _on_cpu(value):
    return
  with module.graph.inserting_after(node):
    lifted = module.graph.call_function(torch.ops.aten.lift_fresh_copy.default, (node,))
  with module.graph.inserting_after(lifted):
    copy = module.graph.call_function(torch.ops.prims.device_put.default, (lifted, device))
  lifted.meta = dict(node.meta)
  copy.meta = {**node.meta, "val": torch_compat.fake_on(value, device)}
  node.replace_all_uses_with(copy, delete_user_cb=lambda user: user is not lifted)


def _name_device(node: torch.fx.Node, device: torch.device) -> None:
  """Makes a call compute on the device. A copy between the CPU and the device stays a copy."""
  import torch
  from torch.fx.node import map_aggregate

  if _is_copy(node):
    node.target, node.args, node.kwargs = torch.ops.aten.clone.default, node.args[:1], {}
  arguments: Any = map_aggregate(
    (node.args, node.kwargs),
    lambda value: device if isinstance(value, torch.device) and value.type == "cpu" else value,
  )
  node.args, node.kwargs = arguments
  if node.kwargs.get("pin_memory"):
    node.kwargs = {**node.kwargs, "pin_memory": False}


def _check(node: torch.fx.Node, device: torch.device) -> None:
  """Refuses a call on the CPU that would compute something else on the device, or nothing."""
  import torch

  op = node.target
  if not isinstance(op, torch._ops.OpOverload) or not _any_on_cpu(node):
    return
  if op.namespace not in ("aten", "prims"):
    reason = f"gets tensors of the CPU in a graph of {device}, where it may not compute"
  elif op.namespace == "aten" and torch.Tag.nondeterministic_seeded in op.tags:
    reason = f"draws random numbers on the CPU in a graph of {device}, which draws others"
  else:
    return
  raise Unsupported(
    f"{origins.operator_place(node)} {reason}: call it outside of the compiled function, or with "
    f"tensors of {device}",
    has_place=True,
  )


def _is_read_only(node: torch.fx.Node) -> bool:
  """Whether no call writes an input of a graph, as far as the schemas of operators say."""
  import torch

  for user in node.users:
    if user.op == "output":
      continue
    if not isinstance(user.target, torch._ops.OpOverload):
      return False
    arguments = user.target._schema.arguments
    argument_values = [*zip(arguments, user.args)]
    argument_values += [
      (each, user.kwargs[each.name]) for each in arguments if each.name in user.kwargs
    ]
    for argument, value in argument_values:
      if value is node and argument.is_write:
        return False
  return True


def _is_number(node: torch.fx.Node) -> bool:
  """Whether an input without dimensions is a number that a program takes."""
  value = node.meta["val"]
  return value.dim() == 0 and not value.dtype.is_complex


def _is_argument(node: torch.fx.Node) -> bool:
  """Whether an input is an argument of kernels: it has no dimensions, and kernels of the device
  alone read it."""
  from torch._inductor import lowering

  return (
    node.meta["val"].dim() == 0
    and _is_read_only(node)
    and all(
      user.target in lowering.lowerings
      and user.target not in lowering.fallbacks
      and not _is_copy(user)
      and not any(_on_cpu(value) or value.is_complex() for value in _results(user))
      for user in node.users
    )
  )


def _is_copy(node: torch.fx.Node) -> bool:
  import torch

  return node.target is torch.ops.prims.device_put.default


def _results(node: torch.fx.Node) -> list[torch.Tensor]:
  """The tensors that a node returns."""
  import torch
  from torch.utils import _pytree as pytree

  values = pytree.tree_leaves(node.meta.get("val"))
  return [value for value in values if isinstance(value, torch.Tensor)]


def _any_on_cpu(node: torch.fx.Node) -> bool:
  """Whether a result of a call, or one of its inputs, is a tensor on the CPU."""
  return any(_on_cpu(value) for each in (node, *node.all_input_nodes) for value in _results(each))


def _on_cpu(value: Any) -> bool:
  """Whether a value of a graph is a tensor on the CPU."""
  import torch

  return isinstance(value, torch.Tensor) and value.device.type == "cpu"


def _device(module: torch.fx.GraphModule) -> torch.device | None:
  """The device of the tensors of a graph that are not on the CPU; None if all are there."""
  for node in module.graph.nodes:
    for value in _results(node):
      if value.device.type != "cpu":
        return value.device
  return None
