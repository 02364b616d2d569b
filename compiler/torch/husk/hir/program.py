"""The program of a `.hir`, and its text (compiler/ir/HIR.md)."""

import dataclasses

from .literals import quoted
from .statements import Result, Statement


@dataclasses.dataclass
class Variant:
  """A function as it is compiled for one target."""

  target: str
  statements: list[Statement]
  results: list[Result]

  def text(self) -> str:
    lines = [f"  variant {self.target} {{"]
    lines += ["    " + line for statement in self.statements for line in statement.lines()]
    results = ", ".join(map(str, self.results))
    return "\n".join([*lines, f"    return ({results})", "  }"])


@dataclasses.dataclass
class Function:
  """`inputs` and `outputs` are lines: "x tensor f32 [1..8, 10]"."""

  name: str
  inputs: list[str]
  outputs: list[str]
  variants: list[Variant] = dataclasses.field(default_factory=list)

  def text(self) -> str:
    lines = [f"function {self.name} {{"]
    lines += [f"  input {line}" for line in self.inputs]
    lines += [f"  output {line}" for line in self.outputs]
    return "\n".join([*lines, *(variant.text() for variant in self.variants), "}"])


@dataclasses.dataclass
class Program:
  """`targets`, `data` (constants and states) and `rows` (images and kernels) are lines as they
  stand in the text."""

  producer: str
  user: dict[str, str] = dataclasses.field(default_factory=dict)  # the author's metadata
  tree: str = ""  # JSON; how inputs and outputs nest
  asserts: list[str] = dataclasses.field(default_factory=list)
  targets: list[str] = dataclasses.field(default_factory=list)
  data: list[str] = dataclasses.field(default_factory=list)
  rows: list[str] = dataclasses.field(default_factory=list)
  functions: list[Function] = dataclasses.field(default_factory=list)
  notes: list[str] = dataclasses.field(default_factory=list)  # comments for readers of the text

  def text(self) -> str:
    lines = [
      "hir 1",
      f"producer {quoted(self.producer)}",
      *(f"# {' '.join(note.split())}" for note in self.notes),
    ]
    lines += [f"user {quoted(key)} {quoted(value)}" for key, value in self.user.items()]
    lines += [f"tree {quoted(self.tree)}"] if self.tree else []
    lines += [f"assert {quoted(text)}" for text in self.asserts]
    for part in (self.targets, self.data, self.rows):
      lines += ["", *part] if part else []
    for function in self.functions:
      lines += ["", function.text()]
    return "\n".join(lines) + "\n"
