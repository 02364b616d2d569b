"""Expressions: the text must have the meaning of the sympy expression."""

import itertools
import math

import built_tools  # noqa: F401
import hir_interpreter
import husk
import pytest
import sympy
import torch.utils._sympy.functions as f
from husk import hir

s, t = sympy.symbols("s0 s1", integer=True, positive=True)


def value(text, **scope):
  program = hir_interpreter.Program.__new__(hir_interpreter.Program)
  program.scope = scope
  return program._eval(hir_interpreter.Reader(text).expr())


def defined_expressions():
  expressions = hir.Expressions()
  expressions.define(s, hir.Name("s0"))
  expressions.define(t, hir.Name("s1"))
  return expressions


EXPRESSIONS = [
  s + t - 3,
  2 * s * t,
  s - t,
  -s,
  -s - t,
  s**2 * 3,
  f.FloorDiv(s + 7, t),
  f.CeilDiv(s * 5, 3),
  f.Mod(s * 7, t),
  f.PythonMod(s - 9, 4),
  f.ModularIndexing(s * t, 3, 5),
  f.ModularIndexing(s, 1, 5),
  f.Max(s, t),
  f.Min(s, t, 3),
  sympy.Max(s - t, 0),
  sympy.Min(s, t),
  f.Where(s > t, s, t),
  sympy.Piecewise((s, s < t), (t, True)),
  f.Identity(s + 1),
  f.CleanDiv(s * 6, 3),
  f.PowByNatural(s, 3),
  sympy.floor(s / 3),
  sympy.ceiling(s / 3),
  f.FloorToInt(f.IntTrueDiv(s, t)),
  f.CeilToInt(f.IntTrueDiv(s, t)),
  f.TruncToInt(f.IntTrueDiv(s, t)),
  sympy.Abs(s - t),
  (s * t) / 1,
  sympy.Eq(s, t),
  sympy.Ne(s, t),
  s < t,
  s <= t,
  s > t,
  s >= t,
  sympy.And(s > 1, t > 2),
  sympy.Or(s > 5, t > 2),
  sympy.Not(sympy.Eq(s, t)),
  sympy.true,
  sympy.Integer(-5),
  f.BitwiseFn_bitwise_and(s, t),
  f.BitwiseFn_bitwise_or(s, t),
  f.BitwiseFn_bitwise_xor(s * 3, t),
  f.LShift(s, t),
  f.RShift(s * 1000, t),
  f.RoundToInt(f.ToFloat(s) * 0.5),
  f.RoundToInt(f.IntTrueDiv(s, t)),
  f.RoundDecimal(s * 5, -1),
  f.RoundDecimal(s - 25, -1),
  f.RoundDecimal(s, 2),
  f.TruncToInt(f.FloatPow(f.ToFloat(s), 1.5)),
  f.Max(f.Min(s, t), f.ModularIndexing(s, t, 3)),
  f.Where(sympy.And(s > 2, t < 4), f.CeilDiv(s, t), f.FloorDiv(s * 9, t)),
  sympy.Abs(-s * t),
  sympy.Piecewise((s, s < t), (t, s < 7), (s * t, True)),
]


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_ints(expression):
  text = str(defined_expressions().int(expression))
  for a, b in itertools.product((1, 2, 3, 7, 40), (1, 2, 5, 9)):
    found = sympy.sympify(expression).subs({s: a, t: b})
    if isinstance(found, sympy.logic.boolalg.BooleanAtom):
      found = bool(found)
    assert value(text, s0=a, s1=b) == int(found), text


@pytest.mark.parametrize(
  "expression",
  [
    f.ToFloat(s) * 0.5,
    f.IntTrueDiv(s, t),
    f.FloatTrueDiv(f.ToFloat(s), 3.0),
    f.ToFloat(s) + t,
    f.ToFloat(s) - t,
    f.OpaqueUnaryFn_sqrt(f.ToFloat(s)),
    f.FloatPow(f.ToFloat(s), 0.5),
    f.TruncToFloat(f.ToFloat(s) * 0.3),
    f.ToFloat(s) / 3,
    f.Max(f.ToFloat(s), f.ToFloat(t)),
    f.Where(s > t, f.ToFloat(s), f.ToFloat(t)),
    sympy.Abs(f.ToFloat(s) * -0.5),
  ],
  ids=str,
)
def test_floats(expression):
  for a, b in ((1, 2), (9, 4), (40, 7)):
    result, expected = (
      value(str(defined_expressions().float(expression)), s0=a, s1=b),
      float(sympy.N(expression.subs({s: a, t: b}))),
    )
    assert isinstance(result, float) and result == pytest.approx(expected, rel=1e-15)


