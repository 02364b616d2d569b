"""The choice of a configuration for each kernel of a CUDA target: its tiles, warps and stages, and
the form of products of one row.

The mode "none" takes the first configuration that Inductor offers and that fits the target, but for
sorts, which have a rule (sorting.py). "rules"
follows rules about the target's description (gemm_configs.py), and makes products of one row as
sums. "heuristic" does the same, but for templates it takes what was measured before, if there are
records of such problems (records.py). "max" makes those sums too, and takes what is fastest on the
GPU of this machine: Inductor measures its templates against each other, Husk measures every other
kernel on the sizes of the example, first in the configurations of Inductor's list, then in those of
Inductor's coordinate descent. All but "max" give the same bytes on every machine.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import contextvars
import dataclasses
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from .. import dtypes, prints
from ..inductor import torch_compat
from ..inductor.lines import InductorObject
from ..options import check_choice
from . import convolution, gemm_configs, records, sorting
from .gemm_configs import Config
from .target import Target

if TYPE_CHECKING:
  import torch

Item = TypeVar("Item")
Result = TypeVar("Result")
# A parameter's name and its argument in a call.
NamedArgument = tuple[str, Any]


def resolve_mode(tune_mode: str | None, target: Target) -> str:
  """The mode that an export uses. None stands for HUSK_TUNE of the environment if that is set, else
  for "heuristic", also where the GPU of this machine is the target: an export takes seconds unless
  the caller asks for minutes. A mode that does not exist or that this machine cannot follow raises
  ValueError."""
  tune_mode = tune_mode or os.environ.get("HUSK_TUNE") or "heuristic"
  if check_choice("tune", tune_mode) == "max" and (reason := why_not_here(target)):
    raise ValueError(
      f"tune='max' measures kernels on the GPU that they are for, an {target.name}: {reason}; "
      "export there, or give tune='heuristic'"
    )
  return tune_mode


def why_not_here(target: Target) -> str:
  """Why the GPU that torch would use is not the target; empty if it is."""
  import torch

  if not torch.cuda.is_available():
    return "there is no GPU here that torch can use"
  here = torch.cuda.get_device_properties(torch.cuda.current_device())
  same_chip = (here.major, here.minor, here.multi_processor_count) == (
    target.major,
    target.minor,
    target.multi_processor_count,
  )
  memory_difference = abs(here.total_memory - target.total_memory)
  if same_chip and memory_difference * 8 <= target.total_memory:
    return ""
  return (
    f"the GPU here is an {here.name} (sm_{here.major}{here.minor}, {here.multi_processor_count} "
    f"multiprocessors, {here.total_memory >> 20} MiB; CUDA_VISIBLE_DEVICES picks another)"
  )


def options(tune_mode: str) -> dict[str, Any]:
  """Inductor's options for a mode."""
  inductor: dict[str, Any] = {
    # If it is set, Inductor makes products of one row as sums. Husk runs the descent itself, since
    # nothing runs Inductor's kernels.
    "coordinate_descent_tuning": tune_mode != "none",
    "autotune_local_cache": tune_mode == "max",
  }
  if tune_mode == "max":
    inductor.update(
      {
        "deterministic": False,
        "max_autotune_pointwise": True,
        "triton.num_decompose_k_splits": 0,
        "autotune_remote_cache": False,
        "benchmark_epilogue_fusion": False,
        "benchmark_fusion": False,
      }
    )
  return inductor


