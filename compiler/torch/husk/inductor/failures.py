"""What an export says if PyTorch, Inductor or Triton fails: the operator, the line of the model,
the reason, and what to do."""

from __future__ import annotations

import contextlib
import pathlib
import re
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import OTHER_OPERATORS, CompileError, Unsupported
from . import origins

if TYPE_CHECKING:
  import torch

REMEDY = OTHER_OPERATORS

# Exceptions that say themselves what is wrong, or that are no failure of a compiler.
_OWN = (Unsupported, CompileError, OSError, ImportError, MemoryError)


@contextlib.contextmanager
def explained(target: str = "") -> Iterator[None]:
  """Makes a CompileError of each exception that is raised inside and does not explain itself.
  `target`: for what is compiled there, such as "host:avx2"."""
  try:
    yield
  except _OWN:
    raise
  except Exception as error:
    raise of(error, "PyTorch", target) from error


def of(error: BaseException, who: str, target: str = "") -> CompileError:
  """The explanation of an exception. `who` was at work, such as "Inductor", if not Husk itself
  raised it."""
  who = "Husk" if _is_of_husk(error) else who
  node = _node(error)
  what = "this operator" if node is not None else "the model"
  what += f" for {target}" if target else ""
  place = origins.operator_place(node) if node is not None else ""
  return CompileError(f"{who} cannot compile {what}: {reason(error)}", REMEDY, place)


def _is_of_husk(error: BaseException) -> bool:
  """Whether Husk, not PyTorch, called what raised the first exception of a chain."""
  found, at = False, list(_chain(error))[-1].__traceback__
  while at is not None:
    path = at.tb_frame.f_code.co_filename
    found = path.startswith(_PACKAGE) or (found and not origins.is_of_torch(path))
    at = at.tb_next
  return found


_PACKAGE = str(pathlib.Path(__file__).parents[1])


def reason(error: BaseException) -> str:
  """The class of the first exception of a chain and what it says, in at most three lines without
  the paths of temporary files. An exception that says nothing is named with its place."""
  first = list(_chain(error))[-1]
  # torch.fx adds the node and the lines of the model, which the place has.
  lines = [line.strip() for line in str(first).split("\n\nWhile executing ")[0].splitlines()]
  lines = [line for line in lines if line and not line.startswith(_DETAILS)]
  if type(first).__module__.startswith("triton.compiler"):
    lines = lines[-1:]  # after the source text of the kernel
  if type(first).__name__ == "PTXASError":
    lines = [line for line in lines if "error" in line or "fatal" in line][1:] or lines[:1]
    lines = [re.sub(r"^ptxas \S+, (line \d+); ", r"\1 of the PTX: ", line) for line in lines]
  name = type(first).__name__
  if name in _IN_OTHER_WORDS:
    return _IN_OTHER_WORDS[name]
  if not lines:
    return f"{name}{_raised_in(first.__traceback__)}"
  return f"{name}: " + without_temporary("\n  ".join(lines[:3]))


# Beginnings of lines that repeat arguments, or how PyTorch and Triton were called.
_DETAILS = (
  "target:",
  "args[",
  "kwargs",
  "Repro command",
  "Set TORCHDYNAMO",
  "For more",
  "Found from",
)


# The meaning of exceptions whose own texts name options that an export does not have, by class.
_IN_OTHER_WORDS = {
  "NoValidChoicesError": "it has no kernel for these dtypes and sizes, and calls no library",
}


def without_temporary(text: str) -> str:
  """A text without the folders of temporary files, which are gone when somebody reads it."""
  return re.sub(r"/(?:tmp|var/tmp|dev/shm)/(?:[^\s:'\",;/]*/)*", "", text)


def _chain(error: BaseException) -> Iterator[BaseException]:
  """The exception and those that led to it."""
  seen: BaseException | None = error
  passed: set[int] = set()
  while seen is not None and id(seen) not in passed:
    passed.add(id(seen))
    yield seen
    wraps = type(seen).__name__ == "LoweringException"  # raised `from None`
    earlier = seen.__context__ if wraps else seen.__cause__
    seen = getattr(seen, "inner_exception", None) or earlier


def _raised_in(traceback: types.TracebackType | None) -> str:
  if traceback is None:
    return " without a text"
  while traceback.tb_next is not None:
    traceback = traceback.tb_next
  code = traceback.tb_frame.f_code
  file = "/".join(code.co_filename.rsplit("/", 3)[-3:])
  return f" without a text, in {code.co_name} ({file}:{traceback.tb_lineno})"


def _node(error: BaseException) -> torch.fx.Node | None:
  """The node of the graph that was compiled when an exception was raised: that of the innermost
  frame that has one."""
  for one in reversed(list(_chain(error))):
    found = None
    at = one.__traceback__
    while at is not None:
      found = _node_of_frame(at.tb_frame) or found
      at = at.tb_next
    if found is not None:
      return found
  return None


# The variables in which PyTorch's functions have what they compile.
_NAMES = ("n", "node", "fx_node", "origin_node", "snode", "buffer", "buf", "line", "self")


def _node_of_frame(frame: types.FrameType) -> torch.fx.Node | None:
  variables = frame.f_locals
  for name in _NAMES:
    if (value := variables.get(name)) is not None and (node := _node_of(value)) is not None:
      return node
  return None


def _node_of(value: Any) -> torch.fx.Node | None:
  """The node of torch.fx that a value stands for: itself, one that a node of Inductor's IR comes
  from, or the node that a graph of Inductor lowers."""
  import torch

  if isinstance(value, torch.fx.Node):
    return value if value.op == "call_function" else None
  module = type(value).__module__
  if not module.startswith(("torch._inductor", "husk.")):
    return None
  try:
    inner = getattr(value, "node", None)
    inner = value if inner is None else inner
    if isinstance(inner, torch.fx.Node):
      return inner if inner.op == "call_function" else None
    first = inner.get_origin_node() or next(iter(inner.get_origins()), None)
  except (AttributeError, NotImplementedError, AssertionError):
    return None
  return first if isinstance(first, torch.fx.Node) and first.op == "call_function" else None
