"""Programs and sessions."""

from __future__ import annotations

import asyncio
import difflib
import operator
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from .. import dtypes
from . import trees
from .errors import NotFoundError
from .native import native
from .printable import printable
from .ranks import file_of_rank

Ranges = Mapping[str, Mapping[int, tuple[int, int]] | tuple[int, int]]
MODES = {"auto": 0, "list": 1, "graph": 2}


class Function(native.Function):
  """A function of a program: call it with the arguments with which it was exported.

  `program.decode` runs in a session that the program keeps, `session.decode` in that session.
  """

  def __init__(self, owner: Program | Session, index: int, name: str | None = None) -> None:
    super().__init__(owner, index)
    program = owner if isinstance(owner, Program) else owner.program
    self.program = program
    self.name: str = program.function_names()[index] if name is None else name

  @property
  def inputs(self) -> list[dict[str, Any]]:
    """The inputs: name, kind, and for tensors dtype, rank, the ranges of the sizes, and `written`:
    whether a call writes to the memory of the input."""
    return native.Program.inputs(self.program, self.index)

  @property
  def outputs(self) -> list[dict[str, Any]]:
    """The outputs: name, kind, and for tensors dtype and rank."""
    return native.Program.outputs(self.program, self.index)

  @property
  def target(self) -> str:
    """The target that was chosen for this device, such as "cuda sm_90a"."""
    return self.program.function_target(self.index)

  async def run_async(self, *args: Any, **kwargs: Any) -> Any:
    """Calls the function on a thread of asyncio's executor and returns the result."""
    return await asyncio.to_thread(self, *args, **kwargs)

  def __repr__(self) -> str:
    inputs = ", ".join(_value_text(value) for value in self.inputs)
    outputs = ", ".join(_value_text(value) for value in self.outputs)
    return f"{printable(self.name)}({inputs}) -> ({outputs})"


class Program(native.Program):
  """A loaded artifact. `husk.load` makes it.

  A call runs the function `forward`, or the only one. Calls of several threads run at the same
  time, each in a session of its own. A program with states has one session for all calls, and
  refuses a call while another one runs.
  """

  def __init__(self, engine: Any, source: str | bytes | Any, weights: str | None = None) -> None:
    super().__init__(engine, source, weights)
    self.engine = engine
    names = self.function_names()
    stored = trees.stored(self.pytree, names)
    for index, name in enumerate(names):
      one = trees.of_function(
        stored.get(name),
        [value["name"] for value in native.Program.inputs(self, index)],
        [value["name"] for value in native.Program.outputs(self, index)],
      )
      self.set_trees(index, one.positional, one.keywords, one.results)
    self.called_function = names.index("forward") if "forward" in names else 0

  @property
  def functions(self) -> dict[str, Function]:
    """The functions by name."""
    return {name: Function(self, i, name) for i, name in enumerate(self.function_names())}

  def __getattr__(self, name: str) -> Function:
    names = self.function_names()
    if name not in names:
      _no_function(name, names)
    # A function refers to its program, so the program does not keep it.
    return Function(self, names.index(name), name)

  @property
  def weights(self) -> Weights:
    """The weights by name."""
    return Weights(self)

  def update_weights(
    self,
    values: Mapping[str | tuple[str, int | range], Any],
    *,
    strict: bool = True,
  ) -> list[str]:
    """Exchanges weights for all sessions of the program, all of them or none. The call waits until
    no run of the program is in progress, and runs that begin meanwhile wait for it.

    values: tensors or arrays by the name of a weight, as `model.state_dict()`, or by its name and
      rows of its first dimension: {("embedding", range(10, 20)): x}. Dtypes and shapes must be
      those of the file.
    strict: whether a name that is no weight of the program is a KeyError. Else such names are left
      out and returned: parameters that the graph does not use, and buffers that are states.
    """
    weights = self.weights
    parts, unknown = [], []
    for key, value in values.items():
      name, rows = key if isinstance(key, tuple) else (key, None)
      try:
        weight = weights[name]
      except KeyError:
        if strict:
          raise
        unknown.append(name)
      else:
        parts.append(weight.part(rows, value))
    self.update_constants(parts)
    return unknown

  async def run_async(self, *args: Any, **kwargs: Any) -> Any:
    """Calls the program on a thread of asyncio's executor and returns the result."""
    return await asyncio.to_thread(self, *args, **kwargs)

  def session(
    self,
    *,
    ranges: Ranges | None = None,
    mode: str = "auto",
    arena: Any = None,
    output_limit: int | None = None,
    **options: int,
  ) -> Session:
    """A session: memory and states of one user of the program.

    ranges: narrower ranges of sizes, {"tokens": {1: (1, 512)}}, or of an int, {"n": (0, 8)}; the
      session plans for them and refuses other sizes.
    mode: "auto", "list" or "graph".
    arena: memory that the session uses instead of its own: a contiguous tensor on the device of the
      program, or an object with the buffer protocol or with `data_ptr()` and `nbytes`. The session
      keeps the memory: a `bytearray`, for instance, cannot be resized meanwhile.
    output_limit: the bytes that a call may allocate for its results, besides those whose size only
      the data decides: these are memory of the session.
    options: fields of husk_session_options: memory_limit, bound_limit, loop_limit,
      parallel_memory_percent, copy_misaligned, poison_memory, full_edges.
    """
    return Session(
      self, ranges=ranges, mode=mode, arena=arena, output_limit=output_limit, **options
    )

  def __repr__(self) -> str:
    lines = [f"husk.Program on {self.engine.device_name}"]
    lines += [f"  {function!r}" for function in self.functions.values()]
    lines += [f"  state {_storage_text(state)}" for state in self.states()]
    return "\n".join(lines)


