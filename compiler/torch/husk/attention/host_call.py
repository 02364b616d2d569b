"""The call of the host's operator for a node of attention/operator.py."""

from __future__ import annotations

from .. import hir
from ..lower import extern, nodes
from ..lower.body import Body
from ..lower.nodes import IrNode
from .shapes import mask_of_rank_4, shape_of_rank_4

# The host's operator covers more than torch's of this name: heads that share keys, and masks that
# are broadcast.
_OPERATOR = "aten::_scaled_dot_product_flash_attention_for_cpu"
# The operators whose keys and values are codes with scales, or in pages.
_OPERATOR_OF_CODES = "husk::attention_codes"
_OPERATOR_OF_PAGES = "husk::attention_pages"


def call(body: Body, node: IrNode) -> None:
  """Writes the call of an Attention node. Its tensors keep their strides."""
  query, key, value = node.inputs[:3]
  (result,) = node.outputs
  extern.declared(body, None, result)
  rank = len(nodes.node_view(query).sizes)
  tensors = [_of_rank_4(body, "read", tensor) for tensor in (query, key, value)]
  mask = hir.NoneArg() if node.mask is None else _mask(body, node.mask, rank)
  causal, scale = hir.Literal(bool(node.causal)), hir.Literal(float(node.scale))
  output = _of_rank_4(body, "write", result)
  arguments: list[hir.Argument]
  scales = [_view(body, tensor) for tensor in node.scales]
  if node.table is not None:
    table = _view(body, node.table)
    arguments = [*tensors, *(scales or [hir.NoneArg()] * 2), table, mask, scale]
    call = hir.OperatorCall(_OPERATOR_OF_PAGES, arguments, [output], body.origin(result))
  elif scales:
    arguments = [*tensors, *scales, causal, mask, scale]
    call = hir.OperatorCall(_OPERATOR_OF_CODES, arguments, [output], body.origin(result))
  else:
    arguments = [*tensors, hir.Literal(0.0), causal, mask, scale]  # 0.0: dropout
    results: list[hir.Argument] = [output, hir.NoneArg()]
    call = hir.OperatorCall(_OPERATOR, arguments, results, body.origin(result))
  body.call_operator(call)


def _view(body: Body, node: IrNode) -> hir.Tensor:
  view = nodes.node_view(node)
  place = body.place_of(view, node)
  body.record_access("read", place.buffer)
  return body.typed_view("read", place.buffer, view.dtype, view.sizes, view.strides, place.offset)


def _of_rank_4(body: Body, access: str, node: IrNode) -> hir.Tensor:
  view = nodes.node_view(node)
  place = body.place_of(view, node)
  body.record_access(access, place.buffer)
  sizes, strides = shape_of_rank_4(node)
  return body.typed_view(access, place.buffer, view.dtype, sizes, strides, place.offset)


def _mask(body: Body, node: IrNode, rank: int) -> hir.Tensor:
  view = nodes.node_view(node)
  place = body.place_of(view, node)
  sizes, strides = mask_of_rank_4(node, rank)
  return body.typed_view("read", place.buffer, view.dtype, sizes, strides, place.offset)


# Classes of nodes -> the functions that write them, for a VariantWriter.
NODES = {"Attention": call}
