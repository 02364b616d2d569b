"""Replaces parts of PyTorch, Triton and torchvision while the exporter compiles.

Everything that is replaced stands in surface.py: without its row, the functions below refuse it.
"""

from __future__ import annotations

import contextlib
import importlib
import types
from collections.abc import Iterator, Mapping
from typing import Any

from .surface import REPLACED

# An object, the name of its attribute, and the value that replaces the attribute.
Replacement = tuple[Any, str, Any]

_ABSENT = object()


@contextlib.contextmanager
def replaced(*replacements: Replacement) -> Iterator[None]:
  """While open, attributes of modules, classes and objects have other values."""
  with contextlib.ExitStack() as stack:
    for owner, name, value in replacements:
      before = owner.__code__ if _is_code(owner, name) else vars(owner).get(name, _ABSENT)
      require_row(owner, name, before)
      setattr(owner, name, value)
      stack.callback(_restore, owner, name, before)
    yield


@contextlib.contextmanager
def replaced_entries(table: str, entries: Mapping[Any, Any]) -> Iterator[None]:
  """While open, a dict of PyTorch, which is named by its dotted path, has other entries."""
  if table not in REPLACED:
    raise LookupError(f"{table} is no row of husk/inductor/surface.py that is replaced: add it")
  module, _, name = table.rpartition(".")
  values: dict[Any, Any] = getattr(importlib.import_module(module), name)
  before = {key: values.get(key, _ABSENT) for key in entries}
  values.update(entries)
  try:
    yield
  finally:
    for key, value in before.items():
      if value is _ABSENT:
        values.pop(key, None)
      else:
        values[key] = value


def _is_code(owner: Any, name: str) -> bool:
  """Whether an attribute is what a function does, for all who have the function."""
  return isinstance(owner, types.FunctionType) and name == "__code__"


def _restore(owner: Any, name: str, before: Any) -> None:
  if before is _ABSENT:
    delattr(owner, name)
  else:
    setattr(owner, name, before)


def require_row(owner: Any, name: str, before: Any) -> None:
  """Raises LookupError if an attribute is no row that is replaced: neither as the attribute of its
  owner or of a base class, nor under the name under which the replaced function is defined."""
  if isinstance(owner, types.ModuleType):
    places = [owner.__name__]
  elif _is_code(owner, name):
    places = [f"{owner.__module__}.{owner.__qualname__}"]
  else:
    bases = (owner if isinstance(owner, type) else type(owner)).__mro__
    places = [f"{base.__module__}.{base.__qualname__}" for base in bases]
  paths = [f"{place}.{name}" for place in places]
  paths.append(f"{getattr(before, '__module__', '')}.{getattr(before, '__qualname__', '')}")
  if REPLACED.isdisjoint(paths):
    raise LookupError(f"{paths[0]} is no row of husk/inductor/surface.py that is replaced: add it")
