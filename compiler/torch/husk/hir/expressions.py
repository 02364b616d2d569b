"""SymPy expressions of sizes, offsets, grids and guards become expressions of a `.hir`.

The class name of a SymPy node selects the method that converts it, so that the Min, floor and other
functions of SymPy and of torch have one method each.
"""

from collections.abc import Callable, Iterable
from typing import Any

import sympy
from sympy.logic.boolalg import BooleanAtom

from ..errors import OUTSIDE, REPORT, Unsupported
from .expr import Expr, Literal, Op, op

# Integer operation -> the same operation on floats.
_FLOAT_OPS = {
  "add": "fadd",
  "sub": "fsub",
  "mul": "fmul",
  "min": "fmin",
  "max": "fmax",
  "eq": "feq",
  "lt": "flt",
  "le": "fle",
}

# A SymPy expression or condition, a torch function of SymPy, or a Python number.
SympyValue = Any


class Filled(sympy.Function):
  """1 for a size of at least 1, and 0 for 0. `sympy.Min(size, 1)` is 1 already when it is written,
  since torch takes the symbols of sizes for positive."""

  is_integer = True
  is_nonnegative = True


def _as_float(expression: Expr) -> Expr:
  return expression if expression.is_float else op("float", expression)


def _negated(expression: Expr) -> Expr:
  return op("fsub", 0.0, expression) if expression.is_float else op("sub", 0, expression)


