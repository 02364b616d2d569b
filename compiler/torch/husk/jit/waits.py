"""Collectives of PyTorch's that begin at one step of a program, and for which a later step waits.
The steps between them run meanwhile, as Inductor has ordered them."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .. import hir

if TYPE_CHECKING:
  import torch

_NAMESPACE = "_c10d_functional::"
_WAITS = (f"{_NAMESPACE}wait_tensor", f"{_NAMESPACE}wait_tensors")


def is_wait(name: str) -> bool:
  return name in _WAITS


def is_collective(name: str) -> bool:
  """Whether an operator begins a collective. Its calls have one more argument (`pair`)."""
  return name.startswith(_NAMESPACE) and not is_wait(name)


def pair(statements: Sequence[hir.Statement]) -> None:
  """Tells each collective, by a number behind its arguments, whether its block waits for all of its
  results later; if not, its own step waits. A wait gets all tensors of the collectives for which it
  waits, so that their memory has no other use before."""
  later: dict[hir.Buffer, hir.Extern] = {}  # by buffer: the first wait after the statement
  for statement in reversed(statements):
    for block in statement.blocks():
      pair(block)
    if not isinstance(statement, hir.Extern):
      continue
    tensors = list(_tensors(statement.arguments))
    if is_wait(statement.name):
      later.update((tensor.buffer.row(), statement) for tensor in tensors)
    elif is_collective(statement.name):
      written = {tensor.buffer.row() for tensor in tensors if tensor.access != "read"}
      waits = [later.pop(row) for row in written if row in later]
      is_waited = bool(written) and len(waits) == len(written)
      statement.arguments = [*statement.arguments, hir.Literal(int(is_waited))]
      if is_waited:
        for wait in {id(wait): wait for wait in waits}.values():
          _add(wait, tensors)


def _add(wait: hir.Extern, tensors: Sequence[hir.Tensor]) -> None:
  """Adds tensors to a wait. Those that the collective writes are written until it ends, for whoever
  reads them."""
  accesses = [
    dataclasses.replace(tensor, access="read" if tensor.access == "read" else "both")
    for tensor in tensors
  ]
  wait.arguments = [*wait.arguments, *accesses]


def _tensors(arguments: Sequence[hir.Argument]) -> Iterator[hir.Tensor]:
  for argument in arguments:
    for item in argument.items if isinstance(argument, hir.TensorList) else [argument]:
      if isinstance(item, hir.Tensor):
        yield item


@dataclasses.dataclass
class Result:
  """A result of a collective: the tensor that PyTorch has returned, and the one of the program,
  which gets a copy if it is another one."""

  returned: torch.Tensor
  target: torch.Tensor

  def wait(self) -> None:
    """Waits for the collective: on a GPU its stream does. PyTorch finds what to wait for by the
    tensor that was returned, and a later step has another one of the same memory."""
    import torch

    torch.ops._c10d_functional.wait_tensor(self.returned)
    if self.target is not self.returned:
      self.target.copy_(self.returned)


class Begun(threading.local):
  """The results of collectives that a run has begun, and for which it has not waited, by address. A
  run is a thread's, which calls all of its operators."""

  def __init__(self) -> None:
    self.results: dict[int, list[Result]] = {}

  def add(self, result: Result) -> None:
    self.results.setdefault(result.target.data_ptr(), []).append(result)

  def wait(self, *tensors: torch.Tensor) -> None:
    """Waits for the collectives that write these tensors. If a tensor is none of their results, it
    may be a part of one, so this waits for all."""
    places = {tensor.data_ptr() for tensor in tensors}
    self._wait(places if places <= self.results.keys() else set(self.results))

  def _wait(self, places: Iterable[int]) -> None:
    for place in places:
      for result in self.results.pop(place):
        result.wait()

  def guard(self, program: Callable[..., Any]) -> Callable[..., Any]:
    """The program, which waits for what it has begun when it ends, also by an error."""

    def run(*args: Any) -> Any:
      try:
        return program(*args)
      finally:
        self._wait(list(self.results))

    return run
