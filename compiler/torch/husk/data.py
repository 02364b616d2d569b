"""Numbers that only the data decides: read from memory, or given by an operator."""

import sympy

from . import hir, prologue
from .errors import Unsupported

_MOST_READS = 64      # values that one segment may bring
_UNBOUNDED = 2**63 - 1


def scalar(converter, node):
  """`tensor.item()`."""
  (source,) = node.inputs
  text, is_float = read(converter, source)
  for key in node.keypath or ():
    text = _through(key, text)
  define(converter, node.sym, text, is_float)


def read(converter, source):
  """Reads the first element of a tensor; returns the text of it, known in the next segment, and whether it is a float.
  Reads that follow one another, and do not need one another, bring their values together."""
  from . import lines
  name, _, _, dtype, extra = lines.unwrapped(source)
  if dtype.is_complex or hir.dtype(dtype) is None:
    raise Unsupported(f"a number of dtype {dtype} that is read from the device")
  at = converter.known_place(name)
  view = hir.View("read", at.buffer, converter.exprs.int(at.offset + extra), str(dtype.itemsize))
  statement = hir.Statement(f"read {hir.dtype(dtype)}", [view], converter.origin(source))
  place, before = _last_reads(converter.statements, view)
  converter.statements.insert(place, statement)
  return f"{'f' if dtype.is_floating_point else ''}result({before})", dtype.is_floating_point


def _last_reads(statements, view):
  """Where a read can join those before it, and how many they are."""
  at = len(statements)
  while at and _is(statements[at - 1], "let ", "check"):
    at -= 1
  begin = at
  while begin and _is(statements[begin - 1], "read "):
    begin -= 1
  defined = {statement.head.split()[1] for statement in statements[at:] if statement.head.startswith("let ")}
  if begin == at or at - begin == _MOST_READS or defined & set(hir.names_in(f"{view.offset} {view.extent}")):
    return len(statements), 0
  return at, at - begin


def _is(statement, *words):
  return type(statement) is hir.Statement and statement.head.startswith(words)


def _through(key, text):
  kind = type(key).__name__
  if kind == "DivideByKey":
    return f"floordiv({text}, {key.divisor})"
  if kind == "ConvertIntKey":
    return f"ne({text}, 0)"
  raise Unsupported(f"a number that only the data decides, through {kind}")


def define(converter, symbol, text, is_float=False, limit=None):
  """Defines an unbacked symbol. `limit` is an expression that it cannot exceed, beside what torch knows of it."""
  limits = converter.ranges.get(symbol)
  if not is_float and limits is not None:
    lower = str(int(limits.lower)) if limits.lower.is_Integer else str(-2**63)
    upper = limits.upper if limits.upper.is_Integer and limits.upper < _UNBOUNDED - 1 else None
    limit = upper if limit is None else limit if upper is None else sympy.Min(upper, limit)
    if limit is not None or lower != str(-2**63):
      text = f"range({text}, {lower}, {_UNBOUNDED if limit is None else converter.exprs.int(limit)})"
  converter.exprs.define(symbol, converter.let(str(symbol), text), is_float)
  prologue.write_checks(converter)


def bindings(converter, node):
  """[(symbol, keys)] of the numbers that a node decides, under the names that they have by now. `keys` says where in
  the node's result each stands."""
  renamings = converter.graph.sizevars.shape_env.unbacked_renamings
  found = getattr(node, "unbacked_bindings", None) or {}
  return [(renamings.get(symbol, symbol), keys) for symbol, keys in found.items()]


def conversion(keys, text):
  """What is made of the number that stands at `keys`."""
  for key in keys:
    if type(key).__name__ not in ("SequenceKey", "CallMethodKey", "MappingKey"):
      text = _through(key, text)
  return text


# Nodes


def select_offset(converter, node):
  """`x[i]`, whose `i` only the data decides: where the selected part begins."""
  exprs = converter.exprs
  index, size = exprs.int(node.index), exprs.int(node.size)
  place = f"select(lt({index}, 0), add({index}, {size}), {index})"
  if node.clamp:
    place = f"max(0, min({size}, {place}))"
  else:
    text = hir.quoted(f"an index is out of range ({node.index})")
    converter.say(f"check(and(le(sub(0, {size}), {index}), lt({index}, {size}))) {text}")
  text = f"add({exprs.int(node.base_offset)}, mul({exprs.int(node.base_dim_stride)}, {place}))"
  define(converter, node.unbacked_offset_symbol, text)


def slice_size(converter, node):
  """`x[i:j]`: its length, with the bounds brought into the tensor as Python does."""
  size = node.size
  begin, end = (_bound(bound, size) for bound in (node.start, node.end))
  length = converter.exprs.int(end - begin) if node.step == 1 else (
      f"cdiv({converter.exprs.int(end - begin)}, {converter.exprs.int(node.step)})")
  define(converter, node.unbacked_size_symbol, f"max(0, {length})", limit=size)


def _bound(bound, size):
  from torch.utils._sympy.functions import Max, Min, Where
  bound = sympy.sympify(bound)
  if bound.is_nonnegative:
    return Min(bound, size)
  return Where(bound >= 0, Max(0, Min(bound, size)), Max(0, Min(bound + size, size)))


def tensor_assert(converter, node):
  (source,) = node.inputs
  text, is_float = read(converter, source)
  condition = f"not(feq({text}, 0.0))" if is_float else f"ne({text}, 0)"
  converter.say(f"check({condition}) {hir.quoted(str(node.text))}")
