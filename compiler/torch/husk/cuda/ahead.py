"""Threads that compile kernels before their definitions are read.

Triton's passes, LLVM and the assembler, where most of the time goes, do not hold Python's lock, so
the kernels of a program are compiled at the same time. What threads return is what the thread of
the export would have computed itself, so a program does not depend on them."""

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


class Pool:
  """Threads that see the context variables of the thread that submits work."""

  def __init__(self, executor: ThreadPoolExecutor) -> None:
    self._executor = executor

  def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
    return self._executor.submit(contextvars.copy_context().run, function, *args)


@contextlib.contextmanager
def threads() -> Iterator[Pool | None]:
  """Yields threads, or None on a machine with one processor. At its end no thread is left: what
  threads compile depends on what is replaced in PyTorch meanwhile."""
  count = min(_MOST, len(os.sched_getaffinity(0)))
  if count == 1:
    yield None
    return
  executor = ThreadPoolExecutor(count, thread_name_prefix="husk-kernels")
  try:
    yield Pool(executor)
  finally:
    executor.shutdown(wait=True, cancel_futures=True)
