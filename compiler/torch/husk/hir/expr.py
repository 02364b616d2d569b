"""The expressions of a `.hir`: literals, names and operations. `str` gives the text of an
expression."""

import dataclasses
from collections.abc import Iterable

from .literals import number


@dataclasses.dataclass(frozen=True)
class Literal:
  """A number that is known when the program is written."""

  value: bool | int | float

  @property
  def is_float(self) -> bool:
    return isinstance(self.value, float)

  def __str__(self) -> str:
    return number(self.value)


@dataclasses.dataclass(frozen=True)
class Name:
  """The name of a number, or of an input as the operand of `size` and `stride`."""

  name: str
  is_float: bool = False

  def __str__(self) -> str:
    return self.name


# The operations of schema/ops.def whose result is a float.
_FLOAT_OPS = frozenset("fresult fadd fsub fmul fdiv fmin fmax fselect fpow sqrt float".split())


@dataclasses.dataclass(frozen=True)
class Op:
  """An operation of schema/ops.def."""

  op: str
  operands: tuple["Expr", ...]

  @property
  def is_float(self) -> bool:
    return self.op in _FLOAT_OPS

  def __str__(self) -> str:
    return f"{self.op}({', '.join(map(str, self.operands))})"


Expr = Literal | Name | Op


def op(name: str, *operands: Expr | bool | int | float) -> Op:
  """The operation `name`; a Python number among the operands is a literal."""
  return Op(
    name,
    tuple(
      Literal(operand) if isinstance(operand, (bool, int, float)) else operand
      for operand in operands
    ),
  )


def names_in(expressions: Iterable[Expr | None]) -> set[str]:
  """The names that occur in expressions."""
  names: set[str] = set()
  for expression in expressions:
    if isinstance(expression, Name):
      names.add(expression.name)
    elif isinstance(expression, Op):
      names |= names_in(expression.operands)
  return names
