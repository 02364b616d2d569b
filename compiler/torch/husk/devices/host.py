"""CPUs, by their instruction sets."""

from __future__ import annotations

import concurrent.futures
import contextlib
import contextvars
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import hir
from ..attention import host_call
from ..attention import operator as attention
from ..cuda import user_kernels
from ..errors import Unsupported
from ..host import convolution, convolution_int8, flex, image, linear, operators, quantized
from ..host.kernels import HostKernels
from ..inductor import capture, decompositions, equal_layers, repeated, torch_compat
from ..lower.lines import NodeWriter
from ..lower.operators import Operators
from ..options import Options
from ..program.constants import FunctionConstants
from ..program.signature import Signature
from ..quantized import spellings
from ..recurrent import operator as recurrent
from .called import Called
from .device import Device, GraphKernels, Lowerings, Prepare, with_attention

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram


@functools.cache
def best_isa() -> str:
  """The best instruction set of this machine's CPU for which there are kernels; empty if there is
  none."""
  return next(iter(image.isas()), "")


class Host(Device):
  """A CPU with the instruction set `isa`, which this machine need not have.

  Inductor compiles the graph of a function for each instruction set, because tiling and source text
  of its kernels depend on the width of the vectors. The graph itself does not, so that it is traced
  once for all hosts of `together`. All of them share the constants, and operators have copies of
  them in the layouts that they read fastest (husk_op.pack)."""

  port = "host"
  inductor_type = torch_type = "cpu"
  title = "the CPU"
  name = "cpu"
  recurrent_networks = recurrent.HOSTS
  generator: type[HostKernels] = HostKernels  # makes the kernels of an export

  def __init__(self, isa: str, row: str, options: Options) -> None:
    super().__init__(row, isa, options)
    self.isa = isa
    self.operators = Operators("hosts", operators.names(), options.ops)
    kernels = self.generator(isa, prefix=f"{isa}_", linkable=options.linkable)
    self.kernels, self._compiling, self._linkable = kernels, kernels.compiling, options.linkable
    self._rounds = options.activations == "int8"
    self.together: Sequence[Host] = [self]  # the hosts of an export
    self._variants: dict[int, hir.Variant] = {}  # compiled, but not asked for; by id of a signature
    self._files: concurrent.futures.Future[dict[str, bytes]] | None = None  # those of the images

  # Exports

  @classmethod
  def spellings(cls) -> list[str]:
    return [cls.port, *(f"{cls.port}:{isa}" for isa in image.ISAS)]

  @classmethod
  def details(cls, detail: str) -> Sequence[str]:
    """Without a detail, every ISA of this machine."""
    if not detail:
      return image.isas_of_this_machine()
    return [detail] if detail in image.ISAS else []

  @classmethod
  def of_target(cls, detail: str, options: Options, texts: list[str]) -> Host:
    return cls(detail, f"{cls.port}_{detail}", options)

  def share(self, together: Sequence[Device]) -> None:
    self.together = [device for device in together if isinstance(device, Host)]

  def require(self) -> None:
    image.require(image.ISAS[self.isa], self._linkable)

  def variant(
    self,
    exported: ExportedProgram,
    prepared: Prepare,
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
    exported = recurrent.rewrite(exported, [self.recurrent_networks])
    if exported is not original:
      prepared = capture.prepared
    exported, prepared = with_attention(exported, prepared, flash, note, attention.HOST)
    exported = attention.in_pages(exported, attention.HOST, exported is not original)
    exported = convolution_int8.rewrite(exported, in_place=exported is not original)
    exported = linear.rewrite(exported, in_place=exported is not original)
    exported = quantized.rewrite(exported, exported is not original, self._rounds)
    exported = quantized.rewrite_groups(exported, exported is not original)
    # Other targets use the program that `prepared` returns for the original, too.
    is_own = exported is not original
    program = capture.prepared(exported, in_place=True) if is_own else prepared(exported)
    program = convolution.rewrite(program, in_place=is_own)
    program = flex.rewrite(program, in_place=is_own)
    lowerings = {
      **linear.lowerings(),
      **quantized.lowerings(),
      **convolution.lowerings(),
      **convolution_int8.lowerings(),
      **spellings.lowerings(),
      **(attention.lowerings() if flash else {}),
    }
    images = (*convolution.lowerings(), *convolution_int8.lowerings())
    with torch_compat.channels_last(*images), decompositions.hosts():
      variants = capture.capture_each(
        program,
        self.inductor_type,
        [
          host._way(signature, weights, names if host is self else signature.names.child())
          for host in together
        ],
        lowerings=lowerings,
        sdpa=functools.partial(attention.replacement, attention.HOST) if flash else None,
      )
    for host, variant in zip(together, variants, strict=True):
      host._variants[id(signature)] = variant
    return self._variants.pop(id(signature))

  def _way(
    self, signature: Signature, weights: FunctionConstants, names: hir.Names
  ) -> capture.Way[hir.Variant]:
    """How Inductor compiles the graph of a function for this instruction set."""
    nodes = {**linear.NODES, **quantized.NODES, **host_call.NODES}
    writer = self.writer(signature, weights, names, nodes)
    return capture.Way(self.kernels.options(), writer.write, self._compiling_layers)

  @contextlib.contextmanager
  def _compiling_layers(self) -> Iterator[None]:
    with self._compiling(), repeated.known_values(), equal_layers.once():
      yield

  def images(self) -> tuple[list[str], dict[str, bytes]]:
    """As in the base class. The images of all hosts are compiled at the same time."""
    if self._files is None:
      pool = concurrent.futures.ThreadPoolExecutor(len(self.together))
      for host in self.together:
        host._files = pool.submit(contextvars.copy_context().run, host.kernels.files)
      pool.shutdown(wait=False)
    assert self._files is not None
    return self.kernels.rows(self.row), self._files.result()

  # Graphs of torch.compile

  @classmethod
  def of_graph(cls, name: str) -> Host:
    """This machine's CPU."""
    isa = best_isa()
    if not isa:
      known = ", ".join(image.ISAS)
      raise Unsupported(f"the CPU has none of the instruction sets {known}")
    return cls(isa, cls.port, Options())

  @classmethod
  def graph_options(cls) -> dict[str, Any]:
    isa = best_isa()
    return HostKernels(isa).options() if isa else {}

  @classmethod
  def graph_decompositions(cls, libraries: bool | None) -> contextlib.AbstractContextManager[None]:
    return decompositions.hosts()

  @classmethod
  def operators_in_files(cls) -> frozenset[str]:
    return operators.names()

  def prepare(self, graph: torch.fx.GraphModule, libraries: bool) -> Lowerings:
    from torch._inductor import decomposition

    flex.rewrite_graph(graph.graph, decomposition.decompositions)
    graph.recompile()
    return super().prepare(graph, libraries)

  @contextlib.contextmanager
  def compiling(self, graph: torch.fx.GraphModule, libraries: bool) -> Iterator[GraphKernels]:
    kernels = _GraphKernels(self.isa)
    with kernels.compiling():
      yield kernels


# Most operators of libhusk_ops take these. Which others an operator takes is not known here.
_DTYPES = frozenset(("f32", "f64", "f16", "bf16", "i64", "i32", "bool"))


class _GraphKernels(HostKernels):
  """The kernels of a graph on the CPU."""

  nodes: Mapping[str, NodeWriter] = {}

  def __init__(self, isa: str) -> None:
    super().__init__(isa)
    self.called = Called()

  def call_operator(self, call: hir.OperatorCall) -> list[hir.Statement]:
    values = [*call.arguments, *call.results]
    self.called.see(
      call,
      call.name in operators.names()
      and (
        call.name.endswith(":sizes")
        or all(one.dtype in _DTYPES for one in values if isinstance(one, hir.Tensor))
      ),
    )
    return super().call_operator(call)
