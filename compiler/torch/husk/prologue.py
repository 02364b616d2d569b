"""The head of a variant: symbols from the inputs' sizes, guards, and the rows of the inputs."""

import sympy

from . import hir
from .errors import Unsupported


def write(converter, guards):
  """Binds the graph's inputs to the signature's, defines all symbols that they define, and checks what ties them."""
  bound = list(_bound(converter))
  for signed, node in bound:
    if signed.kind in ("int", "float", "bool") and isinstance(node, sympy.Symbol):
      converter.exprs.define(node, signed.name, signed.kind == "float")
  tensors = [(signed, node) for signed, node in bound if signed.kind == "tensor" and node is not None]
  for what in ("size", "stride"):
    for signed, node in tensors:
      _define_plain(converter, signed, what, _of(node, what))
  for signed, node in tensors:
    _define_solved(converter, signed, _of(node, "size"))
  for signed, node in bound:
    _check_constant(converter, signed)
  for signed, node in tensors:
    _check(converter, signed, node)
  for condition, text in converter.signature.guards:
    converter.say(f"check({condition}) {hir.quoted(text)}")
  converter.asserts = [*asserts(converter.graph), *_index_limits(guards)]
  write_checks(converter)


def _bound(converter):
  graph = converter.graph
  names = [node.name for node in graph.module.graph.find_nodes(op="placeholder")]
  if len(names) != len(converter.signature.inputs):
    raise Unsupported(f"the compiled graph has {len(names)} inputs, the exported program "
                      f"{len(converter.signature.inputs)}")
  aligned = set(graph.inputs_to_check)
  for index, (name, signed) in enumerate(zip(names, converter.signature.inputs)):
    node = graph.graph_inputs.get(name)
    if signed.kind == "tensor" and node is not None:
      buffer = converter.buffers[signed.name]
      buffer.align = hir.alignment(node.get_dtype())
      if index in aligned:
        buffer.align = max(buffer.align, getattr(converter.backend, "alignment", 1))
      converter.bind(name, buffer, node)
    yield signed, node


def _of(node, what):
  return node.get_size() if what == "size" else node.get_stride()


def _define_plain(converter, signed, what, values):
  for dim, value in enumerate(values):
    if isinstance(value, sympy.Symbol) and not converter.exprs.knows(value):
      _let(converter, value, f"{what}({signed.name}, {dim})")


def _define_solved(converter, signed, sizes):
  """A size like 2*s0 + 1, of which one symbol is not known yet."""
  from torch.utils._sympy.solve import try_solve
  for dim, size in enumerate(sizes):
    unknown = [symbol for symbol in sympy.sympify(size).free_symbols if not converter.exprs.knows(symbol)]
    if not unknown:
      continue
    whole = sympy.Symbol(f"{signed.name}_size_{dim}", integer=True, nonnegative=True)
    solution = try_solve(sympy.Eq(size, whole), unknown[0]) if len(unknown) == 1 else None
    if solution is None:
      raise Unsupported(f"size {dim} of the input {signed.name} is {size}: cannot solve it for {unknown}")
    converter.exprs.define(whole, f"size({signed.name}, {dim})")
    _let(converter, unknown[0], converter.exprs.int(sympy.floor(solution[1])))


def _let(converter, symbol, text):
  name = converter.names.take(str(symbol))
  converter.say(f"let {name} = {text}")
  converter.exprs.define(symbol, name)
  converter.defined_by[text] = symbol


def _check_constant(converter, signed):
  """An input whose value the program was made for. The range of an int says it already."""
  if signed.value is None or signed.kind == "int":
    return
  text = f"the value of {signed.name}"
  if signed.kind == "float":
    converter.say(f"check(feq({signed.name}, {hir.number(signed.value)})) {hir.quoted(text)}")
  else:
    converter.say(f"check_eq({signed.name}, {int(signed.value)}) {hir.quoted(text)}")


def _check(converter, signed, node):
  exprs, name = converter.exprs, signed.name
  for dim, size in enumerate(node.get_size()):
    size = sympy.sympify(size)
    given = f"size({name}, {dim})"
    if not size.is_Integer and converter.defined_by.get(given) != size:
      converter.say(f"check_eq({given}, {exprs.int(size)}) {hir.quoted(f'size {dim} of {name}')}")
  for dim, stride in enumerate(node.get_stride()):
    stride = sympy.sympify(stride)
    if converter.defined_by.get(f"stride({name}, {dim})") != stride:
      converter.say(f"check_stride({name}, {dim}, {exprs.int(stride)})")
  buffer = converter.buffers[name]
  buffer.bytes = exprs.int(converter.span(node.get_size(), node.get_stride()) * node.get_dtype().itemsize)
  converter.statements.append(hir.Statement("", buffer=buffer))


def asserts(graph):
  """(condition, text) of what torch.export and Inductor found must hold at run time; Inductor itself writes none, with
  its option off. Conditions are as they were found: what torch knows by now is what is to be checked."""
  import torch
  found = {}
  for node in graph.module.graph.nodes:
    if node.op == "call_function" and node.target is torch.ops.aten._assert_scalar.default:
      value = node.args[0]
      value = value.meta.get("val") if isinstance(value, torch.fx.Node) else value
      if hasattr(value, "node"):
        found.setdefault(_renamed(graph, value.node._expr), node.args[1] if len(node.args) > 1 else "")
  for operation in graph.operations:
    if type(operation).__name__ == "AssertScalar":
      found.setdefault(operation.scalar, operation.msg)
  return list(found.items())


def _renamed(graph, expression):
  """Symbols that torch made again for the same number, when it went through the graph again."""
  return sympy.sympify(expression).xreplace(graph.sizevars.shape_env.unbacked_renamings)


def _index_limits(guards):
  """Of what Inductor took for granted: that 32 bits reach all elements. Kernels would go wrong in memory without it;
  the rest (a sum is short enough for one chunk, …) decides how they compute, not what."""
  for expression, value in dict.fromkeys(guards):
    if value == sympy.true and isinstance(expression, (sympy.Le, sympy.Lt)) and expression.rhs.is_Integer and (
        expression.rhs >= 2**31 - 1):
      yield expression, f"kernels with 32-bit indices reach {expression.lhs} elements"


def write_checks(converter):
  """The asserts whose symbols are all defined by now."""
  later = []
  for expression, text in converter.asserts:
    if not converter.exprs.knows(expression):
      later.append((expression, text))
    elif expression not in (sympy.true, True):
      converter.say(f"check({converter.exprs.int(expression)}) {hir.quoted(str(text))}")
  converter.asserts = later
