"""Inductor's node for linear layers of few rows, and its launches: rows/kernel.py, and
codes_kernel.py for codes, which computes rows with numbers of experts too."""

from __future__ import annotations

import functools
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import hir
from ..cuda import few_rows, few_rows_kernel
from ..cuda.formats import name_of
from ..cuda.target import Target
from ..inductor.lines import InductorObject
from ..launches import node as launched
from ..launches.call import Call, Memory, backend_of, kind_of
from ..lower import extern
from ..lower.body import Body
from ..lower.nodes import IrNode
from . import unpacking

_FILE = pathlib.Path(__file__).parent / "kernel.py"
_FILE_OF_CODES = pathlib.Path(__file__).parent / "codes_kernel.py"
# The rows of the weights of a tile: the larger one if it makes so many tiles for each
# multiprocessor, since each tile reads all rows and computes their norm.
_TILES = (32, 16)
_LEAST_TILES = 3
# The elements of a row from which a block has twice as many warps. On an H200, 2,048 elements were
# read faster by 4 warps, and 8,192 by 8.
_LONG = 4096
# The bytes of codes of a row from which a block has more warps. With 16 for one row, all that a
# block reads is on its way before the wait. On an H200, a step of a decoder with 8 layers took 184
# us so with int4, and 193 with 8; with int8 222 and 220.
_LONG_OF_CODES = 2048
# The most warps of a block, and the most elements of a row with an expert that a thread has.
_MOST_WARPS, _MOST_OF_A_THREAD = 16, 64

# The numbers of weights.
_NUMBERS = range(few_rows.MOST_WEIGHTS)


@functools.cache
def _node_class() -> Any:
  class FewRows(launched.base()):
    """Linear layers of the same rows. `places` are places in `inputs` by names of the kernel's
    parameters. `bits` and `group` are those of codes, or 0."""

    def __init__(
      self,
      inputs: Sequence[InductorObject],
      places: dict[str, int],
      eps: float,
      gate: str,
      bits: int,
      group: int,
    ) -> None:
      super().__init__(inputs)
      self.places, self.eps, self.gate, self.bits, self.group = places, eps, gate, bits, group

    def operand(self, name: str) -> InductorObject | None:
      return self.inputs[self.places[name]] if name in self.places else None

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
  is_tiled: bool = False,
) -> InductorObject:
  *outer, _ = map(int, input.get_size())
  rows = math.prod(outer)
  if not is_tiled:
    return few_rows_kernel.lowered(
      target, input, weights, scales, zeros, biases, norm, eps, gate, bits, group
    )
  operands = {
    "x": input,
    "scale": norm,
    "residual": residual,
    **{
      f"{letter}{number}": tensor
      for letter, tensors in (("w", weights), ("s", scales), ("z", zeros), ("b", biases))
      for number, tensor in enumerate(tensors)
    },
  }
  found = {name: tensor for name, tensor in operands.items() if tensor is not None}
  nodes = [launched.in_memory(one) for one in found.values()]
  if bits == 4:
    nodes = [
      launched.in_pairs(one) if name in ("x", "scale") else one for name, one in zip(found, nodes)
    ]
  places = {name: place for place, name in enumerate(found)}
  made = _node_class()(nodes, places, eps, gate, bits, group)
  columns = [int(weight.get_size()[0]) for weight in weights]
  is_single = bool(gate) or len(weights) == 1
  size: list[Any] = [*outer, columns[0]] if is_single else [rows * sum(columns)]
  return launched.result(made, input, size)


