"""The launches of the kernel of attention/step_kernel.py for a node of attention/step.py."""

from __future__ import annotations

import dataclasses
import math
import pathlib

import sympy

from .. import hir
from ..inductor import torch_compat
from ..launches.call import Call, Memory, Size, backend_of, kind_of, most
from ..lower import nodes
from ..lower.body import Body
from ..lower.nodes import IrNode
from . import launch
from .shapes import shape_of_rank_4

FILE = pathlib.Path(__file__).parent / "step_kernel.py"

# The keys of a part, at least, and the most parts. On an H200, with 8 heads of keys of 64 elements,
# to join parts took 2.5 us a layer, and a tile of 128 keys 1.5 us.
_KEYS_OF_A_PART = 128
_MOST_PARTS = 32
# The bytes of keys that a block reads at once. A kernel with much shared memory does not share a
# multiprocessor with the products before and after it, which have little: with 72 KB, a layer took
# 5 us longer than with 18 KB.
_BYTES_OF_A_TILE = 1 << 14
_BATCH_HEAD = ("batch", "head")


def write(body: Body, node: IrNode) -> None:
  """Writes the launch of an AttentionStep node."""
  attention = launch.AttentionCall(body, node)
  capacity, attention.keys = int(attention.capacity), node.count
  call = Call(body, "attention_step", FILE)
  query, keys, values = attention.inputs
  if node.first != 0:
    keys, values = (_from_row(body, one, node.first) for one in (attention.key, attention.value))
  call.pointer("q", query, attention.kind)
  call.strides("q", _BATCH_HEAD, attention.q_strides)
  call.pointer("k", keys, attention.kind)
  call.strides("k", launch.BATCH_HEAD_ROW, attention.k_strides)
  call.pointer("v", values, attention.kind)
  call.strides("v", launch.BATCH_HEAD_ROW, attention.v_strides)
  for name, tensor in (("new_k", node.new_key), ("new_v", node.new_value)):
    call.pointer(name, Memory.of(body, tensor), attention.kind)
    call.strides(name, _BATCH_HEAD, shape_of_rank_4(tensor)[1])
  for name, tensor in zip(("cosine", "sine"), node.rotation or (None, None), strict=True):
    if tensor is None:
      call.constant(**{name: None})
      call.number(f"{name}_batch", 0)
    else:
      call.pointer(name, Memory.of(body, tensor), kind_of(tensor))
      call.number(f"{name}_batch", _stride_of_batch(tensor))
  call.pointer("positions", Memory.of(body, node.positions), "i64")
  call.number("position_batch", _stride_of_batch(node.positions))
  pages = launch.pass_table(call, attention)
  launch.pass_mask(call, attention, ("batch", "head", None, "column"))
  launch.pass_scores(call, attention)
  call.pointer("out", attention.out, attention.kind)
  call.strides("out", _BATCH_HEAD, attention.out_strides)
  call.rows("keys", attention.keys)
  parts = _parts(attention)
  _pass_parts(call, attention, parts)
  name = _name(attention, node)
  what = f"page < {pages}" if pages else f"position < {capacity}"
  launch.pass_assert(call, f"{name}: index out of bounds: 0 <= {what}")
  call.constant(
    HEADS=attention.heads,
    GROUP=attention.group,
    GROUP_WIDTH=_power_of_two(attention.group),
    CAPACITY=capacity,
    PAGES=pages,
    FROM_END=bool(node.from_end),
    BOUND=node.window >= 0,
    WINDOW=max(node.window, 0),
    SPLITS=parts,
    SPLITS_WIDTH=_power_of_two(parts),
    LEAST=_KEYS_OF_A_PART,
    SIZE=attention.size,
    V_SIZE=attention.v_size,
    PRECISION=launch.precision(attention.dtype),
  )
  call.launch(
    name,
    _configs(attention),
    ("pairs", str(parts), "1"),
    {"pairs": attention.batches * attention.heads},
    attention.origin,
  )


