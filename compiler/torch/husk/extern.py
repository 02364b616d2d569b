"""Operators that are called, not compiled: `extern "aten::mm.out" (...)`, all arguments of the schema in its order,
with defaults filled in, then what it returns: tensors that it writes, numbers that it gives.

Where only the data decides a size of what is returned, the operator "NAME:sizes" is called first; it takes the same
arguments, reads only, and gives the unknown numbers in the order in which torch found them: tensor by tensor its sizes,
its strides, its offset. A random operator has the state of the generator behind all others.
"""

import sympy

from . import data, hir, libraries
from .errors import Unsupported


def out(converter, node):
  """An operator that writes to a buffer which is there already."""
  op = _overload(node)
  values = _by_name(op, [*node.inputs, *node.constant_args], node.kwargs)
  results = [argument.name for argument in op._schema.arguments if argument.is_out]
  if len(results) != 1:
    raise Unsupported(f"{_name(op)} has {len(results)} outputs of its own")
  values[results[0]] = node.output_view if node.output_view is not None else node
  if libraries.takes(op) and node.get_device().type == "cuda":
    return libraries.call(converter, node, values)
  _say(converter, node, op, values, [])


def multi_out(converter, node):
  """The same with several buffers."""
  op = _overload(node)
  values = _given(node, op)
  values.update(zip(node.out_arg_names, node.out_variant_output_nodes))
  _say(converter, node, op, values, [])


def alloc(converter, node):
  """An operator that makes its results: they are buffers of the arena here, and come last."""
  op = _overload(node)
  values = _given(node, op)
  returned = _returned(node, op)
  if any(_is_view(result) for result in op._schema.returns) and _as_views(converter, node, op, values, returned):
    return
  unknown = [(symbol, keys) for symbol, keys in data.bindings(converter, node) if not converter.exprs.knows(symbol)]
  given = {made for made in returned if isinstance(made, sympy.Basic)}
  if any(symbol not in given or _in_sizes(symbol, returned) for symbol, _ in unknown):
    _say(converter, node, op, values, ["result int"] * len(unknown), suffix=":sizes")
    limit = _most(converter, op, values)
    for index, (symbol, keys) in enumerate(unknown):
      data.define(converter, symbol, data.conversion(keys, f"result({index})"), limit=limit)
    unknown = []
  results, numbers = [], []
  for made, result in zip(returned, op._schema.returns):
    if result.alias_info is not None and result.alias_info.is_write:
      _alias(converter, op, values, made, result)
    elif isinstance(made, (int, float, sympy.Basic)):
      numbers.append(made)
      results.append(f"result {'float' if str(result.type) == 'float' else 'int'}")
    else:
      results.append(declared(converter, op, made))
  _say(converter, node, op, values, results)
  for symbol, keys in unknown:
    if sympy.sympify(symbol) not in numbers:
      raise Unsupported(f"{_name(op)} decides {symbol}, which it does not return")
    data.define(converter, symbol, f"result({numbers.index(symbol)})")


def scatter(converter, node):
  """aten.scatter_ and its kin, in place."""
  op = _overload(node)
  if node.src_is_tensor:
    destination, index, source = node.inputs
  else:
    (destination, index), source = node.inputs, node.constant_args[1]
  known = {argument.name for argument in op._schema.arguments}
  extra = {name: value for name, value in node.kwargs.items() if name in known and value is not None}
  _say(converter, node, op, _by_name(op, [destination, node.constant_args[0], index, source], extra), [])


def index_put(converter, node, indices):
  op = _overload(node)
  destination, values = node.inputs[:2]
  given = iter(node.inputs[2:])
  indices = [None if index is None else next(given) for index in indices]
  _say(converter, node, op, _by_name(op, [destination, indices, values, *node.constant_args], node.kwargs), [])


def in_place(converter, node):
  """An operator that writes its first argument."""
  op = _overload(node)
  _say(converter, node, op, _by_name(op, [*node.inputs, *node.constant_args], node.kwargs), [])


def copy(converter, node):
  """copy_ of a dtype that no kernel has."""
  import torch
  destination, source = node.inputs[:2]
  _one_device(destination, source)
  op = torch.ops.aten.copy_.default
  _say(converter, node, op, _by_name(op, [destination, source, False], {}), [])


def device_copy(converter, node):
  source, made = node.inputs[0], node.output_view if node.output_view is not None else node
  _one_device(made, source)
  raise Unsupported("a copy from a device to itself")