class Expressions:
  """Converts expressions. It knows the expression that each defined symbol stands for."""

  def __init__(self) -> None:
    self.names: dict[str, Expr] = {}  # name of a symbol -> the expression that it stands for

  def child(self) -> "Expressions":
    """A copy. What is defined in the copy later is not known here."""
    child = Expressions()
    child.names = dict(self.names)
    return child

  def define(self, symbol: sympy.Symbol, expression: Expr) -> None:
    self.names[str(symbol)] = expression

  def knows(self, expression: SympyValue) -> bool:
    """Whether all symbols of an expression are defined."""
    return all(str(symbol) in self.names for symbol in sympy.sympify(expression).free_symbols)

  def knows_all(self, expressions: Iterable[SympyValue]) -> bool:
    return all(self.knows(expression) for expression in expressions)

  def any(self, expression: SympyValue) -> Expr:
    """An expression of ints or floats."""
    return self._any(sympy.sympify(expression))

  def int(self, expression: SympyValue) -> Expr:
    """An int, or a condition, which is 0 or 1. A float is refused."""
    converted = self._any(sympy.sympify(expression))
    if converted.is_float:
      raise Unsupported(f"an int is needed, but {expression} is a float", remedy=OUTSIDE)
    return converted

  def float(self, expression: SympyValue) -> Expr:
    """A float; an int is converted at run time."""
    return self._float(sympy.sympify(expression))

  def ints(self, expressions: Iterable[SympyValue]) -> list[Expr]:
    return [self.int(expression) for expression in expressions]

  def _float(self, e: Any) -> Expr:
    if e.is_Rational:
      return Literal(float(e))
    return _as_float(self._any(e))

  def _any(self, e: Any) -> Expr:
    if isinstance(e, BooleanAtom):
      return Literal(bool(e))
    if e.is_Integer:
      return Literal(int(e))
    if e.is_Float or e in (sympy.oo, -sympy.oo, sympy.nan):
      return Literal(float(e))
    if e.is_Symbol:
      if str(e) not in self.names:
        raise Unsupported(f"the symbol {e} is used before anything defines it", remedy=REPORT)
      return self.names[str(e)]
    method: Callable[[Any], Expr] | None = getattr(self, "_" + type(e).__name__, None)
    if method is None:
      raise Unsupported(
        f"{type(e).__name__} is not supported (in the expression {e})", remedy=OUTSIDE
      )
    return method(e)

  def _fold(self, name: str, terms: Iterable[Any]) -> Expr:
    """The operation `name` over all terms. If one of them is a float, all are converted to
    floats."""
    terms = list(terms)
    operands = [self._any(term) for term in terms]
    if any(operand.is_float for operand in operands):
      name, operands = _FLOAT_OPS[name], [self._float(term) for term in terms]
    result = operands[0]
    for operand in operands[1:]:
      result = op(name, result, operand)
    return result

  def _ints(self, name: str, e: Any) -> Expr:
    """The operation `name` on the two arguments, both ints."""
    return op(name, self.int(e.args[0]), self.int(e.args[1]))

  # Arithmetic

  def _Add(self, e: Any) -> Expr:
    positive = [term for term in e.as_ordered_terms() if not term.could_extract_minus_sign()]
    negative = [-term for term in e.as_ordered_terms() if term.could_extract_minus_sign()]
    if not positive:
      return _negated(self._any(-e))
    result = self._any(positive[0]) if len(positive) == 1 else self._fold("add", positive)
    for term in negative:
      operand = self._any(term)
      if result.is_float or operand.is_float:
        result = op("fsub", _as_float(result), self._float(term))
      else:
        result = op("sub", result, operand)
    return result

  def _Mul(self, e: Any) -> Expr:
    numerator, denominator = sympy.fraction(e)
    if denominator != 1:
      parts = self._any(numerator), self._any(denominator)
      if any(part.is_float for part in parts):
        return op("fdiv", self._float(numerator), self._float(denominator))
      return op("floordiv", *parts)  # torch writes such a quotient only if it is exact
    factors = list(e.as_ordered_factors())
    if factors[0] == -1 and len(factors) == 2:
      return _negated(self._any(factors[1]))
    return self._fold("mul", factors)

  def _Pow(self, e: Any) -> Expr:
    base, exponent = e.args
    if exponent == sympy.Rational(1, 2):
      return op("sqrt", self._float(base))
    if any(self._any(part).is_float for part in (base, exponent)):
      return self._FloatPow(e)
    if exponent.is_Integer and exponent < 0:
      raise Unsupported(f"the quotient {e} may have a remainder", remedy="divide by `//`")
    return self._ints("pow", e)

  _PowByNatural = _Pow

  def _FloatPow(self, e: Any) -> Expr:
    return op("fpow", self._float(e.args[0]), self._float(e.args[1]))

  def _BitwiseFn_bitwise_and(self, e: Any) -> Expr:
    return self._ints("bit_and", e)

  def _BitwiseFn_bitwise_or(self, e: Any) -> Expr:
    return self._ints("bit_or", e)

  def _BitwiseFn_bitwise_xor(self, e: Any) -> Expr:
    return self._ints("bit_xor", e)

  def _LShift(self, e: Any) -> Expr:
    return self._ints("shl", e)

  def _RShift(self, e: Any) -> Expr:
    return self._ints("shr", e)

  def _FloorDiv(self, e: Any) -> Expr:
    return self._ints("floordiv", e)

  _CleanDiv = _FloorDiv

  def _CeilDiv(self, e: Any) -> Expr:
    return self._ints("cdiv", e)

  def _Mod(self, e: Any) -> Expr:
    return self._ints("mod", e)

  _PythonMod = _Mod

  def _ModularIndexing(self, e: Any) -> Expr:
    value, divisor, modulus = (self.int(argument) for argument in e.args)
    quotient = value if divisor == Literal(1) else op("floordiv", value, divisor)
    return op("mod", quotient, modulus)

  def _Min(self, e: Any) -> Expr:
    return self._fold("min", _ordered(e))

  def _Max(self, e: Any) -> Expr:
    return self._fold("max", _ordered(e))

  def _Filled(self, e: Any) -> Expr:
    return op("min", self.int(e.args[0]), 1)

  def _align(self, e: Any) -> Expr:
    """Rounds up to a multiple of 64, to which Inductor's memory pools align."""
    return op("mul", op("cdiv", self.int(e.args[0]), 64), 64)

  def _Abs(self, e: Any) -> Expr:
    operand = self._any(e.args[0])
    return op("fmax" if operand.is_float else "max", operand, _negated(operand))

  def _Identity(self, e: Any) -> Expr:
    return self._any(e.args[0])

  # Choices

  def _select(self, condition: Any, yes: Any, no: Any) -> Expr:
    parts = [self._any(part) for part in (yes, no)]
    if any(part.is_float for part in parts):
      return op("fselect", self.int(condition), self._float(yes), self._float(no))
    return op("select", self.int(condition), *parts)

  def _Where(self, e: Any) -> Expr:
    return self._select(*e.args)

  def _Piecewise(self, e: Any) -> Expr:
    (value, condition), *rest = e.args
    if condition == sympy.true:
      return self._any(value)
    if not rest:
      raise Unsupported(f"{e} has no value if none of its conditions holds", remedy=OUTSIDE)
    return self._select(
      condition, value, sympy.Piecewise(*rest, evaluate=False) if len(rest) > 1 else rest[0][0]
    )

  # Rounding

  def _rounded(self, float_op: str, int_op: str | None, e: Any) -> Expr:
    """Rounds a number to an int. A quotient of ints is rounded by `int_op`, since a double would
    lose digits. torch writes a quotient of floats in the same way."""
    inner = e.args[0]
    if type(inner).__name__ == "OpaqueUnaryFn_log2":
      return self._rounded_log2(float_op, inner)
    if type(inner).__name__ == "IntTrueDiv" and int_op:
      dividend, divisor = map(self._any, inner.args)
      if not dividend.is_float and not divisor.is_float:
        return op(int_op, dividend, divisor)
    numerator, denominator = sympy.fraction(sympy.together(inner))
    if int_op and denominator != 1 and numerator.is_integer and denominator.is_integer:
      return op(int_op, self.int(numerator), self.int(denominator))
    operand = self._any(inner)
    return op(float_op, operand) if operand.is_float else operand

  def _rounded_log2(self, rounding: str, logarithm: Any) -> Expr:
    """The logarithm of an int, rounded to an int: the number of powers of 2 that are small enough.
    A run fails if the int is not positive."""
    number = self._log2_of(logarithm)
    if rounding == "ceil":
      terms = [op("lt", 2**power, number) for power in range(63)]
    elif rounding == "round":  # no int is between two of these irrational limits
      terms = [op("flt", 2.0 ** (power + 0.5), _as_float(number)) for power in range(63)]
    else:  # floor, and trunc, since the logarithm of a positive int is not negative
      terms = [op("le", 2**power, number) for power in range(1, 63)]
    count = terms[0]
    for term in terms[1:]:
      count = op("add", count, term)
    return op("floordiv", count, op("le", 1, number))

  def _log2_of(self, logarithm: Any) -> Expr:
    argument = logarithm.args[0]
    number = self._any(argument.args[0] if type(argument).__name__ == "ToFloat" else argument)
    if number.is_float:
      raise Unsupported(
        f"the logarithm of a float is not supported (in the expression {logarithm})", remedy=OUTSIDE
      )
    return number

  def _OpaqueUnaryFn_log2(self, e: Any) -> Expr:
    raise Unsupported(
      f"a logarithm is supported only if it is rounded to an int or compared with a number ({e})",
      remedy=OUTSIDE,
    )

  def _RoundDecimal(self, e: Any) -> Expr:
    """An int, rounded to a multiple of a power of 10, halves to an even one."""
    number, digits = self._any(e.args[0]), int(e.args[1])
    if number.is_float:
      raise Unsupported(
        f"rounding a float to decimal digits is not supported, since no double is a tenth ({e})",
        remedy=OUTSIDE,
      )
    if digits >= 0:
      return number
    if digits < -18:
      raise Unsupported(
        f"10**{-digits} does not fit 64 bits (in the expression {e})", remedy=OUTSIDE
      )
    step = 10**-digits
    quotient, rest = op("floordiv", number, step), op("mod", number, step)
    half = op("and", op("eq", rest, step // 2), op("mod", quotient, 2))
    up = op("or", op("lt", step // 2, rest), half)
    return op("mul", op("add", quotient, up), step)

  def _floor(self, e: Any) -> Expr:
    return self._rounded("floor", "floordiv", e)

  _FloorToInt = _floor

  def _ceiling(self, e: Any) -> Expr:
    return self._rounded("ceil", "cdiv", e)

  _CeilToInt = _ceiling

  def _TruncToInt(self, e: Any) -> Expr:
    return self._rounded("trunc", None, e)

  def _RoundToInt(self, e: Any) -> Expr:
    return self._rounded("round", None, e)

  def _TruncToFloat(self, e: Any) -> Expr:
    return op("float", op("trunc", self._float(e.args[0])))

  # Floats

  def _ToFloat(self, e: Any) -> Expr:
    return self._float(e.args[0])

  def _FloatTrueDiv(self, e: Any) -> Expr:
    return op("fdiv", self._float(e.args[0]), self._float(e.args[1]))

  _IntTrueDiv = _FloatTrueDiv

  def _OpaqueUnaryFn_sqrt(self, e: Any) -> Expr:
    return op("sqrt", self._float(e.args[0]))

  def _Rational(self, e: Any) -> Expr:
    return Literal(float(e))

  _Half = _Rational

  # Conditions

  def _compared(self, name: str, left: Any, right: Any) -> Expr:
    if any(type(side).__name__ == "OpaqueUnaryFn_log2" for side in (left, right)):
      left, right = self._power_of_2(left), self._power_of_2(right)
    operands = self._any(left), self._any(right)
    if any(operand.is_float for operand in operands):
      return op(_FLOAT_OPS[name], self._float(left), self._float(right))
    return op(name, *operands)

  def _power_of_2(self, side: Any) -> Any:
    """2 to the power of a side of a comparison of logarithms, which are compared so."""
    if type(side).__name__ == "OpaqueUnaryFn_log2":
      return side.args[0]
    if not side.is_number or not 0 <= side < 1000:
      raise Unsupported(
        f"a logarithm is compared with {side}, which is no number from 0 to 1000", remedy=OUTSIDE
      )
    return sympy.Float(2.0 ** float(side), 17)

  def _Equality(self, e: Any) -> Expr:
    return self._compared("eq", *e.args)

  def _Unequality(self, e: Any) -> Expr:
    equal = self._compared("eq", *e.args)
    assert isinstance(equal, Op)
    return op("not", equal) if equal.op == "feq" else Op("ne", equal.operands)

  def _StrictLessThan(self, e: Any) -> Expr:
    return self._compared("lt", *e.args)

  def _LessThan(self, e: Any) -> Expr:
    return self._compared("le", *e.args)

  def _StrictGreaterThan(self, e: Any) -> Expr:
    return self._compared("lt", e.args[1], e.args[0])

  def _GreaterThan(self, e: Any) -> Expr:
    return self._compared("le", e.args[1], e.args[0])

  def _And(self, e: Any) -> Expr:
    return self._fold("and", _ordered(e))

  def _Or(self, e: Any) -> Expr:
    return self._fold("or", _ordered(e))

  def _Not(self, e: Any) -> Expr:
    return op("not", self.int(e.args[0]))


def _ordered(e: Any) -> list[Any]:
  return sorted(e.args, key=sympy.default_sort_key)
