"""The errors that a server answers with."""

from __future__ import annotations

from ..runtime import (
  CancelledError,
  DeviceError,
  Error,
  InvalidArgumentError,
  InvalidInputError,
  KernelError,
  LimitError,
  NeedsResizeError,
  OutOfMemoryError,
)


class SettingsError(ValueError):
  """The settings of a model are wrong, or do not fit its artifact."""


class RequestError(Exception):
  """A request that is not answered. `status` is the status of HTTP:

  400  the request is wrong
  404  there is no model, function or sequence of that name
  409  another request of the sequence is running
  413  the body of the request is too large
  500  the server has a fault
  503  the server has no room now: the same request may succeed later
  """

  def __init__(self, status: int, text: str) -> None:
    super().__init__(status, text)
    self.status = status
    self.text = text

  @property
  def is_retryable(self) -> bool:
    return self.status == 503

  def __str__(self) -> str:
    return self.text


# Failures that the request itself has caused.
_OF_THE_REQUEST = (
  InvalidInputError,
  InvalidArgumentError,
  KernelError,
  LimitError,
  NeedsResizeError,
)


def of_run(error: Exception) -> RequestError:
  """The answer for an exception of a run."""
  if isinstance(error, _OF_THE_REQUEST):
    return RequestError(400, str(error))
  if isinstance(error, (OutOfMemoryError, MemoryError)):
    return RequestError(503, f"there is no memory for this request now: {error}")
  if isinstance(error, CancelledError):
    return RequestError(503, f"the run was ended: {error}")
  if isinstance(error, DeviceError):
    return RequestError(500, f"the device has failed: {error}")
  if isinstance(error, Error):
    return RequestError(500, str(error))
  return RequestError(500, f"{type(error).__name__}: {error}")
