"""Which configuration a kernel of a CUDA target gets: its tiles, warps and stages, and the form of products of one row.

"none": the first that Inductor offers and the target has room for. "heuristic": by rules from the target's description
(products.py), and products of one row as sums. "max": those sums too, and what is fastest on the GPU here, measured:
Inductor measures its templates against each other, the rest is measured here, kernel by kernel on the sizes of the example, from
Inductor's list of configurations on by its coordinate descent. The first two give the same bytes everywhere.
"""

import concurrent.futures
import contextlib
import contextvars
import dataclasses
import logging
import os
import time

WAYS = ("none", "heuristic", "max")


def resolved(way, target):
  """The way that is meant: None is "max" where the GPU here is the target, else "heuristic". The environment's HUSK_TUNE stands
  for None where it is set. A way that cannot be gone raises ValueError."""
  way = way or os.environ.get("HUSK_TUNE") or None
  if way is not None and way not in WAYS:
    raise ValueError(f"tune={way!r}: give one of {', '.join(map(repr, WAYS))}")
  if way is None:
    return "heuristic" if why_not_here(target) else "max"
  if way == "max" and (why := why_not_here(target)):
    raise ValueError(f"tune='max' measures kernels on the GPU that they are for, an {target.name}: {why}; export there, or give "
                     "tune='heuristic'")
  return way


def why_not_here(target):
  """Why the GPU that torch would use is not the target; empty if it is."""
  import torch
  if not torch.cuda.is_available():
    return "there is no GPU here that torch can use"
  here = torch.cuda.get_device_properties(torch.cuda.current_device())
  same = ((here.major, here.minor, here.multi_processor_count) == (target.major, target.minor, target.multi_processor_count) and
          abs(here.total_memory - target.total_memory) * 8 <= target.total_memory)
  return "" if same else (f"the GPU here is an {here.name} (sm_{here.major}{here.minor}, {here.multi_processor_count} "
                          f"multiprocessors, {here.total_memory >> 20} MiB; CUDA_VISIBLE_DEVICES picks another)")


def options(way):
  """Inductor's options for a way."""
  # Where it is set, Inductor makes sums of products of one row. The descent itself is ours: nothing runs Inductor's kernels.
  made = {"coordinate_descent_tuning": way != "none", "autotune_local_cache": way == "max"}
  if way == "max":
    made.update({"deterministic": False, "max_autotune_pointwise": True, "triton.num_decompose_k_splits": 0,
                 "autotune_remote_cache": False, "benchmark_epilogue_fusion": False, "benchmark_fusion": False})
  return made


@dataclasses.dataclass
class Tuning:
  """How the kernels of one target are chosen, and what was found out. `notes` is for the artifact's readers."""

  way: str
  kernels: int = 0          # measured
  tried: int = 0            # configurations that were measured
  seconds: float = 0.0      # spent on that
  notes: list = dataclasses.field(default_factory=list)

  @property
  def measures(self):
    return self.way == "max"

  def ordered(self, target, tuner):
    """The configurations of a CachingAutotuner to try, best first."""
    from . import products
    if self.way == "none":
      return list(tuner.configs or ())
    return products.ordered(target, tuner)

  def pick_template(self, target, choices):
    """One of several templates, where none is measured."""
    from . import products
    if self.way == "none":
      return min(choices, key=lambda choice: not products.fits(target, choice))     # of equals the first
    return products.pick_template(target, choices)

  def defined(self, name, tuner):
    """Notes what is told of a kernel that was defined."""
    choices = len(tuner.configs or ())
    if getattr(tuner, "custom_kernel", False) and choices > 1 and not self.measures:
      self.notes.append(f"{name} has the first of its {choices} configurations")

  def measured(self, name, target, tuner, given, hint, extent):
    """The fastest configuration of a CachingAutotuner for calls like the one at hand: `given` are its (name, argument), `hint`
    makes a number of an expression, `extent` an expression of bytes of what stands for a buffer."""
    begin = time.perf_counter()
    candidates = self.ordered(target, tuner)
    best = candidates[0]
    if len(candidates) > 1 or descends(tuner):
      try:
        bench = Bench(tuner, arguments(tuner, given, hint, extent))
        best = bench.best(candidates)
        self.kernels += 1
        self.tried += len(bench.times)
      except Exception as error:     # it can do without, and says so; a lost device shows at the next kernel
        text = (str(error).strip().splitlines() or [""])[0][:120]
        self.notes.append(f"{name} was not measured: {type(error).__name__}: {text}")
        logging.getLogger("husk").warning(self.notes[-1])
    self.seconds += time.perf_counter() - begin
    return best

  def text(self):
    """For the artifact."""
    import torch
    of = f", {self.kernels} kernels measured on {torch.cuda.get_device_name()}" if self.measures else ""
    return "; ".join([self.way + of, *self.notes])