class Session(native.Session):
  """Memory and states of one user of a program. One thread at a time may use it."""

  def __init__(
    self,
    program: Program,
    *,
    ranges: Ranges | None = None,
    mode: str = "auto",
    arena: Any = None,
    output_limit: int | None = None,
    **options: int,
  ) -> None:
    if mode not in MODES:
      raise ValueError(f"mode {mode!r}: give one of {', '.join(map(repr, MODES))}")
    external = {} if arena is None else {"external_arena": 1}
    options = {**options, "mode": MODES[mode], **external}
    super().__init__(program, options)
    self.program = program
    if output_limit is not None:
      self.set_output_limit(output_limit)
    if ranges:
      self._narrow(ranges)
    if arena is not None:
      self.lend(arena)

  @property
  def state(self) -> States:
    """The states by name."""
    return States(self)

  @property
  def functions(self) -> dict[str, Function]:
    """The functions by name, in this session."""
    return {
      name: Function(self, index, name) for index, name in enumerate(self.program.function_names())
    }

  def _narrow(self, ranges: Ranges) -> None:
    """Sets the ranges for each function that has an input of the name."""
    for name, dims in ranges.items():
      found = False
      for function in self.program.functions.values():
        for index, value in enumerate(function.inputs):
          if value["name"] != name:
            continue
          found = True
          pairs = dims if isinstance(dims, Mapping) else {0: dims}
          for dim, (smallest, largest) in pairs.items():
            self.set_range(function.index, index, dim, smallest, largest)
      if not found:
        raise ValueError(f"ranges: no function has an input {name!r}")

  def lend(self, arena: Any) -> None:
    """Makes memory of the caller the arena, as the argument `arena` of `Program.session` does; None
    takes back the memory that was lent. The session must have been made with an arena, or with
    `external_arena=1`. The call waits for the last run."""
    self.set_arena(arena)

  def __getattr__(self, name: str) -> Function:
    program = self.__dict__.get("program")
    names = [] if program is None else native.Program.function_names(program)
    if name not in names:
      _no_function(name, names)
    # A function refers to its session, so the session does not keep it.
    return Function(self, names.index(name), name)

  async def run_async(self, *args: Any, **kwargs: Any) -> Any:
    """Calls the session on a thread of asyncio's executor and returns the result."""
    return await asyncio.to_thread(self, *args, **kwargs)

  def __repr__(self) -> str:
    return f"husk.Session of {self.program!r}"


