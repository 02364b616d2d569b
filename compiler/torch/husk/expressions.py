"""Sizes, offsets, grids and guards: from sympy to the expressions of a `.hir`.

Nodes are told apart by the name of their class, so that sympy's and torch's own Min, floor, … are one.
"""

import sympy

from .errors import Unsupported

_FLOAT_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "min": "fmin", "max": "fmax", "eq": "feq", "lt": "flt",
              "le": "fle"}


class Expressions:
  """`names` maps a symbol's name to the expression that stands for it, `floats` holds the names that are floats."""

  def __init__(self):
    self.names = {}
    self.floats = set()

  def child(self):
    """Knows what this one knows; what it learns, this one does not."""
    made = Expressions()
    made.names, made.floats = dict(self.names), set(self.floats)
    return made

  def define(self, symbol, text, is_float=False):
    self.names[str(symbol)] = text
    self.floats.discard(str(symbol))
    if is_float:
      self.floats.add(str(symbol))

  def knows(self, expression):
    """Whether every symbol of it has been defined."""
    return all(str(symbol) in self.names for symbol in sympy.sympify(expression).free_symbols)

  def knows_all(self, expressions):
    return all(self.knows(expression) for expression in expressions)

  def kind(self, expression):
    """("int" or "float", the text)."""
    return self._any(sympy.sympify(expression))

  def int(self, expression):
    """The text of an int (or a condition, 0 or 1)."""
    kind, text = self._any(sympy.sympify(expression))
    if kind != "int":
      raise Unsupported(f"an int is needed, but {expression} is a float")
    return text

  def any(self, expression):
    """The text of an int or a float."""
    return self._any(sympy.sympify(expression))[1]

  def float(self, expression):
    return self._float(sympy.sympify(expression))

  def ints(self, expressions):
    return [self.int(expression) for expression in expressions]

  def _float(self, e):
    if e.is_Rational:
      return repr(float(e))
    kind, text = self._any(e)
    return text if kind == "float" else f"float({text})"

  def _any(self, e):
    if isinstance(e, sympy.logic.boolalg.BooleanAtom):
      return "int", "true" if e else "false"
    if e.is_Integer:
      return "int", str(int(e))
    if e.is_Float or e in (sympy.oo, -sympy.oo, sympy.nan):
      return "float", repr(float(e))
    if e.is_Symbol:
      if str(e) not in self.names:
        raise Unsupported(f"the symbol {e} is used before anything defines it")
      return "float" if str(e) in self.floats else "int", self.names[str(e)]
    method = getattr(self, "_" + type(e).__name__, None)
    if method is None:
      raise Unsupported(f"{type(e).__name__} in the expression {e}")
    return method(e)

  # Folds `op` over terms; one float makes all floats.
  def _fold(self, op, terms):
    kinds = [self._any(term) for term in terms]
    is_float = any(kind == "float" for kind, _ in kinds)
    texts = [self._float(term) if is_float else text for term, (_, text) in zip(terms, kinds)]
    result = texts[0]
    for text in texts[1:]:
      result = f"{_FLOAT_OPS[op] if is_float else op}({result}, {text})"
    return "float" if is_float else "int", result

  def _Add(self, e):
    plus = [term for term in e.as_ordered_terms() if not term.could_extract_minus_sign()]
    minus = [-term for term in e.as_ordered_terms() if term.could_extract_minus_sign()]
    if not plus:
      kind, text = self._any(-e)
      return (kind, f"fsub(0.0, {text})") if kind == "float" else (kind, f"sub(0, {text})")
    result = plus[0] if len(plus) == 1 else None
    kind, text = self._any(result) if result is not None else self._fold("add", plus)
    for term in minus:
      other_kind, other = self._any(term)
      if "float" in (kind, other_kind):
        kind, text = "float", f"fsub({text if kind == 'float' else f'float({text})'}, {self._float(term)})"
      else:
        text = f"sub({text}, {other})"
    return kind, text

  def _Mul(self, e):
    numerator, denominator = sympy.fraction(e)
    if denominator != 1:
      parts = self._any(numerator), self._any(denominator)
      if any(kind == "float" for kind, _ in parts):
        return "float", f"fdiv({self._float(numerator)}, {self._float(denominator)})"
      return "int", f"floordiv({parts[0][1]}, {parts[1][1]})"      # a quotient that is known to be exact
    terms = list(e.as_ordered_factors())
    if terms[0] == -1 and len(terms) == 2:
      kind, text = self._any(terms[1])
      return (kind, f"fsub(0.0, {text})") if kind == "float" else (kind, f"sub(0, {text})")
    return self._fold("mul", terms)

  def _Pow(self, e):
    base, exponent = e.args
    if exponent == sympy.Rational(1, 2):
      return "float", f"sqrt({self._float(base)})"
    kinds = [self._any(part)[0] for part in (base, exponent)]
    if "float" in kinds:
      return self._FloatPow(e)
    if exponent.is_Integer and exponent < 0:
      raise Unsupported(f"a quotient that may have a remainder: {e}")
    return "int", f"pow({self.int(base)}, {self.int(exponent)})"

  _PowByNatural = _Pow

  def _FloatPow(self, e):
    return "float", f"fpow({self._float(e.args[0])}, {self._float(e.args[1])})"

  def _bits(self, op, e):
    return "int", f"{op}({self.int(e.args[0])}, {self.int(e.args[1])})"

  def _BitwiseFn_bitwise_and(self, e):
    return self._bits("bit_and", e)

  def _BitwiseFn_bitwise_or(self, e):
    return self._bits("bit_or", e)

  def _BitwiseFn_bitwise_xor(self, e):
    return self._bits("bit_xor", e)

  def _LShift(self, e):
    return self._bits("shl", e)

  def _RShift(self, e):
    return self._bits("shr", e)

  def _divided(self, op, e):
    return "int", f"{op}({self.int(e.args[0])}, {self.int(e.args[1])})"

  def _FloorDiv(self, e):
    return self._divided("floordiv", e)

  _CleanDiv = _FloorDiv

  def _CeilDiv(self, e):
    return self._divided("cdiv", e)

  def _Mod(self, e):
    return self._divided("mod", e)

  _PythonMod = _Mod

  def _ModularIndexing(self, e):
    value, divisor, modulus = (self.int(argument) for argument in e.args)
    return "int", f"mod({value if divisor == '1' else f'floordiv({value}, {divisor})'}, {modulus})"

  def _ordered(self, e):
    return sorted(e.args, key=sympy.default_sort_key)

  def _Min(self, e):
    return self._fold("min", self._ordered(e))

  def _Max(self, e):
    return self._fold("max", self._ordered(e))

  # Up to a multiple of what Inductor's pools align to.
  def _align(self, e):
    return "int", f"mul(cdiv({self.int(e.args[0])}, 64), 64)"

  def _Abs(self, e):
    kind, text = self._any(e.args[0])
    return (kind, f"fmax({text}, fsub(0.0, {text}))") if kind == "float" else (kind, f"max({text}, sub(0, {text}))")

  def _chosen(self, condition, yes, no):
    kinds = [self._any(part) for part in (yes, no)]
    if any(kind == "float" for kind, _ in kinds):
      return "float", f"fselect({self.int(condition)}, {self._float(yes)}, {self._float(no)})"
    return "int", f"select({self.int(condition)}, {kinds[0][1]}, {kinds[1][1]})"

  def _Where(self, e):
    return self._chosen(*e.args)

  def _Piecewise(self, e):
    (value, condition), *rest = e.args
    if condition == sympy.true:
      return self._any(value)
    if not rest:
      raise Unsupported(f"a Piecewise without a last case: {e}")
    return self._chosen(condition, value, sympy.Piecewise(*rest, evaluate=False) if len(rest) > 1 else rest[0][0])

  def _Identity(self, e):
    return self._any(e.args[0])

  # Rounding. A quotient of ints is rounded as ints: a double would lose digits.
  def _rounded(self, op, int_op, e):
    inner = e.args[0]
    if type(inner).__name__ == "IntTrueDiv" and int_op:
      return self._divided(int_op, inner)
    numerator, denominator = sympy.fraction(sympy.together(inner))
    if int_op and denominator != 1 and all(part.is_integer for part in (numerator, denominator)):
      return "int", f"{int_op}({self.int(numerator)}, {self.int(denominator)})"
    kind, text = self._any(inner)
    return "int", text if kind == "int" else f"{op}({text})"

  def _floor(self, e):
    return self._rounded("floor", "floordiv", e)

  _FloorToInt = _floor

  def _ceiling(self, e):
    return self._rounded("ceil", "cdiv", e)

  _CeilToInt = _ceiling

  def _TruncToInt(self, e):
    return self._rounded("trunc", None, e)

  def _RoundToInt(self, e):
    return self._rounded("round", None, e)

  def _TruncToFloat(self, e):
    return "float", f"float(trunc({self._float(e.args[0])}))"

  def _ToFloat(self, e):
    return "float", self._float(e.args[0])

  def _FloatTrueDiv(self, e):
    return "float", f"fdiv({self._float(e.args[0])}, {self._float(e.args[1])})"

  _IntTrueDiv = _FloatTrueDiv

  def _OpaqueUnaryFn_sqrt(self, e):
    return "float", f"sqrt({self._float(e.args[0])})"

  def _Rational(self, e):
    return "float", repr(float(e))

  _Half = _Rational

  # Conditions
  def _compared(self, op, left, right):
    kinds = [self._any(part) for part in (left, right)]
    if any(kind == "float" for kind, _ in kinds):
      return "int", f"{_FLOAT_OPS[op]}({self._float(left)}, {self._float(right)})"
    return "int", f"{op}({kinds[0][1]}, {kinds[1][1]})"

  def _Equality(self, e):
    return self._compared("eq", *e.args)

  def _Unequality(self, e):
    _, text = self._compared("eq", *e.args)
    return "int", f"not({text})" if text.startswith("feq") else "ne" + text.removeprefix("eq")

  def _StrictLessThan(self, e):
    return self._compared("lt", *e.args)

  def _LessThan(self, e):
    return self._compared("le", *e.args)

  def _StrictGreaterThan(self, e):
    return self._compared("lt", e.args[1], e.args[0])

  def _GreaterThan(self, e):
    return self._compared("le", e.args[1], e.args[0])

  def _And(self, e):
    return self._fold("and", self._ordered(e))

  def _Or(self, e):
    return self._fold("or", self._ordered(e))

  def _Not(self, e):
    return "int", f"not({self.int(e.args[0])})"
