"""The parts of a module's text that are no Python: an artifact and its source, in comments."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import zlib
from collections.abc import Iterator

_ARTIFACT, _SOURCE = "#a ", "#s "  # how the lines of each part begin
_LINE = 120  # characters in a line of the text


@dataclasses.dataclass
class Source:
  """The program of a graph as lines of a `.hir`.

  rows: the `image` and `kernel` rows.
  arguments: the Python expression that the module passes for each input.
  expressions: the Python expression of each output of the graph.
  values: each output of the graph as `outputs.Value.json` describes it.
  called: the operators that go through torch's dispatcher.
  symbols: torch's symbol, or expression, of each input that is a size or an int.
  """

  target: str
  rows: list[str]
  inputs: list[str]
  statements: list[str]
  outputs: list[str]
  results: list[str]
  arguments: list[str]
  expressions: list[str]
  values: list[list[str]]
  called: list[str]
  symbols: dict[str, str] = dataclasses.field(default_factory=dict)

  def input_names(self) -> list[str]:
    return [line.split()[0] for line in self.inputs]

  def written(self) -> set[str]:
    """The names of the memory that the program writes."""
    pattern = r"\b(?:write|both|atomic) (?:tensor )?([\w.:]+)"
    return {name for line in self.statements for name in re.findall(pattern, line)}


def text(artifact: bytes, source: Source) -> Iterator[str]:
  """The lines of the two parts."""
  described = json.dumps(dataclasses.asdict(source)).encode()
  for head, content in ((_ARTIFACT, artifact), (_SOURCE, described)):
    encoded = base64.b85encode(zlib.compress(content)).decode("ascii")
    for begin in range(0, len(encoded), _LINE):
      yield head + encoded[begin : begin + _LINE]


def artifact(path: str) -> bytes:
  """The artifact of the module at `path`."""
  return _part(path, _ARTIFACT)


def source(path: str) -> Source:
  """The source of the artifact of the module at `path`."""
  return Source(**json.loads(_part(path, _SOURCE)))


def _part(path: str, head: str) -> bytes:
  with open(path, encoding="utf-8") as file:
    lines = [line[len(head) :].rstrip("\n") for line in file if line.startswith(head)]
  return zlib.decompress(base64.b85decode("".join(lines)))
