"""Python expressions of sizes as those of sympy. torch.export hands over its guards as Python text,
and Inductor the grids of its kernels."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import sympy

# By operator: a function, or the name of one of torch's functions of sizes.
_BINARY: dict[type, Any] = {
  ast.Add: lambda a, b: a + b,
  ast.Sub: lambda a, b: a - b,
  ast.Mult: lambda a, b: a * b,
  ast.FloorDiv: "FloorDiv",
  ast.Mod: "PythonMod",
  ast.Div: "IntTrueDiv",
  ast.BitAnd: "BitwiseFn_bitwise_and",
  ast.BitOr: "BitwiseFn_bitwise_or",
  ast.BitXor: "BitwiseFn_bitwise_xor",
  ast.LShift: "LShift",
  ast.RShift: "RShift",
}
_COMPARED: dict[type, Any] = {
  ast.Eq: sympy.Eq,
  ast.NotEq: sympy.Ne,
  ast.Lt: sympy.Lt,
  ast.LtE: sympy.Le,
  ast.Gt: sympy.Gt,
  ast.GtE: sympy.Ge,
}
# torch's functions of sizes by the names that the texts have for them.
_CALLED = {
  "max": "Max",
  "min": "Min",
  "Max": "Max",
  "Min": "Min",
  "Mod": "Mod",
  "PythonMod": "PythonMod",
  "FloorDiv": "FloorDiv",
  "CeilDiv": "CeilDiv",
  "cdiv": "CeilDiv",
  "IntTrueDiv": "IntTrueDiv",
  "CleanDiv": "CleanDiv",
  "float": "ToFloat",
  "math.trunc": "TruncToInt",
  "math.floor": "FloorToInt",
  "math.ceil": "CeilToInt",
  "math.sqrt": "OpaqueUnaryFn_sqrt",
  "math.log2": "OpaqueUnaryFn_log2",
  "Where": "Where",
}


def read(node: ast.expr, value: Callable[[ast.expr], Any]) -> Any:
  """The sympy expression of a Python expression. `value` reads what only the caller knows, as the
  names of variables, and raises an error for all that nobody knows."""
  from torch.utils._sympy import functions

  def inner(part: ast.expr) -> Any:
    return read(part, value)

  match node:
    case ast.Constant(value=bool() | int() | float() as number):
      return sympy.sympify(number)
    case ast.BoolOp(op=op, values=values):
      return (sympy.And if isinstance(op, ast.And) else sympy.Or)(*map(inner, values))
    case ast.UnaryOp(op=ast.Not(), operand=operand):
      return sympy.Not(inner(operand))
    case ast.UnaryOp(
      op=ast.USub(),
      operand=ast.BinOp(
        op=ast.FloorDiv(), left=left, right=ast.UnaryOp(op=ast.USub(), operand=right)
      ),
    ):
      return functions.CeilDiv(inner(left), inner(right))  # -(a // -b)
    case ast.UnaryOp(op=ast.USub(), operand=operand):
      return -inner(operand)
    case ast.BinOp(left=ast.Constant(value=int() as above), op=ast.Div(), right=right) if (
      isinstance(right, ast.Constant) and isinstance(right.value, int) and right.value
    ):
      return sympy.Rational(above, right.value)
    case ast.BinOp(left=left, op=ast.Pow(), right=right):
      base, exponent = inner(left), inner(right)
      are_ints = base.is_integer and exponent.is_integer and exponent.is_nonnegative
      return (functions.PowByNatural if are_ints else functions.FloatPow)(base, exponent)
    case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
      function = _BINARY[type(op)]
      function = getattr(functions, function) if isinstance(function, str) else function
      return function(inner(left), inner(right))
    case ast.Compare(left=left, ops=ops, comparators=more) if all(
      type(op) in _COMPARED for op in ops
    ):
      terms = list(map(inner, [left, *more]))
      pairs = zip(ops, terms, terms[1:])
      return sympy.And(*(_compared(_COMPARED[type(op)], *pair) for op, *pair in pairs))
    case ast.IfExp(test=test, body=body, orelse=orelse):
      return functions.Where(inner(test), inner(body), inner(orelse))
    case ast.Call(func=ast.Name(id="abs"), args=[argument]):
      return sympy.Abs(inner(argument))
    case ast.Call(func=ast.Name(id="round"), args=[argument]):
      return functions.RoundToInt(inner(argument))
    case ast.Call(func=ast.Name(id="round"), args=[argument, digits]):
      return functions.RoundDecimal(inner(argument), inner(digits))
    case ast.Attribute(value=ast.Name(id="math"), attr="inf"):
      return sympy.oo
    case ast.Call(func=called, args=args) if (
      name := ast.unparse(called).removeprefix("torch.sym_")
    ) in _CALLED:
      return getattr(functions, _CALLED[name])(*map(inner, args))
  return value(node)


def _compared(relation: Any, left: Any, right: Any) -> Any:
  """A relation. A number that does not fit 64 bits is larger than any size, and torch compares with
  one to say that a sum of sizes fits."""
  constant, _ = (right - left).as_coeff_Add()
  if constant.is_Integer and abs(constant) >= 2**63 and relation not in (sympy.Eq, sympy.Ne):
    return relation(0, constant)
  return relation(left, right)
