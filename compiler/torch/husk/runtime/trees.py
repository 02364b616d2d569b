"""How the inputs and outputs of a function nest, from the JSON that the exporter wrote."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from . import objects
from .errors import InvalidFileError, invalid_file


@dataclasses.dataclass
class Trees:
  """Nested numbers of inputs and outputs: `positional` has a tree for each positional argument,
  `keywords` one for each keyword."""

  positional: tuple[Any, ...]
  keywords: dict[str, Any]
  results: Any


def stored(text: str, functions: Sequence[str]) -> dict[str, Any]:
  """The trees that a file has, by the name of the function. A file with one function has its tree
  alone. Whatever is no such tree is left out."""
  try:
    tree = json.loads(text)
  except ValueError:
    return {}
  except RecursionError:
    raise too_deep() from None
  if not isinstance(tree, dict):
    return {}
  if "functions" not in tree:
    return {functions[0]: tree} if len(functions) == 1 else {}
  return tree["functions"] if isinstance(tree["functions"], dict) else {}


def of_function(tree: Any, inputs: Sequence[str], outputs: Sequence[str]) -> Trees:
  """The trees of a function, from its tree in the file. `inputs` and `outputs` are the names of its
  values. If the file does not say how they nest, each input is an argument, and several outputs are
  a tuple."""
  try:
    classes = tree.get("classes", {})
    arguments = _Reader(inputs, classes)
    positional = tuple(arguments.read(one, None, f"args/{i}") for i, one in enumerate(tree["args"]))
    keywords = {
      key: arguments.read(one, None, f"kwargs/{key}") for key, one in tree["kwargs"].items()
    }
    arguments.check()
    returned = _Reader(outputs, classes)
    marks = _marks(tree["tuples"]) if "tuples" in tree else None
    results = returned.read(tree["outputs"], marks, "outputs")
    returned.check()
    return Trees(positional, keywords, results)
  except (AttributeError, KeyError, TypeError, ValueError):
    results = 0 if len(outputs) == 1 else tuple(range(len(outputs)))
    return Trees(tuple(range(len(inputs))), {}, results)
  except RecursionError:
    raise too_deep() from None


def too_deep() -> InvalidFileError:
  return invalid_file("the arguments or results of a function nest too deeply")


class _Reader:
  """Reads trees with names of values, and puts their numbers in place of the names."""

  def __init__(self, names: Sequence[str], classes: Mapping[str, Any]) -> None:
    self._classes = classes
    self._numbers = {name: i for i, name in enumerate(names)}
    self._used = [0] * len(names)

  def read(self, tree: Any, marks: Marks | None, path: str) -> Any:
    """The tree with numbers. JSON has no tuples: `marks` leads to those, and is None if the file
    does not say; then every sequence is a tuple, as models usually return them. `path` is where the
    file names the class of an object."""
    if isinstance(tree, str):
      number = self._numbers[tree]
      self._used[number] += 1
      return number
    if isinstance(tree, dict):
      parts = {key: self.read(one, _step(marks, key), f"{path}/{key}") for key, one in tree.items()}
      return objects.of(self._classes[path], parts) if path in self._classes else parts
    entries = [self.read(one, _step(marks, str(i)), f"{path}/{i}") for i, one in enumerate(tree)]
    if path in self._classes:
      return objects.of(self._classes[path], entries)
    return tuple(entries) if marks is None or _END in marks else entries

  def check(self) -> None:
    """Raises ValueError unless each value has one place."""
    if any(count != 1 for count in self._used):
      raise ValueError("not every value has one place")


# The paths of tuples, such as "/rest/0", as nested dicts by the parts between the slashes. The key
# _END is where a path ends.
Marks = dict[str, Any]
_END = "/"


def _marks(paths: Sequence[str]) -> Marks:
  marks: Marks = {}
  for path in paths:
    at = marks
    for part in path.split("/")[1:]:
      at = at.setdefault(part, {})
    at[_END] = True
  return marks


def _step(marks: Marks | None, key: str) -> Marks | None:
  for part in key.split("/") if marks else ():
    marks = marks.get(part, {}) if marks else {}
  return marks