@dataclasses.dataclass
class Tuning:
  """The choice of kernels for one target, and its record. `notes` are remarks for the readers of
  the artifact. `records` are those of the target, for the mode "heuristic"."""

  mode: str
  records: records.Records | None = None
  # The templates that were picked, by what decided: "record", "neighbours" or "rule".
  picked: dict[str, int] = dataclasses.field(default_factory=dict)
  kernels: int = 0  # measured
  products: int = 0  # products and convolutions whose templates Inductor measured
  tried: int = 0  # measured configurations
  seconds: float = 0.0  # spent on measuring
  notes: list[str] = dataclasses.field(default_factory=list)
  # Gets a text that says how far the measurements are.
  report: Callable[[str], object] = lambda text: None

  @property
  def measures(self) -> bool:
    return self.mode == "max"

  @property
  def on_gpu(self) -> bool:
    """Whether the GPU of this machine answers queries itself."""
    return self.measures

  def ordered(self, target: Target, tuner: InductorObject) -> list[Config]:
    """The configurations of a CachingAutotuner, best first."""
    if self.mode == "none" or not tuner.triton_meta.get("native_matmul"):
      return sorting.configs(tuner)
    return gemm_configs.ordered(target, tuner)

  def pick_template(self, target: Target, choices: Sequence[InductorObject]) -> InductorObject:
    """One of several templates, without measuring them."""
    if self.mode == "none":
      fitting = [choice for choice in choices if gemm_configs.fits(target, choice)]
      return fitting[0] if fitting else choices[0]
    sums, source = [0.0] * len(choices), ""
    for place in _places(choices):
      with torch_compat.sizes_at(place):
        slowdowns, found = self._slowdowns(target, choices)
      sums = [total + slowdown for total, slowdown in zip(sums, slowdowns)]
      source = source or found
    self.picked[source] = self.picked.get(source, 0) + 1
    return choices[sums.index(min(sums))]

  def takes_template(self, target: Target, problem: convolution.Problem) -> bool:
    """Whether a convolution has Husk's template; else it has Inductor's."""
    return convolution.suits(target, problem)

  def pick_tiles(
    self, problem: convolution.Problem, tiles: Sequence[convolution.Tiles]
  ) -> convolution.Tiles:
    """The tiles of a convolution. The first ones are the best by the rule."""
    if self.mode in ("heuristic", "max") and self.records is not None:
      configs = [records.config_of_tiles(each) for each in tiles]
      if found := self.records.choice(records.of_convolution(problem), configs):
        return tiles[found[0]]
    return tiles[0]

  def _slowdowns(
    self, target: Target, choices: Sequence[InductorObject]
  ) -> tuple[list[float], str]:
    """How much slower than the best each template is, and what says so."""
    if self.mode == "heuristic" and self.records is not None:
      fitting = [index for index, one in enumerate(choices) if gemm_configs.fits(target, one)]
      problem = records.problem_of(choices[fitting[0]]) if fitting else None
      configs = [records.config_of(choices[index]) or "" for index in fitting]
      if problem and (found := self.records.slowdowns(problem, configs)):
        known = dict(zip(fitting, found[0]))
        return [known.get(index, float("inf")) for index in range(len(choices))], found[1]
    return gemm_configs.slowdowns(target, choices), "rule"

  def defined(self, name: str, tuner: InductorObject) -> None:
    """Records the definition of a kernel."""
    count = len(tuner.configs or ())
    if getattr(tuner, "custom_kernel", False) and count > 1 and not self.measures:
      self.notes.append(f"{name} has the first of its {count} configurations")

  def measured(
    self,
    name: str,
    target: Target,
    tuner: InductorObject,
    call_args: Sequence[NamedArgument],
    hint: Callable[[Any], int],
    extent: Callable[[Any], Any],
  ) -> Config:
    """The fastest configuration of a CachingAutotuner for a call. `hint` turns an expression into a
    number, `extent` returns the bytes of an argument that stands for a buffer, as an
    expression."""
    begin = time.perf_counter()
    candidates = self.ordered(target, tuner)
    best = candidates[0]
    if len(candidates) > 1 or descends(tuner):
      try:
        bench = Bench(tuner, arguments(tuner, call_args, hint, extent))
        best = bench.best(candidates)
        self.kernels += 1
        self.tried += len(bench.times)
      # An export can do without a measurement, and says so. The next kernel shows a lost device.
      except Exception as error:
        text = (str(error).strip().splitlines() or [""])[0][:120]
        self.notes.append(f"{name} was not measured: {type(error).__name__}: {text}")
        logging.getLogger("husk").warning(self.notes[-1])
    self.seconds += time.perf_counter() - begin
    self._report()
    return best

  @contextlib.contextmanager
  def measured_by_inductor(self) -> Iterator[None]:
    """While open, Inductor measures its templates for one product or convolution."""
    begin = time.perf_counter()
    with prints.kept():
      yield
    self.products += 1
    self.seconds += time.perf_counter() - begin
    self._report()

  def _report(self) -> None:
    self.report(f"kernels measured: {self.kernels}, products: {self.products}")

  def text(self) -> str:
    """The text for the artifact's metadata."""
    import torch

    first = self.mode
    if self.measures:
      first += f", {self.kernels} kernels measured on {torch.cuda.get_device_name()}"
    return "; ".join([first, *self.picked_text(), *self.notes])

  def picked_text(self) -> list[str]:
    """How many templates were chosen by records; empty if records were not used."""
    if self.mode != "heuristic" or self.records is None or not self.picked:
      return []
    counts = [self.picked.get(source, 0) for source in ("record", "neighbours", "rule")]
    return [
      f"{counts[0]} templates from records, {counts[1]} from records of similar problems, "
      f"{counts[2]} by rules"
    ]


