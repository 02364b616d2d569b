"""`inspect`: what an artifact contains."""

from __future__ import annotations

import collections
import dataclasses
import json
import math
import os
import subprocess
from typing import Any

from . import tools
from .runtime.errors import invalid_file
from .runtime.printable import printable

UNLIMITED = 2**63 - 1


@dataclasses.dataclass(frozen=True)
class Value:
  """An input or output. `kind` is tensor, int, float, bool or none. `ranges` has the smallest and
  the largest size of each dimension of an input; 2**63 - 1 means no limit."""

  name: str
  kind: str
  dtype: str | None
  rank: int
  ranges: tuple[tuple[int, int], ...]

  def __str__(self) -> str:
    name = printable(self.name)
    if self.kind != "tensor":
      return f"{name}: {self.kind}"
    sizes = ["?"] * self.rank
    for dim, (low, high) in enumerate(self.ranges):
      sizes[dim] = str(low) if low == high else f"{low}..{'' if high == UNLIMITED else high}"
    return f"{name}: {self.dtype}[{', '.join(sizes)}]"


@dataclasses.dataclass(frozen=True)
class Variant:
  """The code of a function for a target. `peak_bytes` is the memory that a session plans for the
  largest sizes, besides constants and states; None if some size has no limit. `ways` counts the
  steps by what they do: "kernels", "copies", the name of an operator, which is followed by "on the
  host" if the operator runs on the CPU beside the device. `host_peak_bytes` is the memory that a
  session plans for such steps."""

  target: str
  steps: int
  peak_bytes: int | None
  ways: dict[str, int]
  host_peak_bytes: int | None = 0


@dataclasses.dataclass(frozen=True)
class Signature:
  """A function of an artifact."""

  name: str
  inputs: tuple[Value, ...]
  outputs: tuple[Value, ...]
  variants: tuple[Variant, ...]


@dataclasses.dataclass(frozen=True)
class Storage:
  """A constant or a state."""

  name: str
  dtype: str
  shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Artifact:
  """What an artifact contains, from `husk.inspect`."""

  path: str
  bytes: int  # of the file, and of the weights beside it
  version: str
  producer: str
  content_hash: str
  targets: tuple[str, ...]
  functions: dict[str, Signature]
  constants: tuple[Storage, ...]
  constant_bytes: int
  folded_bytes: int  # what is computed from constants when the file is opened, for all targets
  states: tuple[Storage, ...]
  kernels: int
  kernel_bytes: int
  operators: tuple[str, ...]
  metadata: dict[str, str]
  weights: str | None = None  # the name of the file with the constants, if they lie beside

  def summary(self) -> str:
    """The description without the metadata."""
    lines = [
      f"{self.path}: {readable(self.bytes)}, format {self.version}, by {self.producer}",
      f"  {len(self.constants)} constants, {readable(self.constant_bytes)}; "
      f"{self.kernels} kernels, {readable(self.kernel_bytes)}",
    ]
    if self.weights:
      lines.append(f"  the constants are beside it, in {self.weights}")
    if self.folded_bytes:
      lines.append(f"  computed once, when it is opened: {readable(self.folded_bytes)}")
    for function in self.functions.values():
      inputs = ", ".join(map(str, function.inputs))
      outputs = ", ".join(map(str, function.outputs))
      lines.append(f"  {function.name}({inputs}) -> ({outputs})")
      for one in function.variants:
        lines.append(f"    {one.target}: {_ways(one)}, {_memory(one)}")
    lines += [f"  state {one.name}: {one.dtype}{list(one.shape)}" for one in self.states]
    return "\n".join(map(printable, lines))

  def __repr__(self) -> str:
    metadata = [f"  {printable(key)} = {printable(value)}" for key, value in self.metadata.items()]
    return "\n".join([self.summary(), *metadata])


def inspect(path: str | os.PathLike[str]) -> Artifact:
  """Verifies an artifact and describes it. No device is needed, and none of its code runs.

  Raises InvalidFileError, which is a ValueError too, if the file is no valid artifact.
  """
  return _artifact(os.fspath(path), describe(path))


