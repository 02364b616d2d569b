"""The settings of a model that is served."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from .errors import SettingsError


@dataclasses.dataclass(frozen=True)
class Settings:
  """What a server may set for a model.

  device: "cpu", "cuda" or "cuda:N".
  ranks: how many devices run an artifact of several ranks together: for "cuda" those from cuda:0
    on, for "cuda:N" those from there on; "cpu" runs all on this machine's CPU.
  threads: threads of large kernels on the CPU; 0 takes one for each CPU.
  function: the function for requests that name none; by default the only one, or `forward`.
  next_function: the function for the later requests of a sequence, and the later tokens of a
    stream; by default that of the first one.
  sessions: how many requests run at the same time.
  max_batch_size: more than 1 says that dim 0 of every input and output is a batch, and how many
    requests may share a run.
  max_queue: how many requests may wait or run; further ones are refused.
  max_sequences: how many sequences and streams may be live, with a state each.
  sequence_idle_seconds: a sequence without a request for so long is dropped, when the next request
    to the model arrives.
  max_tokens: the most tokens that the client of a stream may ask for.
  memory_limit: bytes that a session may take besides its state, and bytes that the outputs of one
    run may take; by default half of the memory of the machine or of the container.
  """

  device: str = "cpu"
  ranks: int = 1
  threads: int = 1
  function: str | None = None
  next_function: str | None = None
  sessions: int = 1
  max_batch_size: int = 0
  max_queue: int = 1000
  max_sequences: int = 128
  sequence_idle_seconds: float = 600.0
  max_tokens: int = 4096
  memory_limit: int | None = None

  def __post_init__(self) -> None:
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      kind = _KINDS[field.name]
      if value is None and field.default is None:
        continue
      if not isinstance(value, kind) or isinstance(value, bool):
        raise SettingsError(f"setting {field.name} is {value!r}, must be {_TEXTS[kind]}")
      if isinstance(value, (int, float)) and not value >= _SMALLEST.get(field.name, 1):
        smallest = _SMALLEST.get(field.name, 1)
        raise SettingsError(f"setting {field.name} is {value}, must be at least {smallest}")

  @property
  def devices(self) -> list[str]:
    """The device of each rank."""
    name, _, first = self.device.partition(":")
    if self.ranks == 1 or name == "cpu":
      return [self.device] * self.ranks
    return [f"{name}:{int(first or 0) + rank}" for rank in range(self.ranks)]

  @property
  def bytes_limit(self) -> int:
    if self.memory_limit is not None:
      return self.memory_limit
    return _memory() // 2


# The memory limit of the container (cgroup v2), or "max".
_CONTAINER_LIMIT = pathlib.Path("/sys/fs/cgroup/memory.max")


def _memory() -> int:
  """Bytes of memory that the machine and the container have."""
  machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
  try:
    return min(machine, int(_CONTAINER_LIMIT.read_text()))
  except (OSError, ValueError):
    return machine


_KINDS: dict[str, Any] = {
  "device": str,
  "ranks": int,
  "threads": int,
  "function": str,
  "next_function": str,
  "sessions": int,
  "max_batch_size": int,
  "max_queue": int,
  "max_sequences": int,
  "sequence_idle_seconds": (int, float),
  "max_tokens": int,
  "memory_limit": int,
}
_TEXTS: dict[Any, str] = {str: "a string", int: "an integer", (int, float): "a number"}
_SMALLEST = {"threads": 0, "max_batch_size": 0, "sequence_idle_seconds": 0}


def read(values: Mapping[str, Any]) -> Settings:
  """The settings of a mapping, such as an object of JSON. Unknown names are refused."""
  for name in values:
    if name not in _KINDS:
      raise SettingsError(f"there is no setting {name!r}: the settings are {', '.join(_KINDS)}")
  return Settings(**values)
