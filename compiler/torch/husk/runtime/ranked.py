"""All ranks of a program in one process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .errors import DeviceError
from .program import Function, Program, Session, group_id, load


def load_ranks(
  path: str | os.PathLike[str], devices: Sequence[str], **options: Any
) -> RankedProgram:
  """Loads all ranks of a program in this process, each on a device and a thread of its own.

  path: model.husk, which has all ranks, or does not exist and means model.rank0.husk and so on.
  devices: the device of each rank: ["cuda:0", "cuda:1"], or ["cpu", "cpu"].
  options: of `husk.load`, for each rank.
  """
  return RankedProgram(path, devices, **options)


class RankedProgram:
  """All ranks of a program in one process. `husk.load_ranks` makes it.

  A call runs the function `forward`, or the only one, on all ranks with the same arguments, and
  returns the results of rank 0. Arguments that are tensors of PyTorch are copied to the GPU of each
  rank. Calls of several threads run one after another, since all ranks must run them in one order.

  programs: the program of each rank, for instance to update its weights, which are shards.
  """

  def __init__(self, path: str | os.PathLike[str], devices: Sequence[str], **options: Any) -> None:
    if isinstance(devices, str) or len(devices) < 2:
      raise ValueError(f"devices={devices!r}: give the device of each rank, of 2 at least")
    self.devices = list(devices)
    self._lock = threading.Lock()
    self._executor = ThreadPoolExecutor(len(devices), "husk-rank")
    group = group_id(devices[0].partition(":")[0])

    def load_one(rank: int) -> Program:
      world = len(devices)
      return load(path, devices[rank], rank=rank, world=world, group=group, **options)

    self.programs: list[Program] = self.on_all(load_one)

  def on_all(self, work: Callable[[int], Any]) -> list[Any]:
    """The results of `work` of each rank, called on a thread of its own. If some fail, the error of
    the first one is raised, but rather one that is not about the others."""
    with self._lock:
      futures = [self._executor.submit(work, rank) for rank in range(len(self.devices))]
      errors = [error for future in futures if (error := future.exception()) is not None]
    if errors:
      raise next((one for one in errors if not isinstance(one, DeviceError)), errors[0])
    return [future.result() for future in futures]

  def function_names(self) -> list[str]:
    return self.programs[0].function_names()

  def states(self) -> list[dict[str, Any]]:
    """The states of rank 0."""
    return self.programs[0].states()

  def set_trees(self, *trees: Any) -> None:
    """Sets how arguments and results of a function nest, for each rank."""
    for program in self.programs:
      program.set_trees(*trees)

  @property
  def functions(self) -> dict[str, RankedFunction]:
    """The functions by name."""
    each = [program.functions for program in self.programs]
    return {name: RankedFunction(self, [one[name] for one in each]) for name in each[0]}

  def session(self, **options: Any) -> RankedSession:
    """A session of each rank; `options` are those of `Program.session`."""
    return RankedSession(self, self.on_all(lambda rank: self.programs[rank].session(**options)))

  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    called = [Function(program, program.called_function) for program in self.programs]
    return RankedFunction(self, called)(*args, **kwargs)

  def __getattr__(self, name: str) -> RankedFunction:
    programs = self.__dict__.get("programs")
    if programs is None:
      raise AttributeError(name)
    return RankedFunction(self, [getattr(program, name) for program in programs])

  def __repr__(self) -> str:
    return f"husk.RankedProgram on {', '.join(self.devices)}: {self.programs[0]!r}"


class RankedSession:
  """A session of each rank."""

  def __init__(self, program: RankedProgram, sessions: list[Session]) -> None:
    self.program = program
    self.sessions = sessions

  @property
  def functions(self) -> dict[str, RankedFunction]:
    """The functions by name, in these sessions."""
    each = [session.functions for session in self.sessions]
    return {name: RankedFunction(self.program, [one[name] for one in each]) for name in each[0]}

  def state_reset(self, index: int) -> None:
    """Sets a state of each rank to its initial value."""
    self.program.on_all(lambda rank: self.sessions[rank].state_reset(index))

  def __getattr__(self, name: str) -> RankedFunction:
    sessions = self.__dict__.get("sessions")
    if sessions is None:
      raise AttributeError(name)
    return RankedFunction(self.program, [getattr(session, name) for session in sessions])


class RankedFunction:
  """A function of each rank. Its inputs and outputs are those of rank 0."""

  def __init__(self, program: RankedProgram, functions: list[Function]) -> None:
    self.program = program
    self.functions = functions

  @property
  def name(self) -> str:
    return self.functions[0].name

  @property
  def target(self) -> str:
    return self.functions[0].target

  @property
  def inputs(self) -> list[dict[str, Any]]:
    return self.functions[0].inputs

  @property
  def outputs(self) -> list[dict[str, Any]]:
    return self.functions[0].outputs

  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    def call(rank: int) -> Any:
      device = self.program.devices[rank]
      own = list(_on(device, args))
      return self.functions[rank](*own, **dict(zip(kwargs, _on(device, kwargs.values()))))

    return self.program.on_all(call)[0]

  def __repr__(self) -> str:
    return f"{self.functions[0]!r} on {', '.join(self.program.devices)}"


def _on(device: str, values: Any) -> Iterator[Any]:
  """Tensors of PyTorch on a GPU, and other values as they are, also within lists, tuples and
  dicts."""
  for value in values:
    if type(value) in (list, tuple):
      yield type(value)(_on(device, value))
    elif type(value) is dict:
      yield dict(zip(value, _on(device, value.values())))
    elif device != "cpu" and hasattr(value, "data_ptr") and hasattr(value, "to"):
      yield value.to(device)
    else:
      yield value
