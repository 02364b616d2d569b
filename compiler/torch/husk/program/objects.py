"""Objects of classes that torch does not know how to take apart, among the inputs and outputs of a
model: the cache that a language model of transformers returns, for instance.

While a model is exported, torch takes such objects apart by their attributes: those that hold
tensors are the parts, and the others stay as they are."""

from __future__ import annotations

import contextlib
import copy
import re
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch

# How torch refuses an object among the results of a model.
_UNKNOWN = re.compile(r"Found <class '([\w.]+)'> in output, which is not a known type")


class _Rest:
  """An object without its tensors. Those of a class are equal: torch compares what a model gets in
  each call with what it was traced with, and the tensors are compared by themselves."""

  def __init__(self, value: Any) -> None:
    self.value = value

  def __eq__(self, other: object) -> bool:
    return isinstance(other, _Rest) and type(self.value) is type(other.value)

  def __hash__(self) -> int:
    return hash(type(self.value))

  def __deepcopy__(self, memo: Any) -> _Rest:
    return self  # it has no use for the tensors, and those of a trace have no data to copy


class Classes:
  """Classes that torch takes apart while an export runs."""

  def __init__(self) -> None:
    self._known: list[type] = []

  def add_all_of(self, values: Any) -> None:
    """Adds the classes of objects with tensors in nested values."""
    import torch
    from torch.utils import _pytree as pytree

    for leaf in pytree.tree_leaves(values):
      if not isinstance(leaf, (torch.Tensor, torch.nn.Module)) and _holds_tensors(leaf):
        self._add(type(leaf))

  @contextlib.contextmanager
  def of_results(self, model: torch.nn.Module) -> Iterator[None]:
    """While open, adds the classes of objects among the results of a model when its code returns
    them. torch would refuse such an object only at the end of a trace, which would be lost. Dynamo
    runs no code of a model, and traces what a hook does."""

    def add(model: torch.nn.Module, args: Any, results: Any) -> None:
      self.add_all_of(results)

    hook = model.register_forward_hook(add)
    try:
      yield
    finally:
      hook.remove()

  def add_of(self, error: Exception) -> bool:
    """Adds the class that torch refuses among the results of a model; returns whether it may take
    the model then."""
    match = _UNKNOWN.search(str(error))
    found = None if match is None else _class(match[1])
    if found is None or found in self._known:
      return False
    self._add(found)
    return True

  def remove(self) -> None:
    from torch.utils import _pytree as pytree

    for one in self._known:
      pytree._deregister_pytree_node(one)
    self._known.clear()

  def _add(self, found: type) -> None:
    from torch.utils import _pytree as pytree

    if found in pytree.SUPPORTED_NODES:
      return
    pytree._private_register_pytree_node(
      found,
      self._parts,
      _rebuilt,
      serialized_type_name=f"{found.__module__}.{found.__qualname__}",
      flatten_with_keys_fn=self._parts_with_keys,
    )
    self._known.append(found)

  def _parts(self, value: Any) -> tuple[list[Any], list[Any]]:
    names = [name for name, part in vars(value).items() if _holds_tensors(part)]
    parts = [vars(value)[name] for name in names]
    self.add_all_of(parts)
    return parts, [names, _Rest(value)]

  def _parts_with_keys(self, value: Any) -> tuple[list[tuple[Any, Any]], list[Any]]:
    from torch.utils import _pytree as pytree

    parts, context = self._parts(value)
    keys = [pytree.GetAttrKey(name) for name in context[0]]
    return list(zip(keys, parts)), context


def _rebuilt(parts: Iterable[Any], context: list[Any]) -> Any:
  names, rest = context
  value = copy.copy(rest.value)
  for name, part in zip(names, parts):
    setattr(value, name, part)
  return value


def _holds_tensors(value: Any, depth: int = 8) -> bool:
  """Whether a value is a tensor, or nests one in containers and in attributes of objects."""
  import torch

  if isinstance(value, torch.Tensor):
    return True
  if not depth or isinstance(value, type):
    return False
  if isinstance(value, dict):
    parts: Iterable[Any] = value.values()
  elif isinstance(value, (list, tuple)):
    parts = value
  else:
    parts = getattr(value, "__dict__", {}).values()
  return any(_holds_tensors(part, depth - 1) for part in parts)


def _class(path: str) -> type | None:
  """The class of a dotted path. The process has imported its module, since it has an object."""
  module, _, name = path.rpartition(".")
  found = getattr(sys.modules.get(module), name, None)
  return found if isinstance(found, type) else None


@contextlib.contextmanager
def taken_apart() -> Iterator[Classes]:
  """Classes that torch takes apart until this is closed."""
  classes = Classes()
  try:
    yield classes
  finally:
    classes.remove()
