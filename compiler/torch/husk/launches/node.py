"""Nodes of Inductor that are a launch of a kernel of Husk's own, with one result."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ..inductor.lines import InductorObject, NodeLine


@functools.cache
def base() -> Any:
  """The class of such nodes, whose subclasses add what their launch needs."""
  from torch._inductor import ir
  from torch._inductor.virtualized import V

  class Launched(ir.ExternKernel):
    """`outputs` has the result, once `result` has made it."""

    def __init__(self, inputs: Sequence[InductorObject]) -> None:
      super().__init__(
        None, ir.MultiOutputLayout(device=inputs[0].get_device()), self.unwrap_storage(inputs)
      )
      self.outputs: list[InductorObject] = []
      self.name = V.graph.register_buffer(self)
      V.graph.register_operation(self)

    def should_allocate(self) -> bool:
      return False

    def codegen(self, wrapper: InductorObject) -> None:
      wrapper.writeline(NodeLine(self))

  return Launched


def in_memory(tensor: InductorObject) -> InductorObject:
  """A tensor in memory, whose elements lie one after another."""
  from torch._inductor import ir

  return ir.ExternKernel.require_contiguous(ir.ExternKernel.realize_input(tensor))


def in_pairs(rows: InductorObject) -> InductorObject:
  """Rows in memory, or a copy of them if their first pair of elements may not begin where a word
  does."""
  from torch._inductor import ir
  from torch._inductor.virtualized import V

  is_even = V.graph.sizevars.statically_known_multiple_of(rows.get_layout().offset, 2)
  return rows if is_even else ir.ExternKernel.copy_input(rows)


def result(node: InductorObject, like: InductorObject, size: Sequence[Any]) -> InductorObject:
  """The result of a node, of some size, with the device and the dtype of another tensor."""
  from torch._inductor import ir

  layout = ir.FixedLayout(
    like.get_device(), like.get_dtype(), size, ir.FlexibleLayout.contiguous_strides(size)
  )
  node.outputs = [ir.MultiOutput(layout, node, [(tuple, 0)], True)]
  return ir.TensorBox.create(node.outputs[0])
