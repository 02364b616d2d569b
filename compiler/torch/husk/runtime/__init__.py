"""The runtime: loads artifacts and runs them. It needs neither PyTorch nor NumPy."""

from ..status import (
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
from .program import Function, Program, Session, State, load

__all__ = [
  "CancelledError",
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
  "UnsupportedError",
  "load",
]
