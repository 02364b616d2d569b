"""`export`: a PyTorch model to an artifact."""

import contextlib
import pathlib
import shutil
import tempfile

from . import capture, compile, constants, hir, host_kernels, signature, versions
from .errors import Unsupported
from .lines import Converter

VERSION = "0.1.0"


def export(model, args, path, *, kwargs=None, dynamic_shapes=None, targets=("host",), keep=None, function="forward",
           user=None):
  """Exports `model` (an nn.Module, or a torch.export.ExportedProgram) to the artifact `path`.

  args, kwargs, dynamic_shapes: as for torch.export.export.
  targets: what to compile for: "host" (the best ISA of this machine), "host:avx2", "host:avx512", "cuda:NAME" (one of
    the descriptions in targets/, or the path of one), "cuda:NAME:fused" (other kernels for products, see products.py).
  keep: a folder in which the `.hir`, the images and the weights stay.
  user: text by key, the author's own metadata.
  Raises Unsupported for what an artifact cannot hold, CompileError where g++ or huskc fail. Returns `path`.
  """
  path = pathlib.Path(path)
  with contextlib.ExitStack() as stack:
    if keep is None:
      folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="husk-")))
    else:
      folder = pathlib.Path(keep)
    text = write(model, args, folder, kwargs=kwargs, dynamic_shapes=dynamic_shapes, targets=targets, function=function,
                 user=user)
    made = folder / "model.husk"
    compile.compile(text, made)
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(made, path)
  return path


def write(model, args, folder, *, kwargs=None, dynamic_shapes=None, targets=("host",), function="forward", user=None):
  """The first half of `export`: writes model.hir, images and weights into `folder`; returns the path of the `.hir`."""
  import safetensors.torch
  import torch
  folder = pathlib.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  with capture.quiet():
    exported = model
    if not isinstance(model, torch.export.ExportedProgram):
      with torch.no_grad():
        exported = torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False)
    exported = capture.prepared(exported)
    program, tensors, files = _program(exported, [_target(name) for name in targets], function, user or {})
  for name, image in files.items():
    (folder / name).write_bytes(image)
  safetensors.torch.save_file(tensors, folder / constants.FILE)
  text = folder / "model.hir"
  text.write_text(program.text(), encoding="utf-8")
  return text


def _program(exported, targets, function, user):
  names = hir.Names()
  weights = constants.Constants(names)
  program = hir.Program(f"husk {VERSION}, torch {versions.torch_version()}", user=dict(user))
  for target in targets:
    names.take(target.row)
  signed = signature.inputs_and_outputs(exported, names, weights)
  program.tree = signed.tree
  made = hir.Function(function, [], [])
  files = {}
  for target in targets:
    made.variants.append(target.variant(exported, signed, weights, names.child()))
    rows, images = target.images()
    program.rows += rows
    files.update(images)
    program.targets.append(target.line())
  made.inputs = [value.line() for value in signed.inputs]
  made.outputs = [value.line() for value in signed.outputs]
  program.functions.append(made)
  program.data, tensors = weights.lines()
  return program, tensors, files


class HostTarget:
  """Compiles for this kind of CPU."""

  def __init__(self, isa):
    self.isa, self.row = isa, f"host_{isa}"
    self.kernels = host_kernels.HostKernels(isa, prefix=f"{isa}_")

  def line(self):
    return f'target {self.row} host "{self.isa}"'

  def variant(self, exported, signed, weights, names):
    take = Converter(self.row, signed, weights, self.kernels, names).convert
    with self.kernels.compiling():
      return capture.capture(exported, "cpu", self.kernels.options(), take)

  def images(self):
    self.kernels.finish()
    return self.kernels.rows(self.row), self.kernels.files()


class CudaTarget:
  """Compiles for a GPU that need not be there."""

  def __init__(self, name):
    from . import offline, triton_kernels
    name, _, way = name.partition(":")
    self.description, self.way = offline.Target.load(name), way or "templates"
    self.row = f"cuda_{self.description.key}"
    self.kernels = triton_kernels.CudaKernels(self.description, prefix=f"{self.description.key}_")

  def line(self):
    return f'target {self.row} cuda "{self.description.arch}"'

  def variant(self, exported, signed, weights, names):
    from . import offline
    take = Converter(self.row, signed, weights, self.kernels, names).convert
    with offline.cuda(self.description, self.way):
      variant = capture.capture(offline.moved(exported), "cuda", self.kernels.options(), take)
      self.kernels.finish()
    return variant

  def images(self):
    return self.kernels.rows(self.row), self.kernels.files()


def _target(name):
  port, _, what = name.partition(":")
  if port == "host":
    isa = what or next(iter(host_kernels.isas()), None)
    if isa is None:
      raise Unsupported("the target host: this machine has neither AVX2 nor AVX-512")
    return HostTarget(isa)
  if port == "cuda" and what:
    return CudaTarget(what)
  raise ValueError(f"no target {name!r}: give host, host:avx2, host:avx512 or cuda:NAME")
