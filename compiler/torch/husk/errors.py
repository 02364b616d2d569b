"""What can go wrong in an export."""

import contextlib


class Unsupported(Exception):
  """The model does something that a `.hir` cannot say. Names the construct and, where known, the model's source
  line."""


class CompileError(Exception):
  """A tool (g++, huskc) failed; the text is what it printed."""


@contextlib.contextmanager
def within(function, functions):
  """While open, what cannot be held says which of several functions it is in."""
  try:
    yield
  except Unsupported as error:
    if len(functions) == 1:
      raise
    raise Unsupported(f"function {function}: {error}") from error
