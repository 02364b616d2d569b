"""The errors of an export."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator


class Unsupported(Exception):
  """The model does something that a `.hir` cannot express. The text names the construct and, if it
  is known, the place in the model; `has_place` tells whether it names that."""

  def __init__(self, message: str, has_place: bool = False) -> None:
    super().__init__(message)
    self.has_place = has_place


class CompileError(Exception):
  """A tool (g++, huskc) failed; the text is the output of the tool."""


@contextlib.contextmanager
def within(function: str, functions: Collection[str]) -> Iterator[None]:
  """Adds the name of the function to each `Unsupported` that is raised inside, if an export has
  several functions."""
  try:
    yield
  except Unsupported as error:
    if len(functions) == 1:
      raise
    raise Unsupported(f"function {function}: {error}") from error
