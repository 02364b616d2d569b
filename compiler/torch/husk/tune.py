"""`python -m husk tune`: measures the templates of models on the GPU of this machine, and adds what
it finds to a record file, which exports take in place of rules (cuda/records.py)."""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import pathlib
import queue
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from . import hir
from .cuda import descriptors, measuring, records
from .cuda.records import Problem, Records
from .cuda.target import Target
from .cuda.tuning import why_not_here
from .devices.cuda import Cuda
from .exporter import Function
from .inductor import capture
from .options import Options
from .program import constants, signature

if TYPE_CHECKING:
  from multiprocessing.synchronize import Lock


def problems_of(functions: dict[str, Function], target: str) -> list[Problem]:
  """The problems of a model's export, without a GPU. `target` is a name as "h200"."""
  collector = measuring.Collector()
  with capture.quiet(), descriptors.traced():
    for name, function in functions.items():
      exported = function.exported()
      names = hir.Names()
      weights = constants.Constants(names)
      program = capture.prepared(exported)
      signature.of_functions({name: program}, names, weights)
      compiler = Cuda.of_target(target, Options(tune="rules"), [])
      compiler.tuning = collector
      compiler.captured(
        exported, capture.prepared, weights.of(program), lambda wrapper, guards: None
      )
  return collector.problems


def measure(
  problems: Sequence[Problem], target: Target, seconds: float, jobs: int
) -> Iterator[tuple[Problem, dict[str, float], str]]:
  """The times of each problem, or the text of an error, in the order in which they are found. Ends
  after `seconds`. Several processes compile, one at a time uses the GPU."""
  context = multiprocessing.get_context("spawn")
  todo, done = context.Queue(), context.Queue()
  for problem in problems:
    todo.put(problem)
  alone = context.Lock()
  workers = [
    context.Process(target=_work, args=(target, todo, done, alone), daemon=True)
    for _ in range(max(1, min(jobs, len(problems))))
  ]
  for worker in workers:
    worker.start()
  end = time.monotonic() + seconds
  try:
    for _ in problems:
      while True:
        try:
          yield done.get(timeout=max(0.0, min(2.0, end - time.monotonic())))
          break
        except queue.Empty:
          if time.monotonic() >= end or not any(worker.is_alive() for worker in workers):
            return
  finally:
    for worker in workers:
      worker.terminate()
    todo.cancel_join_thread()


def _work(target: Target, todo: Any, done: Any, alone: Lock) -> None:
  """The work of a process."""
  while True:
    try:
      problem = todo.get(timeout=1)
    except queue.Empty:
      return
    try:
      done.put((problem, measuring.measured(problem, target, alone), ""))
    except Exception as error:
      text = (str(error).strip().splitlines() or [""])[0]
      done.put((problem, {}, f"{type(error).__name__}: {text}"))


def parser() -> argparse.ArgumentParser:
  arguments = argparse.ArgumentParser(
    prog="python -m husk tune",
    description="Measures matrix products and convolutions of models on the GPU of this machine, "
    "and adds the fastest configurations to a record file. An export takes them by "
    "--records FILE.",
  )
  arguments.add_argument(
    "models", nargs="*", metavar="MODEL", help="FILE.py:FUNCTION or a .pt2 file, as for an export"
  )
  arguments.add_argument(
    "--target", default="cuda:h200", metavar="cuda:NAME", help="the GPU (cuda:h200 by default)"
  )
  arguments.add_argument(
    "--record",
    default="records.json",
    metavar="FILE",
    help="the record file, which keeps what it has (records.json by default)",
  )
  arguments.add_argument(
    "--problems", metavar="FILE", help="a record file whose problems are measured, too"
  )
  arguments.add_argument(
    "--list", action="store_true", help="add the problems without times, which needs no GPU"
  )
  arguments.add_argument(
    "--again",
    action="store_true",
    help="measure the problems of the models and of --problems even if the record file has their "
    "times",
  )
  arguments.add_argument(
    "--seconds", type=float, default=float("inf"), help="end after this time; what is found stays"
  )
  arguments.add_argument(
    "--jobs", type=int, default=os.cpu_count() or 1, help="processes that compile"
  )
  return arguments


def main(words: Sequence[str], load_model: Any) -> int:
  """Runs the command. Raises ValueError for arguments that are wrong."""
  options = parser().parse_args(words)
  name = options.target.removeprefix("cuda:")
  if name == options.target:
    raise ValueError(f"--target {options.target}: give cuda:NAME")
  if not options.models and not options.problems:
    raise ValueError("give a MODEL, or --problems FILE")
  target = Target.load(name)
  if not options.list and (reason := why_not_here(target)):
    raise ValueError(
      f"tune measures on the GPU that the records are for, an {target.name}: {reason}; run it "
      "there, or give --list"
    )
  begin = time.monotonic()
  path = pathlib.Path(options.record)
  found = records.read(path) if path.exists() else Records(records.Chip.of(target))
  if found.chip != records.Chip.of(target):
    raise ValueError(f"{path} has records for another chip than {target.name}")
  named = list(_problems(options.models, options.problems, name, load_model))
  for problem in named:
    found.times.setdefault(problem, {})
  found.save(path)
  again = set(named) if options.again else set()
  todo = in_turn(problem for problem, times in found.times.items() if problem in again or not times)
  if options.list:
    _say(f"{path}: {len(found.times)} problems, {len(todo)} without times")
    return 0
  import torch

  found.device = torch.cuda.get_device_name()
  failed = 0
  for number, (problem, times, error) in enumerate(
    measure(todo, target, options.seconds - (time.monotonic() - begin), options.jobs), 1
  ):
    found.add(problem, times)
    failed += not times
    best = min(times.items(), key=lambda item: item[1]) if times else ("", 0.0)
    result = f"{best[1]:.1f} us in {best[0]}" if times else f"not measured: {error or 'none ran'}"
    _say(f"{number}/{len(todo)} {words_of(problem)}: {result}")
    if number % 20 == 0:
      found.save(path)
  found.save(path)
  unmeasured = sum(not times for times in found.times.values())
  _say(
    f"{path}: {len(found.times)} problems, {unmeasured} without times, "
    f"{time.monotonic() - begin:.0f} s"
  )
  return 1 if failed and failed == len(todo) else 0


def _problems(
  models: Sequence[str], problems: str | None, target: str, load_model: Any
) -> Iterator[Problem]:
  for text in models:
    model, args, shapes, kwargs = load_model(text)
    if not isinstance(model, dict):
      model = {"forward": Function(model, args or (), kwargs, shapes)}
    functions = {
      key: one if isinstance(one, Function) else Function(*one) for key, one in model.items()
    }
    found = problems_of(functions, target)
    _say(f"{text}: {len(found)} problems")
    yield from found
  if problems:
    yield from records.read(pathlib.Path(problems)).times


def in_turn(problems: Iterable[Problem]) -> list[Problem]:
  """The problems, one of each kind in turn, so that a time that is too short is spent on all
  kinds."""
  kinds: dict[str, list[Problem]] = {}
  for problem in problems:
    kinds.setdefault(problem.kind, []).append(problem)
  turns = itertools.zip_longest(*kinds.values())
  return [problem for turn in turns for problem in turn if problem is not None]


def words_of(problem: Problem) -> str:
  pairs = [f"{name} {value}" for name, value in (*problem.form, *problem.sizes)]
  return f"{problem.kind} {problem.dtype} {', '.join(pairs)}"


def _say(text: str) -> None:
  print(f"husk: {text}", file=sys.stderr, flush=True)
