"""Control flow: branches, loops and graphs that are called, written where they stand.

A subgraph's inputs are bound to the places of what it is given. What a branch gives back is made where the node's
result lies, or copied there; what a loop carries is memory that each iteration writes at its end.
"""

import dataclasses

import sympy

from . import data, hir
from .errors import Unsupported


@dataclasses.dataclass
class _Tensor:
  """A tensor that goes into a subgraph or comes out of one. Its texts are known outside of the subgraph's block too,
  `known` says whether they are outside before it."""

  place: object      # a lines.Place; its offset is an expression of the graph that it comes from
  offset: str        # bytes into the place's buffer
  sizes: list
  strides: list
  dtype: object
  span: str          # bytes
  known: bool = True
  text: str = ""     # of a number; then there is no tensor
  is_float: bool = False


def branch(converter, line):
  """cond and switch: `when selector { … } else { … }`."""
  node = line.node
  choice = _Choice(converter, line)
  operands = [_described(converter, operand) for operand in node.operands]
  blocks, results = [], []
  for captured in line.branches:
    with converter.block() as statements:
      results.append(_inline(converter, node, captured, operands))
    blocks.append(statements)
  symbols = _choose_sizes(converter, node, choice, blocks, results)
  shared = _twice([part.place.buffer for result in results for part in result if part.place is not None])
  later, behind = [], [[] for _ in blocks]
  for index, output in enumerate(node.outputs):
    if converter.exprs.knows_all([*output.get_size(), *output.get_stride()]):
      _give(converter, output, [result[index] for result in results], blocks, shared)
    else:
      later.append(index)
  choice.say(blocks)
  for symbol, text in symbols:
    data.define(converter, symbol, text)
  for index in later:
    _give(converter, node.outputs[index], [result[index] for result in results], behind, shared)
  if later:
    choice.say(behind)


class _Choice:
  """Which branch is taken: a number that is known before."""

  def __init__(self, converter, line):
    self.converter = converter
    self.is_cond = getattr(line.node, "is_cond", True)
    self.name = _number(converter, line.selector, "branch")

  def among(self, texts):
    """One of several numbers, one of each branch."""
    if self.is_cond:
      return f"select({self.name}, {texts[1]}, {texts[0]})"
    result = texts[-1]
    for index in reversed(range(len(texts) - 1)):
      result = f"select(eq({self.name}, {index}), {texts[index]}, {result})"
    return result

  def say(self, blocks):
    """Writes one block of statements for each branch."""
    if self.is_cond:
      made = hir.When(self.name, yes=blocks[1], no=blocks[0])
      self.converter.statements.append(made)
      return
    block = blocks[-1]
    for index in reversed(range(len(blocks) - 1)):
      block = [hir.When(f"eq({self.name}, {index})", yes=blocks[index], no=block)]
    self.converter.statements += block


def loop(converter, line):
  """while_loop: `loop { cond while … body }`."""
  node = line.node
  carried = [_described(converter, operand) for operand in node.carried_inputs]
  others = [_described(converter, operand) for operand in node.additional_inputs]
  outputs = {output.indices[0][1]: output for output in node.outputs}
  for index, output in outputs.items():     # the others are written in place
    carried[index] = _carry(converter, output, carried[index])
  with converter.block() as before:
    with converter.inside(line.cond.graph, node):
      _enter(converter, line.cond, [*carried, *others])
      name = _number(converter, line.cond.graph.graph_outputs[0], "goes_on")
  with converter.block() as after:
    results = _inline(converter, node, line.body, [*carried, *others])
    _carry_on(converter, carried, [results[index] if index in outputs else None for index in range(len(carried))])
  converter.statements.append(hir.Loop(name, before=before, after=after))
  for symbol, keys in data.bindings(converter, node):
    data.define(converter, symbol, _at(carried, keys))


def call(converter, line):
  """invoke_subgraph: its statements, as they are."""
  results = _inline(converter, line.node, line.body, [_described(converter, operand) for operand in line.node.inputs])
  for output, part in zip(line.node.outputs, results):
    if part.place is not None:
      converter.places[output.get_name()] = _placed(converter, part, output)