def launch(body: Body, node: IrNode) -> None:
  """Writes the launch of a FewRows node."""
  (output,) = node.outputs
  extern.declared(body, None, output)
  input = node.operand("x")
  *outer, k = map(int, input.get_size())
  rows = math.prod(outer)
  weights = [node.operand(f"w{number}") for number in _NUMBERS]
  columns = [int(weight.get_size()[0]) for weight in weights if weight is not None]
  if node.bits:
    call = Call(body, "few_rows_codes", _FILE_OF_CODES)
  else:
    call = Call(body, "few_rows", _FILE)
  _give(call, node.operand, output, node.bits)
  call.constant(
    **{f"N{number}": count for number, count in zip(_NUMBERS, [*columns, 0, 0, 0, 0])},
    EPS=float(node.eps),
    K=k,
    ROWS=rows,
    GATE=node.gate,
  )
  target = backend_of(body).target
  if node.bits:
    codes, kind = (name_of(one.get_dtype()) for one in (weights[0], input))
    numbers = _numbers(node, codes, kind, rows, node.group < k)
    _give_codes(call, node.bits, node.group, codes, kind, rows, numbers)
    call.constant(TIMES=1, OFFSET=0, COUNT=0)
    config = _config_of_codes(target, k, node.bits, rows, columns, node.gate)
    variant = "int4" if node.bits == 4 else codes
    variant += f"_{node.group}" * (node.group < k)
  else:
    call.constant(ROWS_WIDTH=8 if rows <= 8 else 16)
    config = _config(target, k, rows, columns, node.gate)
    variant = ""
  name = "_".join(
    filter(
      None,
      ["few_rows", variant, hir.dtype(output.get_dtype()), str(rows), str(k)]
      + [str(count) for count in columns]
      + [node.gate],
    )
  )
  call.launch(
    name,
    [_launched(config)],
    ("blocks", "1", "1"),
    {"blocks": _blocks(config["TILE"], columns, node.gate)},
    body.origin(output),
  )


def _launched(config: Mapping[str, int]) -> dict[str, Any]:
  return {"maxnreg": None, **config, "num_warps": config["WARPS"], "num_stages": 1}


def _give(call: Call, operand: Callable[[str], IrNode | None], output: IrNode, bits: int) -> None:
  """Passes the tensors of a call, which are operands by the names of the kernel's parameters."""
  # The types of elements that a kernel does not read as what they are.
  kinds: dict[str, str] = {f"w{number}": "i8" for number in _NUMBERS} if bits else {}
  if bits == 4:
    kinds |= {"x": "i32", "scale": "i32"}
  letters = "wszb" if bits else "wb"
  names = ["x", "scale", *(f"{one}{number}" for one in letters for number in _NUMBERS)]
  names += ["residual", "experts", "shares"] if bits else ["residual"]
  for name in names:
    tensor = operand(name)
    if tensor is None:
      call.constant(**{name: None})
    else:
      call.pointer(name, Memory.of(call.body, tensor), kinds.get(name) or kind_of(tensor))
  call.pointer("out", Memory.of(call.body, output), kind_of(output))


def _give_codes(
  call: Call, bits: int, group: int, codes: str, kind: str, rows: int, numbers: str
) -> None:
  """Passes what decides how codes of the dtype `codes` meet elements of the dtype `kind`."""
  call.constant(
    BITS=bits,
    GROUP=group,
    NUMBERS=numbers,
    ORDER=unpacking.order(bits),
    SCALED=unpacking.scaled(bits, kind),
    IN_DIGITS=rows == 1 and codes != "float8_e4m3fn",
  )


# The names of operands of rows with experts (experts/node.py), by those of the kernel's parameters.
_OF_EXPERTS = {
  "x": "x",
  "scale": "scale",
  "w0": "stack",
  "s0": "scales",
  "z0": "zeros",
  "residual": "residual",
  "experts": "experts",
  "shares": "weights",
}


def has_experts(target: Target, numbers: Mapping[str, Any], operands: Mapping[str, IrNode]) -> bool:
  """Whether `few_rows_codes` computes products of rows with numbers of experts (experts/node.py):
  those of codes of ints and of e4m3, and elements of 16 bits, of which a thread has a few."""
  if (
    target.capability < 80
    or not numbers["BITS"]
    or "values" in operands
    or operands["x"].get_dtype().itemsize != 2
    or _places(numbers, operands) > _MOST_WARPS
  ):
    return False
  config = _config_of_experts(numbers, operands)
  of_a_thread = numbers["K"] // (32 * config["SPLIT"])
  return of_a_thread <= _MOST_OF_A_THREAD


