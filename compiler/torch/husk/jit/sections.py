"""The parts of a module's text that are no Python: an artifact and its source, in comments."""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import zlib
from collections.abc import Iterator
from typing import Any

from .. import hir

_ARTIFACT, _SOURCE = "#a ", "#s "  # how the lines of each part begin
_LINE = 120  # characters in a line of the text


@dataclasses.dataclass
class Source:
  """The program of a graph: its statements as data, and the lines of a `.hir` around them.

  rows: the `image` and `kernel` rows.
  code: the statements and the results, as `hir.encoded` writes them.
  arguments: the Python expression that the module passes for each input.
  expressions: the Python expression of each output of the graph.
  values: each output of the graph as `outputs.Value.json` describes it.
  called: the operators that go through torch's dispatcher.
  symbols: torch's symbol, or expression, of each input that is a size or an int.
  """

  target: str
  rows: list[str]
  inputs: list[str]
  code: dict[str, Any]
  outputs: list[str]
  arguments: list[str]
  expressions: list[str]
  values: list[list[str]]
  called: list[str]
  symbols: dict[str, str] = dataclasses.field(default_factory=dict)

  def input_names(self) -> list[str]:
    return [line.split()[0] for line in self.inputs]

  @functools.cached_property
  def _decoded(self) -> tuple[list[hir.Statement], list[hir.Result]]:
    statements, results = hir.decoded(self.code)
    return statements, results

  @property
  def statements(self) -> list[hir.Statement]:
    """The statements; `hir.rewritten` makes a copy that may be changed."""
    return self._decoded[0]

  @property
  def results(self) -> list[hir.Result]:
    return self._decoded[1]

  @functools.cached_property
  def written(self) -> set[str]:
    """The names of the memory that the program writes."""
    return {
      one.buffer.name
      for one in hir.parts(self.statements)
      if isinstance(one, hir.View | hir.Tensor) and one.access not in ("", "read")
    }


def text(artifact: bytes, source: Source) -> Iterator[str]:
  """The lines of the two parts."""
  fields = {field.name: getattr(source, field.name) for field in dataclasses.fields(source)}
  described = json.dumps(fields).encode()
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
