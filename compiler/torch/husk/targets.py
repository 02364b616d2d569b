"""The targets of an export: the host with an instruction set, and GPUs."""

from __future__ import annotations

import collections
import functools
import importlib.util
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from . import hir, libraries
from .attention import host_call, launch, operator
from .cuda import fake_cuda, float64, products, random, records, tuning, user_kernels
from .cuda import operators as cuda_operators
from .cuda.kernels import CudaKernels
from .errors import CompileError, Unsupported
from .host import convolution, image, linear, operators
from .host.kernels import HostKernels
from .inductor import capture, complex_numbers, decompositions, torch_compat
from .inductor.assumed import Assumption
from .inductor.libraries import FIELDS, Libraries
from .inductor.lines import InductorObject
from .lower import host_steps
from .lower.lines import VariantWriter
from .lower.operators import Operators
from .options import Options
from .program import constants
from .program.constants import FunctionConstants
from .program.signature import Signature

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

DEFAULT_OPTIONS = Options()

Result = TypeVar("Result")


class Target(Protocol):
  """Compiles functions for one target. `row` is the name of the target's row in the `.hir`,
  `attention` is the mode of attention, `notes` are remarks for the readers of the `.hir`."""

  row: str
  attention: str
  notes: list[str]
  operators: Operators
  folds: bool  # whether steps that depend on constants alone run once, when the file is opened

  def require(self) -> None:
    """Raises CompileError if this machine lacks a tool that the target needs."""
    ...

  def line(self) -> str:
    """The row of the target."""
    ...

  def variant(
    self,
    exported: ExportedProgram,
    prepared: Callable[[ExportedProgram], ExportedProgram],
    signature: Signature,
    weights: FunctionConstants,
    names: hir.Names,
  ) -> hir.Variant:
    """Compiles one function. `prepared` decomposes operators that have no implementation at run
    time."""
    ...

  def images(self) -> tuple[list[str], dict[str, bytes]]:
    """The `image` and `kernel` rows of all functions, and the files of the images by name."""
    ...

  def metadata(self) -> dict[str, str]:
    """The metadata that the target adds to the artifact."""
    ...

  def tuning_text(self) -> str:
    """How the kernels were tuned, for the log; empty if there is nothing to tune."""
    ...


class HostTarget:
  """A CPU with the instruction set `isa`, which this machine need not have.

  Inductor compiles the graph of a function for each instruction set, because tiling and source text
  of its kernels depend on the width of the vectors. The graph itself does not, so that it is traced
  once for all hosts of `together`. All of them share the constants, and operators have copies of
  them in the layouts that they read fastest (husk_op.pack)."""

  folds = False

  def __init__(self, isa: str, options: Options) -> None:
    self.isa, self.row = isa, f"host_{isa}"
    self.operators = Operators("hosts", operators.names(), options.ops)
    self.attention = options.attention
    self.notes: list[str] = []
    self.kernels = HostKernels(isa, prefix=f"{isa}_", linkable=options.linkable)
    self.together = [self]  # the hosts of an export, which differ in the instruction set
    self._variants: dict[int, hir.Variant] = {}  # compiled, but not asked for; by id of a signature

  def require(self) -> None:
    image.require(image.ISAS[self.isa], self.kernels.linkable)

  def line(self) -> str:
    return f'target {self.row} host "{self.isa}"'

  def variant(
    self,
    exported: ExportedProgram,
    prepared: Callable[[ExportedProgram], ExportedProgram],
    signature: Signature,
    weights: FunctionConstants,
    names: hir.Names,
  ) -> hir.Variant:
    if kernels := user_kernels.names(exported):
      raise Unsupported(
        f"{', '.join(kernels)}: Triton kernels of the model's own run on CUDA targets only"
      )
    if (variant := self._variants.pop(id(signature), None)) is not None:
      return variant
    together = self.together if capture.is_flat(exported) else [self]
    flash = self.attention == "flash"

    def note(text: str) -> None:
      for host in together:
        host.notes.append(f"{host.row}: {text}")

    original = exported
    exported, prepared = _with_attention(exported, prepared, flash, note, operator.HOST)
    exported = linear.rewrite(exported, in_place=exported is not original)
    # Other targets use the program that `prepared` returns for the original, too.
    is_own = exported is not original
    program = (capture.prepared if is_own else prepared)(exported)
    program = convolution.rewrite(program, in_place=is_own)
    lowerings = {
      **linear.lowerings(),
      **convolution.lowerings(),
      **(operator.lowerings() if flash else {}),
    }
    with torch_compat.channels_last(*convolution.lowerings()), decompositions.hosts():
      variants = capture.capture_each(
        program,
        "cpu",
        [
          host._way(signature, weights, names if host is self else signature.names.child())
          for host in together
        ],
        lowerings=lowerings,
        sdpa=functools.partial(operator.replacement, operator.HOST) if flash else None,
      )
    for host, variant in zip(together, variants, strict=True):
      host._variants[id(signature)] = variant
    return self._variants.pop(id(signature))

  def _way(
    self, signature: Signature, weights: FunctionConstants, names: hir.Names
  ) -> capture.Way[hir.Variant]:
    """How Inductor compiles the graph of a function for this instruction set."""
    nodes = {**linear.NODES, **host_call.NODES}
    writer = VariantWriter(
      self.row,
      signature,
      weights,
      self.kernels,
      names,
      self.operators,
      nodes=nodes,
      note=self._note,
    )
    return capture.Way(self.kernels.options(), writer.write, self.kernels.compiling)

  def _note(self, text: str) -> None:
    self.notes.append(f"{self.row}: {text}")
    logging.getLogger("husk").warning(self.notes[-1])

  def images(self) -> tuple[list[str], dict[str, bytes]]:
    self.kernels.finish()
    return self.kernels.rows(self.row), self.kernels.files()

  def metadata(self) -> dict[str, str]:
    return {}

  def tuning_text(self) -> str:
    return ""


