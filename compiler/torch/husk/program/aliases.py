"""Parameters, buffers, constants and inputs that share memory, and parameters that are written.

A program of torch.export has an input for each parameter, buffer and constant, and PyTorch cannot
compile a program that writes one of several inputs that share memory. `merged` makes them views of
one of the inputs, so that a write to one view is seen through the others. It does the same with
tensors that begin between the multiples of 16 bytes in memory that they share, because Inductor
takes the address of an input for such a multiple."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported, within
from ..inductor import exported_programs, writes
from .memory import Extent, Extents, addresses

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

_STATES = ("PARAMETER", "BUFFER", "CONSTANT_TENSOR")
_ALIGNMENT = 16


@dataclasses.dataclass
class _State:
  """A parameter, a buffer or a constant: its node, its kind and its name in the model."""

  node: torch.fx.Node
  kind: str
  target: str
  tensor: torch.Tensor


def merged(programs: Mapping[str, ExportedProgram]) -> dict[str, ExportedProgram]:
  """The programs by name; those that need it are copies, in which tensors that share memory are
  views of one of them, and parameters that are written are buffers."""
  extents = Extents()
  extents.add(state.tensor for program in programs.values() for state in _states(program))
  result = {}
  for name, program in programs.items():
    with within(name, programs):
      result[name] = _merged(program, extents)
  return result


def _merged(exported: ExportedProgram, extents: Extents) -> ExportedProgram:
  if not any(_groups(exported, extents)):
    return exported
  program = exported_programs.copied(exported)
  tensors, constants = dict(exported.state_dict), dict(exported.constants)
  specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
  for extent, group in list(_groups(program, extents)):
    base = _base(extent, group)
    specs[base.node.name] = exported_programs.state_spec(specs[base.node.name])
    for table in (tensors, constants):
      if base.target in table:
        table[base.target] = base.tensor
    with program.graph.inserting_after(_last_placeholder(program.graph)):
      _make_views(program.graph, base, group)
    for state in group:
      if state.node is not base.node:
        del specs[state.node.name]
        program.graph.erase_node(state.node)
        tensors.pop(state.target, None)
        constants.pop(state.target, None)
  signature = program.graph_signature
  signature.input_specs = list(specs.values())
  program.graph_module.recompile()
  changed = exported_programs.with_tensors(program, signature, tensors, constants)
  changed.example_inputs = exported.example_inputs
  return exported_programs.with_guards(changed, exported)


def separated(model: torch.nn.Module, examples: Any) -> Any:
  """The example inputs, of which none shares memory with another or with the model: a tensor that
  does is copied. torch.export would let the sizes of tensors that share memory vary. A run refuses
  inputs that share memory which it writes."""
  import torch
  from torch.utils import _pytree as pytree

  storages = {
    tensor.untyped_storage().data_ptr()
    for tensor in (*model.parameters(), *model.buffers())
    if tensor.layout is torch.strided
  }
  copies: dict[int, torch.Tensor] = {}  # by the index of a leaf
  leaves, tree = pytree.tree_flatten(examples)
  for index, leaf in enumerate(leaves):
    if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and leaf.numel():
      key = leaf.untyped_storage().data_ptr()
      if key in storages:
        copies[index] = _copy(leaf)
      storages.add(key)
  if not copies:
    return examples
  return pytree.tree_unflatten([copies.get(index, leaf) for index, leaf in enumerate(leaves)], tree)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
  """A tensor of the same layout with memory of its own."""
  import torch

  copied = torch.empty_strided(
    tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device
  )
  # Elements that are one in memory cannot be copied to each other.
  repeated = any(not step and size > 1 for size, step in zip(tensor.size(), tensor.stride()))
  with torch.no_grad():
    return tensor.detach().clone() if repeated else copied.copy_(tensor)


def _groups(exported: ExportedProgram, extents: Extents) -> Iterator[tuple[Extent, list[_State]]]:
  """The states that become views, by the memory that they share with each other or with states of
  other functions; and the parameters that are written. PyTorch looks at storages: it refuses states
  that share memory if anything of their storage is written, be it memory of none of them."""
  groups: dict[int, tuple[Extent, list[_State]]] = {}
  for state in _states(exported):
    extent = extents.of(state.tensor)
    assert extent is not None
    groups.setdefault(extent.begin, (extent, []))[1].append(state)
  written: set[torch.fx.Node] | None = None
  written_storages: set[int] = set()
  for extent, group in groups.values():
    offsets = [addresses(state.tensor)[0] - extent.begin for state in group]
    if all(offset % _ALIGNMENT == 0 for offset in offsets):
      if len(group) == 1 and group[0].kind != "PARAMETER":
        continue
      if written is None:
        written = writes.placeholders(exported.graph_module)
        written_storages = {
          _storage(state)
          for _, states in groups.values()
          for state in states
          if state.node in written
        }
      if len(group) == 1 and group[0].node not in written:
        continue
      if not any(_storage(state) in written_storages for state in group):
        continue
    yield extent, group


def _storage(state: _State) -> int:
  """The address of the storage of a state."""
  return state.tensor.untyped_storage().data_ptr()


def _states(exported: ExportedProgram) -> Iterator[_State]:
  import torch

  nodes = {node.name: node for node in exported.graph.find_nodes(op="placeholder")}
  for spec in exported.graph_signature.input_specs:
    if spec.kind.name not in _STATES:
      continue
    target = str(spec.target)
    tensor = exported.state_dict.get(target, exported.constants.get(target))
    if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided and tensor.numel():
      yield _State(nodes[spec.arg.name], spec.kind.name, target, tensor)


def _base(extent: Extent, group: list[_State]) -> _State:
  """The state that all of a group become views of. If none has the memory of all, it is the first
  one, whose tensor becomes the elements of the memory in a row."""
  names = ", ".join(state.target for state in group)
  if len({state.tensor.dtype for state in group}) > 1 or any(
    state.tensor.is_conj() or state.tensor.is_neg() for state in group
  ):
    raise Unsupported(
      f"{names} share memory and have different dtypes or conjugated values: register one of them, "
      "and compute the others in the model's code"
    )
  elements = extent.elements(group[0].tensor.dtype)
  for state in group:
    if extent.is_all(state.tensor) and state.tensor.is_contiguous():
      return dataclasses.replace(state, tensor=elements.view(state.tensor.shape))
  return dataclasses.replace(group[0], tensor=elements)


def _make_views(graph: torch.fx.Graph, base: _State, group: list[_State]) -> None:
  """Makes the users of all states of a group use views of the base, which begins where its memory
  begins: Inductor counts the elements of a view from there."""
  import torch

  mode = base.node.meta["val"].fake_mode
  uses = {state.node: list(state.node.users) for state in group}
  with mode, torch.no_grad():
    fake: Any = torch.empty_strided(
      base.tensor.shape,
      base.tensor.stride(),
      dtype=base.tensor.dtype,
      device=base.node.meta["val"].device,
    )
  base.node.meta = {**base.node.meta, "val": fake}
  base.node.meta.pop("tensor_meta", None)
  for state in group:
    view = base.node
    if _layout(state.tensor, base.tensor) != _layout(base.tensor, base.tensor):
      arguments = _layout(state.tensor, base.tensor)
      view = graph.call_function(torch.ops.aten.as_strided.default, (base.node, *arguments))
      with mode, torch.no_grad():
        view.meta["val"] = torch.as_strided(fake, *arguments)
    for user in uses[state.node]:
      user.replace_input_with(state.node, view)


def _layout(tensor: torch.Tensor, base: torch.Tensor) -> tuple[list[int], list[int], int]:
  """The arguments of as_strided that make a view of the base."""
  offset = (addresses(tensor)[0] - addresses(base)[0]) // base.element_size()
  return list(tensor.shape), list(tensor.stride()), offset


def _last_placeholder(graph: torch.fx.Graph) -> torch.fx.Node:
  return list(graph.find_nodes(op="placeholder"))[-1]
