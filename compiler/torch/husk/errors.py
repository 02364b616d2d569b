"""The errors of an export."""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import types
from collections.abc import Callable, Collection, Iterator
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Unsupported(Exception):
  """The model does something that a `.hir` cannot express.

  construct: what that is and, if it is known, the place in the model.
  has_place: whether `construct` names the place.
  remedy: what to do; empty if `construct` says it.
  """

  def __init__(self, construct: str, has_place: bool = False, remedy: str = "") -> None:
    self.construct, self.has_place, self.remedy = construct, has_place, remedy
    super().__init__(f"{construct}: {remedy}" if remedy else construct)

  def at(self, place: str) -> Unsupported:
    """The error with a place, unless it has one."""
    if self.has_place or not place:
      return self
    return Unsupported(f"{self.construct} (near {place})", True, self.remedy)


class CompileError(Exception):
  """PyTorch, Inductor, Triton or a tool (g++, huskc) failed, or is not there.

  message: what failed, and why.
  remedy: what to do; empty if the message says it.
  place: the operator and the line of the model; empty if they are not known.
  """

  def __init__(self, message: str, remedy: str = "", place: str = "") -> None:
    self.message, self.remedy, self.place = message, remedy, place
    text = f"{place}: {message}" if place else message
    super().__init__(f"{text}\n  {remedy}" if remedy else text)

  def at(self, place: str) -> CompileError:
    """The error with a place, unless it has one."""
    return CompileError(self.message, self.remedy, self.place or place)

  def with_log(self, path: pathlib.Path) -> CompileError:
    """The error with the name of a file that has all that compilers printed."""
    log = f"what compilers printed is in {path}"
    return CompileError(self.message, f"{self.remedy}\n  {log}" if self.remedy else log, self.place)


# The remedies of a failure of the exporter itself, and of an operator that it cannot write.
REPORT = "report it with what HUSK_TRACEBACK=1 in the environment shows"
OTHER_OPERATORS = f"write this line with other operators, or {REPORT}"
# The remedy of a number that a program cannot compute.
OUTSIDE = "compute this number outside of the model, and give it to the model as an input"


@contextlib.contextmanager
def within(function: str, functions: Collection[str]) -> Iterator[None]:
  """Adds the name of the function to each `Unsupported` that is raised inside, if an export has
  several functions."""
  try:
    yield
  except Unsupported as error:
    if len(functions) == 1:
      raise
    construct = f"function {function}: {error.construct}"
    raise Unsupported(construct, error.has_place, error.remedy) from error


def traceback_is_full() -> bool:
  """Whether the environment asks for all frames of a traceback."""
  return os.environ.get("HUSK_TRACEBACK", "") not in ("", "0")


def short_tracebacks(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
  """Makes a function whose exceptions have no frames of PyTorch in their traceback, and do not show
  the exceptions that led to them: dozens of frames hide the line of the model. An exception keeps
  its class, and its text without the frames of C++ that PyTorch writes into it. HUSK_TRACEBACK=1 in
  the environment keeps all frames."""

  @functools.wraps(function)
  def shortened(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
    try:
      return function(*args, **kwargs)
    except Exception as error:
      if traceback_is_full():
        raise
      if len(error.args) == 1 and isinstance(error.args[0], str):
        error.args = (error.args[0].split(_FRAMES_OF_CPP)[0],)
      raise error.with_traceback(_without_torch(error.__traceback__)) from None

  return shortened


# Where the frames begin in the text of an exception of PyTorch's C++.
_FRAMES_OF_CPP = "\nException raised from "


def _without_torch(traceback: types.TracebackType | None) -> types.TracebackType | None:
  import torch

  package = str(pathlib.Path(torch.__file__).parent)
  frames = []
  while traceback is not None:
    if not traceback.tb_frame.f_code.co_filename.startswith(package):
      frames.append(traceback)
    traceback = traceback.tb_next
  short = None
  for frame in reversed(frames):
    short = types.TracebackType(short, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
  return short


# Beginnings of lines with which PyTorch's errors explain themselves at length.
_ADVICE = (
  "consider using",
  "For more information",
  "For extended logs",
  "If you suspect",
  "For more debugging help",
  "For C++ stack trace",
  "The error above occurred",
  "The following call raised this error",
  "Caused by:",
  "Set TORCHDYNAMO_VERBOSE",
)
_LINES = 8


def message(error: BaseException) -> str:
  """What an exception of PyTorch or of a model says, in a few lines, and the line of the model that
  raised it."""
  lines = [line.rstrip() for line in str(error).splitlines()]
  lines = [line for line in lines if line.strip() and not line.strip().startswith(_ADVICE)]
  # From here on PyTorch shows lines of the model, of which _place finds the innermost.
  shown = next(
    (i for i, line in enumerate(lines) if line.lstrip().startswith('File "')), len(lines)
  )
  text = f"{type(error).__name__}: " + "\n".join(lines[: min(shown, _LINES)])
  if place := _place(error):
    text += f"\n  at {place}"
  return text


def _place(error: BaseException) -> str | None:
  """The innermost line of a traceback that is neither PyTorch's nor Husk's."""
  import linecache
  import sysconfig

  outside = (str(pathlib.Path(__file__).parent), *sysconfig.get_paths().values(), "<")
  place = None
  at = error.__traceback__
  while at is not None:
    code = at.tb_frame.f_code
    if not code.co_filename.startswith(outside):
      line = linecache.getline(code.co_filename, at.tb_lineno).strip()
      place = f"{code.co_filename}:{at.tb_lineno}, in {code.co_name}: {line}"
    at = at.tb_next
  return place
