"""Moves the steps that depend on constants alone into functions that run once, when the file is
opened (schema/FORMAT.md, "Folded constants").

Inductor writes a weight in another layout, or a mask, in each run of its wrapper. Such a step reads
nothing but constants and memory that other such steps wrote, so its result is always the same. A
variant then reads the result as a constant.

The memory of a result stays allocated as long as the program, whereas a buffer of the arena shares
its memory with others. So a result is folded only if it takes no more bytes than the constants from
which it was made. A weight of 8 bits that is expanded to 16 stays a step of each run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from .expr import Expr, Literal
from .names import Names
from .program import Function, Program, Variant
from .statements import (
  Argument,
  Buffer,
  Copy,
  Declare,
  Fill,
  Launch,
  NullPointer,
  Statement,
  Tensor,
  View,
  accesses,
  walk,
)

# A result of so many bytes is folded even if it was made from less.
SMALL = 64 << 10


@dataclasses.dataclass
class _Folder:
  """The function that folds the constants of one target."""

  name: str
  names: Names
  statements: list[Statement] = dataclasses.field(default_factory=list)
  results: list[Tensor] = dataclasses.field(default_factory=list)
  lines: list[str] = dataclasses.field(default_factory=list)  # of the constants
  # By the text of what makes a result: its constant. Functions share what they make alike.
  constants_by_text: dict[str, Buffer] = dataclasses.field(default_factory=dict)


def fold(program: Program, targets: Iterable[str], names: Names) -> None:
  """Changes all variants for `targets`, the names of their rows, and adds functions that fold.
  `names` are those of constants."""
  taken = {function.name for function in program.functions}
  for target in targets:
    name = f"husk.fold.{target}"
    while name in taken:
      name += "_"
    folder = _Folder(name, names.child())
    for function in program.functions:
      for variant in function.variants:
        if variant.target == target:
          _fold_variant(variant, folder, names)
    if folder.results:
      outputs = [f"{result.buffer.name} tensor u8 rank 1" for result in folder.results]
      variant = Variant(target, folder.statements, list(folder.results))
      program.functions.append(Function(folder.name, [], outputs, [variant]))
      program.data += folder.lines


def _fold_variant(variant: Variant, folder: _Folder, names: Names) -> None:
  steps = _Steps(variant.statements)
  moved = steps.foldable()
  results = steps.results(moved)
  if not results:
    return
  constants: dict[Buffer, Buffer] = {}
  new = []
  for buffer in results:
    needed = steps.leading_to(buffer, moved)
    text = _text(needed, buffer)
    if text not in folder.constants_by_text:
      constant = Buffer(
        names.take(f"{steps.name(buffer, needed)}.folded"), "constant", buffer.bytes
      )
      folder.constants_by_text[text] = constant
      new.append((buffer, needed, constant))
    constants[buffer] = folder.constants_by_text[text]
  _add(folder, steps, new)
  gone = {id(statement) for statement in moved}
  used = {row for one in walk(variant.statements) if id(one) not in gone for row in one.rows()}
  undeclared = {buffer for buffer in steps.writers if buffer in constants or buffer not in used}
  for buffer, constant in constants.items():
    buffer.stands_for = constant
  variant.statements[:] = [
    one
    for one in variant.statements
    if id(one) not in gone and not (isinstance(one, Declare) and one.buffer in undeclared)
  ]


def _add(
  folder: _Folder, steps: _Steps, new: Sequence[tuple[Buffer, list[Statement], Buffer]]
) -> None:
  """Adds the steps that make new constants, in their order."""
  wanted = {id(step) for _, needed, _ in new for step in needed}
  constants = {id(buffer): constant for buffer, _, constant in new}
  rows: dict[int, Buffer] = {}
  for step in steps.order:
    if id(step) not in wanted:
      continue
    for buffer in (buffer for buffer in _buffers(step) if buffer.space == "arena"):
      if id(buffer) in rows:
        continue
      constant = constants.get(id(buffer))
      space = "arena" if constant is None else "output"
      row = Buffer(folder.names.take(buffer.name), space, buffer.bytes, buffer.align)
      rows[id(buffer)] = row
      folder.statements.append(Declare(row))
      if constant is not None:
        size = _bytes(buffer)
        folder.results.append(Tensor("", row, "u8", [Literal(size)], [Literal(1)]))
        folder.lines.append(f"constant {constant.name} u8 [{size}] folded_by {folder.name}")
    folder.statements.append(_with_rows(step, rows))


class _Steps:
  """The statements of a variant, and who writes and reads its buffers."""

  def __init__(self, statements: Sequence[Statement]) -> None:
    self.order = [one for one in statements if not isinstance(one, Declare)]
    self.at = {id(one): n for n, one in enumerate(self.order)}
    # By buffer of the arena: the statements at the top that write it, or access it at all. What
    # stands inside a block counts for the block.
    self.writers: dict[Buffer, list[Statement]] = {}
    self.users: dict[Buffer, list[Statement]] = {}
    for top in self.order:
      for one in walk([top]):
        for access, buffer in accesses(one):
          if buffer.space == "arena":
            self.users.setdefault(buffer, []).append(top)
            if access != "read":
              self.writers.setdefault(buffer, []).append(top)

  def foldable(self) -> list[Statement]:
    """The steps whose results are always the same, and worth their memory."""
    found = {id(one) for one in self.order if _is_pure(one)}
    while True:
      before = len(found)
      for one in self.order:
        if id(one) in found and not self._stays(one, found):
          found.discard(id(one))
      if len(found) == before:
        moved = [one for one in self.order if id(one) in found]
        large = [buffer for buffer in self.results(moved) if not self._is_worth(buffer, moved)]
        found -= {id(one) for buffer in large for one in self.writers[buffer]}
        if not large:
          return moved

  def _stays(self, step: Statement, found: set[int]) -> bool:
    """Whether all memory that a step of `found` accesses is a constant, or is written by steps of
    `found` before another one accesses it."""
    for access, buffer in accesses(step):
      if buffer.space == "constant":
        continue
      writers = self.writers.get(buffer, [])
      if not writers or any(id(one) not in found for one in writers):
        return False
      if access != "write" and self.at[id(writers[0])] >= self.at[id(step)]:
        return False
      last = max(self.at[id(one)] for one in writers)
      if any(id(one) not in found and self.at[id(one)] < last for one in self.users[buffer]):
        return False
    return True

  def results(self, moved: Sequence[Statement]) -> list[Buffer]:
    """The buffers that steps of `moved` write and others read."""
    inside = {id(one) for one in moved}
    found: dict[Buffer, None] = {}
    for step in moved:
      for buffer in _buffers(step):
        if buffer.space == "arena" and any(id(one) not in inside for one in self.users[buffer]):
          found[buffer] = None
    return list(found)

  def leading_to(self, buffer: Buffer, moved: Sequence[Statement]) -> list[Statement]:
    """The steps of `moved` without which the buffer has not its value."""
    wanted, needed = {buffer}, []
    for step in reversed(moved):
      if any(row in wanted for access, row in accesses(step) if access != "read"):
        needed.append(step)
        wanted |= {row for access, row in accesses(step) if access != "write"}
    return needed[::-1]

  def _is_worth(self, buffer: Buffer, moved: Sequence[Statement]) -> bool:
    sources = {row for one in self.leading_to(buffer, moved) for row in _buffers(one)}
    read = sum(_bytes(row) for row in sources if row.space == "constant")
    return _bytes(buffer) <= max(SMALL, read)

  def name(self, buffer: Buffer, needed: Sequence[Statement]) -> str:
    """The name of the largest constant from which the buffer is made, or its own."""
    sources = {row: None for one in needed for row in _buffers(one) if row.space == "constant"}
    return max(sources, key=_bytes).name if sources else buffer.name


def _is_pure(statement: Statement) -> bool:
  """Whether a statement may be a step that depends on constants alone."""
  if not isinstance(statement, (Launch, Copy, Fill)):
    return False
  sides = statement.grid if isinstance(statement, Launch) else ()
  return all(_is_known(argument) for argument in [*statement.arguments_of(), *sides])


def _is_known(argument: Argument | Expr) -> bool:
  if isinstance(argument, View):
    row = argument.buffer.row()
    place = [part for part in (argument.offset, argument.extent) if part is not None]
    return (
      row.space in ("arena", "constant")
      and not row.on_host
      and isinstance(row.bytes, Literal)
      and all(isinstance(part, Literal) for part in place)
    )
  return isinstance(argument, (Literal, NullPointer))


def _buffers(statement: Statement) -> list[Buffer]:
  return [buffer for _, buffer in accesses(statement)]


def _bytes(buffer: Buffer) -> int:
  assert isinstance(buffer.bytes, Literal)
  return int(buffer.bytes.value)


def _with_rows(step: Statement, rows: dict[int, Buffer]) -> Statement:
  """A step with other buffers."""

  def view(argument: Argument) -> Argument:
    if not isinstance(argument, View):
      return argument
    row = argument.buffer.row()
    return dataclasses.replace(argument, buffer=rows.get(id(row), row))

  if isinstance(step, Launch):
    return dataclasses.replace(step, arguments=[view(one) for one in step.arguments])
  if isinstance(step, Copy):
    destination, source = view(step.destination), view(step.source)
    assert isinstance(destination, View) and isinstance(source, View)
    return dataclasses.replace(step, destination=destination, source=source)
  assert isinstance(step, Fill)
  destination = view(step.destination)
  assert isinstance(destination, View)
  return dataclasses.replace(step, destination=destination)


def _text(needed: Sequence[Statement], buffer: Buffer) -> str:
  """A text that is the same for steps that do the same. `buffer` is their result."""
  rows: dict[int, Buffer] = {}
  lines = []
  for step in needed:
    for row in _buffers(step):
      if row.space == "arena":
        rows.setdefault(id(row), Buffer(f"%{len(rows)}={row.bytes}", "arena", row.bytes))
    same = _with_rows(step, rows)
    same.origin = ""
    lines += same.lines()
  return "\n".join([*lines, rows[id(buffer)].name])
