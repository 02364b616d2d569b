"""A call of a kernel of Husk's own for a node of Inductor's, and the memory that it is given."""

from __future__ import annotations

import ast
import dataclasses
import functools
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import sympy

from .. import dtypes, hir
from ..cuda import pdl, source_edit
from ..cuda.kernels import CudaKernels, Grid
from ..inductor import torch_compat
from ..lower import nodes
from ..lower.body import Body
from ..lower.nodes import IrNode

# A size or a stride: a SymPy expression, or an int.
Size = Any


class Call:
  """A call of a kernel, and the definition of the kernel for it. The call has a value for each
  parameter; known numbers become constants of the kernel. `kernel` is the name of a function in
  `file`. If a call `waits_first`, the kernel waits at its head, although its text has a later place
  for that, and starts its successors early (cuda/pdl.py)."""

  def __init__(
    self, body: Body, kernel: str, file: pathlib.Path, waits_first: bool = False
  ) -> None:
    self.body, self.kernel, self.file, self.waits_first = body, kernel, file, waits_first
    self.signature: dict[str, str] = {}
    self.constants: dict[str, Any] = {}
    self.values: dict[str, Any] = {}
    self.aligned: list[str] = []

  def pointer(self, name: str, memory: Memory, kind: str) -> None:
    """Passes a pointer to elements of Triton's type `kind`."""
    self.signature[name], self.values[name] = f"*{kind}", memory
    if memory.aligned:
      self.aligned.append(name)

  def constant(self, **values: Any) -> None:
    for name, value in values.items():
      self.signature[name], self.constants[name] = "constexpr", value

  def number(self, name: str, value: Size) -> None:
    """Passes an int, as a constant if it is known and small."""
    from torch._inductor.virtualized import V

    value = sympy.sympify(value)
    self.values[name] = value
    if value.is_Integer and abs(int(value)) < 2**24:  # tiles reach it with 32 bits
      self.constant(**{name: int(value)})
      return
    self.signature[name] = "i64"
    if V.graph.sizevars.statically_known_multiple_of(value, 16):
      self.aligned.append(name)

  def rows(self, name: str, value: Size, times: int = 1) -> None:
    """Passes a number of rows. The kernel counts `times` as many rows with 32 bits, so the model
    checks the number unless its range is known to be small enough."""
    from torch._inductor.virtualized import V

    value, limit = sympy.sympify(value), 2**31 - 2**16
    if not V.graph.sizevars.statically_known_leq(value * times, limit):
      condition = self.body.exprs.int(sympy.Le(value * times, limit))
      check = hir.Check(condition, f"{self.kernel} counts to {limit} rows")
      if check not in self.body.statements:
        self.body.emit(check)
    self.number(name, value)
    if name not in self.constants:
      self.signature[name] = "i32"
      self.aligned = [each for each in self.aligned if each != name]

  def strides(self, prefix: str, dims: Iterable[str | None], strides: Iterable[Size]) -> None:
    """Passes the strides of which the kernel has a name in `dims`."""
    for dim, stride in zip(dims, strides):
      if dim is not None:
        self.number(f"{prefix}_{dim}", stride)

  def launch(
    self,
    name: str,
    configs: Sequence[Mapping[str, Any]],
    sides: tuple[str, str, str],
    grid_args: Mapping[str, Size],
    origin: str,
  ) -> None:
    """Defines the kernel as `name` and launches it. `sides` are the expressions of a `Grid` over
    `grid_args`."""
    backend = backend_of(self.body)
    source = _source(self.file, self.kernel)
    text = source.text
    if self.waits_first:
      text = text.replace(pdl.PLACE, pdl.EARLY)
    configured = {key for config in configs for key in config}
    if missing := set(source.parameters) - set(self.signature) - configured:
      raise ValueError(f"kernel {self.kernel}: nothing is given for {', '.join(sorted(missing))}")
    backend.define(
      name,
      source_edit.renamed(text, self.kernel, name),
      signature={each: self.signature.get(each, "constexpr") for each in source.parameters},
      constants={
        each: self.constants[each] for each in source.parameters if each in self.constants
      },
      aligned=self.aligned,
      configs=configs,
      grid=Grid(sides, list(grid_args)),
    )
    arguments = backend.kernel(name).arguments
    call_args = [*(self.values.get(argument) for argument in arguments), *grid_args.values()]
    call = backend.call_kernel(
      name, call_args, self.body.ranges, extent=lambda memory: memory.extent
    )
    self.body.launch(call, origin, lambda access, memory: memory.view(self.body, access))


