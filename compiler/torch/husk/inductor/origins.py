"""The line of the model that a node of Inductor's IR comes from."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import pathlib
import re
import traceback
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from .lines import InductorObject

if TYPE_CHECKING:
  import torch


_HUSK = str(pathlib.Path(__file__).resolve().parents[1])


@dataclasses.dataclass(frozen=True)
class Origin:
  """The module of the model that a node comes from, and its source line as "model.py:12 x + 1".
  Each may be empty. A line of code that torch generated is not in a file."""

  module: str = ""
  line: str = ""
  is_in_file: bool = False

  def __str__(self) -> str:
    return " ".join(part for part in (self.module, self.line) if part)


def place(trace: str | None) -> str:
  """The line of the model in a stack trace, as "model.py:12 x + 1"."""
  return _line(trace).line


def place_of_error(error: BaseException) -> str:
  """The line of the model in an error's traceback, as `place` gives it."""
  frames = traceback.extract_tb(error.__traceback__)
  own = [one for one in frames if not is_of_torch(one.filename) and not is_of_husk(one.filename)]
  return place("".join(traceback.format_list(own)))


def operator_place(node: torch.fx.Node) -> str:
  """The operator of a node of torch.export's graph, and the line of the model that calls it."""
  line, target = place(node.meta.get("stack_trace")), node.target
  while isinstance(target, functools.partial):  # that Inductor has put in place of operators
    target = target.func
  name = getattr(target, "__name__", "") if inspect.isfunction(target) else str(target)
  return f"{name} (near {line})" if line else name


def operators_of(node: InductorObject) -> list[str]:
  """The names of the operators that an IR node computes, at most four, in the
  order of the graph."""
  try:
    origins = list(node.get_origins())
  except (AttributeError, NotImplementedError):
    return []
  calls = sorted(one for one in origins if getattr(one, "op", "") == "call_function")
  names = list(dict.fromkeys(str(one.target) for one in calls))
  return names[:4] + ["..."] * (len(names) > 4)


def _line(trace: str | None) -> Origin:
  """The line of the model in a stack trace.

  This is the deepest frame outside PyTorch. Code that torch generated lies in no file; its line
  number is left out, because it differs from run to run."""
  frames = re.findall(r'File "([^"]*)", line (\d+), in [^\n]*(?:\n\s*([^\n]*))?', trace or "")
  in_files = [frame for frame in frames if frame[0][:1] != "<"]
  of_model = [frame for frame in in_files if not is_of_torch(frame[0])] or in_files or frames
  if not of_model:
    return Origin()
  path, line, code = of_model[-1]
  code = code.strip()
  code = code[:37] + "..." if len(code) > 40 else code
  if path[:1] == "<":
    return Origin(line=code)
  return Origin(line=f"{path.rsplit('/', 1)[-1]}:{line} {code}".strip(), is_in_file=True)


def is_of_husk(path: str) -> bool:
  """Whether a file belongs to the exporter, by whichever path Python found it."""
  return os.path.realpath(path).startswith(_HUSK)


def is_of_torch(path: str) -> bool:
  """Whether a file belongs to PyTorch, in any environment: a program may have been traced in
  another one than this."""
  return re.search(r"/(?:site-packages|dist-packages|pytorch)/torch/", path) is not None


# The key of a call's meta whose value has, by an origin of the called graph, the origin that the
# same node has in this call.
OF_CALL = "husk_origins"


def origin(node: InductorObject, of_calls: Collection[Any] = ()) -> Origin:
  """The origin of an IR node; it is empty if the node does not tell. A node of a called graph has
  all nodes of the call among its own: those are `of_calls`."""
  return of_meta(next((each.meta for each in nodes_of(node) if each not in of_calls), {}))


def of_call(node: InductorObject) -> dict[Origin, Origin]:
  """What a call of a graph that stands for several parts of the model says of its origins."""
  return next((each.meta[OF_CALL] for each in nodes_of(node) if OF_CALL in each.meta), {})


def nodes_of(node: InductorObject) -> list[torch.fx.Node]:
  """The nodes of a graph that an IR node comes from, the likeliest first."""
  try:
    own, others = node.get_origin_node(), list(node.get_origins())
  except (AttributeError, NotImplementedError):
    return []
  return [own, *others] if own is not None else others


def of_meta(meta: dict[str, Any]) -> Origin:
  """The origin of a node of a graph, by its meta."""
  modules = [path for path, _ in (meta.get("nn_module_stack") or {}).values() if path]
  module = re.sub(r"^L\['self'\]\.?", "", str(modules[-1])) if modules else ""
  return dataclasses.replace(_line(meta.get("stack_trace")), module=module)
