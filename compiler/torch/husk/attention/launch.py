"""The launches of the attention kernels (attention/kernel.py, attention/hopper_kernel.py) for a
node of attention/operator.py.

A rule chooses the tiles (attention/tiles.py); if kernels are measured, tiles near the chosen ones
are candidates too. Each kernel is compiled for the constants of its call.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sympy

from .. import hir
from ..cuda import asserts
from ..inductor import torch_compat
from ..launches.call import Call, Memory, backend_of, kind_of, most
from ..lower import extern, nodes
from ..lower.body import Body
from ..lower.nodes import IrNode
from .shapes import Size, mask_of_rank_4, shape_of_rank_4
from .tiles import Tiles, cache, neighbours, pieces, splits, tiles

if TYPE_CHECKING:
  import torch


# The files of kernels.
_FOLDER = pathlib.Path(__file__).parent
FILE, HOPPER_FILE = (_FOLDER / name for name in ("kernel.py", "hopper_kernel.py"))


class AttentionCall:
  """The sizes and strides of an Attention node, as if its tensors had rank 4. `inputs` is the
  memory of q, k and v."""

  def __init__(self, body: Body, node: IrNode) -> None:
    self.body, self.node = body, node
    self.query, self.key, self.value = node.inputs[:3]
    self.mask: IrNode | None = node.mask
    self.scales: Sequence[IrNode] = node.scales
    self.table: IrNode | None = node.table
    for output in node.outputs:
      extern.declared(body, None, output)
    self.out, *lse = (Memory.of(body, output) for output in node.outputs)
    self.lse = lse[0] if lse else None
    self.inputs = [Memory.of(body, tensor) for tensor in (self.query, self.key, self.value)]
    (self.batches, self.q_heads, self.queries, size), self.q_strides = shape_of_rank_4(self.query)
    (_, heads, self.capacity, _), self.k_strides = shape_of_rank_4(self.key)
    (_, _, _, v_size), self.v_strides = shape_of_rank_4(self.value)
    _, self.out_strides = shape_of_rank_4(node.outputs[0])
    # The rows of a batch, or those of all pages in its row of the table.
    self.keys = self.capacity
    if self.table is not None:
      self.keys = self.capacity * shape_of_rank_4(self.table)[0][3]
    self.heads, self.group = int(heads), int(self.q_heads) // int(heads)
    self.size, self.v_size = int(size), int(v_size)
    self.dtype: torch.dtype = self.query.get_dtype()
    self.kind = kind_of(self.query)
    self.kinds = [kind_of(tensor) for tensor in (self.query, self.key, self.value)]
    self.rows = self.queries * self.group  # rows of q for each head of k
    self.all_rows = self.batches * self.q_heads * self.queries
    self.origin = body.origin(node.outputs[0])

  def tiles(self) -> list[Tiles]:
    """The tiles to choose from, best first."""
    backend, width = backend_of(self.body), max(self.size, self.v_size)
    rows = most(self.body, self.rows)
    candidates = tiles(backend.target, width, self.dtype.itemsize, rows, self.mask is not None)
    if self.table is not None:  # a tile has rows of one page
      candidates = [_within(tile, int(self.capacity)) for tile in candidates]
    if backend.tuning.measures:
      near = neighbours(backend.target, width, self.dtype.itemsize, candidates[0])
      if self.table is not None:
        near = [tile for tile in near if self.capacity % tile.n == 0]
      candidates = candidates + [tile for tile in near if tile not in candidates]
    return candidates

  def suits_hopper(self) -> bool:
    """Whether attention_hopper supports the call and is the faster kernel. It takes longer to
    begin, which matters if there are few queries. It copies 16 bytes at a time, and strides of rows
    that it had to compute with would need more registers than the copying warps have."""
    from torch._inductor.virtualized import V

    if (
      backend_of(self.body).target.capability != 90
      or self.mask is not None
      or self.scales
      or self.table is not None
      or self.node.softcap
      or self.node.sinks is not None
      or self.dtype.itemsize != 2
      or self.size != self.v_size
      or self.size not in HOPPER
    ):
      return False
    if not all(memory.aligned for memory in (*self.inputs, self.out)):
      return False
    for strides in (self.q_strides, self.k_strides, self.v_strides, self.out_strides):
      if not sympy.sympify(strides[2]).is_Integer:
        return False
      for stride in strides[:3]:
        if not V.graph.sizevars.statically_known_multiple_of(stride, 16):
          return False
    rows = most(self.body, self.rows)
    return rows is None or rows > 256

  def parts(self, block_m: int) -> int:
    """The number of parts into which the keys are split, for blocks of `block_m` rows."""
    rows = most(self.body, self.rows)
    if rows is None or rows > 64:
      return 1
    blocks = torch_compat.size_hint(self.batches) * self.heads * -(-rows // block_m)
    keys = most(self.body, self.keys, 2**20) or torch_compat.size_hint(self.keys)
    return splits(backend_of(self.body).target, blocks, keys)


def _within(tile: Tiles, page: int) -> Tiles:
  """A tile with so few keys that those of a page are whole tiles."""
  return dataclasses.replace(tile, n=math.gcd(tile.n, page))


BATCH_HEAD_ROW = ("batch", "head", "row")


def launch(body: Body, node: IrNode) -> None:
  """Writes the launches of an Attention node."""
  attention = AttentionCall(body, node)
  candidates = attention.tiles()
  parts = attention.parts(candidates[0].m)
  hopper = parts == 1 and attention.suits_hopper()
  call = Call(body, "attention_hopper", HOPPER_FILE) if hopper else Call(body, "attention", FILE)
  input_strides = (attention.q_strides, attention.k_strides, attention.v_strides)
  for name, memory, kind, strides in zip(
    "qkv", attention.inputs, attention.kinds, input_strides, strict=True
  ):
    call.pointer(name, memory, kind)
    call.strides(name, BATCH_HEAD_ROW, strides)
  partial = None
  if parts == 1:
    _write_results(call, attention)
  else:
    partial = _write_parts(call, attention, parts)
  call.rows("queries", attention.queries, attention.group)
  call.rows("keys", attention.keys)
  call.rows("ahead", node.ahead)
  call.constant(
    HEADS=attention.heads,
    GROUP=attention.group,
    CAUSAL=bool(node.causal),
    SIZE=attention.size,
  )
  words = ["attention", hir.dtype(attention.dtype), str(attention.size)]
  words += ["causal"] if node.causal else []
  words += ["mask"] if attention.mask is not None else []
  words += words_of_scores(node)
  words += [attention.kinds[1]] if attention.scales else []
  words += ["pages"] if attention.table is not None else []
  name = "_".join(words)
  if hopper:
    call.constant(factor=node.scale * math.log2(math.e))
    _launch_hopper(call, attention, name)
    return
  pass_mask(call, attention)
  pass_scores(call, attention)
  _scales(call, attention)
  pages = pass_table(call, attention)
  pass_assert(call, f"{name}: index out of bounds: 0 <= page < {pages}" if pages else None)
  call.constant(PAGE=int(attention.capacity) if pages else 0, PAGES=pages)
  if parts == 1:
    call.constant(out_split=0, lse_split=0)
  (first, rest), (v_first, v_rest) = pieces(attention.size), pieces(attention.v_size)
  call.constant(
    SPLITS=parts,
    FIRST=first,
    REST=rest,
    V_SIZE=attention.v_size,
    V_FIRST=v_first,
    V_REST=v_rest,
    PRECISION=precision(attention.dtype),
    CACHE=cache(backend_of(body).target),
  )
  configs = [
    {
      "BLOCK_M": tile.m,
      "BLOCK_N": tile.n,
      "num_warps": tile.warps,
      "num_stages": tile.stages,
      "maxnreg": tile.registers,
    }
    for tile in candidates
  ]
  call.launch(
    name,
    configs,
    ("-(rows // -{BLOCK_M}) * pairs", str(parts), "1"),
    {"rows": attention.rows, "pairs": attention.batches * attention.heads},
    attention.origin,
  )
  if partial is not None:
    _join(attention, parts, *partial)


def _launch_hopper(call: Call, attention: AttentionCall, name: str) -> None:
  pairs = attention.batches * attention.heads
  call.rows("pairs", pairs)
  blocks = backend_of(call.body).target.multi_processor_count
  call.launch(
    name,
    [_hopper(attention.size)],
    (f"min(-(rows // -128) * all_pairs, {blocks})", "1", "1"),
    {"rows": attention.rows, "all_pairs": pairs},
    attention.origin,
  )


# The configuration of attention_hopper that measured best on an H200, by the size of a row: keys of
# a tile, tiles of k and of v in shared memory (three long ones of each would not fit), registers of
# a thread that computes.
HOPPER = {64: (128, 3, 232), 128: (128, 2, 224)}


def _hopper(size: int) -> dict[str, Any]:
  """The configuration of attention_hopper."""
  keys, stages, registers = HOPPER[size]
  return {
    "BLOCK_N": keys,
    "STAGES": stages,
    "REGISTERS": registers,
    "num_warps": 4,
    "num_stages": 1,
    "maxnreg": None,
  }


def pass_mask(
  call: Call,
  attention: AttentionCall,
  dims: Sequence[str | None] = (*BATCH_HEAD_ROW, "column"),
) -> None:
  """Passes the mask and its strides, those of which the kernel has a name in `dims`."""
  strides: Sequence[Size] = [0, 0, 0, 0]
  if attention.mask is None:
    call.constant(mask=None)
  else:
    memory = Memory.of(attention.body, attention.mask)
    call.pointer("mask", memory, kind_of(attention.mask))
    strides = _mask_strides(attention.mask, len(nodes.node_view(attention.query).sizes))
  call.strides("mask", dims, strides)


def pass_scores(call: Call, attention: AttentionCall) -> None:
  """Passes what the kernel makes of products of queries and keys: their factor, the largest score,
  and the scores of the sinks."""
  node = attention.node
  call.constant(factor=node.scale * math.log2(math.e), CAP=node.softcap * math.log2(math.e))
  if node.sinks is None:
    call.constant(sinks=None)
  else:
    call.pointer("sinks", Memory.of(attention.body, node.sinks), kind_of(node.sinks))


def words_of_scores(node: IrNode) -> list[str]:
  """What the name of a kernel says of the scores of a node."""
  return (["cap"] if node.softcap else []) + (["sinks"] if node.sinks is not None else [])


def _scales(call: Call, attention: AttentionCall) -> None:
  """Passes the scales of keys and values and their strides."""
  for number, name in enumerate(("k_scale", "v_scale")):
    strides: Sequence[Size] = [0, 0, 0]
    if attention.scales:
      tensor = attention.scales[number]
      call.pointer(name, Memory.of(attention.body, tensor), "fp32")
      strides = nodes.node_view(tensor).strides
    else:
      call.constant(**{name: None})
    call.strides(name, BATCH_HEAD_ROW, strides)


def pass_table(call: Call, attention: AttentionCall) -> int:
  """Passes the table of pages. Returns the number of pages, 0 without a table."""
  if attention.table is None:
    call.constant(table=None, table_batch=0)
    return 0
  call.pointer("table", Memory.of(attention.body, attention.table), "i64")
  call.number("table_batch", shape_of_rank_4(attention.table)[1][2])
  return int(shape_of_rank_4(attention.key)[0][0])


def pass_assert(call: Call, text: str | None) -> None:
  """Passes the memory to which the kernel writes the number of a message, and that number, if
  there is a message and the target reports it."""
  number = backend_of(call.body).assert_number(text) if text else 0
  if number:
    call.signature[asserts.PARAMETER] = "*i32"
  else:
    call.constant(**{asserts.PARAMETER: None})
  call.constant(ASSERT=number)


def _write_results(call: Call, attention: AttentionCall) -> None:
  """Lets a kernel write the results of the node."""
  call.pointer("out", attention.out, attention.kind)
  call.strides("out", BATCH_HEAD_ROW, attention.out_strides)
  _write_lse(call, attention)


def _write_lse(call: Call, attention: AttentionCall) -> None:
  """Lets a kernel write the log-sum-exp, if the node has one."""
  if attention.lse:
    call.pointer("lse", attention.lse, "fp32")
  else:
    call.constant(lse=None)


def _write_parts(call: Call, attention: AttentionCall, parts: int) -> tuple[Memory, Memory]:
  """Lets the kernel write the result and the weight of each part of the keys. Returns the memory of
  both."""
  sizes = [parts, attention.batches, attention.q_heads, attention.queries]
  results = Memory.new(attention.body, "attention_parts", [*sizes, attention.v_size])
  weights = Memory.new(attention.body, "attention_weights", sizes)
  head_stride = attention.queries * attention.v_size
  call.pointer("out", results, "fp32")
  call.strides(
    "out", BATCH_HEAD_ROW, [attention.q_heads * head_stride, head_stride, attention.v_size]
  )
  call.number("out_split", attention.all_rows * attention.v_size)
  call.pointer("lse", weights, "fp32")
  call.number("lse_split", attention.all_rows)
  return results, weights


def _join(attention: AttentionCall, parts: int, results: Memory, weights: Memory) -> None:
  """Launches the kernel that makes the node's results of those of the parts."""
  call = Call(attention.body, "attention_joined", FILE)
  call.pointer("parts", results, "fp32")
  call.pointer("weights", weights, "fp32")
  call.pointer("out", attention.out, attention.kind)
  _write_lse(call, attention)
  call.number("rows", attention.all_rows)
  call.number("queries", attention.queries)
  call.strides("out", BATCH_HEAD_ROW, attention.out_strides)
  call.constant(
    HEADS=int(attention.q_heads),
    SPLITS=parts,
    SPLITS_WIDTH=1 << (parts - 1).bit_length(),
    SIZE=attention.v_size,
    WIDTH=1 << (attention.v_size - 1).bit_length(),
  )
  call.launch(
    f"attention_joined_{attention.v_size}",
    [{"num_warps": 4, "num_stages": 1}],
    ("blocks", "1", "1"),
    {"blocks": attention.all_rows},
    attention.origin,
  )


def precision(dtype: torch.dtype) -> str:
  """Triton's precision of products. A product of f32 is three products in tf32. torch's own
  attention of f32 does not use tf32 either, whether products of matrices may or not."""
  import torch

  return "tf32x3" if dtype == torch.float32 else "ieee"


def _mask_strides(mask: IrNode, rank: int) -> list[Size]:
  """The strides of a mask as if it had rank 4; 0 in dimensions in which it is broadcast. `rank` is
  that of the query."""
  sizes, strides = mask_of_rank_4(mask, rank)
  return [sympy.Integer(0) if size == 1 else stride for size, stride in zip(sizes, strides)]


# Classes of nodes -> the functions that write them, for a VariantWriter.
NODES = {"Attention": launch}
