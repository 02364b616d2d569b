"""`export`: a PyTorch model to an artifact."""

import contextlib
import copy
import dataclasses
import functools
import logging
import pathlib
import re
import shutil
import tempfile
import time
import types

from . import capture, compile, constants, descriptors, hir, host_image, host_kernels, signature, user_kernels, versions
from .errors import Unsupported, within
from .lines import Converter

VERSION = "0.1.0"


@dataclasses.dataclass
class Function:
  """One function of an artifact: a model (an nn.Module, or a torch.export.ExportedProgram) and what it is exported with.

  args, kwargs, dynamic_shapes: as for torch.export.export.
  method: which method of the module; its `forward` by default.
  """

  model: object
  args: tuple = ()
  kwargs: dict | None = None
  dynamic_shapes: object = None
  method: str = "forward"

  def exported(self):
    """The torch.export program."""
    import torch
    if isinstance(self.model, torch.export.ExportedProgram):
      return self.model
    if not isinstance(self.model, torch.nn.Module):
      raise ValueError(f"{type(self.model).__name__} is no model: give an nn.Module or a torch.export.ExportedProgram")
    model = self.model
    if self.method != "forward":
      if not callable(getattr(type(model), self.method, None)):
        raise ValueError(f"{type(model).__name__} has no method {self.method}")
      model = copy.copy(model)     # the same parameters and buffers
      model.forward = types.MethodType(getattr(type(model), self.method), model)
    with torch.no_grad(), user_kernels.traced():
      return torch.export.export(model, tuple(self.args), self.kwargs, dynamic_shapes=self.dynamic_shapes, strict=False)


def export(model, args, path=None, *, kwargs=None, dynamic_shapes=None, targets=("host",), keep=None, function="forward",
           user=None, attention="flash", libraries=False, tune=None, asserts="status"):
  """Exports a model to the artifact `path`.

  export(model, args, path) makes one function of `model`, an nn.Module or a torch.export.ExportedProgram; `function` is
  its name, and args, kwargs and dynamic_shapes are as for torch.export.export.
  export({"prefill": Function(model, args, ...), "decode": Function(...)}, path) makes several. What they share of parameters
  and buffers is stored once; a buffer that one of them writes is state for all of them.
  targets: what to compile for: "host" (all ISAs of this machine's architecture: the loader takes the best one that the CPU
    has), "host:avx2", "host:avx512", "host:aarch64" (elsewhere by the cross compiler), "cuda:NAME" (one of the descriptions
    in targets/, or the path of one), "cuda:NAME:fused" (other kernels for products, see products.py).
  keep: a folder in which the `.hir`, the images and the weights stay.
  user: text by key, the author's own metadata.
  attention: on CUDA targets, "flash" is one kernel where it covers the call, "decompose" products and a softmax. Where "flash"
    does not cover a call, the `.hir` and the logger "husk" say so.
  libraries: on CUDA targets, True leaves matrix products to cuBLASLt, which must then be where the artifact runs. By default all
    is in the artifact.
  tune: on CUDA targets, how a kernel's configuration is chosen. "none" is the first that Inductor has, "heuristic" goes by
    rules from the target's description, "max" measures on the GPU here, which must be the target, and takes minutes. By default
    "max" where it is, else "heuristic"; HUSK_TUNE in the environment is another default. The artifact says which in its
    metadata (`husk.tuned.TARGET`), and the logger "husk" at level INFO how long each target took.
  asserts: on CUDA targets, what an index out of range does: "status" makes the run fail and the session stays usable, "trap" ends
    the process's CUDA context, "off" does not look. Where "status" cannot be had, the `.hir` and the logger say so.
  Raises Unsupported for what an artifact cannot hold, CompileError where g++ or huskc fail. Returns `path`.
  """
  functions, path = _given(model, args, path, kwargs, dynamic_shapes, function)
  path = pathlib.Path(path)
  with contextlib.ExitStack() as stack:
    if keep is None:
      folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="husk-")))
    else:
      folder = pathlib.Path(keep)
    text = write(functions, folder, targets=targets, user=user, attention=attention, libraries=libraries, tune=tune,
                 asserts=asserts)
    made = folder / "model.husk"
    compile.compile(text, made)
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(made, path)
  return path


def write(model, args, folder=None, *, kwargs=None, dynamic_shapes=None, targets=("host",), function="forward", user=None,
          attention="flash", libraries=False, tune=None, asserts="status"):
  """The first half of `export`, which takes the same: writes model.hir, images and weights into `folder`; returns the
  path of the `.hir`."""
  import safetensors.torch
  functions, folder = _given(model, args, folder, kwargs, dynamic_shapes, function)
  folder = pathlib.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  with capture.quiet(), descriptors.traced():
    exported = {}
    for name, one in functions.items():
      with within(name, functions):
        exported[name] = one.exported()
    texts = []
    made = _targets(targets, attention=attention, libraries=libraries, tune=tune, asserts=asserts, texts=texts)
    program, tensors, files = _program(exported, made, user or {})
    program.asserts = texts
  for name, image in files.items():
    (folder / name).write_bytes(image)
  safetensors.torch.save_file(tensors, folder / constants.FILE)
  text = folder / "model.hir"
  text.write_text(program.text(), encoding="utf-8")
  return text


