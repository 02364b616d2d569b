"""What goes in and out of a function, as its exported program says."""

import dataclasses
import json

from . import guards, hir
from .errors import Unsupported, within


@dataclasses.dataclass
class Input:
  """`kind` is tensor, int, float, bool or none. `value` is the one value of an input that the program took for a
  constant."""

  name: str
  kind: str
  dtype: str = ""
  ranges: tuple = ()
  value: object = None

  def line(self):
    if self.kind == "tensor":
      return f"{self.name} tensor {self.dtype} [{', '.join(self.ranges)}]"
    return " ".join([self.name, self.kind, *self.ranges])


@dataclasses.dataclass
class Output:
  """As Input; `value` is that of a number which is always the same."""

  name: str
  kind: str
  dtype: str = ""
  rank: int = 0
  value: object = None

  def line(self):
    if self.kind != "tensor":
      return f"{self.name} {self.kind}"
    return f"{self.name} tensor {self.dtype} rank {self.rank}"


@dataclasses.dataclass
class Signature:
  """`names` is the function's scope of names. `tree` says how inputs and outputs nest, `guards` has (condition, text) of
  what sizes and ints must hold."""

  inputs: list
  outputs: list
  tree: dict
  names: hir.Names
  guards: list


def of_functions(exported, names, weights):
  """Reads the signatures of exported programs, by name; `weights` takes in what they bring along. Of equal names an
  input's comes before a weight's before an output's."""
  signed = {}
  for name, program in exported.items():
    scope = names.child()
    arguments = [spec.arg for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    values = _values(program)
    with within(name, exported):
      inputs = [_input(argument, values, program.range_constraints, scope) for argument in arguments]
      signed[name] = Signature(inputs, [], {}, scope, guards.of(program, inputs))
  for program in exported.values():
    weights.add(program)
  for name, program in exported.items():
    one = signed[name]
    results = [spec.arg for spec in program.graph_signature.output_specs if spec.kind.name == "USER_OUTPUT"]
    paths = _paths(program.call_spec.out_spec)
    values = _values(program)
    with within(name, exported):
      one.outputs = [_output(argument, path, values, one.names) for argument, path in zip(results, paths, strict=True)]
    one.tree = _tree(program, one.inputs, one.outputs)
  return signed


def tree(signed):
  """How the inputs and outputs of all functions nest, as JSON; of a single one without its name."""
  trees = {name: one.tree for name, one in signed.items()}
  return json.dumps(next(iter(trees.values())) if len(trees) == 1 else {"functions": trees})


def _values(exported):
  return {node.name: node.meta.get("val") for node in exported.graph.nodes}


def _input(argument, values, constraints, names):
  import torch
  name = names.take(argument.name)
  kind = type(argument).__name__
  if kind == "ConstantArgument":
    return _constant(name, argument.value)
  value = values.get(argument.name)
  if kind == "TensorArgument" and isinstance(value, torch.Tensor):
    dtype = hir.dtype(value.dtype)
    if dtype is None:
      raise Unsupported(f"the input {name} has dtype {value.dtype}")
    return Input(name, "tensor", dtype, tuple(_range(size, constraints) for size in value.shape))
  if kind == "SymIntArgument":
    limits = _range(value, constraints)
    return Input(name, "int", ranges=() if limits is None else (limits,))
  if kind == "SymFloatArgument":
    return Input(name, "float")
  if kind == "SymBoolArgument":
    return Input(name, "bool")
  raise Unsupported(f"the input {name} is a {kind}")


def _constant(name, value):
  """A Python value that torch.export took for a constant: given at run time too, and compared."""
  if value is None:
    return Input(name, "none")
  if isinstance(value, bool):
    return Input(name, "bool", value=value)
  if isinstance(value, int):
    return Input(name, "int", ranges=(str(value),), value=value)
  if isinstance(value, float):
    return Input(name, "float", value=value)
  raise Unsupported(f"the input {name} is a {type(value).__name__} ({value!r})")


def _range(size, constraints):
  """"10" or "1..64" for a size or an int; None if nothing bounds it from below."""
  from torch.utils._sympy.value_ranges import bound_sympy
  if isinstance(size, int):
    return str(size)
  expression = size.node.expr
  if expression.is_Integer:
    return str(int(expression))
  limits = constraints.get(expression) or bound_sympy(expression, constraints)
  if not limits.lower.is_Integer:
    return None
  return f"{int(limits.lower)}..{int(limits.upper) if limits.upper.is_Integer else 'inf'}"


def _output(argument, path, values, names):
  import torch
  name = names.take(path)
  kind = type(argument).__name__
  if kind == "ConstantArgument" and argument.value is None:
    return Output(name, "none")
  constant = argument.value if kind == "ConstantArgument" else None
  value = constant if constant is not None else values.get(getattr(argument, "name", ""))
  if isinstance(value, torch.Tensor):
    dtype = hir.dtype(value.dtype)
    if dtype is None:
      raise Unsupported(f"the output {name} has dtype {value.dtype}")
    return Output(name, "tensor", dtype, value.dim())
  scalars = (((bool, torch.SymBool), "bool"), ((int, torch.SymInt), "int"), ((float, torch.SymFloat), "float"))
  for types, what in scalars:
    if isinstance(value, types):
      return Output(name, what, value=constant)
  raise Unsupported(f"the output {name} is a {kind if constant is None else type(constant).__name__}")


def _paths(spec):
  """A name for each output: the key it has in a dict, or `output` and its place."""
  from torch.utils import _pytree as pytree
  tree = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
  leaves, _ = pytree.tree_flatten_with_path(tree)
  if spec.num_leaves == 1 and not (leaves and leaves[0][0]):
    return ["output"]
  paths = []
  for path, _ in leaves:
    parts = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", "")))) for key in path]
    text = "_".join(parts)
    paths.append(text if text[:1].isalpha() or text[:1] == "_" else f"output{text}")
  return paths


def _tree(exported, inputs, outputs):
  """How names nest: {"args": [...], "kwargs": {...}, "outputs": ...}."""
  from torch.utils import _pytree as pytree
  try:
    args, kwargs = pytree.tree_unflatten([value.name for value in inputs], exported.call_spec.in_spec)
    results = pytree.tree_unflatten([value.name for value in outputs], exported.call_spec.out_spec)
    made = {"args": args, "kwargs": kwargs, "outputs": results}
    json.dumps(made)
    return made
  except (TypeError, ValueError):     # a class of the model's own, which JSON has not
    return {"args": [value.name for value in inputs], "kwargs": {}, "outputs": [value.name for value in outputs]}
