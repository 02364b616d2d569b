"""The guards of torch.export: conditions on sizes and ints. Inductor drops them; an artifact checks
them.

torch.export keeps a guard as Python text, "(L['x'].size()[0] % 2) == 0", in which arguments have
the names of the model's forward."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sympy

from .. import hir
from ..errors import Unsupported
from ..inductor import exported_programs, python_text
from . import trees
from .values import Input

if TYPE_CHECKING:
  from torch.export import ExportedProgram


class _AlwaysHolds(Exception):
  """The guard concerns a value that is checked as a whole, or an address, and needs no check of its
  own."""


def of(exported: ExportedProgram, inputs: Sequence[Input]) -> list[tuple[hir.Expr, str]]:
  """The guards of an exported program whose inputs are `inputs`: each as a condition of a `.hir`
  and the text of the message."""
  conditions = []
  by_name = sources(exported)
  for guard in exported_programs.guards(exported):
    text = guard
    for source in sorted(by_name, key=len, reverse=True):
      text = text.replace(source, f"_input[{by_name[source]}]")
    reader = _Reader(inputs)
    try:
      condition = reader.read(ast.parse(text.strip(), mode="eval").body)
    except _AlwaysHolds:
      continue
    except (Unsupported, SyntaxError) as error:
      raise Unsupported(
        f"the guard {guard} of torch.export, which an artifact cannot check ({error})",
        remedy="give these sizes no Dim, or compute what depends on them outside of the model",
      ) from error
    if condition not in (sympy.true, True):
      text = re.sub(r"L\['(\w+)'\]", r"\1", guard).strip()
      conditions.append((reader.names.int(condition), "the model assumes " + text))
  return conditions


def sources(exported: ExportedProgram) -> dict[str, int]:
  """The index of each flat input by the name that guards have for it: {"L['x']": 0, "L['many'][1]":
  2}, or "L['flat_args'][2]" if torch.export has read the bytecode of the model.

  The program knows a value of `*many` by the name "many_1" only.
  """
  spec = exported.call_spec.in_spec
  assert spec is not None
  positional = exported_programs.argument_names(exported)
  found: dict[str, int] = {}
  for index, ((kind, argument, *path)) in enumerate(trees.paths(spec)):
    name = str(argument.name) if kind.number else positional[argument.number]
    for root in (f"L['{name}']", re.sub(r"^(\w+)_(\d+)$", r"L['\1'][\2]", name)):
      if root[:2] == "L[":
        for text in trees.in_code(path):
          found.setdefault(root + text, index)
  for index in range(spec.num_leaves):
    found.setdefault(f"L['flat_args'][{index}]", index)
  return found


class _Reader:
  """Reads a guard from its syntax tree."""

  def __init__(self, inputs: Sequence[Input]) -> None:
    self.inputs, self.names = inputs, hir.Expressions()

  def read(self, node: ast.expr) -> Any:
    """The sympy expression of a Python expression."""
    return python_text.read(node, self._value)

  def _value(self, node: ast.expr) -> sympy.Symbol:
    """The symbol of a size or a stride of an input, or of an input that is an int, a bool or a
    float."""
    if (
      isinstance(node, ast.Call)
      and isinstance(node.func, ast.Attribute)
      and node.func.attr == "storage_offset"
    ):
      raise _AlwaysHolds  # The address of the tensor includes its offset.
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Call):
      method, dim = node.value.func, node.slice
      if (
        isinstance(method, ast.Attribute)
        and method.attr in ("size", "stride")
        and isinstance(dim, ast.Constant)
        and isinstance(dim.value, int)
      ):
        tensor = self._input(method.value)
        return self._symbol(hir.op(method.attr, hir.Name(tensor.name), dim.value))
    value = self._input(node)
    return self._symbol(hir.Name(value.name, value.kind == "float"))

  def _input(self, node: ast.expr) -> Input:
    if not (
      isinstance(node, ast.Subscript)
      and isinstance(node.value, ast.Name)
      and node.value.id == "_input"
    ):
      raise Unsupported(f"it holds a {type(node).__name__}, which a check of a program has not")
    assert isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int)
    value = self.inputs[node.slice.value]
    if value.kind == "none" or value.value is not None:
      raise _AlwaysHolds
    return value

  def _symbol(self, expression: hir.Expr) -> sympy.Symbol:
    name = str(expression)
    is_float = expression.is_float
    symbol = sympy.Symbol(name, real=True) if is_float else sympy.Symbol(name, integer=True)
    self.names.define(symbol, expression)
    return symbol
