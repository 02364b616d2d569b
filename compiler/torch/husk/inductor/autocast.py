"""The casts of `torch.autocast`, written out.

torch.export keeps what stands in `with torch.autocast(...)` as a region, whose operators are cast
when they run. An operator that replaces one of them in the region, and a region that another device
runs, would be cast otherwise. `written_out` therefore puts the operators of each region into the
graph around it, with the casts that autocast makes for the tensors that the program was traced
with."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported
from . import exported_programs, graphs, inlining, origins

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

# The type of a device -> the dtype that autocast is enabled with there, or None.
State = dict[str, Any]


def written_out(exported: ExportedProgram) -> ExportedProgram:
  """A copy of a program that has no regions. A program without regions is returned itself."""
  import torch
  from torch.amp import autocast_mode

  begins = (torch.ops.higher_order.wrap_with_autocast, autocast_mode._enter_autocast)
  if not any(node.target in begins for node in graphs.nodes(exported)):
    return exported
  program = exported_programs.copied(exported)
  names = _write_out(program.graph_module, {})
  signature = program.graph_signature
  for spec in signature.output_specs:
    name = getattr(spec.arg, "name", None)
    if name in names:
      spec.arg = dataclasses.replace(spec.arg, name=names[name])
  changed = exported_programs.with_tensors(
    program, signature, dict(program.state_dict), dict(program.constants)
  )
  changed.example_inputs = exported.example_inputs
  return exported_programs.with_guards(changed, exported)


def _write_out(module: torch.fx.GraphModule, state: State) -> dict[str, str]:
  """Writes out the casts of a graph and of those that it calls, where `state` is enabled. Returns
  the new names of results."""
  import torch
  from torch.amp import autocast_mode

  names: dict[str, str] = {}
  opened: list[tuple[torch.fx.Node, State]] = []  # calls that enable, and the state before them
  for node in list(module.graph.nodes):
    if node.op != "call_function":
      continue
    # torch.export keeps these calls in a graph that has control flow.
    if node.target is autocast_mode._enter_autocast:
      opened.append((node, state))
      state = {**state, **_enabled_by(*node.args[:3])}
    elif node.target is autocast_mode._exit_autocast:
      enter, state = opened.pop()
      assert node.args[0] is enter
      module.graph.erase_node(node)
      module.graph.erase_node(enter)
    elif node.target is torch.ops.higher_order.wrap_with_autocast:
      names |= _write_out_region(module, node, state)
    elif isinstance(node.target, torch._ops.HigherOrderOperator):
      for attribute in [each for each in node.all_input_nodes if each.op == "get_attr"]:
        _write_out_operand(module, node, attribute, state)
    elif isinstance(node.target, torch._ops.OpOverload) and any(state.values()):
      _cast_arguments(module, node, state)
  module.graph.eliminate_dead_code(lambda node: node.op != "get_attr" and node.is_impure())
  module.delete_all_unused_submodules()
  module.recompile()
  return names


def _write_out_region(
  module: torch.fx.GraphModule, node: torch.fx.Node, state: State
) -> dict[str, str]:
  """Puts the operators of a region in the place of its call."""
  device, dtype, enabled, _, attribute, *operands = node.args
  region = copy.deepcopy(getattr(module, str(attribute.target)))  # type: ignore[union-attr]
  names = _write_out(region, {**state, **_enabled_by(device, dtype, enabled)})
  values = dict(zip(region.graph.find_nodes(op="placeholder"), operands, strict=True))
  results = inlining.inlined(module, node, region, values)
  for user in list(node.users):
    assert user.target is operator.getitem, user
    result = results[user.args[1]]
    names[user.name] = result.name
    user.replace_all_uses_with(result)
    module.graph.erase_node(user)
  module.graph.erase_node(node)
  return names


def _write_out_operand(
  module: torch.fx.GraphModule, node: torch.fx.Node, attribute: torch.fx.Node, state: State
) -> None:
  """Writes out the graph that an operator, as a loop or a branch, calls. It gets a graph of its
  own, since the same one may be called where another state is enabled."""
  import torch

  called = inlining.attribute(module, str(attribute.target))
  if not isinstance(called, torch.fx.GraphModule):
    return
  own = copy.deepcopy(called)
  _write_out(own, state)
  name = inlining.free_name(module, str(attribute.target))
  setattr(module, name, own)
  with module.graph.inserting_before(node):
    replacement = module.graph.get_attr(name)
  replacement.meta = dict(attribute.meta)
  node.replace_input_with(attribute, replacement)


def _enabled_by(device: Any, dtype: Any, enabled: Any) -> State:
  """What `torch.autocast` with these arguments enables. torch disables it on the CPU for other
  dtypes than these."""
  import torch

  device = str(device)
  dtype = torch.get_autocast_dtype(device) if dtype is None else dtype
  if not enabled or (device == "cpu" and dtype not in (torch.bfloat16, torch.float16)):
    dtype = None
  return {device: dtype}


# The casts of one operator


def _cast_arguments(module: torch.fx.GraphModule, node: torch.fx.Node, state: State) -> None:
  """Puts the casts that autocast makes for an operator before it. An operator that consists of
  others, some of which are cast, is replaced by them."""
  import torch
  from torch.fx.node import map_arg
  from torch.utils import _pytree as pytree

  if not _may_be_cast(node.target, state):
    return
  mode = inlining.mode(node)
  if mode is None:
    return
  args, kwargs = map_arg((node.args, node.kwargs), lambda each: each.meta["val"])

  def calls(enabled: State, args: Any, kwargs: Any) -> tuple[list[Any], list[Any], Any]:
    with mode, torch.no_grad(), _enabled(enabled), _recorder() as recorded:
      result = node.target(*args, **kwargs)  # type: ignore[operator]
    return recorded, [(op, _dtypes(value)) for op, _, _, value in recorded], result

  recorded, kinds, result = calls(state, args, kwargs)
  if kinds == calls({}, args, kwargs)[1]:
    return
  _check(node, result)
  casts: dict[int, Any] = {}  # by the identity of a tensor
  tensors = {id(leaf) for leaf in pytree.tree_leaves((args, kwargs))}
  for op, arguments, options, _ in recorded:
    if op is not torch.ops.aten._to_copy.default or id(arguments[0]) not in tensors:
      break
    if set(options) != {"dtype"} or id(arguments[0]) in casts:
      break
    casts[id(arguments[0])] = options["dtype"]

  def cast(value: Any) -> Any:
    return value if id(value) not in casts else value.to(casts[id(value)])

  with mode, torch.no_grad():
    cast_inputs = pytree.tree_map(cast, (args, kwargs))
  if calls({}, *cast_inputs)[1] != kinds[len(casts) :]:
    _replace_by_parts(node, state)
    return
  done: dict[torch.fx.Node, torch.fx.Node] = {}

  def cast_node(each: torch.fx.Node) -> torch.fx.Node:
    value: Any = each.meta.get("val")
    if id(value) not in casts:
      return each
    if each not in done:
      with module.graph.inserting_before(node):
        converted = module.graph.call_function(
          torch.ops.aten._to_copy.default, (each,), {"dtype": casts[id(value)]}
        )
      with mode, torch.no_grad():
        converted.meta = {**inlining.place(node), "val": value.to(casts[id(value)])}
      done[each] = converted
    return done[each]

  node.args, node.kwargs = map_arg((node.args, node.kwargs), cast_node)


def _replace_by_parts(node: torch.fx.Node, state: State) -> None:
  """Replaces an operator by what it calls where `state` is enabled."""
  from torch.fx.node import map_arg

  inputs = inlining.tensor_inputs(node)

  def call(*values: Any) -> Any:
    known = dict(zip(inputs, values))
    args, kwargs = map_arg((node.args, node.kwargs), lambda each: known[each])
    with _enabled(state):
      return node.target(*args, **kwargs)  # type: ignore[operator]

  inlining.replace_by_parts(node, call)


def _may_be_cast(op: Any, state: State) -> bool:
  """Whether autocast may cast the arguments of an operator, or of one that it consists of."""
  import torch

  def has_kernel(key: str) -> bool:
    try:
      return bool(torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key))
    except RuntimeError:  # a device that has no such key
      return False

  return has_kernel("CompositeImplicitAutograd") or any(
    dtype is not None and has_kernel(f"Autocast{device.upper()}") for device, dtype in state.items()
  )


def _dtypes(value: Any) -> Any:
  import torch
  from torch.utils import _pytree as pytree

  return [
    leaf.dtype if isinstance(leaf, torch.Tensor) else None for leaf in pytree.tree_leaves(value)
  ]


def _check(node: torch.fx.Node, result: Any) -> None:
  """Refuses an operator for which this process casts otherwise than torch.export did."""
  if _dtypes(result) != _dtypes(node.meta.get("val")):
    place = origins.place(node.meta.get("stack_trace"))
    raise Unsupported(
      f"{node.target} inside torch.autocast: it had other dtypes ({_dtypes(node.meta.get('val'))}) "
      f"where the program was traced than here ({_dtypes(result)})"
      + (f" (near {place})" if place else ""),
      has_place=bool(place),
    )


@contextlib.contextmanager
def _enabled(state: State) -> Iterator[None]:
  """While open, autocast is enabled as `state` says, and disabled for all other devices. torch's
  own context would disable it for a GPU that is not there."""
  import torch

  devices = {"cpu", "cuda", *state}
  before = {
    device: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
    for device in devices
  }
  cached = torch.is_autocast_cache_enabled()
  torch.set_autocast_cache_enabled(False)
  try:
    for device in devices:
      dtype = state.get(device)
      torch.set_autocast_enabled(device, dtype is not None)
      if dtype is not None:
        torch.set_autocast_dtype(device, dtype)
    yield
  finally:
    torch.set_autocast_cache_enabled(cached)
    for device, (enabled, dtype) in before.items():
      torch.set_autocast_enabled(device, enabled)
      torch.set_autocast_dtype(device, dtype)


@contextlib.contextmanager
def _recorder() -> Iterator[list[tuple[Any, Any, Any, Any]]]:
  """A list of the operators that are called: each one, its arguments and its result."""
  from torch.utils._python_dispatch import TorchDispatchMode

  calls: list[tuple[Any, Any, Any, Any]] = []

  class Recorder(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
      result = func(*args, **(kwargs or {}))
      if func.namespace != "prim":  # questions about a tensor
        calls.append((func, args, kwargs or {}, result))
      return result

  with Recorder():
    yield calls
