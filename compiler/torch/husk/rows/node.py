"""Inductor's node for linear layers of 2 to 16 rows, and its launch (rows/kernel.py)."""

from __future__ import annotations

import functools
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from .. import hir
from ..cuda import few_rows, few_rows_kernel
from ..cuda.target import Target
from ..inductor.lines import InductorObject, NodeLine
from ..launches.call import Call, Memory, backend_of, kind_of
from ..lower import extern
from ..lower.body import Body
from ..lower.nodes import IrNode

_FILE = pathlib.Path(__file__).parent / "kernel.py"
# The rows of the weights of a tile: the larger one if it makes so many tiles for each
# multiprocessor, since each tile reads all rows and computes their norm.
_TILES = (32, 16)
_LEAST_TILES = 3
# The elements of a row from which a block has twice as many warps. On an H200, 2,048 elements were
# read faster by 4 warps, and 8,192 by 8.
_LONG = 4096


@functools.cache
def _node_class() -> Any:
  from torch._inductor import ir
  from torch._inductor.virtualized import V

  class FewRows(ir.ExternKernel):
    """Linear layers of the same rows, which are the first of `inputs`. Places in `inputs` are those
    of the norm's weight, the residual, and the biases; None for those that are not there."""

    def __init__(
      self,
      inputs: Sequence[InductorObject],
      weights: int,
      places: dict[str, int],
      eps: float,
      gate: str,
    ) -> None:
      super().__init__(
        None, ir.MultiOutputLayout(device=inputs[0].get_device()), self.unwrap_storage(inputs)
      )
      self.weights, self.places, self.eps, self.gate = weights, places, eps, gate
      self.outputs: list[InductorObject] = []
      self.name = V.graph.register_buffer(self)
      V.graph.register_operation(self)

    def operand(self, name: str) -> InductorObject | None:
      return self.inputs[self.places[name]] if name in self.places else None

    def should_allocate(self) -> bool:
      return False

    def codegen(self, wrapper: InductorObject) -> None:
      wrapper.writeline(NodeLine(self))

  return FewRows


def lowerings(target: Target) -> dict[Any, Callable[..., Any]]:
  """Inductor's lowerings by operator."""
  return {few_rows.operator(): functools.partial(_lowered, target)}


def _lowered(
  target: Target,
  input: InductorObject,
  weights: Sequence[InductorObject],
  scales: Sequence[InductorObject],
  zeros: Sequence[InductorObject],
  biases: Sequence[InductorObject | None],
  norm: InductorObject | None,
  eps: float,
  gate: str,
  bits: int,
  group: int,
  residual: InductorObject | None = None,
) -> InductorObject:
  from torch._inductor import ir

  *outer, _ = map(int, input.get_size())
  rows = math.prod(outer)
  if rows <= few_rows.MOST_ROWS:
    return few_rows_kernel.lowered(
      target, input, weights, scales, zeros, biases, norm, eps, gate, bits, group
    )
  operands = {
    "scale": norm,
    "residual": residual,
    **{f"b{number}": bias for number, bias in enumerate(biases)},
  }
  places: dict[str, int] = {}
  nodes = [input, *weights]
  for name, tensor in operands.items():
    if tensor is not None:
      places[name] = len(nodes)
      nodes.append(tensor)
  nodes = [ir.ExternKernel.require_contiguous(ir.ExternKernel.realize_input(one)) for one in nodes]
  node = _node_class()(nodes, len(weights), places, eps, gate)
  columns = [int(weight.get_size()[0]) for weight in weights]
  is_single = bool(gate) or len(weights) == 1
  size: list[Any] = [*outer, columns[0]] if is_single else [rows * sum(columns)]
  layout = ir.FixedLayout(
    input.get_device(), input.get_dtype(), size, ir.FlexibleLayout.contiguous_strides(size)
  )
  node.outputs = [ir.MultiOutput(layout, node, [(tuple, 0)], True)]
  return ir.TensorBox.create(node.outputs[0])


def launch(body: Body, node: IrNode) -> None:
  """Writes the launch of a FewRows node."""
  (output,) = node.outputs
  extern.declared(body, None, output)
  input, *weights = node.inputs[: 1 + node.weights]
  *outer, k = map(int, input.get_size())
  rows = math.prod(outer)
  columns = [int(weight.get_size()[0]) for weight in weights]
  call = Call(body, "few_rows", _FILE)

  def pass_pointer(name: str, tensor: IrNode | None) -> None:
    if tensor is None:
      call.constant(**{name: None})
    else:
      call.pointer(name, Memory.of(body, tensor), kind_of(tensor))

  pass_pointer("x", input)
  for name in ("scale", "residual", *(f"b{number}" for number in range(few_rows.MOST_WEIGHTS))):
    pass_pointer(name, node.operand(name))
  for number in range(few_rows.MOST_WEIGHTS):
    pass_pointer(f"w{number}", weights[number] if number < len(weights) else None)
    call.constant(**{f"N{number}": columns[number] if number < len(weights) else 0})
  call.pointer("out", Memory.of(body, output), kind_of(output))
  call.constant(
    EPS=float(node.eps),
    K=k,
    ROWS=rows,
    ROWS_WIDTH=8 if rows <= 8 else 16,
    GATE=node.gate,
  )
  processors = backend_of(body).target.multi_processor_count
  tile = next(
    (one for one in _TILES if _blocks(one, columns, node.gate) >= _LEAST_TILES * processors),
    _TILES[-1],
  )
  warps = 4 if k <= _LONG else 8
  # The elements of a step that a thread has: 64 of the weights, and 32 of the rows.
  width = 128 * _TILES[-1] // tile if rows <= 8 else 64
  name = "_".join(
    ["few_rows", hir.dtype(output.get_dtype()), str(rows), str(k), *map(str, columns)]
    + ([node.gate] if node.gate else [])
  )
  call.launch(
    name,
    [
      {
        "TILE": tile,
        "WARPS": warps,
        "WIDTH": width,
        "num_warps": warps,
        "num_stages": 1,
        "maxnreg": None,
      }
    ],
    ("blocks", "1", "1"),
    {"blocks": _blocks(tile, columns, node.gate)},
    body.origin(output),
  )


def _blocks(tile: int, columns: Sequence[int], gate: str) -> int:
  """The number of tiles of weights."""
  if gate:
    return -(-columns[0] // (tile // 2))
  return sum(-(-count // tile) for count in columns)


# Classes of nodes -> the functions that write them, for a VariantWriter.
NODES = {"FewRows": launch}
