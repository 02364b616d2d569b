"""GPUs of NVIDIA."""

from __future__ import annotations

import collections
import contextlib
import functools
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from .. import hir, libraries, quantized
from ..attention import launch, step, step_launch
from ..attention import operator as attention
from ..cuda import (
  eight_bits,
  fake_cuda,
  few_rows,
  float64,
  gemm_configs,
  here,
  products,
  random,
  records,
  settings,
  target,
  tuning,
)
from ..cuda import operators as cuda_operators
from ..cuda import quantized as quantized_kernels
from ..cuda.kernels import CudaKernels
from ..errors import CompileError
from ..experts import choice
from ..experts import node as expert_nodes
from ..experts import operator as experts
from ..host import operators as host_operators
from ..inductor import capture, complex_numbers, decompositions, torch_compat
from ..inductor.assumed import Assumption
from ..inductor.libraries import FIELDS, Libraries
from ..inductor.lines import InductorObject
from ..libraries import cublaslt
from ..lower import host_steps
from ..lower.lines import NodeWriter
from ..lower.operators import Operators
from ..options import Options
from ..program import constants
from ..program.constants import FunctionConstants
from ..program.signature import Signature
from ..quantized import int_layers, spellings
from ..recurrent import node as recurrent
from ..recurrent import operator as recurrent_operator
from ..rows import node as rows
from .called import Called
from .device import Device, GraphKernels, Lowerings, Prepare, with_attention

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

Result = TypeVar("Result")