def launch_experts(
  body: Body,
  operands: Mapping[str, IrNode],
  numbers: Mapping[str, Any],
  output: IrNode,
) -> None:
  """Writes the launch of `few_rows_codes` for rows with numbers of experts, or for sums of such
  rows, of which experts/node.py has the operands and the numbers by name."""
  call = Call(body, "few_rows_codes", _FILE_OF_CODES, waits_first=True)
  _give(call, lambda name: operands.get(_OF_EXPERTS.get(name, "")), output, numbers["BITS"])
  rows, columns = output.get_size()
  codes, kind = (name_of(operands[name].get_dtype()) for name in ("stack", "x"))
  bits, gate = numbers["BITS"], numbers.get("GATE", "")
  unpacked = unpacking.numbers(bits, codes, kind)
  _give_codes(call, bits, numbers["GROUP"], codes, kind, 1, unpacked)
  call.constant(
    **{f"N{number}": 0 for number in _NUMBERS} | {"N0": int(columns)},
    **{name: numbers[name] for name in ("K", "TIMES", "OFFSET", "COUNT")},
    EPS=numbers.get("EPS", -1.0),
    ROWS=1,
    GATE=gate,
  )
  config = _config_of_experts(numbers, operands)
  kernel = "experts_of_row_tiled" if "weights" in operands else "expert_row_tiled"
  sizes = [str(numbers["COUNT"]), str(columns), str(numbers["K"])]
  parts = [kernel, hir.dtype(output.get_dtype()), *sizes, gate, f"{bits}bits"]
  call.launch(
    "_".join(filter(None, parts)),
    [_launched(config)],
    ("rows", str(_blocks(config["TILE"], [int(columns)], gate)), "1"),
    {"rows": rows},
    body.origin(output),
  )


def _places(numbers: Mapping[str, Any], operands: Mapping[str, IrNode]) -> int:
  """The rows that are added, or the next power of two."""
  return 1 << (numbers["TIMES"] - 1).bit_length() if "weights" in operands else 1


def _config_of_experts(
  numbers: Mapping[str, Any], operands: Mapping[str, IrNode]
) -> dict[str, int]:
  """The tiles of matrices of experts. On an H200, layers of Qwen3-30B-A3B were not faster with
  twice or half as many warps, and slower with tiles of 32 rows."""
  places, of_a_row = _places(numbers, operands), numbers["K"] * numbers["BITS"] // 8
  warps = max(places, 8 if places == 1 and of_a_row > _LONG_OF_CODES else 4)
  # The warps of a place have two steps at least.
  while places > 1 and warps < _MOST_WARPS and warps // places * 128 < of_a_row:
    warps *= 2
  return {"TILE": 16, "WARPS": warps, "DEPTH": 8, "SPLIT": warps // places}


def _numbers(node: IrNode, codes: str, kind: str, rows: int, has_groups: bool) -> str:
  """The instructions for codes, which have scales with more than two rows."""
  has_zeros = node.operand("z0") is not None
  if rows > 2 and (has_groups or has_zeros):
    return unpacking.scaled_numbers(node.bits, codes, kind, has_zeros)
  return unpacking.numbers(node.bits, codes, kind)


def _config(target: Target, k: int, rows: int, columns: Sequence[int], gate: str) -> dict[str, int]:
  """The tiles of weights that are floats."""
  processors = target.multi_processor_count
  tile = next(
    (one for one in _TILES if _blocks(one, columns, gate) >= _LEAST_TILES * processors), _TILES[-1]
  )
  # The elements of a step that a thread has: 64 of the weights, and 32 of the rows.
  width = 128 * _TILES[-1] // tile if rows <= 8 else 64
  return {"TILE": tile, "WARPS": 4 if k <= _LONG else 8, "WIDTH": width}


def _config_of_codes(
  target: Target, k: int, bits: int, rows: int, columns: Sequence[int], gate: str
) -> dict[str, int]:
  """The tiles of weights of codes."""
  is_long = k * bits // 8 > _LONG_OF_CODES
  is_large = _blocks(32, columns, gate) >= _LEAST_TILES * target.multi_processor_count
  # A thread keeps 32 elements of one row at most beside a large tile.
  if is_large and k <= 8192:
    warps = 8 if is_long else 4
    return {"TILE": 32, "WARPS": warps, "DEPTH": 4, "SPLIT": warps}
  warps = 4 if not is_long else 16 if rows == 1 else 8
  return {"TILE": 16, "WARPS": warps, "DEPTH": 8, "SPLIT": warps}


def _blocks(tile: int, columns: Sequence[int], gate: str) -> int:
  """The number of tiles of weights."""
  if gate:
    return -(-columns[0] // (tile // 2))
  return sum(-(-count // tile) for count in columns)


# Classes of nodes -> the functions that write them, for a VariantWriter.
NODES = {"FewRows": launch}
