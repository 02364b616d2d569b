"""Operators that are called, not compiled: `extern "aten::mm.out" (...)`. The statement has all
arguments of the schema in the schema's order, with defaults filled in, then the results: tensors
that the operator writes, and numbers that it returns.

If a size of a result depends on the values of tensors, the operator "NAME:sizes" is called first.
It has the same arguments, only reads, and returns the unknown numbers in the order in which torch
found them: for each tensor its sizes, its strides, its offset. A random operator has the state of
the generator as its last argument, and a collective operator the token of the function, which it
writes, so that such calls keep their order; a residual comes behind the token. An operator that
needs scratch memory has a workspace as its last argument (workspaces.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sympy

from .. import hir
from ..errors import OTHER_OPERATORS, REPORT, Unsupported
from ..inductor import collectives
from . import scalars, workspaces
from .body import Body
from .nodes import IrNode, Place, is_tensor, node_view

if TYPE_CHECKING:
  import torch

# A torch.ops overload, and an argument and a return value of its schema.
Operator = Any
SchemaArgument = Any
SchemaReturn = Any


def out(body: Body, node: IrNode) -> None:
  """An operator that writes to one buffer which exists already."""
  op = _overload(node)
  values = _by_name(op, [*node.inputs, *node.constant_args], node.kwargs)
  results = [argument.name for argument in op._schema.arguments if argument.is_out]
  if len(results) != 1:
    raise Unsupported(
      f"{operator_name(op)} writes {len(results)} arguments as its results, and a program calls "
      "operators with one",
      remedy="call the variant that returns its results",
    )
  values[results[0]] = _written(node)
  if library := _library(body, op, values):
    library.call(body, node, values, body.tensor("write", values[results[0]]))
  else:
    _call(body, node, op, values)


def multi_out(body: Body, node: IrNode) -> None:
  """An operator that writes to several buffers which exist already."""
  op = _overload(node)
  values = _values(node, op)
  values.update(zip(node.out_arg_names, node.out_variant_output_nodes))
  _call(body, node, op, values)


def alloc(body: Body, node: IrNode) -> None:
  """An operator that allocates its results, which become buffers of the arena. An operator whose
  results are views of its arguments is not called."""
  op = _overload(node)
  values = _values(node, op)
  returned = _returned(node, op)
  if returns_view(op) and _place_views(body, op, values, returned):
    return
  if library := _library(body, op, values):
    library.call(body, node, values, declared(body, op, returned[0]))
    return
  unknown = [
    (symbol, keys) for symbol, keys in scalars.bindings(body, node) if not body.exprs.knows(symbol)
  ]
  if _needs_sizes([symbol for symbol, _ in unknown], returned):
    _call_sizes(body, node, op, values, unknown)
    unknown = []
  results: list[hir.Argument] = []
  numbers: list[Any] = []
  for value, result in zip(returned, op._schema.returns):
    if result.alias_info is not None and result.alias_info.is_write:
      _place_alias(body, op, values, value, result)
    elif isinstance(value, (int, float, sympy.Basic)):
      numbers.append(value)
      results.append(hir.NumberResult(is_float=str(result.type) == "float"))
    else:
      results.append(declared(body, op, value))
  _call(body, node, op, values, results)
  for symbol, _ in unknown:
    if sympy.sympify(symbol) not in numbers:
      raise Unsupported(
        f"{operator_name(op)} decides the size {symbol} of a result in a way that a program cannot "
        "read",
        remedy=OTHER_OPERATORS,
      )
    scalars.define(body, symbol, hir.op("result", numbers.index(symbol)))


def _library(body: Body, op: Operator, values: Mapping[str, Any]) -> hir.Library | None:
  """What computes a call in place of the operator that the runtime has."""
  for library in body.backend.libraries:
    if library.takes(op) and library.supports(values):
      return library
  return None


def scatter(body: Body, node: IrNode) -> None:
  """aten.scatter_ and the operators like it, in place."""
  op = _overload(node)
  if node.src_is_tensor:
    destination, index, source = node.inputs
  else:
    (destination, index), source = node.inputs, node.constant_args[1]
  known = {argument.name for argument in op._schema.arguments}
  kwargs = {
    name: value for name, value in node.kwargs.items() if name in known and value is not None
  }
  args = [destination, node.constant_args[0], index, source]
  _call(body, node, op, _by_name(op, args, kwargs))


def index_put(body: Body, node: IrNode, indices: Sequence[Any]) -> None:
  """aten.index_put_. `indices` has None for each dimension that is not indexed."""
  op = _overload(node)
  destination, values = node.inputs[:2]
  tensors = iter(node.inputs[2:])
  args = [
    destination,
    [None if index is None else next(tensors) for index in indices],
    values,
    *node.constant_args,
  ]
  _call(body, node, op, _by_name(op, args, node.kwargs))


def in_place(body: Body, node: IrNode) -> None:
  """An operator that writes its first argument."""
  op = _overload(node)
  _call(body, node, op, _by_name(op, [*node.inputs, *node.constant_args], node.kwargs))


def copy(body: Body, node: IrNode) -> None:
  """copy_ of a dtype that Inductor's kernels do not support."""
  import torch

  destination, source = node.inputs[:2]
  _refuse_other_devices(destination, source)
  op = torch.ops.aten.copy_.default
  _call(body, node, op, _by_name(op, [destination, source, False], {}))


