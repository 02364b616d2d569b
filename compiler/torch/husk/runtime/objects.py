"""Objects of the application's own classes among the arguments and results of a function."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .printable import printable


@dataclasses.dataclass(frozen=True)
class Object:
  """A place in a tree where an object of a class belongs.

  parts: the trees of its parts.
  split: a function of a value and of its name in messages, which returns its parts.
  make: a function of the parts, which returns the object.
  """

  parts: tuple[Any, ...]
  split: Callable[[Any, str], tuple[Any, ...]]
  make: Callable[..., Any]


def of(described: Any, parts: Any) -> Object:
  """The place of an object whose class a file describes. `parts` has the trees of its parts, by
  name or in a row. The class is one of a module that the process has imported: nothing is imported
  because a file says so. Without the class, a result is a dict of the named parts, or a tuple of
  parts without names; a single part without a name stands for its object."""
  names = list(parts) if isinstance(parts, dict) else []
  trees = tuple(parts.values()) if isinstance(parts, dict) else tuple(parts)
  text, kind = str(described["class"]), str(described["kind"])
  found = _class(text)
  make: Callable[..., Any] = (lambda *values: dict(zip(names, values))) if names else _bare
  if found is not None and kind == "dataclass" and dataclasses.is_dataclass(found):
    empty = dict.fromkeys(map(str, described["empty"]))
    make = lambda *values: found(**dict(zip(names, values)), **empty)  # noqa: E731
  elif kind == "namedtuple":
    is_own = found is not None and getattr(found, "_fields", None) == tuple(names)
    make = found if is_own and found is not None else _tuple
  return Object(trees, functools.partial(_split, text, names, len(trees)), make)


def _tuple(*values: Any) -> tuple[Any, ...]:
  return values


def _bare(*values: Any) -> Any:
  return values[0] if len(values) == 1 else values


def _class(text: str) -> type | None:
  """The class "module:name", if the process has imported its module."""
  module, _, path = text.partition(":")
  found: Any = sys.modules.get(module)
  for name in path.split("."):
    found = getattr(found, name, None)
  return found if isinstance(found, type) else None


def _split(
  described: str, names: Sequence[str], count: int, value: Any, place: str
) -> tuple[Any, ...]:
  """The parts of an argument: an object of the class, a dict or a sequence of its parts."""
  if names and isinstance(value, Mapping):
    parts = [value[name] for name in names if name in value]
    known = len(value) == len(names)
  elif names and all(hasattr(value, name) for name in names):
    parts, known = [getattr(value, name) for name in names], True
  else:
    sequence = value if isinstance(value, (tuple, list)) else _taken_apart(value)
    if sequence is None and count == 1 and not names:
      sequence = (value,)
    parts, known = list(sequence or ()), sequence is not None
  if not known or len(parts) != count:
    fields = f" or a dict with {', '.join(map(repr, map(printable, names)))}" if names else ""
    raise TypeError(
      f"{place} is an object of {printable(described)} in the model: pass one{fields}, or a tuple "
      f"of its {count} parts, not {type(value).__name__}"
    )
  return tuple(parts)


def _taken_apart(value: Any) -> Sequence[Any] | None:
  """The parts of an object of a class that PyTorch knows how to take apart."""
  nodes: Any = getattr(sys.modules.get("torch.utils._pytree"), "SUPPORTED_NODES", {})
  known = nodes.get(type(value))
  return None if known is None else list(known.flatten_fn(value)[0])
