"""Shows how far an export is, and keeps how long its stages took."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

ERASE = "\r\x1b[K"  # the line of a terminal


class Progress:
  """The stages of an export. One line of stderr names the stage that runs and how long it has
  taken, if `shown` is set; by default it is if stderr is a terminal."""

  def __init__(self, shown: bool | None = None) -> None:
    self.shown = sys.stderr.isatty() if shown is None else shown
    self.total = 0  # the number of stages
    self.seconds: dict[str, float] = {}
    self._begun = 0
    self._begin = time.perf_counter()
    self._part = ""

  def report(self, part: str) -> None:
    """Says how far the stage is that runs, in the same line."""
    self._part = part

  @contextlib.contextmanager
  def stage(self, name: str, detail: str = "") -> Iterator[None]:
    """A stage of the export, such as a target. `detail` is the part of it that runs."""
    self._begun += 1
    text = f"husk: [{self._begun}/{self.total}] {name}{detail and ': '}{detail}"
    begin = time.perf_counter()
    self._part = ""
    with self._line(text, begin) if self.shown else contextlib.nullcontext():
      yield
    self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin

  def summary(self) -> str:
    """The time since the beginning, and that of each stage."""
    parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items())
    return f"exported in {time.perf_counter() - self._begin:.1f} s: {parts}"

  @contextlib.contextmanager
  def _line(self, text: str, begin: float) -> Iterator[None]:
    ended = threading.Event()

    def draw(stream: TextIO) -> None:
      while True:
        part = self._part and f": {self._part}"
        stream.write(f"{ERASE}{text}{part} ({time.perf_counter() - begin:.0f} s)")
        stream.flush()
        if ended.wait(1.0):
          return

    with _own_stderr() as stream:
      thread = threading.Thread(target=draw, args=(stream,), daemon=True)
      thread.start()
      try:
        yield
      finally:
        ended.set()
        thread.join()
        stream.write(ERASE)
        stream.flush()


@contextlib.contextmanager
def _own_stderr() -> Iterator[TextIO]:
  """A stream to where stderr goes now. What becomes of stderr meanwhile (prints.py) has no effect
  on it."""
  try:
    copy = os.dup(sys.stderr.fileno())
  except (AttributeError, OSError, ValueError):  # a stream without a file
    yield sys.stderr
    return
  sys.stderr.flush()
  with os.fdopen(copy, "w", encoding="utf-8", errors="replace") as stream:
    yield stream
