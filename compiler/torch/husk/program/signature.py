"""The inputs and outputs of a function, from its exported program."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sympy

from .. import hir
from ..errors import Unsupported, within
from ..inductor import origins
from . import guards, trees
from .constants import Constants
from .values import Input, Output

if TYPE_CHECKING:
  from torch.export import ExportedProgram
  from torch.utils._pytree import TreeSpec


@dataclasses.dataclass
class Signature:
  """The signature of a function. `names` is the scope of the function's names. `tree` tells how
  inputs and outputs nest. `guards` are conditions on sizes and ints, each with the text of the
  message."""

  inputs: list[Input]
  outputs: list[Output]
  tree: dict[str, Any]
  names: hir.Names
  guards: list[tuple[hir.Expr, str]]


def of_functions(
  exported: Mapping[str, ExportedProgram], names: hir.Names, weights: Constants
) -> dict[str, Signature]:
  """The signatures of exported programs, by name; the constants of the programs are added to
  `weights`.

  If names are equal, that of an input is kept before that of a weight, and that of a weight before
  that of an output."""
  signatures: dict[str, Signature] = {}
  for name, program in exported.items():
    with within(name, exported):
      _check_layouts(program)
    scope = names.child()
    arguments = [
      spec.arg for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"
    ]
    values = _values(program)
    with within(name, exported):
      inputs = [
        _input(argument, values, program.range_constraints, scope) for argument in arguments
      ]
      signatures[name] = Signature(inputs, [], {}, scope, guards.of(program, inputs))
  for program in exported.values():
    weights.add(program)
  for name, program in exported.items():
    one = signatures[name]
    results = [
      spec.arg for spec in program.graph_signature.output_specs if spec.kind.name == "USER_OUTPUT"
    ]
    spec = program.call_spec.out_spec
    assert spec is not None
    paths = _paths(spec)
    values = _values(program)
    mixed = _has_device(values)
    with within(name, exported):
      one.outputs = [
        _output(argument, path, values, one.names, mixed)
        for argument, path in zip(results, paths, strict=True)
      ]
    one.tree = _tree(program, one.inputs, one.outputs)
  return signatures


def tree(signatures: Mapping[str, Signature]) -> str:
  """How the inputs and outputs of all functions nest, as JSON. A single function is written without
  its name."""
  trees = {name: one.tree for name, one in signatures.items()}
  return json.dumps(next(iter(trees.values())) if len(trees) == 1 else {"functions": trees})


def _values(exported: ExportedProgram) -> dict[str, Any]:
  """The (fake) value of each node, by the name of the node."""
  return {node.name: node.meta.get("val") for node in exported.graph.nodes}


def _has_device(values: dict[str, Any]) -> bool:
  """Whether a program has tensors on another device than the CPU."""
  import torch
  from torch.utils import _pytree as pytree

  leaves = (leaf for value in values.values() for leaf in pytree.tree_leaves(value))
  return any(isinstance(leaf, torch.Tensor) and leaf.device.type != "cpu" for leaf in leaves)


def _check_layouts(exported: ExportedProgram) -> None:
  """Refuses a program with sparse tensors, which have no single memory."""
  import torch
  from torch.utils import _pytree as pytree

  for node in exported.graph.nodes:
    for value in pytree.tree_leaves(node.meta.get("val")):
      if not isinstance(value, torch.Tensor) or value.layout is torch.strided:
        continue
      if node.op == "placeholder":
        raise Unsupported(
          f"the input {node.name} is a sparse tensor ({value.layout})",
          remedy="give it as a dense one, by to_dense(), or as its values and indices",
        )
      schema = getattr(node.target, "_schema", None)
      what = f"{schema.name} makes" if schema else f"{node.name} is"
      place = origins.place(node.meta.get("stack_trace"))
      remedy = "compute with dense tensors, by to_dense() outside of the model"
      raise Unsupported(f"{what} a sparse tensor ({value.layout})", remedy=remedy).at(place)


def _input(
  argument: Any, values: dict[str, Any], constraints: Mapping[Any, Any], names: hir.Names
) -> Input:
  import torch

  name = names.take(argument.name)
  kind = type(argument).__name__
  if kind == "ConstantArgument":
    return _constant(name, argument.value)
  value = values.get(argument.name)
  if kind == "TensorArgument" and isinstance(value, torch.Tensor):
    dtype = hir.required_dtype(value.dtype, f"the input {name}")
    return Input(name, "tensor", dtype, tuple(_range(size, constraints) for size in value.shape))
  if kind == "SymIntArgument":
    bounds = _range(value, constraints)
    return Input(name, "int", ranges=() if bounds is None else (bounds,))
  if kind == "SymFloatArgument":
    return Input(name, "float")
  if kind == "SymBoolArgument":
    return Input(name, "bool")
  raise Unsupported(f"the input {name} is a {kind}: {_ALLOWED}")


_ALLOWED = "programs take and return tensors, numbers, bools and None"


def _constant(name: str, value: object) -> Input:
  """An input that torch.export treated as a constant. A run passes its value too, which is
  compared."""
  if value is None:
    return Input(name, "none")
  if isinstance(value, bool):
    return Input(name, "bool", value=value)
  if isinstance(value, int):
    return Input(name, "int", ranges=(str(value),), value=value)
  if isinstance(value, float):
    return Input(name, "float", value=value)
  raise Unsupported(
    f"the input {name} is a {type(value).__name__} ({value!r}): {_ALLOWED}; a module around the "
    "model can call it with this value"
  )


def _range(size: Any, constraints: Mapping[Any, Any]) -> str | None:
  """The range of a size or an int, as "10" or "1..64"; None if it has no lower bound."""
  return limits(size if isinstance(size, int) else size.node.expr, constraints)


def limits(expression: Any, constraints: Mapping[Any, Any]) -> str | None:
  """The range of an expression. `constraints` are the ranges of symbols."""
  from torch.utils._sympy.value_ranges import bound_sympy

  expression = sympy.sympify(expression)
  if expression.is_Integer:
    return str(int(expression))
  known = constraints.get(expression) or bound_sympy(expression, dict(constraints))
  if not known.lower.is_Integer:
    return None
  return f"{int(known.lower)}..{int(known.upper) if known.upper.is_Integer else 'inf'}"


def _output(
  argument: Any, path: str, values: dict[str, Any], names: hir.Names, mixed: bool
) -> Output:
  import torch

  name = names.take(path)
  kind = type(argument).__name__
  if kind == "ConstantArgument" and argument.value is None:
    return Output(name, "none")
  constant = argument.value if kind == "ConstantArgument" else None
  value = constant if constant is not None else values.get(getattr(argument, "name", ""))
  if isinstance(value, torch.Tensor):
    dtype = hir.required_dtype(value.dtype, f"the output {name}")
    on_host = mixed and value.device.type == "cpu"
    return Output(name, "tensor", dtype, value.dim(), on_host=on_host)
  scalars = (
    ((bool, torch.SymBool), "bool"),
    ((int, torch.SymInt), "int"),
    ((float, torch.SymFloat), "float"),
  )
  for types, what in scalars:
    if isinstance(value, types):
      return Output(name, what, value=constant)
  what = kind if constant is None else type(constant).__name__
  raise Unsupported(f"the output {name} is a {what}: {_ALLOWED}, and add it to the results outside")


def _paths(spec: TreeSpec) -> list[str]:
  """A name for each output: its key in a dict, or `output` and its index."""
  found = trees.paths(spec)
  if found == [()]:
    return ["output"]
  return [_name([part.text for part in path]) for path in found]


def path_name(path: Sequence[Any]) -> str:
  """The name of a value at a path of torch's keys: "mask", "batch_tokens", "output0"."""
  return _name(
    [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", "")))) for key in path]
  )


def _name(parts: Sequence[str]) -> str:
  text = "_".join(parts)
  return text if text[:1].isalpha() or text[:1] == "_" else f"output{text}"


def _tree(
  exported: ExportedProgram, inputs: Sequence[Input], outputs: Sequence[Output]
) -> dict[str, Any]:
  """How the names of an exported program nest, as `nesting` returns it."""
  in_spec, out_spec = exported.call_spec.in_spec, exported.call_spec.out_spec
  assert in_spec is not None and out_spec is not None
  input_names = [value.name for value in inputs]
  returned = [value.name for value in outputs]
  args, kwargs = trees.filled(in_spec, input_names)
  return nesting(args, kwargs, trees.filled(out_spec, returned), input_names, returned)


def nesting(
  args: Any, kwargs: Any, results: Any, inputs: Sequence[str], outputs: Sequence[str]
) -> dict[str, Any]:
  """How names nest: {"args": [...], "kwargs": {...}, "outputs": ..., "tuples": [...]}. JSON has no
  tuples, so "tuples" lists the paths of those among the outputs: "" is the outermost value, and
  "/cache/0" the first entry of the value with the key "cache". A trees.Instance becomes a dict or a
  list of its parts, and "classes" has its class by the path, such as "args/0". The names are a flat
  list if JSON cannot hold the nested values."""
  classes: dict[str, Any] = {}
  nested = {
    "args": _plain(args, "args", classes),
    "kwargs": _plain(kwargs, "kwargs", classes),
    "outputs": _plain(results, "outputs", classes),
    "tuples": _tuples(results, ""),
  }
  try:
    json.dumps(nested)
  except (TypeError, ValueError):  # JSON cannot hold an object of a class of the model's own.
    return {"args": list(inputs), "kwargs": {}, "outputs": list(outputs)}
  return {**nested, "classes": classes} if classes else nested


def _plain(value: Any, path: str, classes: dict[str, Any]) -> Any:
  """A nested value with dicts and lists in place of Instances, whose classes `classes` gets."""
  if isinstance(value, dict):
    return {key: _plain(one, f"{path}/{key}", classes) for key, one in value.items()}
  if isinstance(value, (list, tuple)):
    return [_plain(one, f"{path}/{i}", classes) for i, one in enumerate(value)]
  if not isinstance(value, trees.Instance):
    return value
  classes[path] = value.described()
  return _plain(dict(zip(value.names, value.parts)) or value.parts, path, classes)


def _children(value: Any) -> list[tuple[Any, Any]]:
  """The parts of a nested value, each with its key or number."""
  if isinstance(value, trees.Instance):
    return list(zip(value.names, value.parts)) or list(enumerate(value.parts))
  if isinstance(value, dict):
    return list(value.items())
  return list(enumerate(value)) if isinstance(value, (list, tuple)) else []


def _tuples(value: Any, path: str) -> list[str]:
  """The paths of the tuples in a nested value."""
  below = [one for key, child in _children(value) for one in _tuples(child, f"{path}/{key}")]
  is_tuple = isinstance(value, tuple) or isinstance(value, trees.Instance) and not value.names
  return [path, *below] if is_tuple else below
