"""Whether every operator that a program calls has an implementation where the program runs.

The runtime would say so too, but only when a file is opened, which may be on another machine and
long after the export. The lines of Inductor's wrapper are looked at before any kernel is compiled,
which can take minutes."""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from .. import hir
from ..errors import Unsupported
from ..inductor.origins import origin
from . import extern
from .nodes import IrNode, Line

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
  of_host: the names of the operators that the host beside the device has.
  host_steps: whether those of them that the device lacks run on the host.
  of_reals: the names of the implemented operators that take no complex numbers.
  """

  def __init__(
    self,
    target: str,
    implemented: Collection[str],
    of_application: Iterable[str] = (),
    of_host: Collection[str] = (),
    host_steps: bool = False,
    of_reals: Collection[str] = (),
  ) -> None:
    self.target, self.implemented, self.of_reals = target, implemented, of_reals
    self.of_application = tuple(of_application)
    self.of_host, self.host_steps = of_host, host_steps

  def has(self, name: str, is_complex: bool = False) -> bool:
    """Whether the device will have the operator `name` ("aten::mm.out") when the program runs;
    `is_complex` tells whether it is called with complex numbers."""
    if name in self.implemented and not (is_complex and name in self.of_reals):
      return True
    return self._is_registered(name)

  def _is_registered(self, name: str) -> bool:
    """Whether it was said that the application registers the operator `name`."""
    called = name.removesuffix(":sizes")  # who registers an operator registers this one with it
    return any(fnmatch.fnmatchcase(called, pattern) for pattern in self.of_application)

  def runs_on_host(self, name: str, is_complex: bool = False) -> bool:
    """Whether the operator `name` is called on the host beside the device. Operators that draw
    random numbers are not: the state of the generator means another thing on a host."""
    is_there = self.host_steps and name in self.of_host and not self.has(name, is_complex)
    return is_there and not draws_random_numbers(name)

  def is_host_step(self, statement: hir.Statement) -> bool:
    """Whether a statement calls an operator on the host beside the device."""
    return isinstance(statement, hir.Extern) and self.runs_on_host(
      statement.name, _has_complex(statement.arguments)
    )

  def is_there(self, name: str, is_complex: bool = False) -> bool:
    """Whether a program may call the operator `name`, on the device or on the host beside it."""
    return self.has(name, is_complex) or self.runs_on_host(name, is_complex)

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
      if not self.is_there(name, _takes_complex(node)):
        missing.setdefault(name, str(origin(node)))
    self._refuse(missing)

  def check_statements(self, statements: Iterable[hir.Statement]) -> None:
    """The same for the statements that the lines have become."""
    missing: dict[str, str] = {}
    for statement in hir.walk(statements):
      if isinstance(statement, hir.Extern) and not self.is_there(
        statement.name, _has_complex(statement.arguments)
      ):
        missing.setdefault(statement.name, statement.origin)
    self._refuse(missing)

  def check(self, name: str) -> None:
    """Refuses the operator `name` if it is not there."""
    if not self.is_there(name):
      raise Unsupported(self._refusal({name: ""}))

  def _refuse(self, missing: dict[str, str]) -> None:
    """Refuses the operators in `missing`, which has the place of each in the model."""
    if missing:
      raise Unsupported(self._refusal(missing), has_place=True)

  def _refusal(self, missing: dict[str, str]) -> str:
    calls = [f"{name} (near {place})" if place else name for name, place in missing.items()]
    first = next(iter(missing))
    it = "them" if len(calls) > 1 else "it"
    return (
      f"no implementation of {', '.join(calls)} on {self.target}: compute {it} outside of the "
      f"exported model, or register an operator of this name in the application and export with "
      f"ops=[{first!r}]{self._of_host(missing)}"
    )

  def _of_host(self, missing: Iterable[str]) -> str:
    """Why the host does not compute those of the missing operators that it has."""
    there = [name for name in missing if name in self.of_host]
    random = [name for name in there if draws_random_numbers(name)]
    others = [name for name in there if name not in random]
    text = ""
    if others and not self.host_steps:
      text += f'; host_ops="allow" would run {", ".join(others)} on the CPU'
    if random:
      text += (
        f"; the CPU has {', '.join(random)}, but draws random numbers from another generator than "
        "the kernels of the program"
      )
    return text


def _takes_complex(node: IrNode) -> bool:
  """Whether an input of a node of Inductor's is a complex tensor."""
  return any(
    hasattr(one, "get_dtype") and one.get_dtype().is_complex for one in getattr(node, "inputs", ())
  )


def _has_complex(arguments: Iterable[hir.Argument]) -> bool:
  """Whether a complex tensor is among the arguments of a statement."""
  for argument in arguments:
    if isinstance(argument, hir.TensorList) and _has_complex(argument.items):
      return True
    if isinstance(argument, hir.Tensor) and argument.dtype in ("c64", "c128"):
      return True
  return False


@functools.cache
def draws_random_numbers(name: str) -> bool:
  """Whether the operator `name` draws random numbers."""
  op = extern.overload(name)
  return op is not None and extern.is_random(op)


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