class States(Mapping[str, "State"]):
  """The states of a session by name."""

  def __init__(self, session: Session) -> None:
    self._states = {
      state["name"]: (index, state) for index, state in enumerate(session.program.states())
    }
    self._session = session

  def __getitem__(self, name: str) -> State:
    if name not in self._states:
      raise KeyError(f"no state {name!r}, the program has {', '.join(map(repr, self._states))}")
    return State(self._session, *self._states[name])

  def __iter__(self) -> Iterator[str]:
    return iter(self._states)

  def __len__(self) -> int:
    return len(self._states)


class State:
  """A state of a session: memory that runs read and write, such as a cache of keys and values."""

  def __init__(self, session: Session, index: int, info: Mapping[str, Any]) -> None:
    self._session = session
    self._index = index
    self.name: str = info["name"]
    self.dtype: str = info["dtype"]
    self.shape: tuple[int, ...] = info["shape"]
    self.nbytes: int = info["bytes"]

  def tobytes(self) -> bytearray:
    """A copy of the bytes of the state, after the session's last run."""
    memory = bytearray(self.nbytes)
    self._session.state_get(self._index, memory)
    return memory

  def numpy(self) -> Any:
    """A copy of the state as a NumPy array."""
    import numpy as np

    name = dtypes.NUMPY.get(self.dtype)
    if name is None:
      raise TypeError(f"state {self.name!r} has dtype {self.dtype}, which NumPy lacks: use torch()")
    return np.frombuffer(self.tobytes(), dtype=name).reshape(self.shape)

  def torch(self) -> Any:
    """A copy of the state as a tensor of PyTorch, on the CPU."""
    import torch

    dtype = getattr(torch, dtypes.TORCH[self.dtype])
    if not self.nbytes:
      return torch.empty(self.shape, dtype=dtype)
    return torch.frombuffer(self.tobytes(), dtype=dtype).reshape(self.shape)

  def copy_from(self, other: State | Any) -> None:
    """Takes the value of a state of another session of the program, of a tensor or of an array.
    Dtype and shape must be those of the state."""
    if isinstance(other, State):
      if other._index != self._index:
        raise ValueError(f"state {self.name!r} cannot take the value of {other.name!r}")
      self._session.state_copy(self._index, other._session)
      return
    self._session.state_set(
      self._index, _bytes(f"state {self.name!r}", self.dtype, self.shape, other)
    )

  def reset(self) -> None:
    """Sets the state to its initial value."""
    self._session.state_reset(self._index)

  def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
    if copy is False:
      raise ValueError("a state is copied to an array")
    array = self.numpy()
    return array if dtype is None else array.astype(dtype)

  def __repr__(self) -> str:
    return f"husk.State {printable(self.name)} {self.dtype}{list(self.shape)}"


class Weights(Mapping[str, "Weight"]):
  """The weights of a program by name."""

  def __init__(self, program: Program) -> None:
    self._program = program
    self._weights = {
      weight["name"]: (index, weight) for index, weight in enumerate(program.constants())
    }

  def __getitem__(self, name: str) -> Weight:
    """`name` may also be another name that the model has for the same tensor."""
    known = self._weights.get(name)
    if known is None:
      try:
        index = self._program.find_constant(name)
      except NotFoundError:
        near = difflib.get_close_matches(name, self._weights, 3) or list(self._weights)[:3]
        some = ", ".join(map(repr, near)) or "none"
        raise KeyError(
          f"no weight {name!r}: the program has {len(self._weights)}, such as {some}"
        ) from None
      known = index, self._program.constants()[index]
    return Weight(self._program, *known)

  def __iter__(self) -> Iterator[str]:
    return iter(self._weights)

  def __len__(self) -> int:
    return len(self._weights)


