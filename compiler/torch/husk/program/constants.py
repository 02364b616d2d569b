"""The weights and buffers of a model: one row for tensors that share memory.

Memory that some step writes is state: each session has its own, which begins with the value in
the model or with a fill."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from .. import hir
from ..errors import Unsupported
from ..inductor.lines import InductorObject
from . import memory, weights

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

# A tensor and its value at some time.
Kept = tuple["torch.Tensor", "torch.Tensor"]
GENERATOR, GENERATOR_BYTES = "husk.generator", 2536
# The state by which the blocks of a kernel count those that have ended (attention/step_kernel.py).
COUNTERS = "husk.counters"


@dataclasses.dataclass(eq=False)
class Row:
  """A constant or a state of the artifact."""

  buffer: hir.Buffer
  tensor: torch.Tensor  # its elements are stored
  begin: int  # the address of its first element


class Constants:
  """All constants of a program, for all of its functions. A row is made when a function first uses
  it."""

  def __init__(self, names: hir.Names) -> None:
    self._names = names
    self._by_program: dict[int, dict[str, torch.Tensor]] = {}  # id of a program -> tensors by FQN
    self._extents = memory.Extents()
    self._rows: dict[int | str, Row] = {}  # by the address where an extent begins
    self._reserved: dict[int, str] = {}  # id of a tensor -> the name that is reserved for its row

  def add(self, exported: ExportedProgram) -> None:
    """Adds the parameters, buffers and constants of a function's program. All programs are added
    before the first row is made."""
    import torch

    tensors = self._by_program[id(exported)] = {}
    for fqn, tensor in {**exported.state_dict, **exported.constants}.items():
      if isinstance(tensor, torch.Tensor):
        if re.fullmatch(r"buf\d+", fqn):
          raise Unsupported(
            f"a parameter or buffer named {fqn}: Inductor calls buffers of its own so; give it "
            "another name"
          )
        tensors[fqn] = tensor.detach()
    self._extents.add(tensors.values())
    for fqn, tensor in tensors.items():
      if self._reserved_name(tensor) is None:
        self._reserved[id(tensor)] = self._names.take(fqn)

  def _reserved_name(self, tensor: torch.Tensor) -> str | None:
    """The name that is reserved for the row of a tensor."""
    extent = self._extents.of(tensor)
    names = (self._reserved.get(id(one)) for one in (extent.tensors if extent else []))
    return next((name for name in names if name is not None), None)

  def of(self, exported: ExportedProgram) -> FunctionConstants:
    """The constants by the names of one function's program."""
    return FunctionConstants(self, self._by_program[id(exported)])

  def place(
    self, graph: InductorObject, name: str, tensors: dict[str, torch.Tensor]
  ) -> tuple[hir.Buffer, int]:
    """The buffer of Inductor's constant `name`, and the number of bytes before the tensor in it."""
    original = graph.allocated_constant_name.get(name, name)
    tensor = tensors.get(original)
    if tensor is None and original == GENERATOR:
      return self.generator(), 0
    tensor = graph.constants[name] if tensor is None else tensor
    if _is_fake(tensor):
      raise Unsupported(
        f"the constant {name} has no value, since it was made while compiling for a device that is "
        "not here",
        remedy="make it in __init__ and register it by register_buffer()",
      )
    if self._extents.of(tensor) is None:
      self._extents.add([tensor])
    extent = self._extents.of(tensor)
    assert extent is not None
    row = self._rows.get(extent.begin) or self._row(name, tensor, extent)
    return row.buffer, memory.addresses(tensor)[0] - row.begin

  def _row(self, name: str, tensor: torch.Tensor, extent: memory.Extent) -> Row:
    whole = {
      (view.dtype, memory.addresses(view), tuple(view.shape), tuple(view.stride()))
      for view in [tensor, *extent.tensors]
    }
    if len(whole) == 1 and tensor.is_contiguous():
      stored = tensor
    else:
      stored = extent.elements(tensor.dtype)
    hir.required_dtype(tensor.dtype, f"the constant {name}")
    row_name = self._reserved_name(tensor) or self._names.take(name)
    size_bytes = hir.Literal(stored.numel() * stored.element_size())
    row = Row(hir.Buffer(row_name, "constant", size_bytes), stored, extent.begin)
    self._rows[extent.begin] = row
    return row

  def tied(self) -> dict[str, str]:
    """Metadata that name the constant of each parameter or buffer that is the same tensor as
    another one: the file has one row for both (FORMAT.md, "husk.tied.NAME")."""
    found: dict[str, str] = {}
    for tensors in self._by_program.values():
      for fqn, tensor in tensors.items():
        extent = self._extents.of(tensor)
        row = self._rows.get(extent.begin) if extent else None
        if row is None or row.buffer.space != "constant" or row.buffer.name == fqn:
          continue
        stored = row.tensor
        if tensor.shape == stored.shape and tensor.stride() == stored.stride():
          found[f"husk.tied.{fqn}"] = row.buffer.name
    return found

  def generator(self) -> hir.Buffer:
    """The state of the random number generator, which begins as zeros
    (ports/host/include/husk/ops.h)."""
    import torch

    if GENERATOR not in self._rows:
      buffer = hir.Buffer(self._names.take(GENERATOR), "state", hir.Literal(GENERATOR_BYTES))
      self._rows[GENERATOR] = Row(buffer, torch.zeros(GENERATOR_BYTES, dtype=torch.uint8), 0)
    return self._rows[GENERATOR].buffer

  def counters(self, count: int) -> hir.Buffer:
    """The state of `count` ints of 32 bits, or more, that are 0 before and after each kernel."""
    import torch

    row = self._rows.get(COUNTERS)
    if row is None or row.tensor.numel() < count:
      name = self._names.take(COUNTERS) if row is None else row.buffer.name
      buffer = hir.Buffer(name, "state") if row is None else row.buffer
      buffer.bytes = hir.Literal(4 * count)
      self._rows[COUNTERS] = Row(buffer, torch.zeros(count, dtype=torch.int32), 0)
    return self._rows[COUNTERS].buffer

  def lines(self) -> tuple[list[str], dict[str, torch.Tensor]]:
    """The `constant` and `state` lines, and the tensors of the file by name."""
    lines: list[str] = []
    tensors: dict[str, torch.Tensor] = {}
    for row in sorted(self._rows.values(), key=lambda row: row.buffer.name):
      stored = weights.storable(row.tensor)
      dims = f"{hir.dtype(stored.dtype)} [{', '.join(map(str, stored.shape))}]"
      name = row.buffer.name
      is_state = row.buffer.space == "state"
      fill = _fill(stored) if is_state else None
      initial = f"fill {fill}"
      if fill is None:
        constant = self._names.take(f"{name}.initial") if is_state else name
        tensors[constant] = stored
        lines.append(
          f'constant {constant} {dims} file "{weights.FILE}" tensor {hir.quoted(constant)}'
        )
        initial = f"constant {constant}"
      if is_state:
        lines.append(f"state {name} {dims} {initial}")
    return lines, tensors