def _name(attention: launch.AttentionCall, node: IrNode) -> str:
  words = ["attention_step", hir.dtype(attention.dtype), str(attention.size)]
  words += ["rotary"] if node.rotation else []
  words += ["mask"] if attention.mask is not None else []
  words += launch.words_of_scores(node)
  words += ["pages"] if node.table is not None else []
  return "_".join(words)


def _from_row(body: Body, cache: IrNode, row: Size) -> Memory:
  """The memory of one row of a cache."""
  from torch._inductor.virtualized import V

  sizes, strides = shape_of_rank_4(cache)
  whole, width = Memory.of(body, cache), cache.get_dtype().itemsize
  begin = sympy.expand(strides[0] * width * row)
  known = V.graph.sizevars.statically_known_multiple_of(begin, body.backend.alignment)
  return dataclasses.replace(
    whole,
    offset=whole.offset + begin,
    extent=body.span([1, *sizes[1:]], strides) * width,
    aligned=whole.aligned and bool(known),
  )


def _stride_of_batch(tensor: IrNode) -> Size:
  """How many elements of a tensor are between two batches: none if all batches share one row. The
  batch is the first of the dimensions."""
  view = nodes.node_view(tensor)
  return sympy.Integer(0) if view.sizes[0] == 1 else view.strides[0]


def _power_of_two(number: int) -> int:
  return 1 << (number - 1).bit_length()


def _parts(attention: launch.AttentionCall) -> int:
  """The number of parts into which the keys are split at most, so that all multiprocessors work."""
  target = backend_of(attention.body).target
  blocks = torch_compat.size_hint(attention.batches) * attention.heads
  bound = most(attention.body, attention.keys, 2**20)
  keys = bound or torch_compat.size_hint(attention.keys)
  if attention.node.table is not None and most(attention.body, attention.batches) is None:
    return 1  # nobody knows how many counters there would be
  of_blocks = 2 * target.multi_processor_count // max(blocks, 1)
  return max(1, min(of_blocks, -(-keys // _KEYS_OF_A_PART), _MOST_PARTS))


def _pass_parts(call: Call, attention: launch.AttentionCall, parts: int) -> None:
  """Passes the memory by which parts of the keys are joined."""
  if parts == 1:
    call.constant(parts=None, weights=None, counters=None)
    return
  body = attention.body
  sizes = [parts, attention.batches, attention.q_heads]
  results = Memory.new(body, "attention_parts", [*sizes, attention.v_size])
  call.pointer("parts", results, "fp32")
  call.pointer("weights", Memory.new(body, "attention_weights", sizes), "fp32")
  # A cache that is not in pages has a row for each batch, or more.
  rows: int | None = int(shape_of_rank_4(attention.key)[0][0])
  if attention.node.table is not None:
    rows = most(body, attention.batches)
  assert rows is not None  # _parts has seen to it
  count = rows * attention.heads
  counters = body.constants.counters(count)
  call.pointer(
    "counters", Memory(counters, sympy.Integer(0), sympy.Integer(4 * count), True), "i32"
  )


def _configs(attention: launch.AttentionCall) -> list[dict[str, int | None]]:
  """The tiles to choose from, best first."""
  rows = max(16, _power_of_two(attention.group))
  width = max(attention.size, attention.v_size) * attention.dtype.itemsize
  keys = min(max(_BYTES_OF_A_TILE // width, 16), _KEYS_OF_A_PART)
  if attention.node.table is not None:
    capacity = int(shape_of_rank_4(attention.key)[0][2])
    keys = min(keys, math.gcd(capacity, keys))  # a tile has rows of one page
  return [
    {"BLOCK_M": rows, "BLOCK_N": keys, "num_warps": 4, "num_stages": stages, "maxnreg": None}
    for stages in (2, 1)
  ]


# Classes of nodes -> the functions that write them, for a VariantWriter.
NODES = {"AttentionStep": write}