def _places(choices: Sequence[InductorObject]) -> list[float | None]:
  """The sizes at which templates are compared: those of the example, and if they vary three more,
  from small to large ones. An example is often much smaller than what the model will get."""
  nodes = choices[0].input_nodes
  varies = any(getattr(size, "free_symbols", None) for node in nodes for size in node.get_size())
  return [None, 1 / 3, 2 / 3, 1.0] if varies else [None]


# Measuring


def descends(tuner: InductorObject) -> bool:
  """Whether Inductor's coordinate descent supports the kernel."""
  kinds = ("POINTWISE", "REDUCTION", "PERSISTENT_REDUCTION")
  return tuner.heuristic_type.name in kinds and bool(tuner.size_hints)


class Bench:
  """Measures configurations of one kernel. `call_args` are the tensors and numbers of a launch;
  `times` are milliseconds by the text of a configuration."""

  def __init__(self, tuner: InductorObject, call_args: Sequence[Any]) -> None:
    self.tuner, self.call_args = tuner, call_args
    self.times: dict[str, float] = {}

  def best(self, candidates: Sequence[Config]) -> Config:
    """The fastest configuration that is found from the candidates on; the first candidate if none
    of them runs."""
    compiled = at_once(self._compiled, candidates)
    timed = [
      (self._run(config, result), index)
      for index, (config, result) in enumerate(zip(candidates, compiled))
    ]
    milliseconds, index = min(timed)
    best = candidates[index]
    if milliseconds == float("inf"):
      return best
    if descends(self.tuner):
      # The descent starts at the best candidate, and knows the times of the others.
      for (known, _), config in zip(timed, candidates):
        self.tuner.coordesc_tuner.cache_benchmark_result(config, known)
      best = self.tuner.coordesc_tuner.autotune(
        lambda config: self._run(config, self._compiled(config)), best, milliseconds
      )
    return best

  def _compiled(self, config: Config) -> InductorObject | None:
    """The compiled kernel; None if the configuration does not compile, for example because the
    device lacks resources."""
    from triton.runtime.errors import OutOfResources, PTXASError

    try:
      with prints.kept():
        return self.tuner._precompile_config(config)
    except (OutOfResources, PTXASError):
      return None

  def _run(self, config: Config, result: InductorObject | None) -> float:
    from triton.runtime.errors import OutOfResources

    milliseconds = float("inf")
    if result is not None:
      with contextlib.suppress(OutOfResources), prints.kept(), real():
        milliseconds = self.tuner.bench(result.make_launcher(), *self.call_args)
    self.times[str(config)] = milliseconds
    return milliseconds


