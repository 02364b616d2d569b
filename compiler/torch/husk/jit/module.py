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
from . import sections, waits
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


def wait(*tensors: torch.Tensor) -> None:
  """Waits for collectives that have begun outside of a program. PyTorch finds them by the tensors
  that they have returned, and a step of the program has others of the same memory."""
  import torch

  for tensor in tensors:
    torch.ops._c10d_functional.wait_tensor(tensor)


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
  path: str,
  device: str = "cpu",
  operators: Sequence[str] = (),
  mode: str = "auto",
  read: Sequence[int] = (),
  writes: bool = False,
) -> Callable[..., Any]:
  """The program of the artifact in the module at `path`. It has as many threads as torch has.
  `operators` are called through torch's dispatcher. On a GPU its sessions have the mode `mode`;
  `read` are the numbers of the arguments on the CPU that it only reads, and `writes` tells whether
  it writes tensors on the CPU."""
  import torch

  begun = waits.Begun()
  ops = {name: function(name, device, begun) for name in operators}
  artifact = sections.artifact(path)
  program: Callable[..., Any]
  if device == "cpu":
    program = load_program(artifact, ops=ops, threads=torch.get_num_threads())
  else:
    program = OnGpu(load_program(artifact, device, ops=ops), device, mode, read, writes)
  return begun.guard(program) if any(map(waits.is_collective, operators)) else program


class Arena:
  """Memory that the sessions of several programs have in turns. They all run on one stream, so the
  work of a run is done before that of the next one begins. While a run is being enqueued it holds
  the lock: a run that begins meanwhile, on another thread or inside an operator of the first one,
  takes another arena."""

  def __init__(self) -> None:
    self.lock = threading.Lock()
    self.memory: torch.Tensor | None = None
    # The sessions that were given the memory, each with the list where it lies while nobody calls
    # it. Some may have another arena by now.
    self._sessions: weakref.WeakKeyDictionary[Session, list[Session]] = weakref.WeakKeyDictionary()

  def bytes(self) -> int:
    return 0 if self.memory is None else self.memory.nbytes

  def lend(self, session: Session, idle: list[Session]) -> None:
    session.lend(self.memory)
    with _lock:
      self._sessions[session] = idle

  def resize(self, size: int, device: str) -> None:
    """Makes other memory. The caller has the lock. A session that is called at this moment keeps
    the old memory, for itself alone, until it needs more."""
    import torch

    self.free()  # so that the allocator has it before it gives more
    self.memory = torch.empty(size, dtype=torch.uint8, device=device)

  def free(self) -> None:
    """Gives the memory back to the allocator; sessions ask for some at their next call. The caller
    has the lock. A session that is called at this moment keeps the memory, for itself alone."""
    with _lock:
      sessions = list(self._sessions.items())
      self._sessions.clear()
    for session, idle in sessions:
      try:
        idle.remove(session)  # so that nobody calls it meanwhile
      except ValueError:
        continue
      session.lend(None)
      idle.append(session)
    self.memory = None


# The arenas by device and stream. Sessions keep them alive.
_arenas: dict[tuple[str, int], weakref.WeakSet[Arena]] = {}


def _take_arena(device: str, stream: int, size: int) -> Arena:
  """An arena that no run uses, with at least `size` bytes if there is one. Its lock is held."""
  with _lock:
    known = _arenas.setdefault((device, stream), weakref.WeakSet())
    for arena in sorted(known, key=lambda arena: (arena.bytes() < size, -arena.bytes())):
      if arena.lock.acquire(blocking=False):
        return arena
    arena = Arena()
    arena.lock.acquire()
    known.add(arena)
    return arena


def free_arenas() -> None:
  """Gives the memory of arenas that no run uses back to torch's allocator."""
  with _lock:
    known = [arena for arenas in _arenas.values() for arena in arenas]
  for arena in known:
    if arena.lock.acquire(blocking=False):
      try:
        arena.free()
      finally:
        arena.lock.release()


class OnGpu:
  """A program on a GPU. The arenas of its sessions are tensors, so that torch's allocator knows of
  them. Each stream has sessions of its own, and calls of several threads run at the same time, each
  in a session of its own. `read` and `writes` are as for `load`."""

  def __init__(
    self,
    program: Program,
    device: str,
    mode: str,
    read: Sequence[int] = (),
    writes: bool = False,
  ) -> None:
    self.program, self.device, self.mode = program, device, mode
    self.read, self.writes = read, writes
    self.index = int(device.partition(":")[2] or 0)
    self.sessions: list[Session] = []  # those that run, or ran inside a capture
    self._idle: dict[int, list[Session]] = {}  # those that nobody calls, by stream
    self._unused: list[Session] = []  # for a call inside a capture, which cannot make a session
    self._lock = threading.Lock()
    # By the id of the session. The last attribute, so that the arenas go after the sessions, which
    # wait for their last run.
    self._arenas: dict[int, Arena] = {}

  def __call__(self, *args: Any) -> Any:
    if _is_capturing():
      return self._capture(*args)
    stream = _current_stream(self.index)
    idle = self._idle.get(stream)
    if idle is None:
      idle = self._idle.setdefault(stream, [])
    try:
      session = idle.pop()
    except IndexError:
      session = self._begin(self._session(self.mode))
    if not self._unused:
      self._unused.append(self._session("list"))
    # Without an arena a run asks for one, unless it needs none.
    arena = self._arenas.get(id(session))
    if arena is not None and not arena.lock.acquire(blocking=False):
      arena = None
      session.lend(None)
    try:
      try:
        result = session(*args)
      except NeedsResizeError:
        if arena is None:
          arena = _take_arena(self.device, stream, session.arena_bytes)
        self._lend(session, arena, idle)
        result = session(*args)
      # A tensor on the CPU is the caller's when the call returns. The run has read memory that is
      # not pinned by now.
      if self.writes or any(args[index].is_pinned() for index in self.read):
        session.wait()
    finally:
      if arena is not None:
        arena.lock.release()
      if session in self.sessions:
        idle.append(session)
    return result

  def _capture(self, *args: Any) -> Any:
    """A call while the caller captures a graph. The graph refers to the memory of the session, so
    the session serves no other call, and its arena no other session. It has not run before, since a
    capture cannot wait."""
    session = self._begin(self._unused.pop() if self._unused else self._session("list"))
    try:
      return session(*args)
    except NeedsResizeError:
      self._lend(session, Arena(), [])
      return session(*args)

  def _session(self, mode: str) -> Session:
    return Session(self.program, mode=mode, external_arena=1)

  def _begin(self, session: Session) -> Session:
    with self._lock:
      self.sessions.append(session)
    return session

  def _lend(self, session: Session, arena: Arena, idle: list[Session]) -> None:
    """Gives a session an arena, whose lock is held, with the bytes that its plans need. If there is
    not enough memory, the session goes, because it would need as much at each later shape."""
    try:
      if arena.bytes() < session.arena_bytes:
        arena.resize(session.arena_bytes, self.device)
      arena.lend(session, idle)
      self._arenas[id(session)] = arena
    except BaseException:
      with self._lock:
        self.sessions.remove(session)
      self._arenas.pop(id(session), None)
      raise


def _current_stream(device: int) -> int:
  import torch

  streams: Any = torch._C
  return streams._cuda_getCurrentRawStream(device)


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
