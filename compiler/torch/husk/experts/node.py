"""Inductor's node for products with the matrices of experts, and its launch (experts/kernel.py)."""

from __future__ import annotations

import functools
import math
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from .. import hir
from ..cuda import formats
from ..cuda.target import Target
from ..inductor import torch_compat
from ..inductor.lines import InductorObject
from ..launches import node as launched
from ..launches.call import Call, Memory, backend_of, kind_of, most
from ..lower import extern
from ..lower.body import Body
from ..lower.nodes import IrNode
from ..rows import node as row_tiles
from . import operator

_FILE = pathlib.Path(__file__).parent / "kernel.py"
# The elements of weights that a thread of a product of numbered rows has at once, and those of a
# block, and the most warps of a block. With twice or four times as many, eight layers with the
# sizes of Qwen3-30B-A3B took 1.0 to 1.4 times as long on an H200.
_OF_A_THREAD, _OF_A_BLOCK, _MOST_WARPS = 64, 1 << 13, 16


@functools.cache
def _node_class() -> Any:
  class ExpertRows(launched.base()):
    """Products with the matrices of experts by the kernel `kernel`. The inputs have the names of
    the kernel's parameters, `numbers` those of its constants."""

    def __init__(
      self, kernel: str, operands: Mapping[str, InductorObject], numbers: Mapping[str, Any]
    ) -> None:
      super().__init__(list(operands.values()))
      self.kernel, self.names, self.numbers = kernel, list(operands), dict(numbers)

  return ExpertRows


def lowerings() -> dict[Any, Callable[..., Any]]:
  """Inductor's lowerings by operator."""
  return {
    operator.of_numbers(): _of_numbers,
    operator.of_sums(): _of_sums,
    operator.of_ends(): _of_ends,
  }


def _of_numbers(*arguments: Any) -> InductorObject:
  of_stack, (experts, times, offset, norm, eps, gate) = operator.divided(arguments)
  return _made(
    "expert_row",
    of_stack,
    {"experts": experts, "scale": norm},
    {"TIMES": times, "OFFSET": offset, "EPS": float(eps), "GATE": gate},
    experts.get_size()[0],
  )


def _of_sums(*arguments: Any) -> InductorObject:
  from torch.utils._sympy.functions import FloorDiv

  of_stack, (experts, weights, residual, times, offset) = operator.divided(arguments)
  return _made(
    "experts_of_row",
    of_stack,
    {"experts": experts, "weights": weights, "residual": residual},
    {"TIMES": times, "OFFSET": offset},
    FloorDiv(experts.get_size()[0], times),
  )


def _of_ends(*arguments: Any) -> InductorObject:
  of_stack, (ends, gate) = operator.divided(arguments)
  rows = of_stack.input.get_size()[0]
  return _made("expert_tiles", of_stack, {"ends": ends}, {"GATE": gate}, rows)


def _made(
  kernel: str,
  of_stack: operator.Stack,
  others: Mapping[str, InductorObject | None],
  numbers: Mapping[str, Any],
  rows: Any,
) -> InductorObject:
  """A node, whose result has `rows` rows."""
  operands = {
    "x": of_stack.input,
    "stack": of_stack.stack,
    "scales": of_stack.scales,
    "zeros": of_stack.zeros,
    "values": of_stack.values,
    **others,
  }
  given = {name: launched.in_memory(one) for name, one in operands.items() if one is not None}
  if of_stack.bits == 4:  # elements are read in pairs
    given |= {name: launched.in_pairs(given[name]) for name in ("x", "scale") if name in given}
  input, stack = given["x"], given["stack"]
  count, *sizes = map(int, stack.get_size())
  n, elements = sizes if of_stack.by_rows else reversed(sizes)
  columns = n // (2 if numbers.get("GATE") else 1)
  kind = formats.name_of(input.get_dtype())
  constants = {
    **numbers,
    "COUNT": count,
    "K": int(input.get_size()[-1]),
    "N": columns,
    "EXPERT": n * elements,
    "COLUMN": elements if of_stack.by_rows else 1,
    "ELEMENT": 1 if of_stack.by_rows else n,
    "BITS": of_stack.bits,
    "GROUP": of_stack.group,
    "NUMBERS": formats.assembly(of_stack.bits, stack.get_dtype(), kind),
    **{name: None for name, one in operands.items() if one is None},
  }
  made = _node_class()(kernel, given, constants)
  return launched.result(made, input, [rows, columns])


