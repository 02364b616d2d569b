"""What is common to the classes of devices: each compiles functions of exports for a target, and
graphs of torch.compile."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from .. import hir
from ..attention import operator as attention
from ..inductor import capture
from ..lower.lines import NodeWriter, VariantWriter
from ..lower.operators import Operators
from ..options import Options
from ..program.constants import FunctionConstants
from ..program.signature import Signature
from ..recurrent import operator as recurrent
from .called import Called

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

# Decomposes the operators of a program that have no implementation at run time.
Prepare = Callable[["ExportedProgram"], "ExportedProgram"]

# Inductor's lowerings by operator.
Lowerings = dict[Any, Callable[..., Any]]


class Kernels(hir.Backend, Protocol):
  """The kernels of a target."""

  def options(self) -> dict[str, Any]:
    """Inductor's options for the target."""
    ...

  def finish(self) -> None:
    """Ends the definition of kernels, now that all calls are known."""
    ...

  def rows(self, target: str) -> list[str]:
    """The `image` and `kernel` rows."""
    ...

  def files(self) -> dict[str, bytes]:
    """The images by the names of their files."""
    ...


class GraphKernels(Kernels, Protocol):
  """The kernels of a graph of torch.compile. `called` are the operators that torch provides."""

  called: Called
  # The writers of the nodes of Husk's own operators, by the name of the node's class.
  nodes: Mapping[str, NodeWriter]


class Device:
  """A device that programs are compiled for. There is one class for each port, which is a row of
  the table DEVICES.

  row, arch: the name and the architecture of the target in the `.hir`.
  operators: those that a program may call on the device.
  kernels: compiles the kernels of all functions of an export.
  notes: remarks for the readers of the `.hir`.
  """

  # The name of the port, in the names of targets ("cuda:h200") and in their rows.
  port: ClassVar[str]
  # The type of PyTorch's devices for which Inductor generates the kernels.
  inductor_type: ClassVar[str]
  # The type of PyTorch's devices whose graphs torch.compile can give to Husk; empty if there are
  # none. It is the same as `inductor_type`.
  torch_type: ClassVar[str] = ""
  # How messages call a device of that type.
  title: ClassVar[str] = ""
  # The modes of a session for such graphs.
  modes: ClassVar[tuple[str, ...]] = ("auto", "list")

  folds: bool = False  # whether steps that need constants alone run once, when a file is opened
  # The recurrent networks that the device computes as layers.
  recurrent_networks: ClassVar[recurrent.Networks | None] = None
  operators: Operators
  kernels: Kernels

  def __init__(self, row: str, arch: str, options: Options) -> None:
    self.row, self.arch, self.attention = row, arch, options.attention
    self.notes: list[str] = []

  @property
  def spelling(self) -> str:
    """The target as the options of an export spell it, such as "host:avx2"."""
    return self.row.replace("_", ":", 1)

  @property
  def line(self) -> str:
    """The row of the target."""
    return f'target {self.row} {self.port} "{self.arch}"'

  def note(self, text: str) -> None:
    """Adds a remark, and warns of it."""
    self.notes.append(f"{self.row}: {text}")
    logging.getLogger("husk").warning(self.notes[-1])

  # Exports

  def report_to(self, report: Callable[[str], object]) -> None:
    """Tells the device what gets a text that says how far a long compilation is."""

  @classmethod
  def spellings(cls) -> list[str]:
    """How a user may name a target of this port, for the text of an error."""
    raise NotImplementedError

  @classmethod
  def details(cls, detail: str) -> Sequence[str]:
    """The targets that "PORT:DETAIL" stands for, each as a detail; none if there is no such
    target."""
    raise NotImplementedError

  @classmethod
  def of_target(cls, detail: str, options: Options, texts: list[str]) -> Device:
    """The device of the target "PORT:DETAIL" of an export. `texts` gets the texts of asserts in
    kernels."""
    raise NotImplementedError

  def share(self, together: Sequence[Device]) -> None:
    """Tells the device of all devices of its class in the same export, itself among them. They may
    share what does not differ."""

  def require(self) -> None:
    """Raises CompileError if this machine lacks a tool that the target needs."""

  def variant(
    self,
    exported: ExportedProgram,
    prepared: Prepare,
    signature: Signature,
    weights: FunctionConstants,
    names: hir.Names,
  ) -> hir.Variant:
    """Compiles one function. `prepared` decomposes operators that have no implementation at run
    time."""
    raise NotImplementedError

  def writer(
    self,
    signature: Signature,
    weights: FunctionConstants,
    names: hir.Names,
    nodes: Mapping[str, NodeWriter] | None,
  ) -> VariantWriter:
    """What writes the variant of a function for the device. `nodes` are the writers of the nodes of
    Husk's own operators."""
    return VariantWriter(
      self.row,
      signature,
      weights,
      self.kernels,
      names,
      self.operators,
      nodes=nodes,
      note=self.note,
    )

  def images(self) -> tuple[list[str], dict[str, bytes]]:
    """The `image` and `kernel` rows of all functions, and the files of the images by name."""
    return self.kernels.rows(self.row), self.kernels.files()

  def metadata(self) -> dict[str, str]:
    """The metadata that the target adds to the artifact."""
    return {}

  def tuning_text(self) -> str:
    """How the kernels were tuned, for the log; empty if there is nothing to tune."""
    return ""

  # Graphs of torch.compile, of a class with a `torch_type`

  name: str  # of the device, as torch names it ("cuda:0")

  @classmethod
  def of_graph(cls, name: str) -> Device:
    """The device that torch names `name`."""
    raise NotImplementedError

  @classmethod
  def graph_options(cls) -> dict[str, Any]:
    """Inductor's options for graphs."""
    return {}

  @classmethod
  def graph_decompositions(cls, libraries: bool | None) -> contextlib.AbstractContextManager[None]:
    """A context in which operators of graphs are decomposed. `libraries`: as for `compiling`, None
    if a graph decides that later."""
    return contextlib.nullcontext()

  @classmethod
  def operators_in_files(cls) -> frozenset[str]:
    """The operators of torch that a file may call by the same names."""
    return frozenset()

  def prepare(self, graph: torch.fx.GraphModule, libraries: bool) -> Lowerings:
    """Puts operators of Husk into a graph; returns Inductor's lowerings of them. `libraries`: as
    for `compiling`."""
    return {}

  def can_do_without_libraries(self, graph: torch.fx.GraphModule) -> bool:
    """Whether every operator of a graph has a kernel that Inductor or Husk makes."""
    return False

  def compiling(
    self, graph: torch.fx.GraphModule, libraries: bool
  ) -> contextlib.AbstractContextManager[GraphKernels]:
    """A context in which Inductor compiles a graph for the device; its value are the kernels of the
    graph. `libraries`: whether libraries compute products of matrices, convolutions and
    attention."""
    raise NotImplementedError


def with_attention(
  exported: ExportedProgram,
  prepared: Prepare,
  flash: bool,
  note: Callable[[str], object],
  support: attention.Support,
) -> tuple[ExportedProgram, Prepare]:
  """The program with attention as Husk's operator if `flash` is set, and what prepares it."""
  rewritten = attention.rewrite(exported, note, support) if flash else exported
  return (exported, prepared) if rewritten is exported else (rewritten, capture.prepared)
