"""Nested arguments and results whose leaves are replaced by names or numbers.

A class of the application's own may need tensors: a cache reads the device of the first one. Its
objects are therefore never built here: an Instance stands for each of them."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  from torch.utils._pytree import TreeSpec


@dataclasses.dataclass
class Instance:
  """An object of a class that torch takes apart. `names` are those of the parts, empty if the class
  does not say them; `empty` are fields of a dataclass that are None."""

  type: type
  names: list[str]
  parts: list[Any]
  empty: list[str]

  @property
  def kind(self) -> str:
    """How a call of the artifact takes such an object apart and makes one: as a "dataclass", a
    "namedtuple", or a "node" of torch's nests, of which no call can make one."""
    if dataclasses.is_dataclass(self.type) and self.names:
      return "dataclass"
    return "namedtuple" if issubclass(self.type, tuple) else "node"

  def described(self) -> dict[str, Any]:
    """The class as the artifact describes it."""
    text = {"class": f"{self.type.__module__}:{self.type.__qualname__}", "kind": self.kind}
    return {**text, "fields": self.names, "empty": self.empty}


@dataclasses.dataclass(frozen=True)
class Part:
  """A step of a path to a value: the key of a dict, the number in a sequence, or both of a part of
  an Instance; `name` is None in a sequence."""

  name: Any
  number: int
  is_dict: bool = False

  @property
  def text(self) -> str:
    return str(self.number if self.name is None else self.name)

  def in_code(self) -> list[str]:
    """The ways in which Python code may take the step."""
    if self.is_dict:
      return [f"[{self.name!r}]"]
    ways = [f"[{self.number!r}]"]
    return ways if self.name is None else [f".{self.name}", f"[{self.name!r}]", *ways]


def filled(spec: TreeSpec, leaves: Sequence[Any]) -> Any:
  """The nested value that `spec` describes, with these leaves."""
  return _filled(spec, iter(leaves))


def _filled(spec: TreeSpec, leaves: Iterator[Any]) -> Any:
  if spec.is_leaf():
    return next(leaves)
  parts = [_filled(child, leaves) for child in spec.children()]
  if _is_dict(spec):
    return dict(zip(_keys(spec), parts, strict=True))
  if _is_sequence(spec):
    return tuple(parts) if issubclass(spec.type, tuple) else parts
  names, empty = _names(spec)
  return Instance(_class(spec), names, parts, empty)


def paths(spec: TreeSpec) -> list[tuple[Part, ...]]:
  """The path to each leaf."""
  return [] if spec.is_leaf() and spec.num_leaves == 0 else list(_paths(spec, ()))


def _paths(spec: TreeSpec, before: tuple[Part, ...]) -> Iterator[tuple[Part, ...]]:
  if spec.is_leaf():
    yield before
    return
  children = spec.children()
  if _is_dict(spec):
    steps = [Part(key, number, True) for number, key in enumerate(_keys(spec))]
  else:
    names = [] if _is_sequence(spec) else _names(spec)[0]
    steps = [Part(name, i) for i, name in enumerate(names or [None] * len(children))]
  for step, child in zip(steps, children, strict=True):
    yield from _paths(child, (*before, step))


def in_code(path: Sequence[Part]) -> list[str]:
  """The texts that Python code may have for a path, behind the name of the outermost value."""
  return ["".join(steps) for steps in itertools.product(*(part.in_code() for part in path))]


def _is_dict(spec: TreeSpec) -> bool:
  """Whether a plain dict nests, and no class of the application's own that is one."""
  return spec.type in (dict, collections.OrderedDict, collections.defaultdict)


def _is_sequence(spec: TreeSpec) -> bool:
  plain = spec.type in (list, tuple, collections.deque)
  # An operator with several results returns such an object in eager mode.
  return plain or getattr(spec.type, "__module__", "") == "torch.return_types"


def _keys(spec: TreeSpec) -> list[Any]:
  return list(spec.context[1] if spec.type is collections.defaultdict else spec.context)


def _class(spec: TreeSpec) -> type:
  """The class of the object; torch has one kind of node for all namedtuples."""
  return spec.context if spec.type is collections.namedtuple else spec.type


def _names(spec: TreeSpec) -> tuple[list[str], list[str]]:
  """The names of the parts of an object, and those of fields that are None. What a class keeps
  beside its parts usually has the names in it."""
  count = len(spec.children())
  context: Any = spec.context
  fields = getattr(_class(spec), "_fields", None)
  if spec.type is collections.namedtuple and fields is not None:
    return list(fields), []
  candidates: list[Any] = [context, [context]]
  for known in candidates:
    parts: list[Any] = list(known) if isinstance(known, (list, tuple)) else []
    if parts and _are_names(parts[0], count):
      empty = parts[1] if len(parts) > 1 and isinstance(parts[1], (list, tuple)) else []
      return list(parts[0]), list(empty) if _are_names(empty, len(empty)) else []
  return [], []


def _are_names(value: Any, count: int) -> bool:
  is_list = isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value)
  return is_list and len(value) == count == len(set(value))
