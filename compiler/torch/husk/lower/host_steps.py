"""Steps that run on the host beside the device: operators that a CUDA target lacks and that the CPU
has. Such a step is an `extern` whose tensors all lie in host memory.

The statements of a variant are written first, as if every operator ran on the device. Then `place`
decides where memory lies:

- A buffer of the arena that nothing but host steps uses lies on the host. The results that one
  operator passes to the next, and the workspaces of operators, are never copied. Numbers are read
  from there, and outputs are copied from there.
- Any other tensor of a host step gets a buffer on the host, its mirror. What the step reads is
  copied to the mirror before it, what it writes is copied back after it.

A mirror stays current until something writes the tensor, so steps in a row that read the same
tensor share one copy. What a branch or a loop does is not followed: no mirror is current where one
begins or ends."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from .. import hir


def place(
  statements: list[hir.Statement],
  is_host_step: Callable[[hir.Statement], bool],
  names: hir.Names,
) -> list[hir.Statement]:
  """The statements with the copies that host steps need. `is_host_step` tells which statements call
  an operator on the host. Buffers that nothing else uses become buffers of the host."""
  every = list(hir.walk(statements))
  steps = [statement for statement in every if is_host_step(statement)]
  if not steps:
    return statements
  elsewhere = {
    id(row)
    for statement in every
    if not is_host_step(statement)
    for row in _rows_on_device(statement)
  }
  for row in (row for step in steps for row in step.rows()):
    row.on_host = row.space == "arena" and id(row) not in elsewhere
  return _Placement(is_host_step, names).block(statements)


def _rows_on_device(statement: hir.Statement) -> list[hir.Buffer]:
  """The buffers that must lie on the device for a statement that is no host step. A read takes any
  memory, and so does a copy from or to a value of the caller, a constant or a state."""
  rows = statement.rows()
  if isinstance(statement, hir.Read):
    return []
  if isinstance(statement, hir.Copy) and any(row.space != "arena" for row in rows):
    return []
  return rows


def of(statements: Iterable[hir.Statement]) -> Iterator[hir.Extern]:
  """The host steps among statements."""
  for statement in hir.walk(statements):
    if isinstance(statement, hir.Extern) and statement.is_host_step():
      yield statement


@dataclasses.dataclass(frozen=True)
class _Range:
  """The bytes of a tensor in its buffer. The tensor is dense if they are all its own."""

  offset: hir.Expr
  extent: hir.Expr
  is_dense: bool


@dataclasses.dataclass
class _Use:
  """How a step uses a range of a buffer."""

  row: hir.Buffer
  range: _Range
  is_read: bool = False
  is_written: bool = False


class _Placement:
  """Writes the copies of host steps. It knows which mirrors are current at the statement that is
  being written."""

  def __init__(self, is_host_step: Callable[[hir.Statement], bool], names: hir.Names) -> None:
    self.is_host_step, self.names = is_host_step, names
    self.mirrors: dict[int, dict[_Range, hir.Buffer]] = {}  # by id of the buffer, and by range

  def block(self, statements: list[hir.Statement]) -> list[hir.Statement]:
    """The statements of a block, with copies."""
    placed: list[hir.Statement] = []
    for statement in statements:
      if self.is_host_step(statement):
        assert isinstance(statement, hir.Extern)
        placed += self._step(statement)
        continue
      for inner in statement.blocks():
        self.mirrors.clear()
        inner[:] = self.block(inner)
      if statement.blocks():
        self.mirrors.clear()
      for row in _written_rows(statement):
        self.mirrors.pop(id(row), None)
      placed.append(statement)
    return placed

  def _step(self, step: hir.Extern) -> Iterator[hir.Statement]:
    """A host step between its copies."""
    uses = _uses(step)
    for use in uses:
      # The bytes between the elements of a tensor that is not dense are copied back, too.
      needs_bytes = use.is_read or not use.range.is_dense
      current = self.mirrors.setdefault(id(use.row), {})
      if use.range in current:
        continue
      current[use.range] = self._mirror(use)
      yield hir.Declare(current[use.range])
      if needs_bytes:
        yield _download(use, current[use.range], step.origin)
    step.arguments = [self._on_host(argument) for argument in step.arguments]
    yield step
    written = [use for use in uses if use.is_written]
    for use in written:
      yield _upload(use, self.mirrors[id(use.row)][use.range], step.origin)
    for use in written:  # other ranges of the buffer may have had some of these bytes
      current = self.mirrors[id(use.row)]
      self.mirrors[id(use.row)] = {use.range: current[use.range]} if use.range in current else {}

  def _mirror(self, use: _Use) -> hir.Buffer:
    name = self.names.take(f"{use.row.name}_on_host")
    return hir.Buffer(name, "arena", use.range.extent, 64, on_host=True)

  def _on_host(self, argument: hir.Argument) -> hir.Argument:
    """The argument with mirrors in place of memory of the device."""
    if isinstance(argument, hir.TensorList):
      return hir.TensorList([self._on_host(item) for item in argument.items])  # type: ignore[misc]
    if not isinstance(argument, hir.Tensor) or argument.buffer.row().on_host:
      return argument
    mirror = self.mirrors[id(argument.buffer.row())][_range(argument)]
    return dataclasses.replace(argument, buffer=mirror, offset=hir.Literal(0))


def _written_rows(statement: hir.Statement) -> Iterator[hir.Buffer]:
  """The buffers that a step writes."""
  for tensor in _memory(statement.arguments_of()):
    if tensor.access != "read":
      yield tensor.buffer.row()


def _memory(arguments: Iterable[hir.Argument]) -> Iterator[hir.View | hir.Tensor]:
  """The arguments that stand for memory, also those in lists."""
  for argument in arguments:
    if isinstance(argument, hir.TensorList):
      yield from _memory(argument.items)
    elif isinstance(argument, (hir.View, hir.Tensor)):
      yield argument


def _uses(step: hir.Extern) -> list[_Use]:
  """The ranges of device memory that an operator uses, each once."""
  uses: dict[tuple[int, _Range], _Use] = {}
  for tensor in _memory(step.arguments):
    assert isinstance(tensor, hir.Tensor)
    row = tensor.buffer.row()
    if row.on_host:
      continue
    range = _range(tensor)
    use = uses.setdefault((id(row), range), _Use(row, range))
    use.is_read |= tensor.access != "write"
    use.is_written |= tensor.access != "read"
  return list(uses.values())


def _download(use: _Use, mirror: hir.Buffer, origin: str) -> hir.Copy:
  return hir.Copy(hir.View("write", mirror), _view("read", use), origin)


def _upload(use: _Use, mirror: hir.Buffer, origin: str) -> hir.Copy:
  return hir.Copy(_view("write", use), hir.View("read", mirror), origin)


def _view(access: str, use: _Use) -> hir.View:
  if use.range.offset == hir.Literal(0) and use.range.extent == use.row.bytes:
    return hir.View(access, use.row)
  return hir.View(access, use.row, use.range.offset, use.range.extent)


# Bytes of a tensor


def _range(tensor: hir.Tensor) -> _Range:
  """The bytes from the first to the last element of a tensor."""
  width, whole = hir.itemsize(tensor.dtype), tensor.buffer.row().bytes
  elements, is_dense = _span(tensor.sizes, tensor.strides)
  offset, extent = _product(tensor.offset, width), _product(elements, width)
  if whole is not None and _equal(extent, whole):  # the same number, as the buffer writes it
    extent = whole
  return _Range(offset, extent, is_dense)


def _span(sizes: Sequence[hir.Expr], strides: Sequence[hir.Expr]) -> tuple[hir.Expr, bool]:
  """The number of elements from the first to the last one of a tensor, and whether the tensor is
  dense. It is 0 if the tensor has no elements."""
  left = [pair for pair in zip(sizes, strides) if pair[0] != hir.Literal(1)]
  dense: hir.Expr = hir.Literal(1)
  while innermost := next((pair for pair in left if _equal(pair[1], dense)), None):
    left.remove(innermost)
    dense = _product(innermost[0], dense)
  if not left:
    return dense, True
  last: hir.Expr = hir.Literal(1)
  for size, stride in zip(sizes, strides):
    last = _sum(last, _product(_sum(size, hir.Literal(-1)), stride))
  for size in sizes:
    if not isinstance(size, hir.Literal):
      last = _product(hir.op("min", size, 1), last)
    elif size.value == 0:
      return hir.Literal(0), True
  return last, False


def _equal(one: hir.Expr, other: hir.Expr) -> bool:
  """Whether two products have the same factors."""
  return _factors(one) == _factors(other)


def _factors(expression: hir.Expr) -> Counter[hir.Expr]:
  """The factors of a product; the literals among them are one factor."""
  factors: Counter[hir.Expr] = Counter()
  number = 1
  left = [expression]
  while left:
    match left.pop():
      case hir.Literal(value):
        number *= int(value)
      case hir.Op("mul", operands):
        left += operands
      case hir.Op("pow", (base, hir.Literal(exponent))):
        left += [base] * int(exponent)
      # The stride of a tensor that may be empty: the tensor has no elements if `size` is 0.
      case hir.Op("max", (hir.Literal(1), size)) | hir.Op("max", (size, hir.Literal(1))):
        left.append(size)
      case factor:
        factors[factor] += 1
  factors[hir.Literal(number)] += 1
  return factors


def _product(one: hir.Expr, other: hir.Expr | int) -> hir.Expr:
  other = hir.Literal(other) if isinstance(other, int) else other
  match one, other:
    case hir.Literal(left), hir.Literal(right):
      return hir.Literal(int(left) * int(right))
    case (hir.Literal(1), factor) | (factor, hir.Literal(1)):
      return factor
    case (hir.Literal(0), _) | (_, hir.Literal(0)):
      return hir.Literal(0)
  return hir.op("mul", one, other)


def _sum(one: hir.Expr, other: hir.Expr) -> hir.Expr:
  match one, other:
    case hir.Literal(left), hir.Literal(right):
      return hir.Literal(int(left) + int(right))
    case (hir.Literal(0), term) | (term, hir.Literal(0)):
      return term
  return hir.op("add", one, other)