def device_copy(body: Body, node: IrNode) -> None:
  _refuse_other_devices(_written(node), node.inputs[0])
  raise Unsupported("a copy from a device to itself", remedy="use .clone()")


def _refuse_other_devices(*nodes: IrNode) -> None:
  devices = {str(node.get_device()) for node in nodes}
  if len(devices) > 1:
    raise Unsupported(
      f"a copy between devices ({' and '.join(sorted(devices))})",
      remedy="let the model compute on one device, without .to(device) in its code",
    )


def _written(node: IrNode) -> IrNode:
  """The tensor that a node writes: its buffer or a view of it."""
  return node.output_view if node.output_view is not None else node


# The call


# Functions that Inductor calls without naming an operator, and the operators that compute the same.
OPERATORS_OF_FUNCTIONS = {
  "extern_kernels.bias_addmm": "aten::addmm.out",
  "extern_kernels._weight_int8pack_mm": "aten::_weight_int8pack_mm",
}


def _overload(node: IrNode) -> Operator:
  op = node.op_overload
  if op is None and (name := OPERATORS_OF_FUNCTIONS.get(node.python_kernel_name)):
    op = overload(name)
  if op is None or not hasattr(op, "_schema"):
    raise Unsupported(
      f"Inductor calls {node.python_kernel_name}, a function that is no operator of PyTorch: "
      "write this line with other operators, or register an operator for it by "
      "torch.library.custom_op"
    )
  return op


def overload(name: str) -> Any:
  """The torch operator of a name such as "aten::mm.out", None if there is none."""
  import torch

  namespace, _, rest = name.partition("::")
  operator, _, variant = rest.partition(".")
  packet = getattr(getattr(torch.ops, namespace), operator, None)
  return getattr(packet, variant or "default", None)


def operator_name(op: Operator) -> str:
  """ "aten::mm.out", without the overload if it is the default."""
  schema = op._schema
  return f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name


def _values(node: IrNode, op: Operator) -> dict[str, Any]:
  """The values of a node's arguments, by name."""
  if not hasattr(node, "unflatten_args"):
    return _by_name(op, [*node.inputs, *node.constant_args], node.kwargs)
  args, kwargs = node.unflatten_args(node.inputs, node.constant_args)
  return _by_name(op, args, {**kwargs, **node.kwargs})