# Into a subgraph, and out of it


def _described(converter, node):
  """What goes in or comes out, in the words of the graph that is being written."""
  from . import lines
  node = _plain(node)
  if node is None or type(node).__name__ == "NoneAsConstantBuffer":
    return _Tensor(None, "", [], [], None, "")
  expression = getattr(node, "expr", node)
  if isinstance(expression, (sympy.Basic, int, float)):
    kind, text = converter.exprs.kind(expression)
    return _Tensor(None, "", [], [], None, "", text=text, is_float=kind == "float")
  name, sizes, strides, dtype, extra = lines.unwrapped(node)
  place, exprs = converter.known_place(name), converter.exprs
  span = exprs.int(converter.span(sizes, strides) * dtype.itemsize)
  return _Tensor(place, exprs.int(place.offset + extra), exprs.ints(sizes), exprs.ints(strides), dtype, span)


def _plain(node):
  while type(node).__name__ in ("TensorBox", "StorageBox", "MutableBox"):
    node = node.data
  return node


def _inline(converter, node, captured, operands):
  """Writes the lines of a subgraph; returns what it gives back."""
  with converter.inside(captured.graph, node):
    _enter(converter, captured, operands)
    results = [_described(converter, node) for node in captured.graph.graph_outputs]
  for result, node in zip(results, captured.graph.graph_outputs):
    if result.place is not None:
      from . import lines
      _, sizes, strides, _, _ = lines.unwrapped(node)
      result.known = converter.exprs.knows_all([*sizes, *strides])
  return results


def _enter(converter, captured, operands):
  from . import prologue
  inputs = captured.graph.graph_inputs
  if len(inputs) != len(operands):
    raise Unsupported(f"a subgraph of {len(inputs)} inputs that is given {len(operands)}")
  for (name, node), operand in zip(inputs.items(), operands):
    if operand.text:
      if isinstance(node, sympy.Symbol):
        converter.exprs.define(node, operand.text, operand.is_float)
    elif operand.place is not None:
      _bind(converter, name, node, operand)
  prologue.write_checks(converter)
  converter.write(captured.lines)


def _bind(converter, name, node, operand):
  """Gives an operand the name of a subgraph's input."""
  for sizes, texts in ((node.get_size(), operand.sizes), (node.get_stride(), operand.strides)):
    for size, text in zip(sizes, texts):
      if isinstance(size, sympy.Symbol):
        converter.exprs.define(size, text)
  if converter.exprs.ints(node.get_stride()) != operand.strides:
    operand = _restrided(converter, name, node, operand)
  converter.places[name] = _placed(converter, operand, node)


def _restrided(converter, name, node, operand):
  """A copy with the strides that the subgraph's kernels were made for."""
  buffer = converter.declare(name, node.get_size(), node.get_stride(), node.get_dtype())
  exprs = converter.exprs
  made = dataclasses.replace(operand, place=_place(buffer), offset="0", strides=exprs.ints(node.get_stride()),
                             sizes=exprs.ints(node.get_size()))
  _copy(converter, made, operand)
  return made


def _place(buffer, layout=None):
  from . import lines
  return lines.Place(buffer, layout=layout)


def _placed(converter, tensor, layout):
  """The place of a described tensor; its offset becomes a number of its own where it is not a plain one."""
  from . import lines
  if tensor.offset.isdigit():
    return lines.Place(tensor.place.buffer, sympy.Integer(int(tensor.offset)), layout)
  symbol = sympy.Symbol(converter.let("offset", tensor.offset), integer=True)
  converter.exprs.define(symbol, str(symbol))
  return lines.Place(tensor.place.buffer, symbol, layout)


def _number(converter, node, wanted):
  """The name of a number: of an expression, or read from memory."""
  described = _described(converter, node)
  if described.text:
    return converter.let(wanted, described.text)
  text, is_float = data.read(converter, _plain(node))
  if is_float:
    raise Unsupported("a branch that a float chooses")
  return converter.let(wanted, text)


# Results


