"""Keeps in a file what PyTorch, Triton and the assembler print while kernels are compiled and
measured: tables of times, tracebacks and whole programs, hundreds of lines in which a message of an
export would get lost."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import pathlib
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import TextIO

from .errors import CompileError

# The name of the log in the folder that `keep=` of an export names.
NAME = "prints.log"


class Log:
  """The prints of one export. While `receiving` is open, what the process writes to stdout and
  stderr goes to the log, by Python and by its file descriptors, which compilers written in C++ use.

  folder: where the log lies; without it the log is a temporary file that stays.
  """

  def __init__(self, folder: pathlib.Path | None = None) -> None:
    self._folder = folder
    self._path: pathlib.Path | None = None
    self._file: TextIO | None = None
    self._lock, self._depth = threading.Lock(), 0
    self._descriptors: list[tuple[int, int]] = []  # each with a copy of what it was
    self._streams: tuple[TextIO, TextIO] | None = None

  @property
  def path(self) -> pathlib.Path | None:
    """The path of the log; None if nothing was printed."""
    if self._file is None or self._path is None:
      return None
    self._file.flush()
    return self._path if self._path.stat().st_size else None

  def close(self) -> None:
    """Ends the log. An empty one is removed."""
    is_empty = self.path is None
    if self._file is not None and self._path is not None:
      self._file.close()
      if is_empty:
        self._path.unlink(missing_ok=True)
      self._file = None

  @contextlib.contextmanager
  def receiving(self) -> Iterator[None]:
    """Several threads may be inside at once; what other threads print meanwhile is in the log
    too."""
    with self._lock:
      if self._depth == 0:
        self._redirect()
      self._depth += 1
    try:
      yield
    finally:
      with self._lock:
        self._depth -= 1
        if self._depth == 0:
          self._restore()

  def write(self, text: str) -> None:
    with self._lock:
      self._opened().write(text)

  def _redirect(self) -> None:
    file = self._opened()
    _flush()
    for descriptor in (1, 2):
      with contextlib.suppress(OSError):  # the process has closed it
        self._descriptors.append((descriptor, os.dup(descriptor)))
        os.dup2(file.fileno(), descriptor)
    self._streams = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = file

  def _restore(self) -> None:
    if self._streams is not None:
      sys.stdout, sys.stderr = self._streams
    if self._file is not None:
      self._file.flush()
    while self._descriptors:
      descriptor, copy = self._descriptors.pop()
      os.dup2(copy, descriptor)
      os.close(copy)

  def _opened(self) -> TextIO:
    if self._file is None:
      if self._folder is None:
        descriptor, name = tempfile.mkstemp(prefix="husk-", suffix=f"-{NAME}")
        os.close(descriptor)
        self._path = pathlib.Path(name)
      else:
        self._path = self._folder / NAME
        self._path.write_bytes(b"")
      self._file = self._path.open("a", encoding="utf-8", errors="replace")
    return self._file


_LOG: contextvars.ContextVar[Log | None] = contextvars.ContextVar("log", default=None)


@contextlib.contextmanager
def logged(folder: pathlib.Path | None) -> Iterator[Log]:
  """While open, `kept` puts prints into a log, which is the value of the context. The logger "husk"
  names the log at level INFO, and so does an exception that leaves the context."""
  log = Log(folder)
  token = _LOG.set(log)
  try:
    yield log
  except Exception as error:
    if log.path is None:
      raise
    if isinstance(error, CompileError):
      raise error.with_log(log.path) from error
    error.add_note(f"what compilers printed is in {log.path}")
    raise
  finally:
    if log.path is not None:
      logging.getLogger("husk").info("what compilers printed is in %s", log.path)
    _LOG.reset(token)
    log.close()


def append(text: str) -> None:
  """Puts a text into the log of the export; without one nothing is kept."""
  if (log := _LOG.get()) is not None:
    log.write(text)


class Appender:
  """A stream that puts into the log what is written to it."""

  def write(self, text: str) -> int:
    append(text)
    return len(text)

  def flush(self) -> None:
    pass


@contextlib.contextmanager
def records_of_torch(is_shown: Callable[[logging.LogRecord], bool]) -> Iterator[None]:
  """While open, the handlers of torch's loggers show only those records of torch of which
  `is_shown` says so. Other loggers may have the same handlers, and their records are shown. Some
  packages of torch, such as torch.export, have handlers of their own."""

  def shown(record: logging.LogRecord) -> bool:
    return record.name.split(".")[0] != "torch" or is_shown(record)

  names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "torch"]
  handlers = {handler for name in names for handler in logging.getLogger(name).handlers}
  for handler in handlers:
    handler.addFilter(shown)
  try:
    yield
  finally:
    for handler in handlers:
      handler.removeFilter(shown)


def is_no_warning(record: logging.LogRecord) -> bool:
  """Puts a record that is a warning into the log of the export, if there is one."""
  return _is_shown(record, logging.WARNING)


def is_no_error(record: logging.LogRecord) -> bool:
  """Puts a record of an error into the log of the export, if there is one: the exception that
  follows says it to the caller."""
  return _is_shown(record, logging.ERROR)


def _is_shown(record: logging.LogRecord, kept_level: int) -> bool:
  log = _LOG.get()
  if log is None or record.levelno != kept_level:
    return True
  log.write(f"{record.name}: {record.getMessage()}\n")
  return False


def kept() -> contextlib.AbstractContextManager[None]:
  """A context in which others may print: an export keeps it in its log, `torch.compile` shows
  it."""
  log = _LOG.get()
  return contextlib.nullcontext() if log is None else log.receiving()


def _flush() -> None:
  for stream in (sys.stdout, sys.stderr):
    with contextlib.suppress(AttributeError, OSError, ValueError):  # None, or closed
      stream.flush()
