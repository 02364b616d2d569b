"""Tensors that the model's code makes and then fills part by part with numbers become constants.

The masks of attention between shifted windows are made so: nine parts of a tensor of zeros get a
number each. Otherwise each part is an operator that chooses between its number and the tensor
before it, an expression that nests as many choices as there are parts, which Inductor and the
compilers of kernels take long for, and every run computes the mask again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..inductor import exported_programs

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

# Larger tensors are filled in each run, so that a file does not grow much.
_MOST_BYTES = 1 << 20
# A tensor that is filled fewer times is a small expression.
_LEAST_WRITES = 2

# Operators whose result is a view of their first argument for any strides.
_VIEWS = frozenset(
  "slice select unsqueeze squeeze permute transpose t expand narrow diagonal alias view".split()
)


@dataclasses.dataclass
class _Filled:
  """A tensor that operators fill: the operator that makes it, the number that it begins with, and
  the views and writes in their order."""

  factory: torch.fx.Node
  number: Any
  steps: list[torch.fx.Node]
  writes: list[torch.fx.Node]


def evaluated(exported: ExportedProgram) -> ExportedProgram:
  """The program with constants for such tensors; a copy if it has one."""
  if not any(_all(exported)):
    return exported
  program = exported_programs.copied(exported)
  constants, known = dict(program.constants), []
  specs = list(program.graph_signature.input_specs)
  for filled in list(_all(program)):
    value = _value(filled, program)
    node = next((one for one, other in known if _is_same(value, other)), None)
    if node is None:
      node = _placeholder(program, specs, filled.factory, f"filled_{len(known)}")
      constants[f"filled_{len(known)}"] = value
      known.append((node, value))
    for write in reversed(filled.writes):
      program.graph.erase_node(write)
    filled.factory.replace_all_uses_with(node)
    program.graph.erase_node(filled.factory)
    for step in reversed(filled.steps):
      if step not in filled.writes and not step.users:
        program.graph.erase_node(step)
  signature = program.graph_signature
  signature.input_specs = specs
  program.graph_module.recompile()
  changed = exported_programs.with_tensors(program, signature, dict(program.state_dict), constants)
  changed.example_inputs = exported.example_inputs
  return exported_programs.with_guards(changed, exported)


def _all(exported: ExportedProgram) -> Iterator[_Filled]:
  order = {node: place for place, node in enumerate(exported.graph.nodes)}
  known = _lifted(exported)
  makers = _makers()
  for node in exported.graph.nodes:
    if node.op == "call_function" and node.target in makers:
      filled = _filled(node, makers[node.target], order, known)
      if filled is not None:
        yield filled


def _makers() -> dict[Any, Callable[..., Any]]:
  """Operators that make a tensor of equal numbers, and the number by their arguments."""
  import torch

  aten = torch.ops.aten
  return {
    **dict.fromkeys(
      (aten.zeros.default, aten.new_zeros.default, aten.zeros_like.default), lambda *args: 0
    ),
    **dict.fromkeys(
      (aten.ones.default, aten.new_ones.default, aten.ones_like.default), lambda *args: 1
    ),
    aten.full.default: lambda size, number: number,
    aten.full_like.default: lambda x, number: number,
    aten.new_full.default: lambda x, size, number: number,
  }


def _lifted(exported: ExportedProgram) -> dict[torch.fx.Node, torch.Tensor]:
  """The numbers of the model's code that torch.export keeps as constants of one element, by their
  nodes and by those that copy them."""
  import torch

  targets = {
    spec.arg.name: spec.target
    for spec in exported.graph_signature.input_specs
    if spec.kind.name == "CONSTANT_TENSOR"
  }
  found: dict[torch.fx.Node, torch.Tensor] = {}
  for node in exported.graph.find_nodes(op="placeholder"):
    value = exported.constants.get(targets.get(node.name) or "")
    if type(value) is torch.Tensor and value.numel() == 1 and not _is_written(node):
      found[node] = value
      found.update(
        (user, value)
        for user in node.users
        if user.target is torch.ops.aten.lift_fresh_copy.default and not _is_written(user)
      )
  return found


def _is_written(node: torch.fx.Node) -> bool:
  """Whether an operator writes to a tensor or, as far as a schema tells, to a view of it."""
  for user in node.users:
    if user.op != "call_function" or not hasattr(user.target, "_schema"):
      if user.op != "output":
        return True
      continue
    if _writes(user) and user.args[:1] == (node,):
      return True
    if _aliases(user) and _is_written(user):
      return True
  return False


def _writes(node: torch.fx.Node) -> bool:
  schema: Any = getattr(node.target, "_schema", None)
  return schema is not None and schema.is_mutable


def _is_view(node: torch.fx.Node) -> bool:
  schema: Any = getattr(node.target, "_schema", None)
  return schema is not None and schema.name.removeprefix("aten::") in _VIEWS


def _aliases(node: torch.fx.Node) -> bool:
  """Whether the result of an operator may share memory with an argument."""
  schema: Any = getattr(node.target, "_schema", None)
  return schema is None or any(each.alias_info is not None for each in schema.returns)


def _filled(
  factory: torch.fx.Node,
  number: Callable[..., Any],
  order: dict[torch.fx.Node, int],
  known: dict[torch.fx.Node, torch.Tensor],
) -> _Filled | None:
  """What fills the tensor that an operator makes; None if it is no constant: if what a write needs
  is not known, if something reads the tensor before the last write, or if it is a result."""
  import torch

  value, first = factory.meta.get("val"), None
  try:
    first = number(*factory.args)
  except TypeError:  # a number that is a keyword
    return None
  if not isinstance(value, torch.Tensor) or not isinstance(first, (int, float, bool)):
    return None
  if any(not isinstance(each, int) for each in value.shape) or not value.is_contiguous():
    return None
  if value.numel() * value.element_size() > _MOST_BYTES:
    return None
  steps: list[torch.fx.Node] = []
  writes: list[torch.fx.Node] = []
  readers: list[torch.fx.Node] = []
  waiting = [factory]
  while waiting:
    tensor = waiting.pop()
    for user in tensor.users:
      if user.op == "output":
        return None
      others = [each for each in user.all_input_nodes if each is not tensor]
      is_first = user.args[:1] == (tensor,) and tensor not in user.args[1:]
      if _writes(user):
        if not is_first or any(each not in known for each in others) or user.users:
          return None
        writes.append(user)
      elif is_first and not others and _is_view(user):
        waiting.append(user)
        steps.append(user)
      elif _aliases(user) and _is_written(user):
        return None
      else:
        readers.append(user)
  if len(writes) < _LEAST_WRITES:
    return None
  last = max(map(order.__getitem__, writes))
  if any(order[reader] < last for reader in readers):
    return None
  return _Filled(factory, first, sorted([*steps, *writes], key=order.__getitem__), writes)


def _value(filled: _Filled, program: ExportedProgram) -> torch.Tensor:
  """The tensor after all writes."""
  import torch
  from torch.fx.node import map_arg

  fake = filled.factory.meta["val"]
  result = torch.full(tuple(fake.shape), filled.number, dtype=fake.dtype, device=fake.device)
  values: dict[torch.fx.Node, Any] = {filled.factory: result, **_lifted(program)}
  with torch.no_grad():
    for step in filled.steps:
      arguments: Any = map_arg(step.args, values.__getitem__)
      keywords: Any = map_arg(step.kwargs, values.__getitem__)
      target: Any = step.target
      values[step] = target(*arguments, **keywords)
  return result


def _placeholder(
  program: ExportedProgram, specs: list[Any], replaced: torch.fx.Node, name: str
) -> torch.fx.Node:
  """The input of the program for a constant that takes the place of a node, before its own inputs.
  `specs` gets its row."""
  from torch.export.graph_signature import InputKind, InputSpec, TensorArgument

  place = next((n for n, spec in enumerate(specs) if spec.kind is InputKind.USER_INPUT), len(specs))
  before = list(program.graph.find_nodes(op="placeholder"))
  first = before[place] if place < len(before) else next(iter(program.graph.nodes))
  with program.graph.inserting_before(first):
    node = program.graph.placeholder(f"c_{name}")
  node.meta["val"] = replaced.meta["val"]
  specs.insert(place, InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), name, None))
  return node


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
  import torch

  return one.dtype == other.dtype and one.shape == other.shape and bool(torch.equal(one, other))
