"""Threads that compile kernels before their definitions are read.

Triton's passes, LLVM and the assembler, where most of the time goes, do not hold Python's lock, so
the kernels of a program are compiled at the same time. What threads return is what the thread of
the export would have computed itself, so a program does not depend on them. It compiles itself what
they fail at, when they have ended: `ast.parse` of Python before 3.11.5 may fail while another
thread parses (https://github.com/python/cpython/issues/106905)."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ..inductor.lines import InductorObject
from .gemm_configs import Config

_MOST = 8  # threads; the part of a compilation that holds Python's lock keeps no more busy


@dataclasses.dataclass
class Started:
  """A kernel that a thread compiles: Inductor's autotuner, its configurations, best first, and what
  the autotuner returns for the first one."""

  tuner: InductorObject
  configs: Sequence[Config]
  result: Future[Any]

  @property
  def succeeded(self) -> bool:
    return self.result.done() and not self.result.cancelled() and not self.result.exception()


class Pool:
  """Threads that see the context variables of the thread that submits work."""

  def __init__(self, executor: ThreadPoolExecutor) -> None:
    self._executor = executor

  def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
    return self._executor.submit(contextvars.copy_context().run, function, *args)


@contextlib.contextmanager
def threads() -> Iterator[Pool | None]:
  """Yields threads, or None on a machine with one processor. Waits for them at its end."""
  count = min(_MOST, len(os.sched_getaffinity(0)))
  if count == 1:
    yield None
    return
  executor = ThreadPoolExecutor(count, thread_name_prefix="husk-kernels")
  with executor:
    yield Pool(executor)