def _choose_sizes(converter, node, choice, blocks, results):
  """Defines the symbols of sizes that differ between branches; returns (symbol, text) of those that are known only
  behind the branches."""
  late = []
  for symbol, keys in data.bindings(converter, node):
    parts = [result[keys[0].idx] for result in results]
    texts = [_at(result, keys) for result in results]
    if all(part.known for part in parts):
      data.define(converter, symbol, choice.among(texts))
      continue
    for index, (statements, text) in enumerate(zip(blocks, texts)):
      with converter.block() as block:
        texts[index] = converter.let(str(symbol), text)
      statements += block
    late.append((symbol, choice.among(texts)))
  return late


def _at(tensors, keys):
  """The number that `keys` lead to: (SequenceKey(1), CallMethodKey("size"), SequenceKey(0)) is a size of the second."""
  kinds = [type(key).__name__ for key in keys]
  if kinds == ["SequenceKey"]:
    return tensors[keys[0].idx].text
  if kinds[:3] == ["SequenceKey", "CallMethodKey", "SequenceKey"] and keys[1].name in ("size", "stride"):
    part = tensors[keys[0].idx]
    return data.conversion(keys[3:], (part.sizes if keys[1].name == "size" else part.strides)[keys[2].idx])
  raise Unsupported(f"a number that control flow decides, {keys}")


def _twice(buffers):
  """The ids of those that are in it more than once."""
  seen, twice = set(), set()
  for buffer in buffers:
    (twice if id(buffer.row()) in seen else seen).add(id(buffer.row()))
  return twice


def _give(converter, output, parts, blocks, shared):
  """Declares a result, and lets each branch make it."""
  sizes, strides, dtype = output.get_size(), output.get_stride(), output.get_dtype()
  buffer = converter.declare(output.get_name(), sizes, strides, dtype)
  converter.places[output.get_name()] = _place(buffer, output)
  exprs = converter.exprs
  offset = sympy.sympify(output.get_layout().offset)
  if offset != 0:
    raise Unsupported("a branch whose result begins inside of a buffer")
  whole = _Tensor(_place(buffer), "0", exprs.ints(sizes), exprs.ints(strides), dtype, buffer.bytes)
  for part, statements in zip(parts, blocks):
    made = part.place.buffer.row()
    declared = any(statement.buffer is made for statement in hir.walk(statements))
    same = _same_strides(strides, whole, part)
    if declared and same and id(made) not in shared and part.offset == "0" and made.bytes == part.span:
      made.stands_for = buffer
      continue
    with converter.block() as block:
      if same:
        _copy_bytes(converter, whole, part)
      else:
        _copy(converter, whole, part)
    statements += block


def _same_strides(strides, whole, part):
  """Whether a part has the strides of the whole. A stride that a branch decides is that of the branch."""
  return all(given == text or any(str(symbol)[:1] == "u" for symbol in sympy.sympify(stride).free_symbols)
             for stride, given, text in zip(strides, whole.strides, part.strides))


def _copy_bytes(converter, to, source):
  source = hir.View("read", source.place.buffer, source.offset, source.span)
  converter.say("copy", [hir.View("write", to.place.buffer), source], converter.called_at)