def _one_device(*nodes):
  devices = {str(node.get_device()) for node in nodes}
  if len(devices) > 1:
    raise Unsupported(f"a copy between devices ({' and '.join(sorted(devices))})")


# What an operator is given


def _overload(node):
  op = node.op_overload
  if op is None or not hasattr(op, "_schema"):
    raise Unsupported(f"the operator {node.python_kernel_name}, which has no schema")
  return op


def _name(op):
  """"aten::mm.out": without the overload if it is the default."""
  schema = op._schema
  return f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name


def _given(node, op):
  if not hasattr(node, "unflatten_args"):
    return _by_name(op, [*node.inputs, *node.constant_args], node.kwargs)
  args, kwargs = node.unflatten_args(node.inputs, node.constant_args)
  return _by_name(op, args, {**kwargs, **node.kwargs})


def _by_name(op, args, kwargs):
  """Argument name -> value."""
  positional = [argument.name for argument in op._schema.arguments if not argument.kwarg_only]
  if len(args) > len(positional):
    raise Unsupported(f"{_name(op)} is given {len(args)} arguments, it takes {len(positional)}")
  return {**dict(zip(positional, args)), **kwargs}


def _say(converter, node, op, values, results, suffix=""):
  arguments = []
  for argument in op._schema.arguments:
    if argument.name in values:
      value = values[argument.name]
    elif argument.has_default_value():
      value = argument.default_value
    else:
      raise Unsupported(f"{_name(op)} is called without its argument {argument.name}")
    arguments.append(_argument(converter, op, argument, value, writes=not suffix))
  if is_random(op) and not suffix:
    buffer = converter.constants.generator()
    converter.note("both", buffer)
    results = [*results, hir.Tensor("both", buffer, "u8", [buffer.bytes], ["1"])]
  converter.say(f"extern {hir.quoted(_name(op) + suffix)}", arguments + results, converter.origin(node))


def is_random(op):
  """Whether an operator draws numbers. Attention would only for a dropout, which is not exported."""
  import torch
  return torch.Tag.nondeterministic_seeded in op.tags and "attention" not in op._schema.name


def _argument(converter, op, argument, value, writes=True):
  import torch
  kind = _kind(argument)
  if value is None:
    return "none"
  access = "read"
  if writes and argument.alias_info is not None and argument.alias_info.is_write:
    access = "write" if argument.is_out else "both"
  if isinstance(value, (list, tuple)):
    return _list(converter, op, argument, kind, value, access)
  if hasattr(value, "expr") and not hasattr(value, "get_name"):
    value = value.expr
  if _is_tensor(value):
    return converter.tensor(access, value)
  if isinstance(value, torch.dtype):
    if hir.dtype(value) is None:
      raise Unsupported(f"{_name(op)} with {argument.name}={value}")
    return f"dtype {hir.dtype(value)}"
  if isinstance(value, str):
    return hir.quoted(value)
  if _is_number(value):
    return _number(converter, value, kind == "float")
  if isinstance(value, complex):
    return f"floats [{hir.number(value.real)}, {hir.number(value.imag)}]"
  if isinstance(value, (torch.device, torch.layout, torch.memory_format)):
    return "none"      # the places of results say it
  raise Unsupported(f"{_name(op)} with {argument.name}, a {type(value).__name__}")


def _kind(argument):
  """The type of an argument, "float[]" of "float[]? scale"."""
  return str(argument.type).replace("Optional[", "").replace("List[", "").rstrip("]").replace("number", "Scalar")


def _list(converter, op, argument, kind, value, access):
  if kind == "Tensor" or any(_is_tensor(item) for item in value):
    return hir.TensorList([None if item is None else converter.tensor(access, item) for item in value])
  if not all(_is_number(item) for item in value):
    raise Unsupported(f"{_name(op)} with {argument.name}, a list of {type(value[0]).__name__}")
  is_float = kind == "float" or any(isinstance(item, float) for item in value)
  texts = ", ".join(_number(converter, item, is_float) for item in value)
  return f"floats [{texts}]" if is_float else f"[{texts}]"


def _is_tensor(value):
  return hasattr(value, "get_name") and hasattr(value, "get_size")


def _is_number(value):
  import torch
  return isinstance(value, (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool, sympy.Basic))


def _number(converter, value, is_float):
  if not isinstance(value, (bool, int, float)):
    value = getattr(getattr(value, "node", None), "expr", value)
    return converter.exprs.float(value) if is_float else converter.exprs.any(value)
  return hir.number(float(value) if is_float else value)


# What an operator returns


