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
  from .program import Engine, Function, Program, Session, State, Weight, load

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
  "Session",
  "State",
  "UnsupportedError",
  "Weight",
  "load",
]


_PROGRAM = ("Engine", "Function", "Program", "Session", "State", "Weight", "load")


def __getattr__(name: str) -> Any:
  if name not in _PROGRAM:
    raise AttributeError(f"module 'husk.runtime' has no attribute {name!r}")
  value = getattr(importlib.import_module("husk.runtime.program"), name)
  globals()[name] = value
  return value
