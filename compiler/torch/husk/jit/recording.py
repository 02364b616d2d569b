"""One call of a compiled callable, and where the inputs and outputs of its graph come from and go
to. Tensors are recognised by their memory."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from . import module, sections
from .sections import Source

if TYPE_CHECKING:
  import torch


# Held while recorders stand in for programs. Recorders of two threads would take each other for
# programs, and one of them would stay for ever.
_lock = threading.RLock()


class Number(int):
  """An int that a program returned. `result` is the number of the output."""

  result: int


@dataclasses.dataclass
class Run:
  """A run of a program. `arguments` has the numbers, and weak references to the tensors, so that it
  keeps nothing alive that only the call has."""

  path: str  # of the module
  source: Source
  arguments: list[Any]
  versions: list[int]  # of the tensors when the program was called; torch counts their writes so
  outputs: list[Any]  # of the graph

  def artifact(self) -> bytes:
    return sections.artifact(self.path)

  def written_outside(self) -> list[torch.Tensor]:
    """The tensors among the arguments that torch has written after the program, not the program."""
    tensors = [value() if isinstance(value, weakref.ref) else None for value in self.arguments]
    by_program = {
      tensor.untyped_storage()._cdata
      for name, tensor in zip(self.source.input_names(), tensors, strict=True)
      if tensor is not None and name in self.source.written
    }
    return [
      tensor
      for tensor, version in zip(tensors, self.versions)
      if tensor is not None
      and _version(tensor) != version
      and tensor.untyped_storage()._cdata not in by_program
    ]


def _version(value: Any) -> int:
  """The number of writes to a tensor until now. Those to inference tensors are not counted: torch
  lets the program do them."""
  import torch

  return value._version if isinstance(value, torch.Tensor) and not value.is_inference() else 0


def without_history(args: Any) -> Any:
  """Arguments with copies in place of tensors that autograd has computed. If a graph writes one of
  these, torch does so after the graph, and it could not be taken back."""
  import torch
  from torch.utils import _pytree as pytree

  copies: dict[int, torch.Tensor] = {}

  def leaf_or_copy(value: torch.Tensor) -> torch.Tensor:
    if value.is_leaf:
      return value
    return copies.setdefault(id(value), value.clone())

  return pytree.tree_map_only(torch.Tensor, leaf_or_copy, args)


def tensor_key(value: torch.Tensor) -> tuple[Any, ...]:
  """A key that is equal for tensors of the same memory, shape, strides and dtype."""
  return (
    value.untyped_storage()._cdata,
    value.storage_offset(),
    tuple(value.shape),
    tuple(value.stride()),
    value.dtype,
  )


class _Recorder:
  """Stands in for the program of one graph, and records its runs in one thread."""

  def __init__(self, call: types.FunctionType, runs: list[Run], thread: int) -> None:
    names = call.__code__.co_freevars
    assert call.__closure__ is not None
    self._cell = call.__closure__[names.index("program")]
    self._program: Callable[..., Any] = self._cell.cell_contents
    self._path = call.__globals__["__file__"]
    self._runs = runs
    self._thread = thread
    self._cell.cell_contents = self

  def restore(self) -> None:
    self._cell.cell_contents = self._program

  def __call__(self, *arguments: Any) -> Any:
    if threading.get_ident() != self._thread:
      return self._program(*arguments)
    import torch

    source = sections.source(self._path)
    written = source.written
    versions = [_version(value) for value in arguments]
    # The call is not the user's, so it leaves the buffers of the model as they are.
    inputs = [
      value.clone() if isinstance(value, torch.Tensor) and name in written else value
      for name, value in zip(source.input_names(), arguments, strict=True)
    ]
    returned = self._program(*inputs)
    outputs = list(returned) if isinstance(returned, tuple) else [returned]
    outputs = outputs[: len(source.outputs)]
    for index, value in enumerate(outputs):
      if type(value) is int:
        outputs[index] = Number(value)
        outputs[index].result = index
    known: dict[str, Any] = {f"output{index}": value for index, value in enumerate(outputs)}
    known.update(zip(source.arguments, arguments))
    graph_outputs = [
      eval(expression, {"part": module.part, **known}) for expression in source.expressions
    ]
    self._runs.append(
      Run(
        self._path,
        source,
        [weakref.ref(value) if isinstance(value, torch.Tensor) else value for value in arguments],
        versions,
        graph_outputs,
      )
    )
    return tuple(outputs) if len(outputs) != 1 else outputs[0]


@contextlib.contextmanager
def recorded() -> Iterator[list[Run]]:
  """While open, the list gets a Run for each run of a compiled graph in this thread, also of those
  that are compiled meanwhile. Another thread waits until the list is closed."""
  runs: list[Run] = []
  thread = threading.get_ident()
  with _lock, contextlib.ExitStack() as stack:

    def put_recorder(call: types.FunctionType) -> None:
      stack.callback(_Recorder(call, runs, thread).restore)

    stack.callback(module.unwatch, put_recorder)
    module.watch(put_recorder)
    yield runs


class ShapesKept:
  """Finds the arguments whose shape or strides a call changes, and takes that back."""

  def __init__(self, args: Any) -> None:
    import torch
    from torch.utils import _pytree as pytree

    tensors = [value for value in pytree.tree_leaves(args) if isinstance(value, torch.Tensor)]
    self._before = [(value, tensor_key(value)) for value in tensors]

  def changed(self) -> list[torch.Tensor]:
    """The tensors that had another shape, which they have again."""
    import torch

    changed = [(value, key) for value, key in self._before if tensor_key(value) != key]
    for value, (_, offset, shape, stride, _) in changed:
      with torch.no_grad():
        value.as_strided_(shape, stride, offset)
    return [value for value, _ in changed]


class AttributesKept:
  """Finds the tensors that a call assigns to attributes of a module, and takes them back."""

  def __init__(self, owner: torch.nn.Module | None) -> None:
    self._before = list(_attributes(owner))

  def assigned(self) -> list[str]:
    """The names of the attributes that are other tensors now."""
    names = []
    for name, holder, key, tensor in self._before:
      if holder.get(key) is not tensor:
        holder[key] = tensor
        names.append(name)
    return names


def _attributes(
  owner: torch.nn.Module | None,
) -> Iterator[tuple[str, dict[str, Any], str, torch.Tensor]]:
  import torch

  for path, one in owner.named_modules() if owner is not None else ():
    for holder in (one._parameters, one._buffers, vars(one)):
      values: dict[str, Any] = holder
      for key, value in values.items():
        if isinstance(value, torch.Tensor):
          yield (f"{path}.{key}" if path else key), values, key, value


def names_of_tensors(owner: torch.nn.Module | None) -> Mapping[int, str]:
  """The names of a module's tensors, by the id of the tensor."""
  found: dict[int, str] = {}
  for name, _, _, tensor in _attributes(owner):
    found.setdefault(id(tensor), name)
  return found
