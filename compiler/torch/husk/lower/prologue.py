"""The head of a variant: the symbols that sizes of inputs define, the guards, and the rows of
the inputs."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import sympy

from .. import hir
from ..errors import REPORT, Unsupported
from ..inductor import assumed
from ..inductor.assumed import Assumption
from ..program.values import Input
from .body import Body
from .nodes import Graph, IrNode, Place, is_tensor


def write(
  body: Body,
  assumptions: Iterable[Assumption],
  note: Callable[[str], object] = lambda text: None,
) -> None:
  """Binds the inputs of the graph to those of the signature, defines the symbols of their sizes,
  and checks that the inputs are as the kernels assume. `assumptions` are the conditions that hold
  for the sizes of the example, and that torch took for granted. `note` is called with a text for
  each of them that excludes sizes which the export allows."""
  inputs = list(_bound_inputs(body))
  for value, node in inputs:
    if value.kind not in ("int", "float", "bool"):
      continue
    if is_tensor(node):
      symbol = sympy.Symbol(value.name, integer=value.kind != "float")
      body.scalars[node.get_name()], node = symbol, symbol
    if isinstance(node, sympy.Symbol):
      body.exprs.define(node, hir.Name(value.name, value.kind == "float"))
  tensors = [(value, node) for value, node in inputs if value.kind == "tensor" and node is not None]
  defined: dict[hir.Expr, sympy.Symbol] = {}  # a size or stride -> the symbol that it defines
  for value, node in tensors:
    _define_plain(body, value, "size", node.get_size(), defined)
  for value, node in tensors:
    _define_plain(body, value, "stride", node.get_stride(), defined)
  for value, node in tensors:
    _define_solved(body, value, node.get_size(), defined)
  for value, _ in inputs:
    _check_constant(body, value)
  for value, node in tensors:
    _check(body, value, node, defined)
  assumptions = list(assumptions)
  # An operator that refuses a size says why, and a guard about the same size only that it does.
  body.asserts = list(_checks(body, [each for each in assumptions if each.refusal], note))
  write_checks(body)
  for condition, message in body.signature.guards:
    body.emit(hir.Check(condition, message))
  body.asserts += asserts(body.graph)
  body.asserts += _checks(body, [each for each in assumptions if not each.refusal], note)
  write_checks(body)


def _bound_inputs(body: Body) -> Iterator[tuple[Input, IrNode]]:
  """The inputs of the signature, each with the node or symbol that the graph has for it; None if
  the graph does not use the input. Tensors get their places."""
  graph = body.graph
  names = [node.name for node in graph.module.graph.find_nodes(op="placeholder")]
  if len(names) != len(body.signature.inputs):
    raise Unsupported(
      f"the compiled graph has {len(names)} inputs, the exported program "
      f"{len(body.signature.inputs)}",
      remedy=REPORT,
    )
  aligned = set(graph.inputs_to_check)  # the inputs that Inductor's kernels assume to be aligned
  for index, (name, value) in enumerate(zip(names, body.signature.inputs)):
    node = graph.graph_inputs.get(name)
    if value.kind == "tensor" and node is not None:
      buffer = body.buffers[value.name]
      buffer.align = hir.alignment(node.get_dtype())
      if index in aligned:
        buffer.align = max(buffer.align, body.backend.alignment)
      body.places[name] = Place(buffer, layout=node)
    yield value, node


def _size(name: str, dim: int) -> hir.Expr:
  return hir.op("size", hir.Name(name), dim)


def _stride(name: str, dim: int) -> hir.Expr:
  return hir.op("stride", hir.Name(name), dim)


def _define_plain(
  body: Body,
  value: Input,
  op: str,
  sizes: Iterable[Any],
  defined: dict[hir.Expr, sympy.Symbol],
) -> None:
  """Defines the symbols that are sizes or strides by themselves. `op` is "size" or "stride"."""
  for dim, size in enumerate(sizes):
    if isinstance(size, sympy.Symbol) and not body.exprs.knows(size):
      _let(body, size, hir.op(op, hir.Name(value.name), dim), defined)


def _define_solved(
  body: Body, value: Input, sizes: Iterable[Any], defined: dict[hir.Expr, sympy.Symbol]
) -> None:
  """Solves a size like 2*s0 + 1 for its symbol if that is not defined yet."""
  from torch.utils._sympy.solve import try_solve

  shapes = body.graph.sizevars.shape_env
  for dim, size in enumerate(sizes):
    unknown = [
      symbol for symbol in sympy.sympify(size).free_symbols if not body.exprs.knows(symbol)
    ]
    if not unknown:
      continue
    whole = sympy.Symbol(f"{value.name}_size_{dim}", integer=True, nonnegative=True)
    solution = try_solve(sympy.Eq(size, whole), unknown[0]) if len(unknown) == 1 else None
    if solution is None:
      raise Unsupported(
        f"size {dim} of the input {value.name} is {assumed.text(shapes, size)}, of which a program "
        "cannot compute the sizes in it",
        remedy=f"give size {dim} of {value.name} a Dim of its own",
      )
    body.exprs.define(whole, _size(value.name, dim))
    _let(body, unknown[0], body.exprs.int(sympy.floor(solution[1])), defined)


def _let(
  body: Body, symbol: sympy.Symbol, value: hir.Expr, defined: dict[hir.Expr, sympy.Symbol]
) -> None:
  body.exprs.define(symbol, body.let(str(symbol), value))
  defined[value] = symbol


def _check_constant(body: Body, value: Input) -> None:
  """Checks an input that torch.export took for a constant. For an int the range of the input is
  enough."""
  if value.value is None or value.kind == "int":
    return
  fixed = bool(value.value) if value.kind == "bool" else value.value
  message = (
    f"the value of {value.name} must be {fixed}, which the export fixed (export a tensor to vary "
    "it)"
  )
  if value.kind == "float":
    condition = hir.op("feq", hir.Name(value.name, is_float=True), value.value)
    body.emit(hir.Check(condition, message))
  else:
    expected = hir.Literal(int(value.value))
    body.emit(hir.CheckEqual(hir.Name(value.name), expected, message))


def _check(body: Body, value: Input, node: IrNode, defined: dict[hir.Expr, sympy.Symbol]) -> None:
  """Checks the sizes and strides of a tensor that do not define a symbol, and declares its
  buffer."""
  exprs, name = body.exprs, value.name
  for dim, size in enumerate(node.get_size()):
    size, actual = sympy.sympify(size), _size(name, dim)
    if not size.is_Integer and defined.get(actual) != size:
      body.emit(hir.CheckEqual(actual, exprs.int(size), f"size {dim} of {name}"))
  for dim, stride in enumerate(node.get_stride()):
    stride = sympy.sympify(stride)
    if defined.get(_stride(name, dim)) != stride:
      body.emit(hir.CheckStride(name, dim, exprs.int(stride)))
  buffer = body.buffers[name]
  elements = body.span(node.get_size(), node.get_stride())
  buffer.bytes = exprs.int(elements * node.get_dtype().itemsize)
  body.emit(hir.Declare(buffer))


def asserts(graph: Graph) -> list[tuple[Any, str]]:
  """The (condition, message) that torch.export and Inductor found to be necessary at run time.
  Inductor writes none of them, because its option for that is off. The conditions are in the
  form in which they were found, because torch simplifies a condition that it has asserted to
  true."""
  import torch

  conditions: dict[Any, str] = {}
  for node in graph.module.graph.nodes:
    if node.op == "call_function" and node.target is torch.ops.aten._assert_scalar.default:
      value: Any = node.args[0]
      value = value.meta.get("val") if isinstance(value, torch.fx.Node) else value
      if hasattr(value, "node"):
        message = str(node.args[1] if len(node.args) > 1 else "")
        if message.startswith("Runtime assertion failed"):
          shapes = graph.sizevars.shape_env
          message = f"the model assumes {assumed.text(shapes, value.node._expr)}"
        conditions.setdefault(_renamed(graph, value.node._expr), message)
  for operation in graph.operations:
    if type(operation).__name__ == "AssertScalar":
      conditions.setdefault(operation.scalar, operation.msg)
  return list(conditions.items())


def _renamed(graph: Graph, expression: Any) -> Any:
  """Replaces symbols by those that torch made for the same numbers when it traced the graph
  again."""
  return sympy.sympify(expression).xreplace(graph.sizevars.shape_env.unbacked_renamings)


def _holds_for_all(condition: Any) -> bool:
  """Whether a condition says that a size is 0 or more."""
  return isinstance(condition, sympy.Or) and any(
    sympy.Eq(each.lhs, 0, evaluate=False) in condition.args
    for each in condition.args
    if isinstance(each, sympy.Gt) and each.rhs == 0
  )


def indexed(condition: Any) -> Any:
  """The number of elements, if a condition says that 32-bit indices reach all of them, else None.
  Kernels would access wrong memory if it did not hold. SymPy moves parts of the number to the other
  side, so the limit may be somewhat less than 2^31 - 1."""
  if not isinstance(condition, (sympy.Le, sympy.Lt)):
    return None
  right: Any = condition.rhs
  limit, rest = (right - condition.lhs).as_coeff_Add()
  return -rest if limit.is_Integer and limit >= 2**30 else None


def _checks(
  body: Body, assumptions: Iterable[Assumption], note: Callable[[str], object]
) -> Iterator[tuple[Any, str]]:
  """The (condition, message) of the checks that the assumptions need. An assumption that leaves one
  value of a size that the export lets vary is refused."""
  shapes = body.graph.sizevars.shape_env
  seen = set()  # the conditions, with equal sizes in any order
  for each in dict.fromkeys(assumptions):
    condition = _renamed(body.graph, each.condition)
    if each.refusal:
      yield condition, f"{each.place or 'an operator'}: {each.refusal}"
      continue
    if (elements := indexed(condition)) is not None:
      yield condition, f"kernels with 32-bit indices reach {elements} elements"
      continue
    key = frozenset(condition.args) if isinstance(condition, sympy.Eq) else condition
    if key in seen:
      continue
    seen.add(key)
    text = assumed.text(shapes, condition)
    by = f", which {each.place} assumes" if each.place else ""
    if (pin := assumed.pinned(shapes, condition)) is not None:
      pinned, value = pin
      name, promised = assumed.text(shapes, pinned), assumed.promise(shapes, pinned)
      sizes = "this size" if pinned.is_Symbol else "these sizes"
      raise Unsupported(
        f"the export lets {name} vary ({promised}), but {each.place or 'its lowering'} is compiled "
        f"for {name} = {value} alone: give {sizes} no Dim, so that it is always {value}, or "
        "compute this operator outside of the exported model",
        has_place=True,
      )
    if not body.exprs.knows(condition) and shapes.replace(condition) == sympy.true:
      # Sizes that are now one symbol, whose tensors `_check` compares.
      note(f"the program runs only with sizes for which {text}{by}")
      continue
    try:
      body.exprs.int(condition)
    except Unsupported as error:
      raise Unsupported(
        f"the kernels are right only if {text}{by}, which an artifact cannot check "
        f"({error.construct})",
        bool(each.place),
        "give these sizes no Dim, or compute what depends on them outside of the model",
      ) from error
    note(f"the program runs only with sizes for which {text}{by}")
    yield condition, f"the kernels assume {text}{by}"


def write_checks(body: Body) -> None:
  """Writes the asserts whose symbols are all defined by now, and keeps the others for later."""
  later: list[tuple[Any, str]] = []
  seen = set()
  for condition, message in body.asserts:
    if not body.exprs.knows(condition):
      condition = assumed.with_replacements(body.graph.sizevars.shape_env, condition)
      if condition in seen or _holds_for_all(condition):
        continue
      seen.add(condition)
    if not body.exprs.knows(condition):
      later.append((condition, message))
    elif condition not in (sympy.true, True):
      body.emit(hir.Check(body.exprs.int(condition), str(message)))
  body.asserts = later