def images(path: str | os.PathLike[str]) -> dict[str, bytes]:
  """The images of kernels in an artifact, by name."""
  described = describe(path)
  with open(path, "rb") as file:
    content = file.read()
  metadata_bytes = int.from_bytes(content[12:16], "little")
  base = -(-(64 + metadata_bytes) // 4096) * 4096  # of the blobs (schema/FORMAT.md)
  found = {}
  for one in described["images"]:
    begin = base + one["blob"]["offset"]
    found[one["name"]] = content[begin : begin + one["blob"]["size"]]
  return found


def describe(path: str | os.PathLike[str], *options: str) -> Any:
  """The description of an artifact by husk-dump, with these further options."""
  tool = tools.find("husk-dump")
  if tool is None:
    raise FileNotFoundError("husk-dump was not found: run `pip install ./compiler/torch`")
  command = [tool, os.fspath(path), "--output=json", *options]
  process = subprocess.run(command, capture_output=True, text=True, errors="replace")
  if process.returncode:
    raise invalid_file(
      " ".join(map(printable, process.stderr.split())) or f"husk-dump failed on {path!r}"
    )
  return json.loads(process.stdout)


def readable(count: int) -> str:
  """A number of bytes as one reads it: "3.2 MiB"."""
  if count < 1024:
    return f"{count} bytes"
  power = min(int(math.log(count, 1024)), 4)
  return f"{count / 1024**power:.1f} {' KMGT'[power]}iB"


def operator(step: str) -> tuple[str, bool] | None:
  """The operator that a step calls, by the text of the step, and whether it runs on the host beside
  the device; None if the step calls none."""
  word, _, rest = step.partition(" ")
  if word != "extern":
    return None
  _, name, more = rest.split('"', 2)
  return name, more.startswith(" on host ")


# The first word of a step's text says what the step does. A call of an operator is counted under
# the name of the operator and the place where it runs.
_WAYS = {"launch": "kernels", "copy": "copies", "fill": "fills", "read": "values read"}


def _way(step: str) -> str:
  called = operator(step)
  if called is None:
    word, _, _ = step.partition(" ")
    return _WAYS.get(word, word)
  name, on_host = called
  return f"{name} on the host" if on_host else name


def _ways(variant: Variant) -> str:
  counts = [f"{count} {way}" for way, count in variant.ways.items()]
  return f"{variant.steps} steps" + (f" ({', '.join(counts)})" if counts else "")


def _memory(variant: Variant) -> str:
  if variant.peak_bytes is None:
    return "memory without limit"
  text = f"memory at most {readable(variant.peak_bytes)}" if variant.peak_bytes else "no memory"
  if variant.host_peak_bytes:
    text += f", {readable(variant.host_peak_bytes)} on the host"
  return text


def _artifact(path: str, data: dict[str, Any]) -> Artifact:
  folded = [one for one in data["constants"] if "folded_by" in one]
  folding = {one["folded_by"] for one in folded}  # the numbers of their functions
  return Artifact(
    path=path,
    bytes=data["bytes"],
    version=data["version"],
    producer=data["producer"],
    content_hash=data["content_hash"],
    targets=tuple(f"{one['port']} {one['arch']}" for one in data["targets"]),
    functions={
      one["name"]: _signature(one)
      for index, one in enumerate(data["functions"])
      if index not in folding
    },
    constants=tuple(_storage(one) for one in data["constants"] if "folded_by" not in one),
    folded_bytes=sum(one["bytes"] for one in folded),
    constant_bytes=sum(one["blob"]["size"] for one in data["constants"]),
    states=tuple(_storage(one) for one in data["states"]),
    kernels=len(data["kernels"]),
    kernel_bytes=sum(one["blob"]["size"] for one in data["images"]),
    operators=tuple(data["ops"]),
    metadata=dict(data["user"]),
    weights=data.get("weights"),
  )


def _signature(data: dict[str, Any]) -> Signature:
  return Signature(
    data["name"],
    tuple(map(_value, data["inputs"])),
    tuple(map(_value, data["outputs"])),
    tuple(map(_variant, data["variants"])),
  )


def _variant(data: dict[str, Any]) -> Variant:
  ways = collections.Counter(_way(step) for part in data["segments"] for step in part["steps"])
  return Variant(
    data["target"],
    ways.total(),
    data["arena_bytes"],
    dict(ways.most_common()),
    data.get("host_arena_bytes", 0),
  )


def _value(data: dict[str, Any]) -> Value:
  ranges = tuple((low, high) for low, high in data["ranges"])
  return Value(data["name"], data["kind"], data["dtype"], data["rank"], ranges)


def _storage(data: dict[str, Any]) -> Storage:
  return Storage(data["name"], data["dtype"], tuple(data["dims"]))
