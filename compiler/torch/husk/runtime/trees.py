"""How the inputs and outputs of a function nest, from the JSON that the exporter wrote."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any


@dataclasses.dataclass
class Trees:
  """Nested numbers of inputs and outputs: `positional` has a tree for each positional argument,
  `keywords` one for each keyword."""

  positional: tuple[Any, ...]
  keywords: dict[str, Any]
  results: Any


def of_function(text: str, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> Trees:
  """The trees of the function `name`. `inputs` and `outputs` are the names of its values. If the
  file does not say how they nest, each input is an argument, and several outputs are a tuple."""
  tree = _stored(text, name)
  try:
    numbers = {value: i for i, value in enumerate(inputs)}
    positional = tuple(_numbered(one, numbers) for one in tree["args"])
    keywords = {key: _numbered(one, numbers) for key, one in tree["kwargs"].items()}
    if sorted([*_leaves(positional), *_leaves(keywords)]) != list(range(len(inputs))):
      raise ValueError("not every input has a place")
    tuples = frozenset(tree["tuples"]) if "tuples" in tree else None
    results = _numbered(tree["outputs"], {value: i for i, value in enumerate(outputs)}, "", tuples)
    if sorted(_leaves(results)) != list(range(len(outputs))):
      raise ValueError("not every output has a place")
    return Trees(positional, keywords, results)
  except (AttributeError, KeyError, TypeError, ValueError):
    results = 0 if len(outputs) == 1 else tuple(range(len(outputs)))
    return Trees(tuple(range(len(inputs))), {}, results)


def _stored(text: str, name: str) -> Any:
  try:
    tree = json.loads(text)
  except ValueError:
    return None
  if isinstance(tree, dict) and "functions" in tree:
    return tree["functions"].get(name)
  return tree


def _numbered(
  tree: Any, numbers: Mapping[str, int], path: str = "", tuples: frozenset[str] | None = None
) -> Any:
  """The tree with numbers in place of names. JSON has no tuples: `tuples` are the paths of those,
  None if the file does not say; then every sequence is a tuple, as models usually return them."""
  if isinstance(tree, str):
    return numbers[tree]
  if isinstance(tree, dict):
    return {key: _numbered(one, numbers, f"{path}/{key}", tuples) for key, one in tree.items()}
  entries = [_numbered(one, numbers, f"{path}/{i}", tuples) for i, one in enumerate(tree)]
  return tuple(entries) if tuples is None or path in tuples else entries


def _leaves(tree: Any) -> list[int]:
  if isinstance(tree, int):
    return [tree]
  children = tree.values() if isinstance(tree, dict) else tree
  return [leaf for child in children for leaf in _leaves(child)]