def backend_of(body: Body) -> CudaKernels:
  """The kernels of the target. Only CUDA targets have kernels of Husk's own."""
  return cast(CudaKernels, body.backend)


@dataclasses.dataclass
class Memory:
  """Memory that a kernel accesses: `offset` and `extent` are bytes. `aligned` says whether its
  address is known to have the alignment that kernels assume."""

  buffer: hir.Buffer
  offset: Size
  extent: Size
  aligned: bool

  @staticmethod
  def of(body: Body, node: IrNode) -> Memory:
    """The memory of a tensor."""
    from torch._inductor.virtualized import V

    view = nodes.node_view(node)
    place = body.place(view.name)
    buffer, alignment = place.buffer, body.backend.alignment
    offset = sympy.expand(place.offset + view.byte_offset)
    base_aligned = buffer.space != "input" or (buffer.align > 0 and buffer.align % alignment == 0)
    return Memory(
      buffer,
      offset,
      body.span(view.sizes, view.strides) * view.dtype.itemsize,
      base_aligned and bool(V.graph.sizevars.statically_known_multiple_of(offset, alignment)),
    )

  @staticmethod
  def new(body: Body, name: str, sizes: Sequence[Size]) -> Memory:
    """A new buffer of f32."""
    import torch
    from torch._inductor import ir

    strides = ir.FlexibleLayout.contiguous_strides(sizes)
    buffer = body.declare_tensor(name, sizes, strides, torch.float32)
    return Memory(buffer, sympy.Integer(0), sympy.prod(sizes) * 4, True)

  def view(self, body: Body, access: str) -> hir.View:
    body.record_access(access, self.buffer)
    if self.offset == 0:
      return hir.View(access, self.buffer)
    return hir.View(access, self.buffer, body.exprs.int(self.offset), body.exprs.int(self.extent))


# Triton's names of types by PyTorch's.
_KINDS = {f"torch.{dtypes.TORCH[name]}": triton for name, triton in dtypes.TRITON.items()} | {
  "torch.float8_e4m3fn": "fp8e4nv"
}


def kind_of(tensor: IrNode) -> str:
  """Triton's name of the type of a tensor's elements."""
  return _KINDS[str(tensor.get_dtype())]


def most(body: Body, rows: Size, largest: int = 2**16) -> int | None:
  """An upper bound of a number; None if it is unknown, or above `largest`."""
  from torch.utils._sympy.value_ranges import bound_sympy

  upper: Any = bound_sympy(sympy.sympify(rows), body.ranges).upper
  return int(upper) if upper.is_Integer and upper <= largest else None


@dataclasses.dataclass(frozen=True)
class _Source:
  """The module that defines a kernel, and the names of the kernel's parameters in order."""

  text: str
  parameters: list[str]


def module_text(file: pathlib.Path) -> str:
  """The text of a module with kernels, with that of the modules beside it from which it imports."""
  text, before = file.read_text(), ""
  for node in ast.parse(text).body:
    if isinstance(node, ast.ImportFrom) and node.level == 1:
      before += module_text(file.parent / f"{node.module}.py")
      text = text.replace(ast.get_source_segment(text, node) or "", "")
  return before + text


@functools.cache
def _source(file: pathlib.Path, kernel: str) -> _Source:
  """The kernel of that name in a file."""
  text = torch_compat.gluon(module_text(file))
  (found,) = (
    node
    for node in ast.parse(text).body
    if isinstance(node, ast.FunctionDef) and node.name == kernel
  )
  return _Source(text, [each.arg for each in found.args.args])