# The launches of a kernel that are timed, at most, and milliseconds that they may take together. In
# the queue of a stream they must all have room.
MOST_LAUNCHES = 50
LONGEST_MS = 20


def milliseconds(benchmarker: Any, launch: Callable[[], Any], **options: Any) -> float:
  """The time on the GPU of what `launch` enqueues, the least of several, with a level 2 cache that
  lacks its operands. It stands in for Inductor's benchmark_gpu, which has these arguments.

  The first launch waits on the GPU until the last one is enqueued. Inductor's own would start at
  once: where a launch takes the host longer than the GPU, the time between two events is that of
  the host. On a machine with an H100 that was 20 to 50 us for products of 4 us."""
  import torch

  properties = torch.cuda.get_device_properties(torch.cuda.current_device())
  flush = torch.empty(properties.L2_cache_size, dtype=torch.uint8, device="cuda")
  launch()  # compiles or loads what is missing
  count, cycles, best = 5, 1 << 21, float("inf")
  for _ in range(6):
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
    torch.cuda.synchronize()
    torch.cuda._sleep(cycles)
    for begin, end in pairs:
      flush.zero_()
      begin.record()
      launch()
      end.record()
    has_waited = not pairs[0][0].query()
    torch.cuda.synchronize()
    best = min(best, *(begin.elapsed_time(end) for begin, end in pairs))
    if has_waited and count > 5:
      break
    if has_waited:
      count = max(6, min(MOST_LAUNCHES, int(LONGEST_MS / max(best, 1e-3))))
      cycles *= -(-count // 5)
    else:
      cycles *= 4
  return best


def at_once(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
  """The results of a function for all items, computed by several threads, since the assembler is
  another program. The threads see the values that torch keeps by context, as its options."""
  contexts = [contextvars.copy_context() for _ in items]
  with concurrent.futures.ThreadPoolExecutor(max(1, min(8, os.cpu_count() or 1))) as pool:
    return list(pool.map(lambda context, item: context.run(function, item), contexts, items))


def real() -> AbstractContextManager[Any]:
  """While open, new tensors have memory."""
  from torch.utils import _python_dispatch

  return _python_dispatch._disable_current_modes()


_FLAG_BYTES = 4


def arguments(
  tuner: InductorObject,
  call_args: Iterable[NamedArgument],
  hint: Callable[[Any], int],
  extent: Callable[[Any], Any],
  device: str = "cuda",
) -> list[Any]:
  """Tensors and numbers for a launch. Floats are random, ints 0, so that they are valid indices,
  and masks true. A pointer without a value is that of a flag."""
  signature = tuner.triton_meta["signature"]
  values: list[Any] = []
  tensors: dict[Any, torch.Tensor] = {}
  with real():
    for name, value in call_args:
      kind = signature.get(name, "")
      if kind.startswith("*"):
        key = value if isinstance(value, str) else id(value)
        if key not in tensors:
          size = _FLAG_BYTES if value is None else max(1, hint(extent(value)))
          tensors[key] = _tensor(kind[1:], size, device)
        values.append(tensors[key])
      elif value is None or isinstance(value, (bool, int, float)):
        values.append(value)
      else:
        values.append(float(value) if kind in _FLOATS else hint(value))
  return values


# PyTorch's names of floats by Triton's.
_FLOATS = {
  triton: dtypes.TORCH[name]
  for name, triton in dtypes.TRITON.items()
  if dtypes.KINDS[name] == "float"
}


def _tensor(kind: str, size: int, device: str) -> torch.Tensor:
  """A tensor of `size` bytes whose elements have the Triton type `kind`."""
  import torch

  if kind in _FLOATS:
    dtype = getattr(torch, _FLOATS[kind])
    return torch.randn(-(-size // dtype.itemsize), dtype=dtype, device=device)
  return torch.full((size,), int(kind in ("i1", "u1")), dtype=torch.uint8, device=device)
