"""Python text of guards and grids becomes expressions of sympy."""

import ast

import built_tools  # noqa: F401  (where the exporter lies)
import pytest
import sympy
from husk.cuda import grids
from husk.errors import Unsupported
from husk.inductor import python_text
from torch.utils._sympy.functions import CeilDiv, FloorDiv, Max, Min, PythonMod, Where

n = sympy.Symbol("n", integer=True, positive=True)
SCOPE = {"n": n, "k": 64}


def read(text):
  return python_text.read(
    ast.parse(text, mode="eval").body, lambda node: sympy.sympify(SCOPE[node.id])
  )


@pytest.mark.parametrize(
  "text, expression",
  [
    ("2*n - 3", 2 * n - 3),
    ("n // 8", FloorDiv(n, 8)),
    ("k // 5", 12),
    ("-(n // -8)", CeilDiv(n, 8)),
    ("cdiv(k, 5)", 13),
    ("n % 8", PythonMod(n, 8)),
    ("max(n, k)", Max(n, 64)),
    ("torch.sym_min(n, 3)", Min(n, 3)),
    ("n if n > 4 else 7", Where(n > 4, n, 7)),
    ("3 < n <= k", sympy.And(sympy.Lt(3, n), sympy.Le(n, 64))),
    ("not (n == 3 or n > 8)", sympy.Not(sympy.Or(sympy.Eq(n, 3), n > 8))),
    ("n < 9223372036854775808", sympy.true),
  ],
)
def test_expressions(text, expression):
  assert read(text) == expression


@pytest.mark.parametrize("text", ["other", "f(n)", "n.size", "n[0]", "'n'", "n +"])
def test_a_grid_that_is_not_understood_is_refused(text):
  with pytest.raises(Unsupported, match="kernel one: its grid .* is not understood"):
    grids._value("one", text, SCOPE)