def _copy(converter, to, source):
  """Elements, whose strides differ."""
  def described(access, tensor):
    offset = tensor.offset
    size = tensor.dtype.itemsize
    elements = str(int(offset) // size) if offset.isdigit() else f"floordiv({offset}, {size})"
    return hir.Tensor(access, tensor.place.buffer, hir.dtype(tensor.dtype), tensor.sizes, tensor.strides, elements)

  converter.say('extern "aten::copy_"', [described("write", to), described("read", source), "false"],
                converter.called_at)


# What a loop carries


def _carry(converter, output, given):
  """Memory for a carried tensor, which begins with what is given."""
  from . import lines
  buffer = hir.Buffer(converter.names.take(output.get_name()), "arena", given.span, 64)
  converter.statements.append(hir.Statement("", buffer=buffer))
  made = dataclasses.replace(given, place=lines.Place(buffer), offset="0")
  _copy_bytes(converter, made, given)
  converter.places[output.get_name()] = lines.Place(buffer, layout=output)
  return made


def _carry_on(converter, carried, results):
  """At the end of an iteration: results become what is carried. One that lies in what is carried itself is moved away
  first."""
  rows = {id(tensor.place.buffer.row()) for tensor in carried if tensor.place is not None}
  moves = []
  for to, result in zip(carried, results):
    if result is None or result.place is None:
      continue
    source = result.place.buffer.row()
    if source is to.place.buffer.row() and result.offset == to.offset and result.strides == to.strides:
      continue
    if id(source) in rows:
      buffer = hir.Buffer(converter.names.take("carried"), "arena", result.span, 64)
      converter.statements.append(hir.Statement("", buffer=buffer))
      moved = dataclasses.replace(result, place=_place(buffer), offset="0")
      _copy_bytes(converter, moved, result)
      result = moved
    moves.append((to, result))
  for to, result in moves:
    (_copy_bytes if to.strides == result.strides else _copy)(converter, to, result)


# Ints that a loop carries


def carry_in_tensors(module):
  """Rewrites the while_loops of a graph module that carry numbers: Inductor carries tensors only. Subgraphs are
  replaced, not changed: they belong to the exported program."""
  import copy

  import torch
  for node in list(module.graph.nodes):
    if node.op != "get_attr" or not isinstance(inner := getattr(module, str(node.target), None), torch.fx.GraphModule):
      continue
    setattr(module, str(node.target), inner := copy.deepcopy(inner))
    carry_in_tensors(inner)
  for node in module.graph.find_nodes(op="call_function", target=torch.ops.higher_order.while_loop):
    _tensors_for_numbers(module, node)
  module.recompile()


def _tensors_for_numbers(module, node):
  import torch
  cond, body, carried, additional = node.args
  dtypes = {index: dtype for index, value in enumerate(carried) if (dtype := _number_dtype(value)) is not None}
  if not dtypes:
    return
  values = [value.meta.get("val") for value in (*carried, *additional) if isinstance(value, torch.fx.Node)]
  device = next((value.device for value in values if isinstance(value, torch.Tensor)), torch.device("cpu"))
  item = torch.ops.aten._local_scalar_dense.default

  def boxed(graph, value, dtype):
    return graph.call_function(torch.ops.aten.scalar_tensor.default, (value,), {"dtype": dtype, "device": device})

  for name in {cond.target, body.target}:
    inner = getattr(module, name)
    placeholders = inner.graph.find_nodes(op="placeholder")
    for index in dtypes:
      with inner.graph.inserting_before(next(n for n in inner.graph.nodes if n.op != "placeholder")):
        number = inner.graph.call_function(item, (placeholders[index],))
      placeholders[index].replace_all_uses_with(number, delete_user_cb=lambda user, number=number: user is not number)
    if name == body.target:
      output = inner.graph.output_node()
      results = list(output.args[0])
      with inner.graph.inserting_before(output):
        for index, dtype in dtypes.items():
          results[index] = boxed(inner.graph, results[index], dtype)
      output.args = (tuple(results),)
    inner.recompile()
  with module.graph.inserting_before(node):
    carried = tuple(boxed(module.graph, value, dtypes[index]) if index in dtypes else value
                    for index, value in enumerate(carried))
  node.args = (cond, body, carried, additional)
  decided = node.meta.pop("unbacked_bindings", None) or {}
  node.meta.pop("val", None)
  for user in list(node.users):
    if user.args[1] in dtypes:
      with module.graph.inserting_after(user):
        number = module.graph.call_function(item, (user,))
      number.meta = {**user.meta, "unbacked_bindings": {symbol: () for symbol, keys in decided.items()
                                                        if getattr(keys[0], "idx", None) == user.args[1]}}
      user.meta.pop("val", None)
      user.replace_all_uses_with(number, delete_user_cb=lambda other, number=number: other is not number)


def _number_dtype(value):
  """The dtype of a tensor for a number; None if it is a tensor already."""
  import torch
  value = value.meta.get("val") if isinstance(value, torch.fx.Node) else value
  kinds = (((bool, torch.SymBool), torch.bool), ((int, torch.SymInt), torch.int64),
           ((float, torch.SymFloat), torch.float64))
  return next((dtype for types, dtype in kinds if isinstance(value, types)), None)
