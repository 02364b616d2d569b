"""Nodes of Inductor's IR that stand for tensors: the place of their memory, their sizes, strides
and dtype."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sympy

from .. import hir
from ..errors import OTHER_OPERATORS, Unsupported
from ..inductor.lines import InductorObject

if TYPE_CHECKING:
  import torch

# A node of Inductor's IR, a graph, and a line of the wrapper.
IrNode = InductorObject
Graph = InductorObject
Line = InductorObject

_BOXES = ("TensorBox", "StorageBox", "MutableBox")


@dataclasses.dataclass
class Place:
  """The memory of one of Inductor's names: it begins `offset` bytes after the start of a buffer."""

  buffer: hir.Buffer
  offset: sympy.Expr = sympy.Integer(0)
  layout: Any = None  # an IR node, a layout or a torch tensor with the sizes, strides and dtype


@dataclasses.dataclass
class NodeView:
  """A tensor of Inductor's IR: the part of the buffer `name` that begins `byte_offset` bytes
  after the buffer's place. Sizes, strides and the offset are expressions."""

  name: str
  sizes: Sequence[Any]
  strides: Sequence[Any]
  dtype: "torch.dtype"
  byte_offset: Any


@dataclasses.dataclass
class TensorLayout:
  """The sizes and strides, which are expressions, and the dtype of a tensor."""

  sizes: Sequence[Any]
  strides: Sequence[Any]
  dtype: "torch.dtype"


def layout_of(layout: Any) -> TensorLayout:
  """The layout of one of Inductor's layouts or buffers, or of a torch tensor."""
  if hasattr(layout, "untyped_storage"):
    return TensorLayout(list(layout.shape), list(layout.stride()), layout.dtype)
  if hasattr(layout, "get_size"):
    return TensorLayout(layout.get_size(), layout.get_stride(), layout.get_dtype())
  return TensorLayout(layout.size, layout.stride, layout.dtype)


def unboxed(node: IrNode) -> IrNode:
  """The node inside of Inductor's boxes."""
  while type(node).__name__ in _BOXES:
    node = node.data
  return node


def node_view(node: IrNode) -> NodeView:
  """The view that a node of Inductor's IR stands for."""
  node = unboxed(node)
  kind = type(node).__name__
  if kind == "ReinterpretView":
    base, layout = node_view(node.data), node.layout
    if layout.dtype != base.dtype and layout.offset != 0:
      raise Unsupported(
        "a view as another dtype that begins inside of its tensor",
        remedy="view the whole tensor as that dtype, and take a part of it then",
      )
    return NodeView(
      base.name,
      layout.size,
      layout.stride,
      layout.dtype,
      base.byte_offset + layout.offset * layout.dtype.itemsize,
    )
  if not is_tensor(node):
    raise Unsupported(
      f"Inductor gives a {kind} in place of a tensor, which has no memory", remedy=OTHER_OPERATORS
    )
  return NodeView(
    node.get_name(), node.get_size(), node.get_stride(), node.get_dtype(), sympy.Integer(0)
  )


def is_tensor(node: IrNode) -> bool:
  return hasattr(node, "get_name") and hasattr(node, "get_size")
