"""The launches of the kernel of attention/step_kernel.py for a node of attention/step.py."""

from __future__ import annotations

import math

import sympy

from .. import hir
from ..cuda import asserts
from ..inductor import torch_compat
from ..lower import nodes
from ..lower.body import Body
from ..lower.nodes import IrNode
from . import launch
from .shapes import shape_of_rank_4
from .tiles import splits

# A part of the keys of a step has at least so many. A block reads 128 of them at once.
_KEYS_OF_A_PART = 512


def write(body: Body, node: IrNode) -> None:
  """Writes the launches of an AttentionStep node."""
  attention = launch.AttentionCall(body, node)
  capacity, attention.keys = int(attention.keys), node.count
  call = launch.Call(body, "attention_step")
  query, keys, values = attention.inputs
  call.pointer("q", query, attention.kind)
  call.strides("q", ("batch", "head"), attention.q_strides)
  for name, memory, strides in (
    ("k", keys, attention.k_strides),
    ("v", values, attention.v_strides),
  ):
    call.pointer(name, memory, attention.kind)
    call.strides(name, launch.BATCH_HEAD_ROW, strides)
  for name, tensor in (("new_k", node.new_key), ("new_v", node.new_value)):
    call.pointer(name, launch.Memory.of(body, tensor), attention.kind)
    call.strides(name, ("batch", "head"), shape_of_rank_4(tensor)[1])
  for name, tensor in zip(("cosine", "sine"), node.rotation or (None, None), strict=True):
    if tensor is None:
      call.constant(**{name: None})
      call.number(f"{name}_batch", 0)
    else:
      call.pointer(name, launch.Memory.of(body, tensor), launch.kind_of(tensor))
      call.number(f"{name}_batch", _stride_of_batch(tensor))
  call.pointer("positions", launch.Memory.of(body, node.positions), "i64")
  call.number("position_batch", _stride_of_batch(node.positions))
  launch.pass_mask(call, attention, ("batch", "head", None, "column"))
  parts = _parts(attention)
  partial = None
  if parts == 1:
    call.pointer("out", attention.out, attention.kind)
    call.strides("out", ("batch", "head"), attention.out_strides)
    call.constant(lse=None, out_split=0, lse_split=0)
  else:
    partial = launch.write_parts(call, attention, parts, ("batch", "head"))
  call.rows("keys", attention.keys)
  words = ["attention_step", hir.dtype(attention.dtype), str(attention.size)]
  words += ["rotary"] if node.rotation else []
  words += ["mask"] if attention.mask is not None else []
  name = "_".join(words)
  number = launch.backend_of(body).assert_number(
    f"{name}: index out of bounds: 0 <= position < {capacity}"
  )
  if number:
    call.signature[asserts.PARAMETER] = "*i32"
  else:
    call.constant(**{asserts.PARAMETER: None})
  call.constant(
    factor=node.scale * math.log2(math.e),
    HEADS=attention.heads,
    GROUP=attention.group,
    CAPACITY=capacity,
    FROM_END=bool(node.from_end),
    ASSERT=number,
    SPLITS=parts,
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
  if partial is not None:
    launch.join(attention, parts, *partial)


def _stride_of_batch(tensor: IrNode) -> launch.Size:
  """How many elements of a tensor are between two batches: none if all batches share one row. The
  batch is the first of the dimensions."""
  view = nodes.node_view(tensor)
  return sympy.Integer(0) if view.sizes[0] == 1 else view.strides[0]


def _parts(attention: launch.AttentionCall) -> int:
  """The number of parts into which the keys are split."""
  blocks = torch_compat.size_hint(attention.batches) * attention.heads
  most = launch.most(attention.body, attention.keys, 2**20)
  keys = most or torch_compat.size_hint(attention.keys)
  return min(
    splits(launch.backend_of(attention.body).target, blocks, keys),
    max(1, keys // _KEYS_OF_A_PART),
  )


def _configs(attention: launch.AttentionCall) -> list[dict[str, int | None]]:
  """The tiles to choose from, best first: those of which shared memory has room."""
  rows = max(16, 1 << (attention.group - 1).bit_length())
  width = max(attention.size, attention.v_size) * attention.dtype.itemsize
  room = launch.backend_of(attention.body).target.shared_memory_per_block_optin
  found = []
  for keys, stages in ((128, 3), (128, 2), (64, 2), (32, 2), (16, 1)):
    if (rows + 2 * keys * stages) * width <= room or keys == 16:
      found.append(
        {
          "BLOCK_M": rows,
          "BLOCK_N": keys,
          "num_warps": 4,
          "num_stages": stages,
          "maxnreg": None,
        }
      )
  return found


# Classes of nodes -> the functions that write them, for a VariantWriter.
NODES = {"AttentionStep": write}
