"""Husk: exports PyTorch models to artifacts, and runs artifacts.

`export` and `write` need PyTorch. `load`, and the classes that it returns, need the library of
Husk, which an installed package contains.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .artifact import inspect
from .errors import CompileError, Unsupported
from .export import VERSION as __version__
from .export import Function, export, write

if TYPE_CHECKING:
  from .runtime import (
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
    Program,
    Session,
    State,
    UnsupportedError,
    load,
  )

# The names of husk.runtime, which is imported when one of them is first used: an export needs no
# library, and a source tree may have none.
_RUNTIME = (
  "CancelledError",
  "DeviceError",
  "Error",
  "FileError",
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
  "load",
)

__all__ = [
  "CancelledError",
  "CompileError",
  "DeviceError",
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
  "Unsupported",
  "UnsupportedError",
  "__version__",
  "export",
  "inspect",
  "load",
  "write",
]


def __getattr__(name: str) -> Any:
  if name not in _RUNTIME:
    raise AttributeError(f"module 'husk' has no attribute {name!r}")
  value = getattr(importlib.import_module("husk.runtime"), name)
  globals()[name] = value
  return value


def __dir__() -> list[str]:
  return sorted({*globals(), *_RUNTIME})
