"""The statements of a `.hir` and their arguments. `str` gives the text of an argument; `lines`
gives the lines of a statement. compiler/ir/HIR.md describes the text.

Expressions and arguments refer to buffers as objects, because the name of a buffer is decided last:
an arena buffer that turns out to be an output gets the name of the output.
"""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence

from .expr import Expr, Literal
from .literals import quoted


@dataclasses.dataclass(eq=False)
class Buffer:
  """A row of memory. `stands_for` is set if the buffer turns out to be another one."""

  name: str
  space: str  # arena, input, output, constant or state
  bytes: Expr | None = None  # None until the size is known
  align: int = 0  # bytes; what the kernels assume of the address; 0 if they assume nothing
  stands_for: "Buffer | None" = None
  on_host: bool = False  # whether it lies in host memory beside the device of the target

  def row(self) -> "Buffer":
    """The buffer that this one stands for in the end."""
    return self if self.stands_for is None else self.stands_for.row()


# Arguments


@dataclasses.dataclass
class View:
  """Bytes of a buffer, as a kernel gets them. Without offset and extent it is the whole buffer."""

  access: str
  buffer: Buffer
  offset: Expr | None = None
  extent: Expr | None = None

  def __str__(self) -> str:
    part = "" if self.offset is None else f"[{self.offset}, {self.extent}]"
    return f"{self.access} {self.buffer.row().name}{part}"

  def rows(self) -> list[Buffer]:
    return [self.buffer.row()]


@dataclasses.dataclass
class Tensor:
  """A typed view, as an operator gets it. `access` is empty for a result of a function."""

  access: str
  buffer: Buffer
  dtype: str
  sizes: list[Expr]
  strides: list[Expr]
  offset: Expr = Literal(0)  # elements

  def __str__(self) -> str:
    sizes, strides = (_list(part) for part in (self.sizes, self.strides))
    offset = "" if self.offset == Literal(0) else f" offset {self.offset}"
    access = f"{self.access} " if self.access else ""
    return f"{access}tensor {self.buffer.row().name} {self.dtype} {sizes} {strides}{offset}"

  def rows(self) -> list[Buffer]:
    return [self.buffer.row()]


@dataclasses.dataclass
class TensorList:
  """A list of tensors; None stands for a tensor that is missing."""

  items: "Sequence[Tensor | NoneArg]"

  def __str__(self) -> str:
    return f"tensors {_list(self.items)}"

  def rows(self) -> list[Buffer]:
    return [row for item in self.items for row in rows_of(item)]


@dataclasses.dataclass(frozen=True)
class Ints:
  """A list of ints."""

  items: tuple[Expr, ...]

  def __str__(self) -> str:
    return _list(self.items)


@dataclasses.dataclass(frozen=True)
class Floats:
  """A list of floats."""

  items: tuple[Expr, ...]

  def __str__(self) -> str:
    return f"floats {_list(self.items)}"


@dataclasses.dataclass(frozen=True)
class Text:
  """A string."""

  value: str

  def __str__(self) -> str:
    return quoted(self.value)


@dataclasses.dataclass(frozen=True)
class Dtype:
  """A dtype as an argument of an operator."""

  name: str

  def __str__(self) -> str:
    return f"dtype {self.name}"


@dataclasses.dataclass(frozen=True)
class NumberResult:
  """A number that an operator returns. Later expressions read it by `result` or `fresult`."""

  is_float: bool

  def __str__(self) -> str:
    return "result float" if self.is_float else "result int"


@dataclasses.dataclass(frozen=True)
class NoneArg:
  """The value None of an operator's argument or of an output."""

  def __str__(self) -> str:
    return "none"


@dataclasses.dataclass(frozen=True)
class NullPointer:
  """A null pointer among the parameters of a kernel."""

  def __str__(self) -> str:
    return "null"


@dataclasses.dataclass(frozen=True)
class AssertPointer:
  """The pointer to the session's word for the number of an assert that failed."""

  def __str__(self) -> str:
    return "asserts"


Argument = (
  View
  | Tensor
  | TensorList
  | Ints
  | Floats
  | Text
  | Dtype
  | NumberResult
  | NoneArg
  | NullPointer
  | AssertPointer
  | Expr
)


@dataclasses.dataclass(frozen=True)
class Number:
  """A number that a function returns."""

  value: Expr
  is_float: bool

  def __str__(self) -> str:
    return f"{'float' if self.is_float else 'int'} {self.value}"


Result = Tensor | Number | NoneArg


def rows_of(argument: Argument) -> list[Buffer]:
  """The buffers whose memory an argument refers to."""
  return argument.rows() if isinstance(argument, (View, Tensor, TensorList)) else []


def _list(items: Iterable[object]) -> str:
  return f"[{', '.join(map(str, items))}]"


# Statements


class Statement:
  """The base of all statements."""

  origin: str = ""  # the place in the model that the statement comes from

  def lines(self) -> list[str]:
    """The lines of the statement's text."""
    raise NotImplementedError

  def arguments_of(self) -> Sequence[Argument]:
    """The arguments that refer to memory."""
    return ()

  def blocks(self) -> "list[list[Statement]]":
    """The lists of statements inside this one."""
    return []

  def rows(self) -> list[Buffer]:
    """The buffers that the statement reads or writes."""
    return [row for argument in self.arguments_of() for row in rows_of(argument)]

  def _step(self, head: str) -> list[str]:
    """The line of a step: `head (arguments) at "origin"`."""
    at = f" at {quoted(self.origin)}" if self.origin else ""
    return [f"{head} ({', '.join(map(str, self.arguments_of()))}){at}"]


@dataclasses.dataclass
class Let(Statement):
  """Names a number."""

  name: str
  value: Expr

  def lines(self) -> list[str]:
    return [f"let {self.name} = {self.value}"]


