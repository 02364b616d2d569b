"""Sessions of a program: those that any request may use, and those of sequences."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from ..runtime import Program, RankedProgram
from .errors import RequestError
from .settings import Settings

# The state of the random numbers is no state of a client, so it is never reset.
GENERATOR = "husk.generator"


class Lane:
  """A session with its functions. One thread at a time uses it."""

  def __init__(self, program: Program | RankedProgram, settings: Settings) -> None:
    limit = settings.bytes_limit
    self.session = program.session(memory_limit=limit, output_limit=limit)
    self.functions = self.session.functions
    names = [state["name"] for state in program.states()]
    self._states = [index for index, name in enumerate(names) if name != GENERATOR]
    self.is_initial = True

  def reset(self) -> None:
    """Sets all states to their initial values."""
    if not self.is_initial:
      for index in self._states:
        self.session.state_reset(index)
    self.is_initial = True


class Pool:
  """Lanes that no request uses now. At most `keep` of them stay."""

  def __init__(self, make: Callable[[], Lane], keep: int) -> None:
    self._make = make
    self._keep = keep
    self._lock = threading.Lock()
    self._idle: list[Lane] = []

  def take(self) -> Lane:
    """A lane with initial states."""
    with self._lock:
      lane = self._idle.pop() if self._idle else None
    lane = lane or self._make()
    lane.reset()
    return lane

  def give_back(self, lane: Lane) -> None:
    with self._lock:
      if len(self._idle) < self._keep:
        self._idle.append(lane)

  def clear(self) -> None:
    with self._lock:
      self._idle, self._keep = [], 0

  @contextlib.contextmanager
  def lane(self) -> Iterator[Lane]:
    """A lane for one run. A lane whose run failed is used again: a failed run leaves a session that
    works."""
    lane = self.take()
    try:
      yield lane
    finally:
      self.give_back(lane)


class Sequence:
  """A live sequence: a lane with the state of one client."""

  def __init__(self, lane: Lane) -> None:
    self.lane = lane
    self.lock = threading.Lock()  # held during a run
    self.last_used = time.monotonic()
    self.has_run = False
    self.has_ended = False


class Sequences:
  """The live sequences by id, and those of streams, which have none."""

  def __init__(self, pool: Pool, settings: Settings) -> None:
    self._pool = pool
    self._limit = settings.max_sequences
    self._idle_seconds = settings.sequence_idle_seconds
    self._lock = threading.Lock()
    self._by_id: dict[str, Sequence] = {}
    self._count = 0

  def __len__(self) -> int:
    return self._count

  def open(self, name: str | None) -> Sequence:
    """A new sequence, in place of the live one of that name."""
    if name is not None:
      self._close_named(name)
    self.drop_idle()
    with self._lock:
      if self._count >= self._limit:
        raise RequestError(503, f"there are {self._limit} live sequences, which is max_sequences")
      self._count += 1
    try:
      sequence = Sequence(self._pool.take())
    except BaseException:
      with self._lock:
        self._count -= 1
      raise
    if name is not None:
      with self._lock:
        other = self._by_id.pop(name, None)
        self._by_id[name] = sequence
      if other is not None:  # two clients have begun the same sequence at the same time
        self.close(other)
    return sequence

  def find(self, name: str) -> Sequence:
    with self._lock:
      sequence = self._by_id.get(name)
    if sequence is None:
      raise RequestError(
        404,
        f"there is no live sequence '{name}': begin it with the parameter sequence_start (it may "
        "have ended by an error, by its idle time or because the model was loaded again)",
      )
    return sequence

  def close(self, sequence: Sequence) -> None:
    """Ends a sequence after its run, if one is under way."""
    with sequence.lock:
      self.end(sequence)

  def drop_idle(self) -> None:
    oldest = time.monotonic() - self._idle_seconds
    with self._lock:
      idle = [one for one in self._by_id.values() if one.last_used < oldest]
    for sequence in idle:
      if sequence.lock.acquire(blocking=False):
        try:
          if sequence.last_used < oldest:
            self.end(sequence)
        finally:
          sequence.lock.release()

  def clear(self) -> None:
    with self._lock:
      named = list(self._by_id.values())
    for sequence in named:
      self.close(sequence)

  def _close_named(self, name: str) -> None:
    with self._lock:
      sequence = self._by_id.get(name)
    if sequence is not None:
      self.close(sequence)

  def end(self, sequence: Sequence) -> None:
    """Ends a sequence whose lock the caller holds."""
    if sequence.has_ended:
      return
    sequence.has_ended = True
    with self._lock:
      self._count -= 1
      for name, one in list(self._by_id.items()):
        if one is sequence:
          del self._by_id[name]
    self._pool.give_back(sequence.lane)