class CudaTarget:
  """A GPU, which this machine need not have.

  name: the name or the path of a description, as "h200", or "h200:fused" for other kernels of
    products (see cuda/gemm_configs.py).
  texts: the list to which the texts of asserts in kernels are appended.
  """

  folds = True

  def __init__(
    self, name: str, options: Options = DEFAULT_OPTIONS, texts: list[str] | None = None
  ) -> None:
    self.libraries = Libraries(*map(options.library, FIELDS))
    description, _, gemm_set = name.partition(":")
    if self.libraries.gemm == "cublaslt" and gemm_set:
      raise ValueError(
        f"cuda:{name} with gemm=cublaslt: matrix products are left to cuBLASLt, "
        f"give cuda:{description}"
      )
    self.attention = options.attention
    self.notes: list[str] = []
    self.description = fake_cuda.Target.load(description)
    self.gemm_set = gemm_set or "templates"
    self.row = f"cuda_{self.description.key}"
    self.operators = Operators(
      "CUDA targets",
      cuda_operators.of(self.libraries),
      options.ops,
      operators.names(),
      options.host_ops == "allow",
      cuda_operators.OF_REALS,
    )
    self.host_calls: collections.Counter[str] = collections.Counter()
    self.tuning = tuning.Tuning(
      tuning.resolve_mode(options.tune, self.description),
      records.of_target(self.description, options.records),
    )
    self.kernels = CudaKernels(
      self.description,
      prefix=f"{self.description.key}_",
      tuned=self.tuning,
      assert_mode=options.asserts,
      texts=texts,
      note=self._note,
      libraries=libraries.of(self.libraries, self.description.major),
    )

  def require(self) -> None:
    if importlib.util.find_spec("triton") is None:
      raise CompileError(
        f"{self.row} needs Triton, which PyTorch's packages for Linux contain: pip install triton"
      )

  def line(self) -> str:
    return f'target {self.row} cuda "{self.description.arch}"'

  def variant(
    self,
    exported: ExportedProgram,
    prepared: Callable[[ExportedProgram], ExportedProgram],
    signature: Signature,
    weights: FunctionConstants,
    names: hir.Names,
  ) -> hir.Variant:
    nodes = launch.NODES if self.attention == "flash" else None
    writer = VariantWriter(
      self.row,
      signature,
      weights,
      self.kernels,
      names,
      self.operators,
      nodes=nodes,
      note=self._note,
    )

    def write(wrapper: InductorObject, found: list[Assumption]) -> hir.Variant:
      variant = writer.write(wrapper, found)
      self.kernels.finish()
      self._announce_host_steps(variant)
      return variant

    return self.captured(exported, prepared, weights, write)

  def captured(
    self,
    exported: ExportedProgram,
    prepared: Callable[[ExportedProgram], ExportedProgram],
    weights: FunctionConstants,
    write: Callable[[InductorObject, list[Assumption]], Result],
  ) -> Result:
    """What `write` returns for the lines of Inductor's wrapper and the assumptions of a
    function."""
    flash = self.attention == "flash"
    exported, prepared = _with_attention(exported, prepared, flash, self._note, operator.CUDA)
    with (
      fake_cuda.cuda(self.description, self.gemm_set, self.tuning, self.operators.check),
      decompositions.kernels(self.libraries),
      libraries.called(self.libraries),
      float64.exact_sizes(),
    ):
      program = prepared(exported)
      is_complex = complex_numbers.is_used(program)
      if is_complex:
        program = complex_numbers.functional(program)
      return capture.capture(
        fake_cuda.moved(program),
        "cuda",
        self.kernels.options(),
        write,
        lowerings={
          **random.lowerings(constants.GENERATOR, constants.GENERATOR_BYTES),
          **(
            products.lowerings(self.description, self.tuning, self.folds)
            if self.libraries.conv == "triton"
            else products.lowerings_beside_cudnn()
          ),
          **(operator.lowerings() if flash else {}),
        },
        sdpa=functools.partial(operator.replacement, operator.CUDA) if flash else None,
        rewrite=functools.partial(_without_complex, weights, self.libraries.fft == "cufft")
        if is_complex
        else None,
      )

  def _announce_host_steps(self, variant: hir.Variant) -> None:
    """Notes the operators of a function that run on the CPU."""
    places: dict[str, str] = {}
    for step in host_steps.of(variant.statements):
      places.setdefault(step.name, step.origin)
      self.host_calls[step.name] += 1
    for name, place in places.items():
      self._note(f"{name} runs on the CPU, between copies" + (f" (near {place})" if place else ""))

  def _note(self, text: str) -> None:
    self.notes.append(f"{self.row}: {text}")
    logging.getLogger("husk").warning(self.notes[-1])

  def images(self) -> tuple[list[str], dict[str, bytes]]:
    return self.kernels.rows(self.row), self.kernels.files()

  def metadata(self) -> dict[str, str]:
    texts = {f"husk.tuned.{self.row}": self.tuning.text()}
    if self.host_calls:
      calls = [f"{count} {name}" for name, count in self.host_calls.items()]
      texts[f"husk.host_ops.{self.row}"] = ", ".join(calls)
    return texts

  def tuning_text(self) -> str:
    measured = ""
    if self.tuning.measures:
      measured = (
        f": {self.tuning.kernels} kernels in {self.tuning.tried} configurations, "
        f"{self.tuning.seconds:.1f} s"
      )
    picked = "".join(f": {text}" for text in self.tuning.picked_text())
    return f" (tune={self.tuning.mode}{measured}{picked})"


