"""Measures the templates of problems on the GPU of this machine, for records (records.py).

A problem becomes a program of one operator again, which Inductor lowers; in place of a rule that
picks one of the templates, the templates that the rule likes best are compiled and timed. A time is
that of a launch in a CUDA graph of many, so that nothing of the host is in it. The operands stay in
the level 2 cache if they fit there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..inductor import capture, decompositions
from ..inductor.lines import InductorObject
from . import (
  convolution,
  deferred,
  fake_cuda,
  gemm_configs,
  products,
  records,
  tensor_maps,
  tuning,
)
from .records import Problem
from .target import Target

if TYPE_CHECKING:
  import torch

# The configurations of Inductor's template that are tried for a problem, those of a convolution,
# which may split its depth too, and the launches of a graph that is timed.
MOST_CANDIDATES = 12
MOST_TILES = 24
LAUNCHES = 20


class Collector(tuning.Tuning):
  """Follows the rules, and keeps the problems that templates are picked for."""

  def __init__(self) -> None:
    super().__init__("rules")
    self.problems: list[Problem] = []

  def pick_template(self, target: Target, choices: Sequence[InductorObject]) -> InductorObject:
    for choice in choices:
      problem = records.problem_of(choice)
      if problem is not None and "neither" not in dict(problem.form).values():
        if problem not in self.problems:
          self.problems.append(problem)
        break
    return super().pick_template(target, choices)


class _Meter(tuning.Tuning):
  """Follows the rules, and keeps the times of the templates for a problem of a `kind`, which says
  whose template a convolution has. `alone` is open while the GPU is used. The templates of a
  convolution that are lowered at a time split its depth into `split` parts (None: as the rule
  says). `splits` are all numbers of parts that are to be tried."""

  def __init__(self, kind: str, alone: contextlib.AbstractContextManager[Any]) -> None:
    super().__init__("rules")
    self.kind, self.alone = kind, alone
    self.times: dict[Problem, dict[str, float]] = {}
    self.split: int | None = None
    self.splits: list[int] = []
    self.wanted: set[str | None] = set()

  @property
  def on_gpu(self) -> bool:
    return True

  def pick_template(self, target: Target, choices: Sequence[InductorObject]) -> InductorObject:
    ranked = gemm_configs.ranked(target, choices)
    if convolution.is_choice(ranked[0]):
      ranked = [choice for choice in ranked if records.config_of(choice) in self.wanted]
    else:
      of_maps = [choice for choice in ranked if tensor_maps.is_choice(choice)]
      others = [choice for choice in ranked if not tensor_maps.is_choice(choice)]
      ranked = others[:MOST_CANDIDATES] + of_maps
    texts = {records.config_of(choice): deferred.written(choice) for choice in ranked}
    candidates = {name: choice for name, choice in texts.items() if choice is not None}
    problem = records.problem_of(ranked[0])
    if problem is not None:
      self.times.setdefault(problem, {}).update(_times(candidates, self.alone))
    return ranked[0]

  def takes_template(self, target: Target, problem: convolution.Problem) -> bool:
    return self.kind == "implicit gemm"

  def pick_tiles(
    self, problem: convolution.Problem, tiles: Sequence[convolution.Tiles]
  ) -> convolution.Tiles:
    best = tiles[:MOST_TILES]
    self.wanted = {records.config_of_tiles(each) for each in best}
    self.splits = list(dict.fromkeys(each.split for each in best))
    return next(each for each in best if self.split in (None, each.split))


def measured(
  problem: Problem, target: Target, alone: contextlib.AbstractContextManager[Any]
) -> dict[str, float]:
  """Microseconds of a problem by configuration."""
  meter = _Meter(problem.kind, alone)
  capture_problem(problem, target, meter)
  for split in meter.splits[1:]:
    meter.split = split
    capture_problem(problem, target, meter)
  return meter.times.get(problem, {})


def capture_problem(problem: Problem, target: Target, tuned: tuning.Tuning) -> None:
  """Lets Inductor lower the program of a problem."""
  import torch

  module, args = program(problem)
  with torch.no_grad():
    exported = torch.export.export(module, args, strict=False)
  with (
    capture.quiet(),
    fake_cuda.cuda(target, "templates", tuned),
    decompositions.kernels("cuda"),
  ):
    capture.capture(
      fake_cuda.moved(exported),
      "cuda",
      {},
      lambda wrapper, guards: None,
      lowerings=products.lowerings(target, tuned, folds=False),
    )


def program(problem: Problem) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
  """A model that is the problem, and its arguments."""
  import torch

  form, sizes = dict(problem.form), dict(problem.sizes)
  dtype = getattr(torch, problem.dtype)
  if "product" in problem.kind:
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    if problem.kind == "product" and m == 1:
      # Other products of one row become sums. This one is a convolution of an image of one pixel.
      return _module(torch.conv2d), (
        torch.empty(1, k, 1, 1, dtype=dtype),
        torch.empty(n, k, 1, 1, dtype=dtype),
      )
    batches = [sizes["batch"]] if "batch" in sizes else []
    left = _matrix(batches, m, k, form["left"], dtype)
    right = _matrix(batches, k, n, form["right"], dtype)
    return _module(torch.matmul), (left, right)
  kernel, stride, padding, dilation = (
    [int(side) for side in form.get(name, "1x1").split("x")]
    for name in ("kernel", "stride", "padding", "dilation")
  )
  channels = sizes["channels"]
  groups = channels if problem.kind == "depthwise" else int(form.get("groups", 1))
  outputs = channels if problem.kind == "depthwise" else sizes["outputs"]
  inside = 1 if problem.kind == "depthwise" else channels
  image = [
    (size - 1) * step - 2 * pad + d * (taps - 1) + 1
    for size, step, pad, d, taps in zip(
      (sizes["height"], sizes["width"]), stride, padding, dilation, kernel, strict=True
    )
  ]
  x = torch.empty(sizes["batch"], inside * groups, *image, dtype=dtype)
  weight = torch.empty(outputs, inside, *kernel, dtype=dtype)
  if form.get("order", "channels last") == "channels last":
    x = x.to(memory_format=torch.channels_last)
    weight = weight.to(memory_format=torch.channels_last)
  return _module(
    lambda x, weight: torch.conv2d(x, weight, None, stride, padding, dilation, groups)
  ), (x, weight)


def _matrix(batches: list[int], rows: int, columns: int, direction: str, dtype: Any) -> Any:
  """A matrix whose rows or columns are dense."""
  import torch

  if direction == "rows":
    return torch.empty(*batches, rows, columns, dtype=dtype)
  return torch.empty(*batches, columns, rows, dtype=dtype).transpose(-1, -2)


def _module(function: Callable[..., Any]) -> torch.nn.Module:
  import torch

  class Program(torch.nn.Module):
    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
      return function(left, right)

  return Program()


def _times(
  candidates: dict[str | None, InductorObject], alone: contextlib.AbstractContextManager[Any]
) -> dict[str, float]:
  """Microseconds by configuration. A candidate that does not compile or run has none."""

  def compiled(choice: InductorObject) -> bool:
    try:
      choice.precompile()
      return True
    except Exception:  # too much shared memory, for example
      return False

  names = [name for name in candidates if name is not None]
  runs = tuning.at_once(compiled, [candidates[name] for name in names])
  times = {}
  with alone, tuning.real():
    for name in (name for name, ran in zip(names, runs) if ran):
      with contextlib.suppress(Exception):
        times[name] = _microseconds(candidates[name])
  return times


def _microseconds(choice: InductorObject) -> float:
  """The time of a launch: the least of several replays of a graph. If the template computes parts
  of the depth of a convolution, the time has that of a kernel which adds them."""
  import torch

  request = choice.bmreq
  is_split = convolution.is_choice(choice) and choice.log_info["tiles"].split > 1
  inputs = [meta.to_tensor() for meta in request.input_tensor_meta]
  out = request.output_tensor_meta.to_tensor()
  stream = torch.cuda.Stream()
  with torch.cuda.stream(stream):
    launch = request.make_run_fn(*inputs, out=out)
    for _ in range(2):
      launch()
  torch.cuda.synchronize()
  graph = torch.cuda.CUDAGraph()
  with torch.cuda.graph(graph, stream=stream):
    launch = request.make_run_fn(*inputs, out=out)
    for _ in range(LAUNCHES):
      launch()
      if is_split:
        torch.sum(out, 0)
  replays = []
  for _ in range(4):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    replays.append(begin.elapsed_time(end))
  return min(replays[1:]) * 1000 / LAUNCHES
