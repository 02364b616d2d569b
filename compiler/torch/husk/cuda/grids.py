"""The grids of Triton kernels, as expressions of the arguments of a call."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

import sympy

from ..errors import Unsupported
from ..inductor import python_text
from ..inductor.lines import InductorObject


def of_call(
  name: str, inductor_meta: dict[str, Any], config: dict[str, Any], scope: Mapping[str, Any]
) -> tuple[Any, Any, Any]:
  """The three grid expressions that Inductor's launcher would compute. `scope` has the call's
  arguments."""
  from torch._inductor.runtime import triton_heuristics

  kind = inductor_meta.get("grid_type")
  grid_class = getattr(triton_heuristics, str(kind), None)
  if not (isinstance(grid_class, type) and issubclass(grid_class, triton_heuristics.GridExpr)):
    raise Unsupported(f"kernel {name}: grid type {kind!r} is not known")
  expressions: InductorObject = grid_class(inductor_meta=inductor_meta, mode="python")
  expressions.ceildiv = _ceildiv
  expressions.generate(config)
  scope = dict(scope)
  for line in expressions.prefix:
    target, _, value = line.partition(" = ")
    scope[target.strip()] = _value(name, value, scope)
  return (
    _value(name, expressions.x_grid, scope),
    _value(name, expressions.y_grid, scope),
    _value(name, expressions.z_grid, scope),
  )


def _ceildiv(numel: int | str, block: int | str | None) -> int | str:
  """The text or value of a quotient, rounded up."""
  if block is None or block == 1:
    return numel
  if isinstance(numel, int) and isinstance(block, int):
    return -(-numel // block)
  # A computed divisor may be 0; then the numerator is 0 too.
  return f"cdiv({numel}, {block})" if isinstance(block, int) else f"cdiv({numel}, max(1, {block}))"


def _value(name: str, text: Any, scope: Mapping[str, Any]) -> sympy.Expr:
  """The value of an expression in Python."""

  def variable(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
      return sympy.sympify(scope[node.id])
    raise NotImplementedError(f"{ast.unparse(node)!r}")

  try:
    return python_text.read(ast.parse(str(text).strip(), mode="eval").body, variable)
  except (SyntaxError, KeyError, TypeError, NotImplementedError) as error:
    raise Unsupported(
      f"kernel {name}: its grid {str(text)!r} is not understood ({error})"
    ) from error


def largest(blocks: Sequence[Any], ranges: dict[sympy.Symbol, Any]) -> int | None:
  """An upper bound of the number of blocks; None if it is not known."""
  from torch.utils._sympy.value_ranges import bound_sympy

  product = 1
  for side in blocks:
    if not isinstance(side, sympy.Expr):
      product *= int(side)
      continue
    try:
      upper: Any = bound_sympy(side, ranges).upper
    except Exception:  # an expression whose range nobody knows
      return None
    if not upper.is_Integer:
      return None
    product *= int(upper)
  return product
