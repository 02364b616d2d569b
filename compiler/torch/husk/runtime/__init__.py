"""The runtime: loads artifacts and runs them. It needs neither PyTorch nor NumPy.

Programs need the library of Husk, which is loaded when one of their names is first used; the
exceptions do not, and `husk.inspect` raises them, too.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .errors import (
  CancelledError,
  DeviceError,
  Error,
  FileError,
  InvalidArgumentError,
  InvalidFileError,
  InvalidInputError,
  KernelError,
  LimitError,
  NeedsResizeError,
  NotFoundError,
  OutOfMemoryError,
  UnsupportedError,
)

if TYPE_CHECKING:
  from .program import Engine, Function, Program, Session, State, Weight, group_id, load
  from .ranked import RankedProgram, load_ranks

__all__ = [
  "CancelledError",
  "DeviceError",
  "Engine",
  "Error",
  "FileError",
  "Function",
  "InvalidArgumentError",
  "InvalidFileError",
  "InvalidInputError",
  "KernelError",
  "LimitError",
  "NeedsResizeError",
  "NotFoundError",
  "OutOfMemoryError",
  "Program",
  "RankedProgram",
  "Session",
  "State",
  "UnsupportedError",
  "Weight",
  "group_id",
  "load",
  "load_ranks",
]


_PROGRAM = ("Engine", "Function", "Program", "Session", "State", "Weight", "group_id", "load")


_RANKED = ("RankedProgram", "load_ranks")


def __getattr__(name: str) -> Any:
  if name not in (*_PROGRAM, *_RANKED):
    raise AttributeError(f"module 'husk.runtime' has no attribute {name!r}")
  module = "husk.runtime.program" if name in _PROGRAM else "husk.runtime.ranked"
  value = getattr(importlib.import_module(module), name)
  globals()[name] = value
  return value