def _returned(node, op):
  """What it returns, one entry for each of its schema's."""
  kind = type(node.layout).__name__
  if kind == "NoneLayout":
    return []
  if kind != "MultiOutputLayout":
    return [node]
  outputs = list(node.outputs)
  returns = op._schema.returns
  return [outputs] if len(returns) == 1 and str(returns[0].type).startswith("List[") else outputs


def _tensors(made):
  if isinstance(made, (list, tuple)):
    return [tensor for part in made for tensor in _tensors(part)]
  return [made] if _is_tensor(made) else []


def _in_sizes(symbol, returned):
  return any(symbol in sympy.sympify(size).free_symbols for made in _tensors(returned)
             for size in [*made.get_size(), *made.get_stride()])


def declared(converter, op, made):
  """The tensor that an operator writes."""
  from . import lines
  if made is None:
    return "none"
  if isinstance(made, (list, tuple)):
    return hir.TensorList([declared(converter, op, part) for part in made])
  if not _is_tensor(made):
    raise Unsupported(f"{_name(op)} returns a {type(made).__name__}")
  name, sizes, strides, dtype, _ = lines.unwrapped(made)
  converter.places[name] = lines.Place(converter.declare(name, sizes, strides, dtype), layout=made)
  return converter.tensor("write", made)


def _most(converter, op, values):
  """What a size that the data decides cannot exceed: the elements of the operator's input, where it picks from them."""
  import torch
  given = None
  if op._schema.name in ("aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_dim",
                         "aten::unique_consecutive"):
    given = values["self"]
  elif op._schema.name == "aten::index":
    given = next((index for index in values["indices"] if index is not None and index.get_dtype() == torch.bool), None)
  return None if given is None else sympy.prod(given.get_size())


# Results that are views


def _is_view(result):
  return result.alias_info is not None and not result.alias_info.is_write


def _alias(converter, op, values, made, result):
  """A result that is an argument, written in place."""
  from . import lines
  sets = result.alias_info.before_set
  for argument in op._schema.arguments:
    if argument.alias_info is not None and argument.alias_info.before_set & sets:
      given = values.get(argument.name)
      pairs = zip(made, given) if isinstance(made, (list, tuple)) else [(made, given)]
      for one, other in pairs:
        name, _, _, _, extra = lines.unwrapped(other)
        at = converter.known_place(name)
        converter.places[one.get_name()] = lines.Place(at.buffer, at.offset + extra, one)
      return
  raise Unsupported(f"{_name(op)} returns a view of something that is no argument of it")


def _as_views(converter, node, op, values, returned):
  """Whether all results lie in the arguments; they are given their places then, and there is nothing to call."""
  from . import lines
  from torch._inductor.virtualized import V
  import torch
  inputs, fakes = [], {}
  with V.graph.fake_mode:
    for name, value in values.items():
      fakes[name] = torch.utils._pytree.tree_map_only(
          lambda leaf: _is_tensor(leaf), lambda leaf: _fake(leaf, inputs), value, is_leaf=_is_tensor)
    kwargs_only = {argument.name for argument in op._schema.arguments if argument.kwarg_only}
    args = [fakes[argument.name] for argument in op._schema.arguments
            if argument.name in fakes and not argument.kwarg_only]
    results = op(*args, **{name: value for name, value in fakes.items() if name in kwargs_only})
  results = torch.utils._pytree.tree_leaves(results)
  made = _tensors(returned)
  places = []
  for result, tensor in zip(results, made, strict=True):
    source = next((leaf for leaf, fake in inputs if _storage(fake) == _storage(result)), None)
    if source is None or result.is_conj() or result.is_neg():
      return False
    name, _, _, _, extra = lines.unwrapped(source)
    at = converter.known_place(name)
    offset = result.storage_offset()
    offset = offset.node.expr if isinstance(offset, torch.SymInt) else sympy.Integer(offset)
    begin = at.offset + extra + offset * result.dtype.itemsize
    places.append((tensor.get_name(), lines.Place(at.buffer, begin, tensor)))
  converter.places.update(places)
  return True


def _fake(node, inputs):
  """A tensor without memory, of a node's sizes and strides."""
  import torch
  from torch._inductor.ir import convert_shape_to_symint
  from . import lines
  _, sizes, strides, dtype, _ = lines.unwrapped(node)
  made = torch.empty_strided(convert_shape_to_symint(sizes), convert_shape_to_symint(strides), dtype=dtype,
                             device=node.get_device())
  inputs.append((node, made))
  return made


def _storage(tensor):
  return tensor.untyped_storage()._cdata
