"""Whether every operator that a program calls has an implementation where the program runs.

The runtime would say so too, but only when a file is opened, which may be on another machine and
long after the export. The lines of Inductor's wrapper are looked at before any kernel is compiled,
which can take minutes."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from .. import hir
from ..errors import Unsupported
from ..inductor.origins import origin
from . import extern
from .nodes import IrNode, Line

# The namespaces of operators that only Husk implements. An application registers operators of all
# other namespaces, which are a model's own.
NAMESPACES = ("aten", "prims", "quantized", "husk")

# Lines that call the operator of their node.
_CALLS = {
  "ExternKernelOutLine",
  "ExternKernelAllocLine",
  "ExternKernelMultiOutLine",
  "ScatterFallbackLine",
  "IndexPutFallbackLine",
}


class Operators:
  """The operators that a target has.

  target: how messages call the target.
  implemented: the names of the operators that Husk implements there.
  of_application: names, or patterns such as "aten::*", of those that the application registers.
  """

  def __init__(
    self, target: str, implemented: Collection[str], of_application: Iterable[str] = ()
  ) -> None:
    self.target, self.implemented = target, implemented
    self.of_application = tuple(of_application)

  def has(self, name: str) -> bool:
    """Whether the operator `name` ("aten::mm.out") will be there when the program runs."""
    if name in self.implemented or name.partition("::")[0] not in NAMESPACES:
      return True
    called = name.removesuffix(":sizes")  # who registers an operator registers this one with it
    return any(fnmatch.fnmatchcase(called, pattern) for pattern in self.of_application)

  def check_lines(self, lines: Iterable[Line], is_product: Callable[[Any], bool]) -> None:
    """Refuses the lines if an operator is not there, and names all such operators. `is_product`
    tells of an operator whether it is replaced by one of Husk's."""
    missing: dict[str, str] = {}
    for node in _calls(lines):
      op = getattr(node, "op_overload", None)
      # Operators whose results are views are not called if the view can be written down; those
      # that are called all the same are found by check_statements.
      if not hasattr(op, "_schema") or extern.returns_view(op) or is_product(op):
        continue
      name = extern.operator_name(op)
      if not self.has(name):
        missing.setdefault(name, str(origin(node)))
    self._refuse(missing)

  def check_statements(self, statements: Iterable[hir.Statement]) -> None:
    """The same for the statements that the lines have become."""
    missing: dict[str, str] = {}
    for statement in hir.walk(statements):
      if isinstance(statement, hir.Extern) and not self.has(statement.name):
        missing.setdefault(statement.name, statement.origin)
    self._refuse(missing)

  def _refuse(self, missing: dict[str, str]) -> None:
    if not missing:
      return
    calls = [f"{name} (near {place})" if place else name for name, place in missing.items()]
    first = next(iter(missing))
    it = "them" if len(calls) > 1 else "it"
    raise Unsupported(
      f"no implementation of {', '.join(calls)} on {self.target}: compute {it} outside of the "
      f"exported model, or register an operator of this name in the application and export with "
      f"ops=[{first!r}]",
      has_place=True,
    )


def _calls(lines: Iterable[Line]) -> Iterator[IrNode]:
  """The nodes of the lines that call an operator, those of subgraphs too."""
  for line in lines:
    kind = type(line).__name__
    if kind in _CALLS:
      yield line.node
    for captured in _subgraphs(line):
      yield from _calls(captured.lines)


def _subgraphs(line: Line) -> list[Any]:
  kind = type(line).__name__
  if kind == "BranchLine":
    return line.branches
  if kind == "LoopLine":
    return [line.cond, line.body]
  return [line.body] if kind == "CallLine" else []
