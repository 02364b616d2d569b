"""`export`: a PyTorch model to an artifact."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import gc
import logging
import pathlib
import re
import tempfile
import time
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import artifact, devices, hir, output, prints, tools
from .cuda import descriptors, user_kernels
from .devices import Device
from .errors import short_tracebacks, within
from .hir import huskc
from .inductor import (
  assumed,
  autocast,
  capture,
  checks,
  collectives,
  detection,
  element_counts,
  empty,
  exported_programs,
  failures,
  filters,
  frames,
  gradients,
  origins,
  python_numbers,
  repeated_sizes,
  scans,
  shape_functions,
  strided,
  symmetric_memory,
  torch_compat,
  traced_calls,
  varying,
)
from .inductor.decompositions import composites
from .options import Options, Path, merged, written_out
from .program import aliases, constants, dtensors, filled, objects, signature, tracing, weights
from .progress import Progress
from .quantized import Recognised, exponents, formats, schemes, spellings, unwrapped
from .recurrent import operator as recurrent
from .version import VERSION

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram


@dataclasses.dataclass
class Function:
  """One function of an artifact: a model, and the arguments that it is exported with.

  model: an nn.Module or a torch.export.ExportedProgram.
  args, kwargs, dynamic_shapes: as for torch.export.export.
  method: which method of the module is exported.
  """

  model: Any
  args: tuple[Any, ...] = ()
  kwargs: dict[str, Any] | None = None
  dynamic_shapes: Any = None
  method: str = "forward"

  def exported(
    self, options: Options | None = None, classes: objects.Classes | None = None
  ) -> ExportedProgram:
    """The torch.export program. `classes` are those that torch takes apart as long as the program
    is used."""
    import torch

    options = options or Options()

    if isinstance(self.model, torch.export.ExportedProgram):
      schemes.check_program(options.quantize)
      program = exported_programs.with_right_dtypes(self.model)
      if collectives.is_used(program):
        program = exported_programs.copied(program)
        collectives.rewrite(program)
      return program
    if not isinstance(self.model, torch.nn.Module):
      raise ValueError(
        f"{type(self.model).__name__} is no model: give an nn.Module or a "
        "torch.export.ExportedProgram"
      )
    model = self.model
    if self.method != "forward":
      if not callable(getattr(type(model), self.method, None)):
        raise ValueError(f"{type(model).__name__} has no method {self.method}")
      # The copy shares its parameters and buffers with the model.
      model = copy.copy(model)
      model.forward = types.MethodType(getattr(type(model), self.method), model)
    export, tracing_dtensors = None, contextlib.nullcontext()
    if dtensors.has_dtensors(model):
      model, export = dtensors.local(model), dtensors.export
      tracing_dtensors = dtensors.exporting()
    with (
      tracing_dtensors,
      torch.no_grad(),
      user_kernels.traced(),
      detection.traced(),
      filters.traced(),
      scans.traced(model),
      composites.traced(),
      symmetric_memory.traced(),
      gradients.traced(),
      python_numbers.traced(),
      element_counts.traced(),
      traced_calls.traced(),
      torch_compat.hooks_of_buffers_kept(),
      schemes.applied(model, options.quantize),
      unwrapped.unwrapped(model),
    ):
      args, kwargs = aliases.separated(model, (tuple(self.args), self.kwargs))
      written = constants.small([model])
      try:
        with constants.masks_as_buffers(model):
          program = tracing.traced(
            model,
            args,
            kwargs,
            self.dynamic_shapes,
            options.strict,
            options.prefer_deferred_runtime_asserts_over_guards,
            classes,
            export,
          )
      finally:
        constants.restore(written)
      checks.rewrite(program)
      exponents.rewrite(program)
      collectives.rewrite(program)
      return program


def line_of_model(error: Exception) -> str:
  """The line of the model at which an export failed, as "model.py:12 x + 1"."""
  return origins.place_of_error(error)


# The first argument of `export`: a model, or the functions of an artifact by name.
Model = Any


@written_out
def export(
  model: Model,
  args: Any,
  path: Path | None = None,
  *,
  kwargs: dict[str, Any] | None = None,
  dynamic_shapes: Any = None,
  function: str = "forward",
  keep: Path | None = None,
  progress: bool | None = None,
  options: Options | None = None,
  **changes: Any,
) -> pathlib.Path:
  """Exports a model to the artifact `path`, and returns `path`.

  export(model, args, path) makes one function of `model`, an nn.Module or a
  torch.export.ExportedProgram. `function` is the name of the function; args, kwargs and
  dynamic_shapes are as for torch.export.export.

  export({"prefill": Function(model, args, ...), "decode": Function(...)}, path) makes several
  functions. Parameters and buffers that they share are stored once; a buffer that one of them
  writes is state of all of them.

  keep: a folder in which the `.hir`, the images and the weights stay.
  progress: whether a line of stderr names the stage that runs; by default if stderr is a terminal.
  options: a husk.Options. The other arguments are its fields, and take their place:

  {options}

  The logger "husk" reports at level INFO what was exported, and how long it took.

  Raises Unsupported if an artifact cannot hold the model, CompileError if Inductor, Triton or a
  tool fails, which names the operator and the line of the model, or if a tool is missing. What
  torch.export raises keeps its class. Tracebacks have no frames of PyTorch, unless HUSK_TRACEBACK=1
  is in the environment.
  """
  options = merged(options, changes)
  functions, path = _functions(model, args, path, kwargs, dynamic_shapes, function)
  path = pathlib.Path(path)
  huskc.require()
  if options.pack:
    huskc.require_pack()
  output.require(path)
  if options.weights == "beside" and path.exists() and not path.is_file():
    raise ValueError(f'{path} is no regular file: weights="beside" needs a folder for the weights')
  stages = Progress(progress)
  with output.disk_explained(path), contextlib.ExitStack() as stack:
    if keep is None:
      folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="husk-")))
    else:
      folder = pathlib.Path(keep)
    text, tensors = _write(functions, folder, stages, options, keep is not None)
    with output.replaced(path) as compiled:
      with stages.stage("huskc"):
        if keep is None:
          send = functools.partial(weights.save, tensors)
          huskc.compile(text, compiled, weights.FILE, send, place=options.weights)
        else:
          huskc.compile(text, compiled, place=options.weights)
      if options.pack:
        with stages.stage("husk-pack"):
          huskc.pack(compiled)
      _log_summary(compiled, path, stages)
  return path


@written_out
def write(
  model: Model,
  args: Any,
  folder: Path | None = None,
  *,
  kwargs: dict[str, Any] | None = None,
  dynamic_shapes: Any = None,
  function: str = "forward",
  progress: bool | None = None,
  options: Options | None = None,
  **changes: Any,
) -> pathlib.Path:
  """The first half of `export`, with the same arguments: writes model.hir, the images and the
  weights into `folder`, and returns the path of the `.hir`."""
  options = merged(options, changes)
  functions, folder = _functions(model, args, folder, kwargs, dynamic_shapes, function)
  text, _ = _write(functions, pathlib.Path(folder), Progress(progress), options, True)
  return text


@short_tracebacks
@frames.in_one_piece
def _write(
  functions: Mapping[str, Function],
  folder: pathlib.Path,
  stages: Progress,
  options: Options,
  stays: bool,
) -> tuple[pathlib.Path, dict[str, torch.Tensor]]:
  """`write` with the functions by name, and the tensors of the file of weights. If the folder
  stays, the file is written, and what compilers print stays there too."""
  # A user hears of a missing tool before the minutes that tracing and kernels take.
  assert_texts: list[str] = []
  schemes.check(options.quantize)
  compilers = devices.of_targets(options, assert_texts)
  for target in compilers:
    target.require()
  folder.mkdir(parents=True, exist_ok=True)
  # Each function is traced, and compiled for each target; each target has images; the weights are
  # written, and huskc runs.
  stages.total = len(functions) * (1 + len(compilers)) + len(compilers) + 3
  with (
    prints.logged(folder if stays else None),
    capture.quiet(),
    descriptors.traced(),
    shape_functions.right_dtypes(),
    shape_functions.sizes_from_zero(),
    shape_functions.windows_of_all_sizes(),
    repeated_sizes.known(),
    _rare_collections(),
    objects.taken_apart() as classes,
  ):
    exported = {}
    for name, one in functions.items():
      with within(name, functions), stages.stage("trace", name):
        exported[name] = filled.evaluated(autocast.written_out(one.exported(options, classes)))
    exported = aliases.merged(exported)
    with stages.stage("codes of weights"):
      recognised = Recognised(options.quantize)
      exported = {name: spellings.canonical(one) for name, one in exported.items()}
      exported = {name: recognised.program(one) for name, one in exported.items()}
    of_codes = formats.weights(exported.values())
    for line in [*formats.lines(of_codes), *recognised.lines()]:
      logging.getLogger("husk").info("%s", line)
    for target in compilers:
      target.report_to(stages.report)
    with assumed.kept(exported.values()), varying.views():
      for one in exported.values():
        exported_programs.assume(one, [*empty.refusals(one), *strided.refusals(one)])
      metadata = {formats.KEY: formats.text(of_codes)} if of_codes else {}
      metadata.update(options.metadata)
      program, tensors, files = _program(exported, compilers, metadata, stages)
    program.asserts = assert_texts
  text = folder / "model.hir"
  with stages.stage("weights"):
    for name, image in files.items():
      (folder / name).write_bytes(image)
    if stays:
      weights.save_file(tensors, folder)
    text.write_text(program.text(), encoding="utf-8")
  return text, tensors


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
  """Lets Python look for cycles of garbage less often. torch makes many small objects and keeps
  most of them, so that with Python's own thresholds the search is a tenth of the time of an export.
  Larger thresholds of the application stay."""
  before = gc.get_threshold()
  if before[0]:  # 0 turns the search off
    gc.set_threshold(*map(max, before, _COLLECTION_THRESHOLDS))
  try:
    yield
  finally:
    gc.set_threshold(*before)


# For the three generations of Python's garbage collector.
_COLLECTION_THRESHOLDS = (50_000, 50, 10)


def _log_summary(compiled: pathlib.Path, path: pathlib.Path, stages: Progress) -> None:
  """Logs what the artifact contains and how long the stages took. `path` is where it lies now."""
  logger = logging.getLogger("husk")
  if not logger.isEnabledFor(logging.INFO):
    return
  if tools.find("husk-dump"):
    described = dataclasses.replace(artifact.inspect(compiled), path=str(path))
    for line in [*described.summary().splitlines(), *_unlimited(described)]:
      logger.info("%s", line)
  logger.info("%s", stages.summary())


def _unlimited(described: artifact.Artifact) -> Iterator[str]:
  """Remarks about sizes without an upper bound."""
  for function in described.functions.values():
    for value in function.inputs:
      for dim, (low, high) in enumerate(value.ranges):
        if high < artifact.UNLIMITED:
          continue
        excluded = ", and 0 and 1 are excluded, as by Dim.AUTO" if low == 2 else ""
        yield (
          f"  {function.name}, {value.name}: dim {dim} has no upper bound{excluded}: memory is "
          'planned for each new size; Dim("n", min=1, max=...) would plan it once'
        )


def _functions(
  model: Model,
  args: Any,
  path: Path | None,
  kwargs: dict[str, Any] | None,
  dynamic_shapes: Any,
  function: str,
) -> tuple[dict[str, Function], Path]:
  """The functions by name and the path, from either form of the arguments of `export`."""
  if not isinstance(model, dict):
    if path is None:
      raise TypeError("export(model, args, path): no path is given")
    return {function: Function(model, args, kwargs, dynamic_shapes)}, path
  if path is not None or kwargs is not None or dynamic_shapes is not None:
    raise TypeError(
      "export({name: Function(...)}, path): arguments and shapes are the functions' own"
    )
  if not model:
    raise ValueError("export({name: Function(...)}, path): there are no functions")
  functions = {}
  for name, one in model.items():
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.:]*", name):
      raise ValueError(f"{name!r} is no name of a function: give letters, digits and `_`")
    functions[name] = one if isinstance(one, Function) else Function(*one)
  return functions, args


def _program(
  exported: Mapping[str, ExportedProgram],
  targets: Sequence[Device],
  metadata: Mapping[str, str],
  stages: Progress,
) -> tuple[hir.Program, dict[str, torch.Tensor], dict[str, bytes]]:
  """The program of all functions and targets, the tensors of its weights and the files of its
  images."""
  written = constants.small(exported.values())
  names = hir.Names()
  for target in targets:
    names.take(target.row)
  program = hir.Program(
    f"husk {VERSION}, torch {torch_compat.torch_version()}", user=dict(metadata)
  )
  stored = constants.Constants(names)
  prepared = functools.cache(capture.prepared)  # once for all host targets
  # The signatures are those of the decomposed programs: torch tells other ranks of the states of an
  # LSTM before the LSTM is decomposed. Attention has no effect on a signature. Its decomposition
  # takes a tenth of the time of an export, and targets that have attention as one step need none.
  # Recurrent networks have none for a number of steps that varies where a device has their layers.
  attention_stays = all(target.attention == "flash" for target in targets)
  recurrent_networks = [target.recurrent_networks for target in targets]
  with failures.explained():
    described = {
      name: capture.prepared(one, keep_attention=True) if attention_stays else prepared(one)
      for name, one in (
        (name, recurrent.rewrite(one, recurrent_networks)) for name, one in exported.items()
      )
    }
  signatures = signature.of_functions(described, names, stored)
  program.tree = signature.tree(signatures)
  program.functions = [hir.Function(name, [], []) for name in exported]
  files: dict[str, bytes] = {}
  seconds = {}
  for target in targets:
    begin = time.perf_counter()
    for function in program.functions:
      original, signed = exported[function.name], signatures[function.name]
      with (
        within(function.name, exported),
        stages.stage(target.row, function.name),
        failures.explained(target.spelling),
      ):
        function.variants.append(
          target.variant(
            original, prepared, signed, stored.of(described[function.name]), signed.names.child()
          )
        )
    seconds[target.row] = time.perf_counter() - begin
  for target in targets:  # which may compile their images together
    begin = time.perf_counter()
    with stages.stage(target.row, "images"):
      rows, images = target.images()
    seconds[target.row] += time.perf_counter() - begin
    program.rows += rows
    files.update(images)
    program.targets.append(target.line)
    program.notes += target.notes
    for key, value in target.metadata().items():
      program.user.setdefault(key, value)
    logging.getLogger("husk").info(
      "%s: compiled in %.1f s%s", target.row, seconds[target.row], target.tuning_text()
    )
  for function in program.functions:
    function.inputs = [value.line() for value in signatures[function.name].inputs]
    function.outputs = [value.line() for value in signatures[function.name].outputs]
  constants.restore(written)
  program.data, tensors = stored.lines()
  program.user.update({**stored.tied(), **program.user})
  hir.fold(program, [target.row for target in targets if target.folds], names)
  return program, tensors, files
