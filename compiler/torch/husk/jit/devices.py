"""The device of a graph: its target, and the kernels that Inductor generates for it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from .. import hir
from ..attention import launch
from ..attention import operator as attention
from ..cuda import here, products, settings
from ..cuda.kernels import CudaKernels
from ..cuda.tuning import Tuning
from ..errors import Unsupported
from ..host import image, operators
from ..host.kernels import HostKernels
from ..inductor import torch_compat
from ..libraries import cublaslt
from ..lower.lines import NodeWriter
from .operators import Called

if TYPE_CHECKING:
  import torch


# Inductor's lowerings by operator.
Lowerings = dict[Any, Callable[..., Any]]


class Kernels(hir.Backend, Protocol):
  """The kernels of a graph. `called` are the operators that torch provides."""

  called: Called
  # The writers of the nodes of Husk's own operators, by the name of the node's class.
  nodes: Mapping[str, NodeWriter]

  def finish(self) -> None:
    """Ends the definition of kernels, now that all calls are known."""
    ...

  def rows(self, target: str) -> list[str]:
    """The `image` and `kernel` rows."""
    ...

  def files(self) -> dict[str, bytes]:
    """The images by the names of their files."""
    ...


class Device(Protocol):
  """The device of a graph.

  name: as torch names it ("cuda:0").
  row, line: the name and the row of the target in the `.hir`.
  modes: the modes of a session that the device has.
  """

  name: str
  row: str
  line: str
  modes: tuple[str, ...]

  def prepare(self, graph: torch.fx.GraphModule, libraries: bool) -> Lowerings:
    """Puts operators of Husk into a graph; returns Inductor's lowerings of them. `libraries`: as
    for `compiling`."""
    ...

  def can_do_without_libraries(self, graph: torch.fx.GraphModule) -> bool:
    """Whether every operator of a graph has a kernel that Inductor or Husk makes."""
    ...

  def compiling(
    self, graph: torch.fx.GraphModule, libraries: bool
  ) -> contextlib.AbstractContextManager[Kernels]:
    """A context in which Inductor compiles a graph for the device; its value are the kernels of the
    graph. `libraries`: whether libraries compute products of matrices, convolutions and
    attention."""
    ...


def of_graph(graph: torch.fx.GraphModule) -> Device:
  """The device of a graph. Tensors of the CPU without dimensions may be inputs of a graph on a
  GPU."""
  names = torch_compat.devices(graph)
  gpus = sorted(name for name in names if name.startswith("cuda"))
  others = sorted(names - {"cpu", *gpus})
  if others or len(gpus) > 1:
    raise Unsupported(
      f'torch.compile(backend="husk") compiles a graph for the CPU or for one GPU of CUDA, this '
      f"graph uses {', '.join(others or gpus)}"
    )
  return Cuda(gpus[0]) if gpus else Host()


def options() -> dict[str, Any]:
  """Inductor's options, for all devices."""
  isa = best_isa()
  host = HostKernels(isa).options() if isa else {}
  return {**host, **torch_compat.known_options(here.options())}


# The CPU


@functools.cache
def best_isa() -> str:
  """The best instruction set of this machine's CPU for which there are kernels; empty if there is
  none."""
  return next(iter(image.isas()), "")


class Host:
  """This machine's CPU."""

  name, row = "cpu", "host"
  modes: tuple[str, ...] = ("auto", "list")

  def __init__(self) -> None:
    self.isa = best_isa()
    if not self.isa:
      known = ", ".join(image.ISAS)
      raise Unsupported(f"the CPU has none of the instruction sets {known}")
    self.line = f'target host host "{self.isa}"'

  def prepare(self, graph: torch.fx.GraphModule, libraries: bool) -> Lowerings:
    return {}

  def can_do_without_libraries(self, graph: torch.fx.GraphModule) -> bool:
    return False

  @contextlib.contextmanager
  def compiling(self, graph: torch.fx.GraphModule, libraries: bool) -> Iterator[Kernels]:
    kernels = _HostGraph(self.isa)
    with kernels.compiling():
      yield kernels


# Most operators of libhusk_ops take these. Which others an operator takes is not known here.
_DTYPES = frozenset(("f32", "f64", "f16", "bf16", "i64", "i32", "bool"))


class _HostGraph(HostKernels):
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


# GPUs


class Cuda:
  """A GPU of this machine."""

  modes: tuple[str, ...] = ("auto", "list", "graph")

  def __init__(self, name: str) -> None:
    self.name = name if ":" in name else f"{name}:0"
    self.target = here.target(self.name)
    self.row = f"cuda_{self.target.key}"
    self.line = f'target {self.row} cuda "{self.target.arch}"'

  @functools.cached_property
  def tuning(self) -> Tuning:
    """How kernels are chosen for the graph, by Inductor's options at this moment."""
    from torch._inductor import config

    return here.tuning(config.get_config_copy())

  def prepare(self, graph: torch.fx.GraphModule, libraries: bool) -> Lowerings:
    if libraries:
      return {}
    attention.rewrite_decomposed(graph.graph)
    graph.recompile()
    return {**attention.lowerings(), **products.lowerings(self.target, self.tuning, folds=False)}

  def can_do_without_libraries(self, graph: torch.fx.GraphModule) -> bool:
    import torch

    # Some calls of attention have no kernel, so the copy of the graph tells.
    copied = torch.fx.Graph()
    copied.output(copied.graph_copy(graph.graph, {}))
    attention.rewrite_decomposed(copied)
    return not torch_compat.operators_without_kernel(copied)

  @contextlib.contextmanager
  def compiling(self, graph: torch.fx.GraphModule, libraries: bool) -> Iterator[Kernels]:
    with contextlib.ExitStack() as stack:
      stack.enter_context(settings.without_line_tables())
      if not libraries:
        # PyTorch's convolutions are called if one has no template.
        all_templates = all(map(torch_compat.has_template, torch_compat.convolutions(graph.graph)))
        stack.enter_context(here.products_as_kernels(self.target, self.tuning, all_templates))
      # Torch computes the products that cuBLASLt does not support.
      products = cublaslt.Products(cublaslt.workspace(self.target.major), has_others=True)
      yield _CudaGraph(self.target, tuned=self.tuning, assert_mode="trap", libraries=[products])


class _CudaGraph(CudaKernels):
  """The kernels of a graph on a GPU. Asserts are traps, as in Inductor's own programs: nobody waits
  for a run to ask for its status."""

  nodes: Mapping[str, NodeWriter] = launch.NODES

  def __init__(self, *args: Any, **kwargs: Any) -> None:
    super().__init__(*args, **kwargs)
    self.called = Called()

  def call_operator(self, call: hir.OperatorCall) -> list[hir.Statement]:
    self.called.see(call, call.name == "husk::matmul")
    return super().call_operator(call)