class Places(Protocol):
  """Where the constants of a function lie."""

  def place(self, graph: InductorObject, name: str) -> tuple[hir.Buffer, int]:
    """The buffer of Inductor's constant `name`, and the number of bytes before the tensor in it."""
    ...

  def generator(self) -> hir.Buffer | None:
    """The state of the random number generator; None if operators have generators of their own."""
    ...

  def counters(self, count: int) -> hir.Buffer:
    """A state of `count` ints of 32 bits, or more, that are 0 before and after each kernel."""
    ...


@dataclasses.dataclass
class FunctionConstants:
  """The constants of a program by the names that one function has for them."""

  constants: Constants
  tensors: dict[str, torch.Tensor]

  def add(self, tensors: dict[str, torch.Tensor]) -> None:
    """Adds constants that a target's graph has and the program has not."""
    self.tensors = {**self.tensors, **tensors}

  def generator(self) -> hir.Buffer:
    return self.constants.generator()

  def counters(self, count: int) -> hir.Buffer:
    return self.constants.counters(count)

  def place(self, graph: InductorObject, name: str) -> tuple[hir.Buffer, int]:
    return self.constants.place(graph, name, self.tensors)


def _is_fake(tensor: torch.Tensor) -> bool:
  from torch._subclasses.fake_tensor import FakeTensor

  return isinstance(tensor, FakeTensor)


