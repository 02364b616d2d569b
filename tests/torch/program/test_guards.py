"""Guards of torch.export: from Python text to the checks of an artifact."""

import ast

import built_tools  # noqa: F401  (where the exporter lies)
import husk
import pytest
from husk.program import guards
from husk.program.signature import Input

INPUTS = [
  Input("x", "tensor", "f32", ("1..9", "4")),
  Input("n", "int", ranges=("0..inf",)),
  Input("f", "float"),
  Input("k", "int", ranges=("3",), value=3),
  Input("nothing", "none"),
]


def read(text):
  reader = guards._Reader(INPUTS)
  for i, name in enumerate(("x", "n", "f", "k", "nothing")):
    text = text.replace(f"L['{name}']", f"_input[{i}]")
  return str(reader.names.int(reader.read(ast.parse(text, mode="eval").body)))


@pytest.mark.parametrize(
  "guard, text",
  [
    ("(L['x'].size()[0] % 2) == 0", "eq(mod(size(x, 0), 2), 0)"),
    ("2*L['x'].size()[0] != 6", "ne(mul(2, size(x, 0)), 6)"),
    ("L['x'].stride()[1] == L['n']", "eq(stride(x, 1), n)"),
    ("2 <= L['n'] and L['n'] < 7", "and(le(2, n), lt(n, 7))"),
    ("2 <= L['n'] < 7", "and(le(2, n), lt(n, 7))"),
    ("not (L['n'] == 3 or L['n'] > 8)", "not(or(eq(n, 3), lt(8, n)))"),
    ("max(L['n'], L['x'].size()[0]) <= 5", "le(max(n, size(x, 0)), 5)"),
    ("torch.sym_min(L['n'], 3) == (L['n'] // 2)", "eq(min(3, n), floordiv(n, 2))"),
    ("L['f'] < 2.5", "flt(f, 2.5)"),
    ("-L['n'] > -4", "lt(-4, sub(0, n))"),
    ("math.trunc(torch.sym_float(L['n'])*0.5) == 3", "eq(trunc(fmul(0.5, float(n))), 3)"),
    ("math.floor((1/2)*L['n']) == 3", "eq(floordiv(n, 2), 3)"),
    ("round(0.5*L['n']) <= 3", "le(round(fmul(0.5, float(n))), 3)"),
    ("round(L['n'], 2) == 4", "eq(n, 4)"),
    ("(L['n'] & 3) == 0", "eq(bit_and(n, 3), 0)"),
    ("(L['n'] | 1) == (L['n'] ^ 2)", "eq(bit_or(n, 1), bit_xor(n, 2))"),
    ("(L['n'] << 2) < 9", "lt(mul(4, n), 9)"),
    ("(L['n'] >> 2) < 9", "lt(floordiv(n, 4), 9)"),
    ("L['n']**3 < 9", "lt(pow(n, 3), 9)"),
    ("L['f']**0.5 < 9", "flt(fpow(f, 0.5), 9.0)"),
    ("abs(L['n'] - 4) < 9", "lt(max(sub(n, 4), sub(0, sub(n, 4))), 9)"),
    ("math.log2(torch.sym_float(L['n'])) <= 3", "fle(float(n), 8.0)"),
  ],
)
def test_guards(guard, text):
  assert read(guard) == text


@pytest.mark.parametrize(
  "guard", ["L['k'] == 3", "L['nothing'] == 0", "L['x'].storage_offset() == 0"]
)
def test_guards_that_always_hold_are_omitted(guard):
  with pytest.raises(guards._AlwaysHolds):
    read(guard)


def test_a_number_of_more_than_64_bits_is_larger_than_any_size():
  reader = guards._Reader(INPUTS)

  def is_true(text):
    return reader.read(ast.parse(text.replace("x", "_input[0].size()[0]"), mode="eval").body)

  assert is_true("(-1) + x <= 9223372036854775808 + ((-1)*x)") == True  # noqa: E712
  assert is_true("x - 9223372036854775808 > x") == False  # noqa: E712


@pytest.mark.parametrize(
  "guard", ["hash(L['n']) == 3", "L['x'].dtype == 3", "other == 3", "L['n'] @ 2 == 3"]
)
def test_unknown_guards_are_refused(guard):
  with pytest.raises(husk.Unsupported, match="it holds a"):
    read(guard)