def _given(model, args, path, kwargs, dynamic_shapes, function):
  """(functions by name, path) of the two ways to call `export`."""
  if not isinstance(model, dict):
    if path is None:
      raise TypeError("export(model, args, path): no path is given")
    return {function: Function(model, args, kwargs, dynamic_shapes)}, path
  if path is not None or kwargs is not None or dynamic_shapes is not None:
    raise TypeError("export({name: Function(...)}, path): arguments and shapes are the functions' own")
  if not model:
    raise ValueError("export({name: Function(...)}, path): there are no functions")
  functions = {}
  for name, one in model.items():
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.:]*", name):
      raise ValueError(f"{name!r} is no name of a function: give letters, digits and `_`")
    functions[name] = one if isinstance(one, Function) else Function(*one)
  return functions, args


def _program(exported, targets, user):
  names = hir.Names()
  for target in targets:
    names.take(target.row)
  program = hir.Program(f"husk {VERSION}, torch {versions.torch_version()}", user=dict(user))
  weights = constants.Constants(names)
  prepared = functools.cache(capture.prepared)     # for all hosts
  # What an operator gives that is to be decomposed is not always what torch says of it: the ranks of an LSTM's states differ.
  signed = signature.of_functions({name: prepared(one) for name, one in exported.items()}, names, weights)
  program.tree = signature.tree(signed)
  program.functions = [hir.Function(name, [], []) for name in exported]
  files = {}
  for target in targets:
    begin = time.perf_counter()
    for made in program.functions:
      program_, one = exported[made.name], signed[made.name]
      with within(made.name, exported):
        made.variants.append(target.variant(program_, prepared, one, weights.of(prepared(program_)), one.names.child()))
    rows, images = target.images()
    program.rows += rows
    files.update(images)
    program.targets.append(target.line())
    program.notes += target.notes
    for key, value in target.metadata().items():
      program.user.setdefault(key, value)
    logging.getLogger("husk").info("%s: compiled in %.1f s%s", target.row, time.perf_counter() - begin, target.spent())
  for made in program.functions:
    made.inputs = [value.line() for value in signed[made.name].inputs]
    made.outputs = [value.line() for value in signed[made.name].outputs]
  program.data, tensors = weights.lines()
  return program, tensors, files


class HostTarget:
  """Compiles for this kind of CPU, which need not be here."""

  notes = ()

  def __init__(self, isa):
    self.isa, self.row = isa, f"host_{isa}"
    self.kernels = host_kernels.HostKernels(isa, prefix=f"{isa}_")

  def line(self):
    return f'target {self.row} host "{self.isa}"'

  def variant(self, exported, prepared, signed, weights, names):
    if kernels := user_kernels.names(exported):
      raise Unsupported(f"{', '.join(kernels)}: Triton kernels of the model's own run on CUDA targets only")
    take = Converter(self.row, signed, weights, self.kernels, names).convert
    with self.kernels.compiling():
      return capture.capture(prepared(exported), "cpu", self.kernels.options(), take)

  def images(self):
    self.kernels.finish()
    return self.kernels.rows(self.row), self.kernels.files()

  def metadata(self):
    return {}

  def spent(self):
    return ""


class CudaTarget:
  """Compiles for a GPU that need not be there."""

  def __init__(self, name, attention="flash", libraries=False, tune=None, asserts="status", texts=None):
    from . import offline, triton_kernels, tuning
    from .attention import check_way
    self.attention, self.notes = check_way(attention), []
    name, _, way = name.partition(":")
    self.description, self.way, self.libraries = offline.Target.load(name), way or "templates", libraries
    if libraries and way:
      raise ValueError(f"cuda:{name}:{way} with libraries: products are left to the library, give cuda:{name}")
    self.row = f"cuda_{self.description.key}"
    self.tuning = tuning.Tuning(tuning.resolved(tune, self.description))
    self.kernels = triton_kernels.CudaKernels(self.description, prefix=f"{self.description.key}_", tuned=self.tuning, way=asserts,
                                              texts=texts, note=self._note)

  def line(self):
    return f'target {self.row} cuda "{self.description.arch}"'

  def variant(self, exported, prepared, signed, weights, names):
    from . import attention, libraries, offline
    if self.attention == "flash" and (flash := attention.rewritten(exported, self._note)) is not exported:
      exported, prepared = flash, capture.prepared
    take = Converter(self.row, signed, weights, self.kernels, names).convert
    with offline.cuda(self.description, self.way, self.tuning), libraries.called(self.libraries):
      variant = capture.capture(offline.moved(prepared(exported)), "cuda", self.kernels.options(), take,
                                flash=self.attention == "flash")
      self.kernels.finish()
    return variant

  def _note(self, text):
    self.notes.append(f"{self.row}: {text}")
    logging.getLogger("husk").warning(self.notes[-1])

  def images(self):
    return self.kernels.rows(self.row), self.kernels.files()

  def metadata(self):
    """How its kernels were tuned."""
    return {f"husk.tuned.{self.row}": self.tuning.text()}

  def spent(self):
    """What the log says of that."""
    measured = f": {self.tuning.kernels} kernels in {self.tuning.tried} configurations, {self.tuning.seconds:.1f} s"
    return f" (tune={self.tuning.way}{measured if self.tuning.measures else ''})"


def _targets(names, **options):
  made = {}
  for name in names:
    port, _, what = name.partition(":")
    for each in ([what] if what else host_image.isas_of_this_machine()) if port == "host" else [what]:
      made.setdefault(f"{port}:{each}", _target(name, port, each, **options))
  return list(made.values())


def _target(name, port, what, **options):
  if port == "host" and what in host_image.ISAS:
    return HostTarget(what)
  if port == "cuda" and what:
    return CudaTarget(what, **options)
  known = ", ".join(f"host:{isa}" for isa in host_image.ISAS)
  raise ValueError(f"no target {name!r}: give host, {known} or cuda:NAME")
