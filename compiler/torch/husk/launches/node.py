"""Nodes of Inductor that are a launch of a kernel of Husk's own."""

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
    """`outputs` has the results, once `results` has made them."""

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
  (one,) = results(node, like, [(size, like.get_dtype())])
  return one


def results(
  node: InductorObject, like: InductorObject, kinds: Sequence[tuple[Sequence[Any], Any]]
) -> list[InductorObject]:
  """The results of a node, of some sizes and dtypes, on the device of another tensor."""
  from torch._inductor import ir

  node.outputs = [
    ir.MultiOutput(
      ir.FixedLayout(like.get_device(), dtype, size, ir.FlexibleLayout.contiguous_strides(size)),
      node,
      [(tuple, place)],
      True,
    )
    for place, (size, dtype) in enumerate(kinds)
  ]
  return [ir.TensorBox.create(one) for one in node.outputs]