class Cuda(Device):
  """A GPU, which this machine need not have.

  description: its properties.
  tuned: how the configurations of its kernels are chosen.
  gemm_set: the kernels of products (cuda/gemm_configs.py).
  texts: the list to which the texts of asserts in kernels are appended.
  name: how torch names the GPU, if it is in this machine.
  """

  port = "cuda"
  inductor_type = torch_type = "cuda"
  title = "one GPU of CUDA"
  modes = ("auto", "list", "graph")
  folds = True
  recurrent_networks = recurrent_operator.CUDA

  def __init__(
    self,
    description: target.Target,
    tuned: tuning.Tuning,
    options: Options,
    gemm_set: str = "templates",
    texts: list[str] | None = None,
    name: str = "cuda:0",
  ) -> None:
    super().__init__(f"{self.port}_{description.key}", description.arch, options)
    self.description, self.tuning, self.gemm_set, self.name = description, tuned, gemm_set, name
    self.libraries = Libraries(*map(options.library, FIELDS))
    self.operators = Operators(
      "CUDA targets",
      cuda_operators.of(self.libraries),
      options.ops,
      host_operators.names(),
      options.host_ops == "allow",
      cuda_operators.OF_REALS,
    )
    self.has_traps = options.asserts == "trap"
    self.host_calls: collections.Counter[str] = collections.Counter()
    self.kernels = CudaKernels(
      description,
      prefix=f"{description.key}_",
      tuned=tuned,
      assert_mode=options.asserts,
      texts=texts,
      note=self.note,
      libraries=libraries.of(self.libraries, description.major),
    )

  # Exports

  def report_to(self, report: Callable[[str], object]) -> None:
    self.tuning.report = report

  @classmethod
  def spellings(cls) -> list[str]:
    return [f"{cls.port}:NAME"]

  @classmethod
  def details(cls, detail: str) -> Sequence[str]:
    return [detail] if detail else []

  @classmethod
  def of_target(cls, detail: str, options: Options, texts: list[str]) -> Cuda:
    """`detail` is the name or the path of a description, as "h200", or "h200:fused" for other
    kernels of products."""
    name, _, gemm_set = detail.partition(":")
    if options.library("gemm") == "cublaslt" and gemm_set:
      raise ValueError(
        f"cuda:{detail} with gemm=cublaslt: matrix products are left to cuBLASLt, give cuda:{name}"
      )
    if gemm_set and gemm_set not in gemm_configs.SETS:
      sets = " or ".join(map(repr, gemm_configs.SETS))
      raise ValueError(
        f"no target 'cuda:{detail}': give {sets} behind cuda:{name}:, or cuda:{name} alone"
      )
    description = target.Target.load(name)
    tuned = tuning.Tuning(
      tuning.resolve_mode(options.tune, description),
      records.of_target(description, options.records),
    )
    return cls(description, tuned, options, gemm_set or "templates", texts)

  def require(self) -> None:
    if importlib.util.find_spec("triton") is None:
      raise CompileError(
        f"{self.spelling} needs Triton, which PyTorch's packages for Linux contain: run `pip "
        "install triton`"
      )

  def variant(
    self,
    exported: ExportedProgram,
    prepared: Prepare,
    signature: Signature,
    weights: FunctionConstants,
    names: hir.Names,
  ) -> hir.Variant:
    nodes = {**rows.NODES, **expert_nodes.NODES, **choice.NODES, **recurrent.NODES}
    if self.attention == "flash":
      nodes |= {**launch.NODES, **step_launch.NODES}
    writer = self.writer(signature, weights, names, nodes)

    def write(wrapper: InductorObject, found: list[Assumption]) -> hir.Variant:
      variant = writer.write(wrapper, found)
      self._announce_host_steps(variant)
      return variant

    return self.captured(exported, prepared, weights, write)

  def captured(
    self,
    exported: ExportedProgram,
    prepared: Prepare,
    weights: FunctionConstants,
    write: Callable[[InductorObject, list[Assumption]], Result],
  ) -> Result:
    """What `write` returns for the lines of Inductor's wrapper and the assumptions of a
    function."""
    flash = self.attention == "flash"
    # Each returns a program that it does not change itself.
    before = exported
    exported = experts.rewrite(exported, self.description)
    exported = choice.rewrite(exported)
    exported = recurrent_operator.rewrite(exported, [self.recurrent_networks])
    exported = int_layers.rewrite(exported)
    if exported is not before:
      prepared = capture.prepared
    exported, prepared = with_attention(exported, prepared, flash, self.note, attention.CUDA)
    with_rows = few_rows.rewrite(exported, self.description)
    if with_rows is not exported:
      exported, prepared = with_rows, capture.prepared
    if flash and not self.has_traps:  # kernels of Husk's own can only tell a status
      exported = step.rewrite(exported)
      exported = attention.in_pages(exported, attention.CUDA)
      exported = attention.after_keys(exported)
    with (
      fake_cuda.cuda(self.description, self.gemm_set, self.tuning, self.operators.check),
      decompositions.kernels(self.inductor_type, self.libraries),
      libraries.called(self.libraries),
      float64.exact_sizes(),
    ):
      program = quantized.as_arithmetic(
        prepared(exported), functools.partial(quantized_kernels.supports, self.description)
      )
      is_complex = complex_numbers.is_used(program)
      if is_complex:
        program = complex_numbers.functional(program)
      return capture.capture(
        fake_cuda.moved(program),
        self.inductor_type,
        self.kernels.options(),
        write,
        lowerings={
          **quantized_kernels.lowerings(self.description),
          **eight_bits.lowerings(self.description),
          **spellings.lowerings(),
          **rows.lowerings(self.description),
          **recurrent.lowerings(),
          **expert_nodes.lowerings(),
          **choice.lowerings(),
          **random.lowerings(constants.GENERATOR, constants.GENERATOR_BYTES),
          **(
            products.lowerings(self.description, self.tuning, self.folds)
            if self.libraries.conv == "triton"
            else products.lowerings_beside_cudnn()
          ),
          **(attention.lowerings() if flash else {}),
          **(step.lowerings() if flash else {}),
        },
        sdpa=functools.partial(attention.replacement, attention.CUDA) if flash else None,
        rewrite=functools.partial(_without_complex, weights, self.libraries.fft == "cufft")
        if is_complex
        else None,
      )

  def images(self) -> tuple[list[str], dict[str, bytes]]:
    with fake_cuda.cuda(self.description, self.gemm_set, self.tuning, self.operators.check):
      self.kernels.finish()
    return super().images()

  def _announce_host_steps(self, variant: hir.Variant) -> None:
    """Notes the operators of a function that run on the CPU."""
    places: dict[str, str] = {}
    for call in host_steps.of(variant.statements):
      places.setdefault(call.name, call.origin)
      self.host_calls[call.name] += 1
    for name, place in places.items():
      self.note(f"{name} runs on the CPU, between copies" + (f" (near {place})" if place else ""))

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

  # Graphs of torch.compile

  @classmethod
  def of_graph(cls, name: str) -> Cuda:
    """A GPU of this machine. Inductor's options at this moment decide how kernels are chosen."""
    from torch._inductor import config

    name = name if ":" in name else f"{name}:0"
    return cls(here.target(name), here.tuning(config.get_config_copy()), Options(), name=name)

  @classmethod
  def graph_options(cls) -> dict[str, Any]:
    return torch_compat.known_options(here.options())

  @classmethod
  def graph_decompositions(cls, libraries: bool | None) -> contextlib.AbstractContextManager[None]:
    if libraries is False:
      return decompositions.kernels(cls.inductor_type)
    return contextlib.nullcontext()

  def prepare(self, graph: torch.fx.GraphModule, libraries: bool) -> Lowerings:
    if libraries:
      return {}
    attention.rewrite_decomposed(graph.graph)
    graph.recompile()
    return {
      **attention.lowerings(),
      **products.lowerings(self.description, self.tuning, folds=False),
    }

  def can_do_without_libraries(self, graph: torch.fx.GraphModule) -> bool:
    import torch

    # Some calls of attention have no kernel, so the copy of the graph tells.
    copied = torch.fx.Graph()
    copied.output(copied.graph_copy(graph.graph, {}))
    attention.rewrite_decomposed(copied)
    return not torch_compat.operators_without_kernel(copied)

  @contextlib.contextmanager
  def compiling(self, graph: torch.fx.GraphModule, libraries: bool) -> Iterator[GraphKernels]:
    with contextlib.ExitStack() as stack:
      stack.enter_context(settings.without_line_tables())
      if not libraries:
        # PyTorch's convolutions are called if one has no template.
        all_templates = all(map(torch_compat.has_template, torch_compat.convolutions(graph.graph)))
        stack.enter_context(here.products_as_kernels(self.description, self.tuning, all_templates))
      # Torch computes the products that cuBLASLt does not support.
      workspace = cublaslt.workspace(self.description.major)
      yield _GraphKernels(
        self.description,
        tuned=self.tuning,
        assert_mode="trap",
        libraries=[cublaslt.Products(workspace, has_others=True)],
      )


def _without_complex(
  weights: FunctionConstants, library: bool, module: torch.fx.GraphModule
) -> None:
  """Makes the complex values of a graph real ones. `weights` gets the constants of that. `library`:
  whether Fourier transforms are calls of cuFFT."""
  weights.add(complex_numbers.rewrite(module, library))


class _GraphKernels(CudaKernels):
  """The kernels of a graph on a GPU. Asserts are traps, as in Inductor's own programs: nobody waits
  for a run to ask for its status."""

  nodes: Mapping[str, NodeWriter] = launch.NODES

  def __init__(self, *args: Any, **kwargs: Any) -> None:
    super().__init__(*args, **kwargs)
    self.called = Called()

  def call_operator(self, call: hir.OperatorCall) -> list[hir.Statement]:
    self.called.see(call, call.name == "husk::matmul")
    return super().call_operator(call)
