"""The exceptions of the runtime: one class for each status of the C interface. They need no library
of Husk."""

from __future__ import annotations


class Error(Exception):
  """A call of libhusk failed.

  The text says what failed and, if there is one, the remedy. `status` is the husk_status,
  `driver_code` the error number of the driver (0: no driver call failed), `step` the index of the
  failed step in its body (-1: no step failed).
  """

  def __init__(self, text: str, status: int = 0, driver_code: int = 0, step: int = -1) -> None:
    super().__init__(text)
    self.status = status
    self.driver_code = driver_code
    self.step = step


class InvalidArgumentError(Error, ValueError):
  """The call is wrong."""


class InvalidFileError(Error, ValueError):
  """The artifact is damaged or is none."""


class UnsupportedError(Error):
  """This build or device lacks a version, feature, target or operator that the artifact needs."""


class InvalidInputError(Error, ValueError):
  """A value of the call is wrong: dtype, shape, strides, device, byte order or range."""


class OutOfMemoryError(Error, MemoryError):
  """Memory of the host or of the device is exhausted."""


class FileError(Error):
  """The operating system failed to open, map or read a file."""


class DeviceError(Error):
  """The driver of the device failed; `driver_code` is its error number."""


class NotFoundError(Error, LookupError):
  """No function, constant, state or operator has that name."""


class KernelError(Error):
  """A check inside a kernel failed: an index out of range, for instance."""


class NeedsResizeError(Error):
  """The shapes need more memory than the session may have."""


class LimitError(Error):
  """A limit of the options is reached."""


class CancelledError(Error):
  """A callback of the application ended the call."""


# By husk_status. The class at 0 is for statuses that this version does not know.
BY_STATUS: list[type[Error]] = [
  Error,
  InvalidArgumentError,
  InvalidFileError,
  UnsupportedError,
  InvalidInputError,
  OutOfMemoryError,
  FileError,
  DeviceError,
  NotFoundError,
  KernelError,
  NeedsResizeError,
  LimitError,
  CancelledError,
]


def invalid_file(text: str) -> InvalidFileError:
  """The exception for a file that Python finds damaged."""
  return InvalidFileError(text, BY_STATUS.index(InvalidFileError))
