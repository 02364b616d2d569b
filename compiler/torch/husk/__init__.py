"""Husk: exports PyTorch models to artifacts, and runs artifacts.

`export` and `write` need PyTorch. `load`, and the classes that it returns, need the library of
Husk, which an installed package contains.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .artifact import inspect
from .errors import CompileError, Unsupported
from .version import VERSION as __version__

if TYPE_CHECKING:
  import types

  from . import quantized, text
  from .compiled import save_compiled
  from .exporter import Function, export, write
  from .options import Options
  from .runtime import (
    CancelledError,
    DeviceError,
    Engine,
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
    RankedProgram,
    Session,
    State,
    UnsupportedError,
    Weight,
    group_id,
    load,
    load_ranks,
  )

  # Packages above this one, so they are not imported here.
  language: types.ModuleType
  parallel: types.ModuleType

# Names whose modules are imported when one of them is first used: the runtime needs no PyTorch and
# none of the packages that PyTorch brings, and an export needs no library of Husk.
_EXPORTER = ("Function", "Options", "export", "write")
_COMPILED = ("save_compiled",)
_PACKAGES = ("language", "parallel", "quantized", "text")
_RUNTIME = (
  "CancelledError",
  "DeviceError",
  "Engine",
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
  "RankedProgram",
  "Session",
  "State",
  "UnsupportedError",
  "Weight",
  "group_id",
  "load",
  "load_ranks",
)

__all__ = [
  "CancelledError",
  "CompileError",
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
  "Options",
  "OutOfMemoryError",
  "Program",
  "RankedProgram",
  "Session",
  "State",
  "Unsupported",
  "UnsupportedError",
  "Weight",
  "__version__",
  "export",
  "group_id",
  "inspect",
  "language",
  "load",
  "load_ranks",
  "parallel",
  "quantized",
  "save_compiled",
  "text",
  "write",
]


def __getattr__(name: str) -> Any:
  if name in _PACKAGES:
    return importlib.import_module(f"husk.{name}")
  if name in _RUNTIME:
    module = importlib.import_module("husk.runtime")
  elif name in (*_EXPORTER, *_COMPILED):
    try:
      module = importlib.import_module("husk.exporter" if name in _EXPORTER else "husk.compiled")
    except ModuleNotFoundError as error:
      raise ModuleNotFoundError(
        f"husk.{name} needs PyTorch ({error}): run `pip install './compiler/torch[export]'`",
        name=error.name,
      ) from error
  else:
    raise AttributeError(f"module 'husk' has no attribute {name!r}")
  value = getattr(module, name)
  globals()[name] = value
  return value


def __dir__() -> list[str]:
  return sorted({*globals(), *_COMPILED, *_EXPORTER, *_PACKAGES, *_RUNTIME})