def small(owners: Iterable[torch.nn.Module | ExportedProgram]) -> list[Kept]:
  """The tensors of one element of modules, also those of their objects, or of programs, with copies
  of their values. torch computes with such tensors while it traces, and what a model writes to them
  is written then, too."""
  import torch

  def tensors(owner: Any) -> Iterable[Any]:
    if isinstance(owner, torch.nn.Module):
      seen: set[int] = set()
      return [one for part in owner.modules() for one in _tensors(vars(part), seen, _DEPTH)]
    return owner.constants.values()

  return [
    (value, value.detach().clone())
    for owner in owners
    for value in tensors(owner)
    if type(value) in (torch.Tensor, torch.nn.Parameter)
    and value.device.type == "cpu"
    and value.numel() == 1
  ]


# How deep tensors are looked for in the objects of a module: a cache has a list of layers.
_DEPTH = 8


def _tensors(value: Any, seen: set[int], depth: int) -> Iterator[torch.Tensor]:
  """The tensors of containers and objects, except those of modules."""
  import torch

  if isinstance(value, torch.Tensor):
    yield value
    return
  if isinstance(value, (str, type, types.ModuleType, torch.nn.Module)) or not depth:
    return
  if id(value) in seen:
    return
  seen.add(id(value))
  if isinstance(value, Mapping):
    parts: Iterable[Any] = value.values()
  elif isinstance(value, (list, tuple, set, frozenset)):
    parts = value
  else:
    parts = getattr(value, "__dict__", {}).values()
  for part in list(parts):
    yield from _tensors(part, seen, depth - 1)


def restore(values: Iterable[Kept]) -> None:
  """Gives tensors the values of `small` again."""
  import torch

  with torch.no_grad():
    for tensor, value in values:
      if not torch.equal(tensor, value):
        tensor.copy_(value)


@contextlib.contextmanager
def masks_as_buffers(model: torch.nn.Module) -> Iterator[None]:
  """While open, bools that are plain attributes of modules are buffers. Each time that a program
  asks for a constant it is another tensor for torch, which then counts the elements that a mask
  chooses again, and does not know that it is the same number."""
  import torch

  masks = [
    (module, name, value)
    for module in model.modules()
    for name, value in vars(module).items()
    if type(value) is torch.Tensor and value.dtype is torch.bool
  ]
  for module, name, value in masks:
    delattr(module, name)
    module.register_buffer(name, value, persistent=False)
  try:
    yield
  finally:
    for module, name, value in masks:
      delattr(module, name)
      setattr(module, name, value)


_PART = 1 << 20  # elements


def _fill(tensor: torch.Tensor) -> str | None:
  """The literal that all elements are equal to, or None. Bytes are compared, so -0.0 differs from
  0.0."""
  import torch

  if tensor.is_complex() or tensor.element_size() * tensor.numel() == 0:
    return None
  flat = tensor.contiguous().flatten()
  first = flat[:1].cpu().view(torch.uint8)
  for part in flat.split(_PART):  # a cache may be larger than what else is in memory
    if not bool((part.cpu().view(torch.uint8).view(part.numel(), -1) == first).all()):
      return None
  value = flat[0].item()
  if not tensor.is_floating_point() and int(value) >= 2**63:
    return None
  return hir.number(int(value) if not tensor.is_floating_point() else value)
