"""Operators that are called, not compiled: `extern "aten::mm.out" (...)`, all arguments of the schema in its order,
with defaults filled in, outputs last."""

import sympy

from . import hir
from .errors import Unsupported


def out(converter, node):
  """An operator that writes to a buffer which is there already."""
  op = _overload(node)
  values = _by_name(op, [*node.inputs, *node.constant_args], node.kwargs)
  results = [argument.name for argument in op._schema.arguments if argument.is_out]
  if len(results) != 1:
    raise Unsupported(f"{_name(op)} has {len(results)} outputs of its own")
  values[results[0]] = node.output_view if node.output_view is not None else node
  _say(converter, node, op, values, [])


def alloc(converter, node):
  """An operator that makes its results: they are buffers of the arena here, and come last."""
  op = _overload(node)
  if node.get_inputs_that_alias_output():
    raise Unsupported(f"{_name(op)} returns a view of its input")
  if hasattr(node, "unflatten_args"):
    args, kwargs = node.unflatten_args(node.inputs, node.constant_args)
    values = _by_name(op, args, {**kwargs, **node.kwargs})
  else:
    values = _by_name(op, [*node.inputs, *node.constant_args], node.kwargs)
  _say(converter, node, op, values, _results(converter, node, op))


def _results(converter, node, op):
  """The tensors that the operator writes, declared."""
  from . import lines
  kind = type(node.layout).__name__
  if kind == "NoneLayout":
    return []
  results = []
  for made in node.outputs if kind == "MultiOutputLayout" else [node]:
    if made is None:
      results.append("none")
      continue
    if not hasattr(made, "get_name"):
      raise Unsupported(f"{_name(op)} returns a {type(made).__name__}")
    name, sizes, strides, dtype, _ = lines.unwrapped(made)
    if any(not converter.exprs.knows(size) for size in sizes):
      raise Unsupported(f"{_name(op)} has a result whose size only the data decides")
    converter.places[name] = lines.Place(converter.declare(name, sizes, strides, dtype), layout=made)
    results.append(converter.tensor("write", made))
  return results


def _overload(node):
  op = node.op_overload
  if op is None or not hasattr(op, "_schema"):
    raise Unsupported(f"the operator {node.python_kernel_name}, which has no schema")
  return op


def _name(op):
  """"aten::mm.out": without the overload if it is the default."""
  schema = op._schema
  return f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name


def _by_name(op, args, kwargs):
  """Argument name -> value."""
  positional = [argument.name for argument in op._schema.arguments if not argument.kwarg_only]
  if len(args) > len(positional):
    raise Unsupported(f"{_name(op)} is given {len(args)} arguments, it takes {len(positional)}")
  return {**dict(zip(positional, args)), **kwargs}


def _say(converter, node, op, values, results):
  arguments = []
  for argument in op._schema.arguments:
    if argument.name in values:
      value = values[argument.name]
    elif argument.has_default_value():
      value = argument.default_value
    else:
      raise Unsupported(f"{_name(op)} is called without its argument {argument.name}")
    arguments.append(_argument(converter, op, argument, value))
  converter.say(f"extern {hir.quoted(_name(op))}", arguments + results, converter.origin(node))


def _argument(converter, op, argument, value):
  import torch
  if value is None:
    return "none"
  if hasattr(value, "get_name") or hasattr(value, "get_size"):
    access = "read"
    if argument.alias_info is not None and argument.alias_info.is_write:
      access = "write" if argument.is_out else "both"
    return converter.tensor(access, value)
  if isinstance(value, torch.dtype):
    if hir.dtype(value) is None:
      raise Unsupported(f"{_name(op)} with {argument.name}={value}")
    return f"dtype {hir.dtype(value)}"
  if isinstance(value, (bool, int, float)):
    return hir.number(value)
  if isinstance(value, str):
    return hir.quoted(value)
  if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
    return converter.exprs.any(value.node.expr)
  if isinstance(value, sympy.Basic):
    return converter.exprs.any(value)
  if isinstance(value, (list, tuple)) and all(_is_int(item) for item in value):
    items = [item.node.expr if isinstance(item, torch.SymInt) else item for item in value]
    return f"[{', '.join(converter.exprs.ints(items))}]"
  if isinstance(value, (torch.device, torch.layout, torch.memory_format)):
    return "none"      # the places of results say it
  raise Unsupported(f"{_name(op)} with {argument.name}, a {type(value).__name__}")


def _is_int(value):
  import torch
  return isinstance(value, (int, torch.SymInt)) or isinstance(value, sympy.Expr)
