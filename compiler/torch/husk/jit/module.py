"""Functions that the modules of compiled graphs call when they run."""

from __future__ import annotations

import threading
import types
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..runtime.errors import NeedsResizeError
from ..runtime.program import Program, Session
from ..runtime.program import load as load_program
from . import sections
from .operators import function

if TYPE_CHECKING:
  import torch


# The functions `call` of the compiled graphs of this process. `husk.save_compiled` finds those that
# a callable runs.
calls: weakref.WeakSet[types.FunctionType] = weakref.WeakSet()
watchers: list[Callable[[types.FunctionType], None]] = []  # called for each new one
_lock = threading.Lock()  # of both: graphs are compiled by any thread


def remembered(call: types.FunctionType) -> types.FunctionType:
  """Adds the function `call` of a module to `calls`."""
  with _lock:
    calls.add(call)
    for watcher in watchers:
      watcher(call)
  return call


def watch(watcher: Callable[[types.FunctionType], None]) -> None:
  """Calls `watcher` for each function `call` of this process, until `unwatch` also for new ones."""
  with _lock:
    watchers.append(watcher)
    for call in list(calls):
      watcher(call)


def unwatch(watcher: Callable[[types.FunctionType], None]) -> None:
  with _lock:
    watchers.remove(watcher)


def load(
  path: str, device: str = "cpu", operators: Sequence[str] = (), mode: str = "auto"
) -> Callable[..., Any]:
  """The program of the artifact in the module at `path`. It has as many threads as torch has.
  `operators` are called through torch's dispatcher. On a GPU its sessions have the mode `mode`."""
  import torch

  ops = {name: function(name, device) for name in operators}
  artifact = sections.artifact(path)
  if device == "cpu":
    return load_program(artifact, ops=ops, threads=torch.get_num_threads())
  return OnGpu(load_program(artifact, device, ops=ops), device, mode)


class OnGpu:
  """A program on a GPU. The arenas of its sessions are tensors, so that torch's allocator knows of
  them. Calls of several threads run at the same time, each in a session of its own."""

  def __init__(self, program: Program, device: str, mode: str) -> None:
    self.program, self.device, self.mode = program, device, mode
    self.sessions: list[Session] = []  # those that run, or ran inside a capture
    self._free: list[Session] = []
    self._unused: list[Session] = []  # for a call inside a capture, which cannot make a session
    self._lock = threading.Lock()
    # By the id of the session. The last attribute, so that the arenas go after the sessions, which
    # wait for their last run.
    self._arenas: dict[int, torch.Tensor] = {}

  def __call__(self, *args: Any) -> Any:
    if _is_capturing():
      return self._capture(*args)
    try:
      session = self._free.pop()
    except IndexError:
      session = self._begin(self._session(self.mode))
    if not self._unused:
      self._unused.append(self._session("list"))
    try:
      result = session(*args)
    except NeedsResizeError:
      self._enlarge(session)
      result = session(*args)
    except BaseException:
      self._free.append(session)
      raise
    self._free.append(session)
    return result

  def _capture(self, *args: Any) -> Any:
    """A call while the caller captures a graph. The graph refers to the memory of the session, so
    the session serves no other call. It has not run before, since a capture cannot wait."""
    session = self._begin(self._unused.pop() if self._unused else self._session("list"))
    try:
      return session(*args)
    except NeedsResizeError:
      self._enlarge(session)
      return session(*args)

  def _session(self, mode: str) -> Session:
    return Session(self.program, mode=mode, external_arena=1)

  def _begin(self, session: Session) -> Session:
    with self._lock:
      self.sessions.append(session)
    return session

  def _enlarge(self, session: Session) -> None:
    """Gives a session an arena of the size that its plans need. If there is not enough memory, the
    session goes, because it would need as much at each later shape."""
    import torch

    session.lend(None)
    self._arenas.pop(id(session), None)
    try:
      arena = torch.empty(session.arena_bytes, dtype=torch.uint8, device=self.device)
      self._arenas[id(session)] = arena
      session.lend(arena)
    except BaseException:
      with self._lock:
        self.sessions.remove(session)
      raise


def _is_capturing() -> bool:
  """Whether the current stream is capturing a graph."""
  import torch

  capturing: Any = torch._C
  return capturing._cuda_isCurrentStreamCapturing()


def part(
  base: torch.Tensor, sizes: Sequence[int], strides: Sequence[int], offset: int, dtype: str
) -> torch.Tensor:
  """A view of the memory of `base`, which begins `offset` elements of `dtype` after its first."""
  import torch

  kind: Any = getattr(torch, dtype.removeprefix("torch."))
  if base.dtype == kind:
    return base.as_strided(sizes, strides, base.storage_offset() + offset)
  begin = base.storage_offset() * base.element_size() // kind.itemsize + offset
  view = torch.empty(0, dtype=kind, device=base.device)
  return view.set_(base.untyped_storage(), begin, sizes, strides)