class Weight:
  """A weight of a program, which all of its sessions read."""

  def __init__(self, program: Program, index: int, info: Mapping[str, Any]) -> None:
    self._program = program
    self._index = index
    self.name: str = info["name"]
    self.dtype: str = info["dtype"]
    self.shape: tuple[int, ...] = info["shape"]
    self.nbytes: int = info["bytes"]

  def copy_from(self, value: Any) -> None:
    """Takes the value of a tensor or an array, for all sessions of the program. Dtype and shape
    must be those of the weight. `Program.update_weights` exchanges several weights at once."""
    self._program.update_constants([self.part(None, value)])

  def __setitem__(self, rows: int | slice, value: Any) -> None:
    """Replaces rows of the weight, which are entries of its first dimension: `weight[2:4] = x`."""
    self._program.update_constants([self.part(rows, value)])

  def part(self, rows: int | slice | range | None, value: Any) -> tuple[int, int, Any]:
    """An entry of native.Program.update_constants; `rows` is None for the whole weight."""
    if rows is None:
      return self._index, 0, _bytes(f"weight {self.name!r}", self.dtype, self.shape, value)
    if isinstance(rows, range):
      rows = slice(rows.start, rows.stop, rows.step)
    what = f"weight {self.name!r}[{_rows_text(rows)}]"
    if not self.shape:
      raise IndexError(f"weight {self.name!r} has no rows, since it has no dimensions")
    count = self.shape[0]
    if isinstance(rows, slice):
      begin, end, step = rows.indices(count)
      if step != 1:
        raise IndexError(f"{what}: give rows that follow each other, without a step")
      shape = (max(end - begin, 0), *self.shape[1:])
    else:
      begin, shape = operator.index(rows), self.shape[1:]
      if not -count <= begin < count:
        raise IndexError(f"{what}: there are {count} rows")
      begin += count * (begin < 0)
    return (
      self._index,
      begin * (self.nbytes // max(count, 1)),
      _bytes(what, self.dtype, shape, value),
    )

  def __repr__(self) -> str:
    return f"husk.Weight {printable(self.name)} {self.dtype}{list(self.shape)}"


def _rows_text(rows: int | slice) -> str:
  if not isinstance(rows, slice):
    return str(rows)
  parts = [rows.start, rows.stop] + [rows.step] * (rows.step is not None)
  return ":".join("" if part is None else str(part) for part in parts)


def _bytes(what: str, dtype: str, shape: tuple[int, ...], value: Any) -> Any:
  """The bytes of a tensor or an array, whose dtype and shape must be these; `what` they are for."""
  if not hasattr(value, "dtype") or not hasattr(value, "shape"):
    raise TypeError(f"{what}: give a torch.Tensor or a numpy.ndarray, not {type(value).__name__}")
  found, sizes = str(value.dtype).removeprefix("torch."), tuple(value.shape)
  expected = dtypes.TORCH[dtype]
  if (found, sizes) != (expected, shape):
    raise ValueError(f"{what} is {expected}{list(shape)}, not {found}{list(sizes)}")
  if hasattr(value, "detach"):  # PyTorch; a view of bytes, since NumPy lacks some dtypes
    import torch

    return value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
  import numpy as np

  return np.ascontiguousarray(value)


class Engine(native.Engine):
  """A device with its threads, operators and limits, for any number of programs. Programs of one
  engine keep weights of equal content once in the memory of the device.

  device, ops, threads, accept, progress, verify, rank, world, group, group_timeout_ms, limits: as
    for `husk.load`.
  """

  def __init__(
    self,
    device: str = "cpu",
    *,
    ops: Mapping[str, Callable[..., Any]] | None = None,
    threads: int | None = None,
    accept: Callable[[bytes], bool] | None = None,
    progress: Callable[[int, int], None] | None = None,
    verify: bool = False,
    rank: int = 0,
    world: int = 1,
    group: bytes | None = None,
    group_timeout_ms: int = 0,
    **limits: int,
  ) -> None:
    for name in limits:
      if name not in _LIMITS:
        raise TypeError(f"load() has no option {name!r}")
    if threads is None:
      threads = len(os.sched_getaffinity(0))
    if not 1 <= threads <= 1024:
      raise ValueError(f"threads={threads}: give a number from 1 to 1024")
    options: dict[str, Any] = {
      **limits,
      "threads": threads,
      "verify_content": int(verify),
      "rank": rank,
      "world": world,
      "group_timeout_ms": group_timeout_ms,
      "accept": accept,
      "progress": progress,
    }
    if group is not None:
      options["group"] = group
    super().__init__(device, options)
    self.rank, self.world = rank, world
    for name, function in (ops or {}).items():
      self.add_op(name, function)

  def __repr__(self) -> str:
    return f"husk.Engine on {self.device_name}"


_LIMITS = (
  "max_metadata_bytes",
  "max_state_bytes",
  "max_steps",
  "max_step_elements",
  "max_packed_bytes",
  "max_program_bytes",
)


def group_id(device: str = "cpu", *, one_machine: bool = False) -> bytes:
  """An id for a group of ranks whose programs run on such devices. One rank calls it, and brings
  the bytes to the others, for instance by torch.distributed, a file or a pipe.

  one_machine: on CUDA, all ranks are processes or threads of one machine. They open NCCL, which
  takes hundreds of MB of each GPU, with the first session that needs it."""
  return native.group_id(device, one_machine)


def load(
  source: str | os.PathLike[str] | bytes | Any,
  device: str | None = None,
  *,
  engine: Engine | None = None,
  weights: str | os.PathLike[str] | None = None,
  **options: Any,
) -> Program:
  """Loads an artifact. The file contains native code: load only files that you trust.

  source: the path of a file, or its content as bytes, an mmap or any object with the buffer
    protocol. An mmap is used in place; it must not change while the program exists.
  device: "cpu", which is the default, "cuda" or "cuda:N".
  engine: the engine that the program shares with others, such as `other.engine` or a husk.Engine.
    It has the device and the options below, so these cannot be given beside it.
  weights: the folder of the weights, if the artifact was exported with weights="beside"; by default
    the folder of the artifact.
  ops: functions of Python for operators that the artifact calls and Husk does not have, by name:
    {"my::op": function}. A function gets the arguments of the operator, then its outputs, which it
    writes. Tensors are of the library that the inputs of the run belong to, and valid during the
    call.
  threads: the number of threads of kernels and operators on the CPU, those of a program for a GPU
    included; by default one for each CPU.
  accept: gets the hash of the file's content (32 bytes) before anything is parsed, and tells
    whether the file may be used.
  progress: gets the number of compared bytes and of all bytes, if `verify` is set.
  verify: compares constants with their hashes, which reads the whole file.
  rank, world, group: for a program of several ranks: the number of this rank, that of all ranks,
    and the bytes that `husk.group_id` returned on one of them. The call waits until all ranks have
    called it. If there is no model.husk, it means model.rank0.husk on rank 0.
  group_timeout_ms: how long this rank waits for another one; 0 is a minute. A call that waits
    longer raises a DeviceError, on the other ranks too.
  limits: limits on what a file may ask for, as in husk_engine_options: max_metadata_bytes,
    max_state_bytes, max_steps, max_step_elements, max_packed_bytes, max_program_bytes.
  """
  if engine is None:
    engine = Engine("cpu" if device is None else device, **options)
  elif device is not None or options:
    named = ", ".join([*["device"] * (device is not None), *options])
    raise ValueError(f"load(engine=..., {named}=...): the engine has these options already")
  elif not isinstance(engine, native.Engine):
    raise TypeError(f"load(engine=...): give a husk.Engine, not {type(engine).__name__}")
  if isinstance(source, (str, os.PathLike)):
    path: str | os.PathLike[str] = source
    if engine.world > 1 and not os.path.exists(path):
      path = file_of_rank(path, engine.rank)
    source = os.fspath(path)
  elif weights is not None:
    raise ValueError("load(weights=...): the source must be the path of a file")
  return Program(engine, source, None if weights is None else os.fspath(weights))


def _no_function(name: str, names: list[str]) -> NoReturn:
  raise AttributeError(
    f"the program has no function {name!r}, it has {', '.join(map(repr, names))}"
  )


def _value_text(value: Mapping[str, Any]) -> str:
  """A value of a signature as one reads it: x: f32[1..64, 32]."""
  name = printable(value["name"])
  if value["kind"] != "tensor":
    return f"{name}: {value['kind']}"
  if "ranges" in value:
    sizes = ", ".join(
      str(low) if low == high else f"{low}..{'' if high == 2**63 - 1 else high}"
      for low, high in value["ranges"]
    )
  else:
    sizes = ", ".join("?" * value["rank"])
  return f"{name}: {value['dtype']}[{sizes}]"


def _storage_text(info: Mapping[str, Any]) -> str:
  return f"{printable(info['name'])}: {info['dtype']}{list(info['shape'])}"
