"""Tensors of the CPU that a graph of a GPU takes and writes.

The graph computes with all tensors on the GPU (inductor/one_device.py). A tensor without dimensions
that it only reads is a number, which is written to memory of the GPU without a wait. Any other
tensor is an input in host memory, which is copied when the program begins, and copied back when it
ends if the program writes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from .. import hir
from ..inductor.one_device import Kept
from ..lower.body import Body
from ..lower.nodes import Graph, IrNode, Place, node_view
from ..program.values import Input


@dataclasses.dataclass
class _Copied:
  """An input in host memory, and the buffer of the device that takes its place. `index` is the
  number of the input."""

  index: int
  host: hir.Buffer
  device: hir.Buffer
  copy: hir.Copy


_LARGE = 1 << 20  # bytes of an input that a call had better not copy


class Beside:
  """Writes the statements that bring the inputs on the CPU to the device and back."""

  def __init__(self, body: Body, kept: Kept) -> None:
    self.body, self.kept = body, kept
    self._copied: list[_Copied] = []
    self.read: list[int] = []  # the numbers of the inputs in host memory that are only read
    self.writes = False  # whether the program writes inputs in host memory

  def enter(self, graph: Graph, inputs: Sequence[Input]) -> None:
    """Puts each input on the CPU into memory of the device. The prologue has been written."""
    for index, (name, value) in enumerate(zip(graph.graph_input_names, inputs, strict=True)):
      if name in self.kept.inputs and value.kind != "none":
        self._enter(index, name, graph.graph_inputs[name])

  def _enter(self, index: int, name: str, node: IrNode) -> None:
    body, view = self.body, node_view(node)
    if name in body.scalars:  # the program gets it as a number
      number = body.exprs.any(body.scalars.pop(name))
      device = body.declare_tensor(f"{name}_on_device", view.sizes, view.strides, view.dtype)
      dtype = hir.dtype(view.dtype)
      assert dtype is not None  # it is a number
      body.emit(hir.Fill(dtype, hir.View("write", device), number))
    else:
      host = body.place(name).buffer
      host.on_host, host.align = True, hir.alignment(view.dtype)
      assert host.bytes is not None
      device = body.declare(f"{name}_on_device", host.bytes)
      copy = hir.Copy(
        hir.View("write", device), hir.View("read", host), f"the input {name} on the CPU"
      )
      body.emit(copy)
      self._copied.append(_Copied(index, host, device, copy))
    body.places[name] = Place(device, layout=node)

  def leave(self) -> None:
    """Copies the inputs that the program has written back, and drops the copies of those that
    nothing uses."""
    body = self.body
    copies = {id(one.copy) for one in self._copied}
    computed = [statement for statement in body.statements if id(statement) not in copies]
    used = {id(row) for statement in hir.walk(computed) for row in statement.rows()}
    written = {
      id(part.buffer.row())
      for part in hir.parts(computed)
      if isinstance(part, (hir.View, hir.Tensor)) and part.access not in ("", "read")
    }
    unused = {id(one.copy) for one in self._copied if id(one.device) not in used}
    body.statements = [each for each in body.statements if id(each) not in unused]
    for one in self._copied:
      if id(one.device) in written:
        self.writes = True
        source = hir.View("read", one.device)
        body.emit(hir.Copy(hir.View("write", one.host), source, one.copy.origin))
      elif id(one.device) in used:
        self.read.append(one.index)

  def large(self) -> Iterator[str]:
    """What a reader of the log should know of the inputs that each call copies to the device."""
    copies = {id(statement) for statement in self.body.statements}
    for one in self._copied:
      size = one.host.bytes
      if id(one.copy) in copies and isinstance(size, hir.Literal) and int(size.value) >= _LARGE:
        yield (
          f"each call copies an argument of {int(size.value) / _LARGE:.1f} MiB from the CPU: keep "
          "it on the GPU if only the graph uses it"
        )
