"""What torch.export found that sizes and ints must hold. Inductor drops it; an artifact checks it.

torch.export keeps it as Python text, "(L['x'].size()[0] % 2) == 0", of the arguments as the model's forward names them.
"""

import ast
import re

import sympy

from . import versions
from .errors import Unsupported
from .expressions import Expressions

_BINARY = {ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
           ast.FloorDiv: "FloorDiv", ast.Mod: "PythonMod", ast.Div: "IntTrueDiv", ast.Pow: "PowByNatural"}
_COMPARED = {ast.Eq: sympy.Eq, ast.NotEq: sympy.Ne, ast.Lt: sympy.Lt, ast.LtE: sympy.Le, ast.Gt: sympy.Gt, ast.GtE: sympy.Ge}
_CALLED = {"max": "Max", "min": "Min", "Max": "Max", "Min": "Min", "Mod": "Mod", "PythonMod": "PythonMod", "FloorDiv": "FloorDiv",
           "CeilDiv": "CeilDiv", "IntTrueDiv": "IntTrueDiv", "CleanDiv": "CleanDiv"}


class _Known(Exception):
  """A guard about a value that is checked as a whole, or about memory that is always given as the guard wants it."""


def of(exported, inputs):
  """(condition as a .hir says it, text) for each guard of an exported program, whose inputs are `inputs`."""
  found = []
  sources = _sources(exported)
  for guard in versions.guards(exported):
    text = guard
    for source in sorted(sources, key=len, reverse=True):
      text = text.replace(source, f"_given[{sources[source]}]")
    reader = _Reader(inputs)
    try:
      condition = reader.read(ast.parse(text.strip(), mode="eval").body)
    except _Known:
      continue
    except (Unsupported, SyntaxError) as error:
      raise Unsupported(f"the guard {guard} of torch.export ({error})") from error
    if condition not in (sympy.true, True):
      said = re.sub(r"L\['(\w+)'\]", r"\1", guard).strip()
      found.append((reader.names.int(condition), "the model assumes " + said))
  return found


def _sources(exported):
  """How guards name each flat input: {"L['x']": 0, "L['many'][1]": 2}. Of `*many` the program knows "many_1" only."""
  from torch.utils import _pytree as pytree
  spec = exported.call_spec.in_spec
  args, kwargs = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
  names = versions.argument_names(exported) or []
  found = {}
  for name, part in [*zip(names, args), *kwargs.items()]:
    for path, place in pytree.tree_flatten_with_path(part)[0]:
      for root in (f"L['{name}']", re.sub(r"^(\w+)_(\d+)$", r"L['\1'][\2]", name)):
        if root[:2] == "L[":
          found.setdefault(root + pytree.keystr(path), place)
  return found


class _Reader:
  def __init__(self, inputs):
    self.inputs, self.names = inputs, Expressions()

  def read(self, node):
    """The sympy expression of a piece of Python."""
    from torch.utils._sympy import functions
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
      return sympy.sympify(node.value)
    if isinstance(node, ast.BoolOp):
      return (sympy.And if isinstance(node.op, ast.And) else sympy.Or)(*map(self.read, node.values))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
      value = self.read(node.operand)
      return sympy.Not(value) if isinstance(node.op, ast.Not) else -value
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
      op = _BINARY[type(node.op)]
      return (getattr(functions, op) if isinstance(op, str) else op)(self.read(node.left), self.read(node.right))
    if isinstance(node, ast.Compare) and all(type(op) in _COMPARED for op in node.ops):
      terms = [self.read(term) for term in (node.left, *node.comparators)]
      return sympy.And(*(_COMPARED[type(op)](*pair) for op, *pair in zip(node.ops, terms, terms[1:])))
    if isinstance(node, ast.Call) and (name := ast.unparse(node.func).removeprefix("torch.sym_")) in _CALLED:
      return getattr(functions, _CALLED[name])(*map(self.read, node.args))
    return self._value(node)

  def _value(self, node):
    """A size, a stride, or an int, bool or float that is an input."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "storage_offset":
      raise _Known     # an address says it
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Call):
      method, dim = node.value.func, node.slice
      if isinstance(method, ast.Attribute) and method.attr in ("size", "stride") and isinstance(dim, ast.Constant):
        given = self._input(method.value)
        return self._symbol(f"{method.attr}({given.name}, {dim.value})")
    given = self._input(node)
    return self._symbol(given.name, given.kind == "float")

  def _input(self, node):
    if not (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "_given"):
      raise Unsupported(f"it holds a {type(node).__name__}")
    given = self.inputs[node.slice.value]
    if given.kind == "none" or given.value is not None:
      raise _Known
    return given

  def _symbol(self, text, is_float=False):
    symbol = sympy.Symbol(text, real=True) if is_float else sympy.Symbol(text, integer=True)
    self.names.define(symbol, text, is_float)
    return symbol
