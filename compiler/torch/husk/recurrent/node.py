"""Inductor's node for a direction of a recurrent layer, and its launch (recurrent/kernel.py)."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from .. import hir
from ..inductor.lines import InductorObject
from ..launches import node as launched
from ..launches.call import Call, Memory, backend_of, kind_of
from ..lower import extern
from ..lower.body import Body
from ..lower.nodes import IrNode
from .operator import GATES, layer

_FILE = pathlib.Path(__file__).parent / "kernel.py"
# The elements of weights that a program has in registers, for all gates, and those of a row.
_ELEMENTS, _MOST_COLUMNS = 8192, 64
_MOST_ROWS = 4


@functools.cache
def _node_class() -> Any:
  class RecurrentLayer(launched.base()):
    """`places` are places in `inputs` by names of the kernel's parameters."""

    def __init__(
      self, inputs: Sequence[InductorObject], places: dict[str, int], kind: str, is_reverse: bool
    ) -> None:
      super().__init__(inputs)
      self.places, self.kind, self.is_reverse = places, kind, is_reverse

    def operand(self, name: str) -> InductorObject | None:
      return self.inputs[self.places[name]] if name in self.places else None

  return RecurrentLayer


def lowerings() -> dict[Any, Callable[..., Any]]:
  """Inductor's lowerings by operator."""
  return {layer(): _lowered}


def _lowered(
  kind: str,
  gates: InductorObject,
  hidden: InductorObject,
  cell: InductorObject | None,
  weight: InductorObject,
  bias: InductorObject | None,
  is_reverse: bool,
) -> InductorObject:
  operands = {"gates": gates, "hidden": hidden, "cell": cell, "weight": weight, "bias": bias}
  found = {name: tensor for name, tensor in operands.items() if tensor is not None}
  places = {name: place for place, name in enumerate(found)}
  nodes = [launched.in_memory(one) for one in found.values()]
  node = _node_class()(nodes, places, kind, is_reverse)
  steps, *_ = gates.get_size()
  return launched.result(node, gates, [steps + (1 if cell is None else 2), *hidden.get_size()])


def launch(body: Body, node: IrNode) -> None:
  """Writes the launch of a RecurrentLayer node."""
  (output,) = node.outputs
  extern.declared(body, None, output)
  gates, hidden = node.operand("gates"), node.operand("hidden")
  steps, (batches, size) = gates.get_size()[0], hidden.get_size()
  size, count = int(size), GATES[node.kind]
  call = Call(body, "recurrent_layer", _FILE)
  for name in ("gates", "hidden", "cell", "weight", "bias"):
    tensor = node.operand(name)
    if tensor is None:
      call.constant(**{name: None})
    else:
      call.pointer(name, Memory.of(body, tensor), kind_of(tensor))
  call.pointer("states", Memory.of(body, output), kind_of(output))
  call.number("batches", batches)
  call.number("steps", steps)
  rows = _rows(batches, backend_of(body).target.multi_processor_count)
  call.constant(KIND=node.kind, GATES=count, SIZE=size, REVERSE=node.is_reverse, ROWS=rows)
  columns = min(_MOST_COLUMNS, _power_of_two(size))
  block = min(_power_of_two(size), max(1, _ELEMENTS // (columns * rows * _power_of_two(count))))
  name = "_".join(
    [node.kind, hir.dtype(output.get_dtype()), str(size)] + ["back"] * node.is_reverse
  )
  call.launch(
    name,
    [{"BLOCK_N": block, "BLOCK_K": columns, "num_warps": 8 if size > 16 else 4, "num_stages": 1}],
    (f"(batches + {rows - 1}) // {rows}", "1", "1"),
    {"batches": batches},
    body.origin(output),
  )


def _rows(batches: Any, processors: int) -> int:
  """How many batches a program computes, so that few programs read the weights in vain."""
  rows = 1
  while rows < _MOST_ROWS and getattr(batches, "is_Integer", False) and batches > rows * processors:
    rows *= 2
  return rows


def _power_of_two(number: int) -> int:
  return 1 << (number - 1).bit_length()


# Classes of nodes -> the functions that write them, for a VariantWriter.
NODES = {"RecurrentLayer": launch}