# Measuring


def descends(tuner):
  """Whether Inductor's coordinate descent is made for such a kernel."""
  return tuner.heuristic_type.name in ("POINTWISE", "REDUCTION", "PERSISTENT_REDUCTION") and bool(tuner.size_hints)


class Bench:
  """Measures configurations of one kernel; `times` has milliseconds by configuration, as text."""

  def __init__(self, tuner, given):
    self.tuner, self.given, self.times = tuner, given, {}

  def best(self, candidates):
    """The best configuration that is found from the candidates on; if none runs, the first of them."""
    compiled = dict(zip(map(id, candidates), at_once(self._compiled, candidates)))
    timed = [(self._run(config, compiled[id(config)]), index) for index, config in enumerate(candidates)]
    milliseconds, index = min(timed)
    best = candidates[index]
    if milliseconds == float("inf"):
      return best
    if descends(self.tuner):
      # It starts at what it is given, and remembers the rest.
      for (known, number), config in zip(timed, candidates):
        self.tuner.coordesc_tuner.cache_benchmark_result(config, known)
      best = self.tuner.coordesc_tuner.autotune(lambda config: self._run(config, self._compiled(config)), best, milliseconds)
    return best

  def _compiled(self, config):
    """None where it does not compile, as where it wants more than there is."""
    from triton.runtime.errors import OutOfResources, PTXASError
    try:
      return self.tuner._precompile_config(config)
    except (OutOfResources, PTXASError):
      return None

  def _run(self, config, result):
    from triton.runtime.errors import OutOfResources
    milliseconds = float("inf")
    if result is not None:
      with contextlib.suppress(OutOfResources), real():
        milliseconds = self.tuner.bench(result.make_launcher(), *self.given)
    self.times[str(config)] = milliseconds
    return milliseconds


def at_once(function, items):
  """What a function gives for each item, by several threads: assembling waits for another program. They see what torch keeps by
  context, as its options."""
  contexts = [contextvars.copy_context() for _ in items]
  with concurrent.futures.ThreadPoolExecutor(max(1, min(8, os.cpu_count() or 1))) as pool:
    return list(pool.map(lambda context, item: context.run(function, item), contexts, items))


def real():
  """While open, tensors that are made have memory."""
  import torch
  return torch.utils._python_dispatch._disable_current_modes()


def arguments(tuner, given, hint, extent, device="cuda"):
  """Tensors and numbers for a launch. Floats are random, ints 0, so that they are good as indices, and masks true."""
  signature, made, memory = tuner.triton_meta["signature"], [], {}
  with real():
    for name, value in given:
      kind = signature.get(name, "")
      if kind.startswith("*"):
        key = value if isinstance(value, str) else id(value)
        if key not in memory:
          memory[key] = _tensor(kind[1:], max(1, hint(extent(value))), device)
        made.append(memory[key])
      elif value is None or isinstance(value, (bool, int, float)):
        made.append(value)
      else:
        made.append(float(value) if kind in _FLOATS else hint(value))
  return made


_FLOATS = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}


def _tensor(kind, size, device):
  """So many bytes of a type of Triton's."""
  import torch
  if kind in _FLOATS:
    dtype = getattr(torch, _FLOATS[kind])
    return torch.randn(-(-size // dtype.itemsize), dtype=dtype, device=device)
  return torch.full((size,), int(kind in ("i1", "u1")), dtype=torch.uint8, device=device)