@dataclasses.dataclass
class Check(Statement):
  """Stops the run with `message` unless `condition` is true."""

  condition: Expr
  message: str

  def lines(self) -> list[str]:
    return [f"check({self.condition}) {quoted(self.message)}"]


@dataclasses.dataclass
class CheckEqual(Statement):
  """Stops the run with `message` and both values unless the two are equal."""

  left: Expr
  right: Expr
  message: str

  def lines(self) -> list[str]:
    return [f"check_eq({self.left}, {self.right}) {quoted(self.message)}"]


@dataclasses.dataclass
class CheckStride(Statement):
  """Stops the run unless dimension `dim` of the input `name` has a stride, in elements."""

  name: str
  dim: int
  stride: Expr

  def lines(self) -> list[str]:
    return [f"check_stride({self.name}, {self.dim}, {self.stride})"]


@dataclasses.dataclass
class Declare(Statement):
  """Declares a buffer of the arena, or the buffer of an input or output."""

  buffer: Buffer

  def lines(self) -> list[str]:
    buffer = self.buffer
    space = f" of {buffer.space}" if buffer.space in ("input", "output") else ""
    align = f" align {buffer.align}" if buffer.align > 1 else ""
    host = " on host" if buffer.on_host else ""
    return [f"buffer {buffer.name}{space} bytes {buffer.bytes}{align}{host}"]


@dataclasses.dataclass
class Launch(Statement):
  """Launches the kernel whose row is named `kernel`."""

  kernel: str
  grid: tuple[Expr, ...]
  arguments: list[Argument]
  origin: str = ""

  def arguments_of(self) -> Sequence[Argument]:
    return self.arguments

  def lines(self) -> list[str]:
    return self._step(f"launch {self.kernel} grid ({', '.join(map(str, self.grid))})")


@dataclasses.dataclass
class Extern(Statement):
  """Calls an operator: first all arguments of its schema, then its results."""

  name: str
  arguments: list[Argument]
  origin: str = ""

  def arguments_of(self) -> Sequence[Argument]:
    return self.arguments

  def lines(self) -> list[str]:
    return self._step(f"extern {quoted(self.name)}")

  def is_host_step(self) -> bool:
    """Whether the operator runs on the host beside the device, where its tensors lie."""
    return any(row.on_host for row in self.rows())


@dataclasses.dataclass
class Copy(Statement):
  """Copies bytes from one view to another of equal size."""

  destination: View
  source: View
  origin: str = ""

  def arguments_of(self) -> Sequence[Argument]:
    return [self.destination, self.source]

  def lines(self) -> list[str]:
    return self._step("copy")


@dataclasses.dataclass
class Fill(Statement):
  """Writes `value`, a number of `dtype`, to all elements of a view."""

  dtype: str
  destination: View
  value: Expr
  origin: str = ""

  def arguments_of(self) -> Sequence[Argument]:
    return [self.destination, self.value]

  def lines(self) -> list[str]:
    return self._step(f"fill {self.dtype}")


@dataclasses.dataclass
class Read(Statement):
  """Reads one number from memory. Later expressions read it by `result` or `fresult`."""

  dtype: str
  source: View
  origin: str = ""

  def arguments_of(self) -> Sequence[Argument]:
    return [self.source]

  def lines(self) -> list[str]:
    return self._step(f"read {self.dtype}")


@dataclasses.dataclass
class When(Statement):
  """Runs the statements of `yes` if `condition` is not 0, else those of `no`."""

  condition: Expr
  yes: list[Statement]
  no: list[Statement]

  def lines(self) -> list[str]:
    otherwise = ["} else {", *_indented(self.no)] if self.no else []
    return [f"when {self.condition} {{", *_indented(self.yes), *otherwise, "}"]

  def blocks(self) -> list[list[Statement]]:
    return [self.yes, self.no]


@dataclasses.dataclass
class Loop(Statement):
  """Runs `before`, leaves if `condition` is 0, runs `after`, and repeats."""

  condition: Expr
  before: list[Statement]
  after: list[Statement]

  def lines(self) -> list[str]:
    return [
      "loop {",
      *_indented(self.before),
      f"  while {self.condition}",
      *_indented(self.after),
      "}",
    ]

  def blocks(self) -> list[list[Statement]]:
    return [self.before, self.after]


def _indented(statements: Iterable[Statement]) -> list[str]:
  return ["  " + line for statement in statements for line in statement.lines()]


def walk(statements: Iterable[Statement]) -> Iterator[Statement]:
  """All statements, also those inside of blocks. A statement comes before those in its blocks."""
  for statement in statements:
    yield statement
    for block in statement.blocks():
      yield from walk(block)


def accesses(statement: Statement) -> Iterator[tuple[str, Buffer]]:
  """The accesses of a step. A tensor list counts as written."""
  for argument in statement.arguments_of():
    if isinstance(argument, (View, Tensor)):
      yield argument.access, argument.buffer.row()
    else:
      for row in rows_of(argument):
        yield "both", row


def launches(statements: Iterable[Statement]) -> Iterator[tuple[Launch, Collection[Buffer]]]:
  """The launches of a variant, each with the buffers that a step may have written before it. In a
  loop those are all that the loop writes."""
  return _launches(statements, set())


def _launches(
  statements: Iterable[Statement], written: set[Buffer]
) -> Iterator[tuple[Launch, Collection[Buffer]]]:
  for one in statements:
    if isinstance(one, Launch):
      yield one, written
    # The later steps of a loop come before its first ones, too.
    for step in walk([one]) if isinstance(one, Loop) else [one]:
      written |= {row for access, row in accesses(step) if access != "read"}
    for block in one.blocks():
      yield from _launches(block, written)