def _without_complex(
  weights: FunctionConstants, library: bool, module: torch.fx.GraphModule
) -> None:
  """Makes the complex values of a graph real ones. `weights` gets the constants of that. `library`:
  whether Fourier transforms are calls of cuFFT."""
  weights.add(complex_numbers.rewrite(module, library))


# Decomposes the operators of a program that have no implementation at run time.
Prepare = Callable[["ExportedProgram"], "ExportedProgram"]


def _with_attention(
  exported: ExportedProgram,
  prepared: Prepare,
  flash: bool,
  note: Callable[[str], object],
  support: operator.Support,
) -> tuple[ExportedProgram, Prepare]:
  """The program with attention as Husk's operator if `flash` is set, and what prepares it."""
  rewritten = operator.rewrite(exported, note, support) if flash else exported
  return (exported, prepared) if rewritten is exported else (rewritten, capture.prepared)


def resolve_targets(options: Options, texts: list[str]) -> list[Target]:
  """The targets of an export, each once; "host" stands for every ISA of this machine. `texts` gets
  the texts of asserts in kernels."""
  targets: dict[str, Target] = {}
  for name in options.targets:
    port, _, detail = name.partition(":")
    all_isas = port == "host" and not detail
    for each in image.isas_of_this_machine() if all_isas else [detail]:
      targets.setdefault(f"{port}:{each}", _target(name, port, each, options, texts))
  hosts = [target for target in targets.values() if isinstance(target, HostTarget)]
  for host in hosts:
    host.together = hosts
  return list(targets.values())


def _target(name: str, port: str, detail: str, options: Options, texts: list[str]) -> Target:
  if port == "host" and detail in image.ISAS:
    return HostTarget(detail, options)
  if port == "cuda" and detail:
    return CudaTarget(detail, options, texts)
  known = ", ".join(f"host:{isa}" for isa in image.ISAS)
  raise ValueError(f"no target {name!r}: give host, {known} or cuda:NAME")
