"""The interface between the lines of a function and a backend, which compiles the kernels of one
target.

`host/kernels.py` and `cuda/kernels.py` are backends. Kernel launches and calls of operators both go
through this interface.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import sympy

from .statements import Argument, Extern, Statement


@dataclasses.dataclass(frozen=True)
class ViewArg:
  """A pointer. `memory` is the entry of the call's arguments that stands for the memory: the
  name of a buffer, or an object of the caller. `access` is "read", "write", "both" or "atomic"."""

  access: str
  memory: Any


@dataclasses.dataclass(frozen=True)
class ValueArg:
  """A number: a Python number or a SymPy expression."""

  value: Any


@dataclasses.dataclass(frozen=True)
class ScratchArg:
  """A pointer to memory that only this launch uses."""

  bytes: sympy.Expr | int
  alignment: int


@dataclasses.dataclass(frozen=True)
class NullArg:
  """A null pointer."""


@dataclasses.dataclass(frozen=True)
class AssertFlag:
  """The pointer to the word in which a kernel stores the number of an assert that failed."""


LaunchArg = ViewArg | ValueArg | ScratchArg | NullArg | AssertFlag


@dataclasses.dataclass
class KernelCall:
  """The launch for a kernel call. `kernel` is the name of the row of the kernel. `grid`
  has three SymPy expressions or ints, `arguments` has one entry for each parameter of the
  kernel."""

  kernel: str
  grid: tuple[Any, Any, Any]
  arguments: list[LaunchArg]


@dataclasses.dataclass
class Descriptor:
  """A tensor descriptor among the arguments of a call: `tensor` is the name of a place."""

  tensor: str
  sizes: list[Any]
  strides: list[Any]

  def arguments(self, name: str) -> dict[str, Any]:
    """The arguments, by name, that take the place of the parameter `name`."""
    arguments: dict[str, Any] = {name: self.tensor}
    arguments.update({f"husk_{name}_size{d}": size for d, size in enumerate(self.sizes)})
    arguments.update(
      {f"husk_{name}_stride{d}": stride for d, stride in enumerate(self.strides[:-1])}
    )
    return arguments


@dataclasses.dataclass
class OperatorCall:
  """A call of an operator. `arguments` are all arguments of its schema, `results` what it returns:
  tensors that it writes and numbers."""

  name: str  # "aten::mm.out"
  arguments: list[Argument]
  results: list[Argument]
  origin: str  # the place in the model


class Library(Protocol):
  """Computes operators of torch's where the program runs, by operators of its own."""

  def takes(self, op: Any) -> bool:
    """Whether it computes the operator `op`, a torch.ops overload."""
    ...

  def supports(self, values: Mapping[str, Any]) -> bool:
    """Whether it computes this call of an operator that it takes. `values` are the arguments, by
    name."""
    return True

  def call(self, body: Any, node: Any, values: Mapping[str, Any], result: Argument) -> None:
    """Writes such a call to a `lower.body.Body`. `node` is the operator in Inductor's IR, `result`
    what the call writes."""
    ...


class Backend(Protocol):
  """Compiles the kernels of one target, and decides what a launch passes to them."""

  # Bytes. The kernels assume that the address of a buffer is a multiple of this number.
  alignment: int

  # Whether the target has memory of its own, beside that of the host.
  is_beside_host: bool = False

  # Each library computes some operators of torch's in its own way. A call belongs to the first
  # library that takes it.
  libraries: Sequence["Library"] = ()

  def begin_function(self) -> None:
    """Forgets the names of kernels, which are Inductor's and begin anew in every function."""
    ...

  def compile_ahead(self, definitions: Sequence[tuple[str, str]]) -> None:
    """Is called before `define_kernel` is, with the same names and bodies: a backend may compile
    several kernels at once."""

  def define_kernel(self, name: str, body: str, metadata: str | None = None) -> None:
    """Compiles the kernel of a KernelDefinitionLine."""
    ...

  def call_kernel(
    self,
    name: str,
    call_args: Sequence[Any],
    ranges: dict[sympy.Symbol, Any] | None = None,
    extent: Callable[[Any], sympy.Expr] | None = None,
  ) -> KernelCall:
    """The kernel and the arguments for a KernelCallLine. `ranges` bounds the symbols in the
    arguments, and `extent` returns the bytes of an argument that stands for memory."""
    ...

  def note_call(self, kernel: str, place: Callable[[], str]) -> None:
    """Tells that a call of the kernel has been written. `place` returns the operators that it
    computes and the line of the model, for messages."""

  def note_statements(self, statements: Sequence[Statement]) -> None:
    """Tells the statements of a variant when no more are added."""

  def call_operator(self, call: OperatorCall) -> list[Statement]:
    """The statements that call an operator. By default the runtime calls the operator that is
    registered under the name."""
    return [Extern(call.name, [*call.arguments, *call.results], call.origin)]