def test_a_float_is_not_an_int():
  with pytest.raises(husk.Unsupported, match="float"):
    defined_expressions().int(f.IntTrueDiv(s, t))


def test_unknown_symbols_are_refused():
  with pytest.raises(husk.Unsupported, match="u7"):
    defined_expressions().int(s + sympy.Symbol("u7", integer=True))


LOG = f.OpaqueUnaryFn_log2(f.ToFloat(s))


@pytest.mark.parametrize(
  ("rounded", "exact"),
  (
    (f.FloorToInt(LOG), lambda x: math.floor(math.log2(x))),
    (f.TruncToInt(LOG), lambda x: int(math.log2(x))),
    (f.CeilToInt(LOG), lambda x: math.ceil(math.log2(x))),
    (f.RoundToInt(LOG), lambda x: round(math.log2(x))),
    (sympy.Ge(LOG, 3), lambda x: math.log2(x) >= 3),
    (sympy.Lt(LOG, 2.5), lambda x: math.log2(x) < 2.5),
  ),
  ids=lambda value: str(value) if isinstance(value, sympy.Basic) else "",
)
def test_logarithms_are_rounded_or_compared(rounded, exact):
  text = str(defined_expressions().int(rounded))
  for number in (1, 2, 3, 5, 6, 7, 8, 9, 255, 256, 257, 2**40 - 1, 2**40, 2**40 + 1):
    assert value(text, s0=number) == exact(number), number
  if not isinstance(rounded, sympy.Rel):
    with pytest.raises(ZeroDivisionError):
      value(text, s0=0)


@pytest.mark.parametrize(
  ("expression", "message"),
  (
    (LOG + 1.5, "only if it is rounded to an int or compared"),
    (f.RoundDecimal(f.ToFloat(s), 2), "no double is a tenth"),
  ),
)
def test_what_has_no_exact_value_is_refused(expression, message):
  with pytest.raises(husk.Unsupported, match=message):
    defined_expressions().any(expression)


# Functions of torch that no program has an instruction for, and that no guard of a size needs: the
# transcendental ones, and one that torch computes while it traces.
REFUSED = {
  *(f"OpaqueUnaryFn_{name}" for name in "cos cosh sin sinh tan tanh asin acos atan".split()),
  *(f"OpaqueUnaryFn_{name}" for name in "exp log asinh".split()),
  "IsNonOverlappingAndDenseIndicator",
  "MinMaxBase",  # the base class of two others
}


def test_each_function_of_torch_is_converted_or_refused_by_name():
  functions = {
    name
    for name, one in vars(f).items()
    if isinstance(one, type) and issubclass(one, sympy.Basic) and one.__module__ == f.__name__
  }
  assert {name for name in functions if not hasattr(hir.Expressions, f"_{name}")} == REFUSED


def test_unknown_functions_are_refused():
  with pytest.raises(husk.Unsupported, match="OpaqueUnaryFn_sinh"):
    defined_expressions().int(f.FloorToInt(f.OpaqueUnaryFn_sinh(f.ToFloat(s))))


@pytest.mark.parametrize(
  ("expression", "is_known"), ((s + t, True), (4, True), (s + sympy.Symbol("u0"), False))
)
def test_an_expression_is_known_if_its_symbols_are(expression, is_known):
  assert defined_expressions().knows(expression) == is_known


def test_quotients_of_floats_are_rounded():
  """torch writes the length of arange(0, s * 0.5, 0.2) so."""
  length = defined_expressions().int(
    f.CeilToInt(f.IntTrueDiv(0.5 * f.ToFloat(s), sympy.Float(0.2)))
  )
  whole = defined_expressions().int(f.FloorToInt(f.IntTrueDiv(f.ToFloat(s), t)))
  assert [value(str(length), s0=n) for n in (1, 7, 8)] == [3, 18, 20]
  assert [value(str(whole), s0=n, s1=3) for n in (1, 7, 9)] == [0, 2, 3]