def launch(body: Body, node: IrNode) -> None:
  """Writes the launch of an ExpertRows node."""
  (output,) = node.outputs
  extern.declared(body, None, output)
  target, numbers = backend_of(body).target, node.numbers
  operands = dict(zip(node.names, node.inputs, strict=True))
  if node.kernel != "expert_tiles" and row_tiles.has_experts(target, numbers, operands):
    row_tiles.launch_experts(body, operands, numbers, output)
    return
  call = Call(body, node.kernel, _FILE)
  for name, tensor in operands.items():
    call.pointer(name, Memory.of(body, tensor), kind_of(tensor))
  call.pointer("out", Memory.of(body, output), kind_of(output))
  call.constant(**numbers)
  count, columns = output.get_size()
  if node.kernel == "expert_tiles":
    call.rows("rows", count)
    call.constant(
      COUNT_WIDTH=1 << numbers["COUNT"].bit_length(),
      PRECISION="tf32x3" if output.get_dtype().itemsize == 4 else "ieee",
    )
    config = _tiles(most(body, count), numbers, output.get_dtype().itemsize)
    # Rows behind the last end are those of one more expert.
    sides = (f"min(rows, {numbers['COUNT'] + 1}) + rows // {config['BLOCK_M']}", None)
    grid: dict[str, Any] = {"rows": count}
  else:
    config = _columns(target, numbers, torch_compat.size_hint(count))
    sides, grid = ("rows", None), {"rows": count}
  blocks = str(-(-int(columns) // config["BLOCK_N"]))
  x, y = (blocks if side is None else side for side in sides)
  parts = [node.kernel, hir.dtype(output.get_dtype())]
  parts += [str(numbers[name]) for name in ("COUNT", "N", "K")] + [numbers.get("GATE", "")]
  parts += [f"{numbers['BITS']}bits"] if numbers["BITS"] else []
  call.launch("_".join(filter(None, parts)), [config], (x, y, "1"), grid, body.origin(output))


def _columns(target: Target, numbers: Mapping[str, Any], rows: int) -> dict[str, Any]:
  """The tiles of a product of numbered rows: a block has several columns, unless there are few
  blocks."""
  k, sides = numbers["K"], 2 if numbers.get("GATE") else 1
  first = 1 << k.bit_length() - 1
  rest = 0 if first == k else 1 << (k - first - 1).bit_length()
  columns = 1 << max(1, _OF_A_BLOCK // ((first + rest) * sides)).bit_length() - 1
  while columns > 1 and -(-numbers["N"] // columns) * rows < 2 * target.multi_processor_count:
    columns //= 2
  elements = columns * (first + rest) * sides
  warps = 1 << max(0, math.ceil(math.log2(elements / (32 * _OF_A_THREAD))))
  return {
    "BLOCK_N": columns,
    "FIRST": first,
    "REST": rest,
    "num_warps": min(warps, _MOST_WARPS),
    "num_stages": 1,
    "maxnreg": None,
  }


def _tiles(rows: int | None, numbers: Mapping[str, Any], itemsize: int) -> dict[str, Any]:
  """The tiles of a product of sorted rows: as large as the rows of an expert, if each one has as
  many."""
  of_an_expert = (1 << 12 if rows is None else rows) // numbers["COUNT"]
  height = min(max(16, 1 << max(of_an_expert, 1).bit_length() - 1), 64 if numbers["GATE"] else 128)
  few = height == 16
  return {
    "BLOCK_M": height,
    "BLOCK_N": 64 if few or numbers["GATE"] else 128,
    "BLOCK_K": (128 if few else 64) * 2 // itemsize,
    "num_warps": 4 if height < 128 else 8,
    "num_stages": 4 if few else 3,
    "maxnreg": None,
  }


# Classes of nodes -> the functions that write them, for a VariantWriter.
NODES: dict[str, Callable[[Body, IrNode], None]] = {"ExpertRows": launch}