def _by_name(op: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
  positional = [argument.name for argument in op._schema.arguments if not argument.kwarg_only]
  if len(args) > len(positional):
    raise Unsupported(
      f"{operator_name(op)} is called with {len(args)} arguments, it has {len(positional)}",
      remedy=REPORT,
    )
  return {**dict(zip(positional, args)), **kwargs}


def _call(
  body: Body,
  node: IrNode,
  op: Operator,
  values: Mapping[str, Any],
  results: Sequence[hir.Argument] = (),
) -> None:
  """Calls an operator. `values` are its arguments by name."""
  arguments = _arguments(body, op, values)
  results = list(results)
  if is_random(op):
    generator = body.constants.generator()
    if generator is not None:
      body.record_access("both", generator)
      results.append(_bytes_of_buffer("both", generator))
  if operator_name(op) in collectives.NAMES:
    results.append(body.token())
    if (residual := values.get(collectives.RESIDUAL)) is not None:
      results.append(body.tensor("read", residual))
  length = workspaces.length(operator_name(op), values)
  if length is not None:
    results.append(_workspace(body, length))
  body.call_operator(hir.OperatorCall(operator_name(op), arguments, results, body.origin(node)))


def _call_sizes(
  body: Body,
  node: IrNode,
  op: Operator,
  values: Mapping[str, Any],
  unknown: Sequence[tuple[sympy.Symbol, Any]],
) -> None:
  """Calls "NAME:sizes", and defines the unknown symbols from the numbers that it returns."""
  arguments = _arguments(body, op, values, only_reads=True)
  results: list[hir.Argument] = [hir.NumberResult(is_float=False) for _ in unknown]
  name = f"{operator_name(op)}:sizes"
  length = workspaces.length(name, values)
  if length is not None:
    results.append(_workspace(body, length))
  body.call_operator(hir.OperatorCall(name, arguments, results, body.origin(node)))
  limit = _largest_size(op, values)
  for index, (symbol, keys) in enumerate(unknown):
    number = scalars.conversion(keys, hir.op("result", index))
    scalars.define(body, symbol, number, limit=limit)


def _bytes_of_buffer(access: str, buffer: hir.Buffer) -> hir.Tensor:
  """All bytes of a buffer as a tensor."""
  assert buffer.bytes is not None
  return hir.Tensor(access, buffer, "u8", [buffer.bytes], [hir.Literal(1)])


def _workspace(body: Body, length: Any) -> hir.Tensor:
  """Scratch memory of `length` values of f64."""
  count = body.exprs.int(length)
  buffer = body.declare("workspace", body.exprs.int(8 * length))
  return hir.Tensor("write", buffer, "f64", [count], [hir.Literal(1)])


def is_random(op: Operator) -> bool:
  """Whether an operator draws random numbers. Attention would draw them for a dropout only,
  which is not exported."""
  import torch

  return torch.Tag.nondeterministic_seeded in op.tags and "attention" not in op._schema.name


# Arguments


def _arguments(
  body: Body, op: Operator, values: Mapping[str, Any], only_reads: bool = False
) -> list[hir.Argument]:
  """All arguments of the schema. With `only_reads` no argument is written."""
  arguments: list[hir.Argument] = []
  left_out = collectives.LEFT_OUT.get(operator_name(op), frozenset())
  for argument in op._schema.arguments:
    if argument.name in left_out:
      continue
    if argument.name in values:
      value = values[argument.name]
    elif argument.has_default_value():
      value = argument.default_value
    else:
      raise Unsupported(
        f"{operator_name(op)} is called without its argument {argument.name}", remedy=REPORT
      )
    access = "read"
    if not only_reads and argument.alias_info is not None and argument.alias_info.is_write:
      access = "write" if argument.is_out else "both"
    arguments.append(_argument(body, op, argument, value, access))
  return arguments


def _argument(
  body: Body, op: Operator, argument: SchemaArgument, value: Any, access: str
) -> hir.Argument:
  import torch

  kind = _element_type(argument)
  if isinstance(value, (list, tuple)):
    return _list(body, op, argument, kind, value, access)
  if hasattr(value, "expr") and not hasattr(value, "get_name"):
    value = value.expr
  if is_tensor(value):
    return body.tensor(access, value)
  if isinstance(value, torch.dtype):
    return hir.Dtype(hir.required_dtype(value, f"{argument.name} of {operator_name(op)}"))
  if isinstance(value, str):
    return hir.Text(value)
  if _is_number(value):
    return _number(body, value, kind == "float")
  if isinstance(value, complex):
    return hir.Floats((hir.Literal(value.real), hir.Literal(value.imag)))
  # The results of the call determine device, layout and memory format.
  if value is None or isinstance(value, (torch.device, torch.layout, torch.memory_format)):
    return hir.NoneArg()
  value_type = type(value).__name__
  raise Unsupported(
    f"{operator_name(op)} gets a {value_type} as its argument {argument.name}",
    remedy=OTHER_OPERATORS,
  )


def _element_type(argument: SchemaArgument) -> str:
  """The type of an argument or of its elements: "float" for "float[]? scale"."""
  return (
    str(argument.type)
    .replace("Optional[", "")
    .replace("List[", "")
    .rstrip("]")
    .replace("number", "Scalar")
  )


def _list(
  body: Body,
  op: Operator,
  argument: SchemaArgument,
  kind: str,
  items: Sequence[Any],
  access: str,
) -> hir.Argument:
  if kind == "Tensor" or any(is_tensor(item) for item in items):
    return hir.TensorList(
      [hir.NoneArg() if item is None else body.tensor(access, item) for item in items]
    )
  if not all(_is_number(item) for item in items):
    item = type(items[0]).__name__
    raise Unsupported(
      f"{operator_name(op)} gets a list of {item} as its argument {argument.name}",
      remedy=OTHER_OPERATORS,
    )
  is_float = kind == "float" or any(isinstance(item, float) for item in items)
  numbers = tuple(_number(body, item, is_float) for item in items)
  return hir.Floats(numbers) if is_float else hir.Ints(numbers)


def _is_number(value: Any) -> bool:
  import torch

  return isinstance(
    value, (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool, sympy.Basic)
  )


def _number(body: Body, value: Any, is_float: bool) -> hir.Expr:
  if not isinstance(value, (bool, int, float)):
    value = getattr(getattr(value, "node", None), "expr", value)
    return body.exprs.float(value) if is_float else body.exprs.any(value)
  return hir.Literal(float(value) if is_float else value)


# Results


def _returned(node: IrNode, op: Operator) -> list[Any]:
  """The results of a node, one entry for each return value of the schema."""
  kind = type(node.layout).__name__
  if kind == "NoneLayout":
    return []
  if kind != "MultiOutputLayout":
    return [node]
  outputs = list(node.outputs)
  returns = op._schema.returns
  return [outputs] if len(returns) == 1 and str(returns[0].type).startswith("List[") else outputs


def _tensors(value: Any) -> Iterator[IrNode]:
  """The tensors in a result, which may be a list."""
  if isinstance(value, (list, tuple)):
    for part in value:
      yield from _tensors(part)
  elif is_tensor(value):
    yield value


def _needs_sizes(unknown: Sequence[sympy.Symbol], returned: Sequence[Any]) -> bool:
  """Whether an unknown symbol occurs in the sizes of the results, or is not a result itself."""
  numbers = {value for value in returned if isinstance(value, sympy.Basic)}
  in_sizes = {
    symbol
    for tensor in _tensors(returned)
    for size in [*tensor.get_size(), *tensor.get_stride()]
    for symbol in sympy.sympify(size).free_symbols
  }
  return any(symbol not in numbers or symbol in in_sizes for symbol in unknown)


def declared(body: Body, op: Operator, value: Any) -> hir.Tensor | hir.TensorList | hir.NoneArg:
  """Declares the buffer of a result that an operator allocates."""
  if value is None:
    return hir.NoneArg()
  if isinstance(value, (list, tuple)):
    return hir.TensorList([_declared_tensor(body, op, part) for part in value])
  return _declared_tensor(body, op, value)


def _declared_tensor(body: Body, op: Operator, value: Any) -> hir.Tensor | hir.NoneArg:
  if value is None:
    return hir.NoneArg()
  if not is_tensor(value):
    raise Unsupported(
      f"{operator_name(op)} returns a {type(value).__name__}, which a program cannot keep",
      remedy="return tensors and numbers",
    )
  view = node_view(value)
  buffer = body.declare_tensor(view.name, view.sizes, view.strides, view.dtype)
  body.places[view.name] = Place(buffer, layout=value)
  return body.tensor("write", value)


# Operators whose results have at most as many rows as the input `self` has elements.
_SELECTING = (
  "aten::nonzero",
  "aten::_unique2",
  "aten::unique_dim",
  "aten::unique_consecutive",
)


def _broadcast_sizes(one: Sequence[Any], other: Sequence[Any]) -> list[Any]:
  """The shape to which two shapes broadcast. Of two sizes that are not known to be 1, the first is
  taken."""
  rank = max(len(one), len(other))
  ones, others = ([1] * (rank - len(sizes)) + list(sizes) for sizes in (one, other))
  return [b if a == 1 else a for a, b in zip(ones, others)]


def _largest_size(op: Operator, values: Mapping[str, Any]) -> Any:
  """The largest value of a size that depends on data: the elements of the input from which the
  operator selects. None if the operator does not select from an input."""
  import torch

  source = None
  if op._schema.name == "aten::masked_select":
    return sympy.prod(_broadcast_sizes(values["self"].get_size(), values["mask"].get_size()))
  if op._schema.name in _SELECTING:
    source = values["self"]
  elif op._schema.name == "aten::index":
    indices = [index for index in values["indices"] if index is not None]
    source = next((index for index in indices if index.get_dtype() == torch.bool), None)
  return None if source is None else sympy.prod(source.get_size())


# Results that are views


def returns_view(op: Operator) -> bool:
  """Whether a result of an operator is a view of an argument."""
  return any(_is_view(result) for result in op._schema.returns)


def _is_view(result: SchemaReturn) -> bool:
  return result.alias_info is not None and not result.alias_info.is_write


def _place_alias(
  body: Body, op: Operator, values: Mapping[str, Any], value: Any, result: SchemaReturn
) -> None:
  """Gives a result that is an argument written in place the place of the argument."""
  aliases = result.alias_info.before_set
  for argument in op._schema.arguments:
    if argument.alias_info is not None and argument.alias_info.before_set & aliases:
      source = values[argument.name]
      pairs = zip(value, source) if isinstance(value, (list, tuple)) else [(value, source)]
      for one, other in pairs:
        body.places[one.get_name()] = body.place_of(node_view(other), one)
      return
  raise Unsupported(
    f"{operator_name(op)} returns a view of something that is not an argument",
    remedy="return a copy, and say in the schema of the operator which results are views",
  )


def _place_views(
  body: Body, op: Operator, values: Mapping[str, Any], returned: Sequence[Any]
) -> bool:
  """Gives the results their places if all of them lie in the arguments; returns whether that is
  so."""
  import torch
  from torch._inductor.virtualized import V
  from torch.utils import _pytree as pytree

  inputs: list[tuple[IrNode, torch.Tensor]] = []
  fakes: dict[str, Any] = {}
  with V.graph.fake_mode:
    for name, value in values.items():
      fakes[name] = pytree.tree_map_only(
        is_tensor, lambda leaf: _fake(leaf, inputs), value, is_leaf=is_tensor
      )
    schema = [argument for argument in op._schema.arguments if argument.name in fakes]
    args = [fakes[argument.name] for argument in schema if not argument.kwarg_only]
    kwargs = {argument.name: fakes[argument.name] for argument in schema if argument.kwarg_only}
    results = pytree.tree_leaves(op(*args, **kwargs))
  places: dict[str, Place] = {}
  for result, node in zip(results, _tensors(returned), strict=True):
    source = next((leaf for leaf, fake in inputs if _storage(fake) == _storage(result)), None)
    # A conjugated or negated view is marked by a bit of the tensor, which memory does not hold.
    if source is None or result.is_conj() or result.is_neg():
      return False
    base = body.place_of(node_view(source), node)
    offset = result.storage_offset()
    offset = offset.node.expr if isinstance(offset, torch.SymInt) else sympy.Integer(offset)
    base.offset += offset * result.dtype.itemsize
    places[node.get_name()] = base
  body.places.update(places)
  return True


def _fake(node: IrNode, inputs: "list[tuple[IrNode, torch.Tensor]]") -> "torch.Tensor":
  """A fake tensor with a node's sizes and strides; `inputs` records it."""
  import torch
  from torch._inductor.utils import convert_shape_to_symint

  view = node_view(node)
  fake = torch.empty_strided(
    convert_shape_to_symint(view.sizes),
    convert_shape_to_symint(view.strides),
    dtype=view.dtype,
    device=node.get_device(),
  )
  inputs.append((node, fake))
  return fake


def _storage(tensor: "torch.Tensor") -> int:
  return tensor.untyped_storage()._cdata
