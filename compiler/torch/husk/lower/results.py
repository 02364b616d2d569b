"""The end of a variant: its results are written to the caller's memory.

A buffer that is wholly one output becomes that output's buffer, so that kernels write straight to
the caller. Any other tensor that is returned (an input, a constant, a state, a part of a buffer, a
buffer that is returned twice) is copied, and so is a tensor of a GPU that the program returns on
the CPU.
"""

import sympy

from .. import hir
from ..errors import REPORT, Unsupported
from ..program.values import Output
from .body import Body
from .nodes import IrNode, NodeView, node_view, unboxed


def write(body: Body) -> list[hir.Result]:
  """Names or copies the outputs; returns the results of the variant."""
  nodes = [unboxed(node) for node in body.graph.graph_outputs]
  outputs = body.signature.outputs
  if len(nodes) != len(outputs):
    raise Unsupported(
      f"the compiled graph has {len(nodes)} outputs, the exported program {len(outputs)}",
      remedy=REPORT,
    )
  views = {index: node_view(node) for index, node in enumerate(nodes) if not _is_number(node)}
  returned: dict[int, int] = {}  # id of a buffer -> how often it is returned
  for view in views.values():
    buffer = body.place(view.name).buffer
    returned[id(buffer)] = returned.get(id(buffer), 0) + 1
  return [
    _tensor(body, output, views[index], returned) if index in views else _number(body, output, node)
    for index, (node, output) in enumerate(zip(nodes, outputs))
  ]


def _is_number(node: IrNode) -> bool:
  """Whether an output is a number or None."""
  return isinstance(node, sympy.Basic) or type(node).__name__ in (
    "NoneAsConstantBuffer",
    "ShapeAsConstantBuffer",
  )


def _number(body: Body, output: Output, node: IrNode) -> hir.Result:
  if output.kind == "none":
    return hir.NoneArg()
  is_float = output.kind == "float"
  if output.value is not None:
    return hir.Number(hir.Literal(output.value if is_float else int(output.value)), is_float)
  expression = getattr(node, "expr", node)
  value = body.exprs.float(expression) if is_float else body.exprs.int(expression)
  return hir.Number(value, is_float)


def _tensor(body: Body, output: Output, view: NodeView, returned: dict[int, int]) -> hir.Result:
  if len(view.sizes) != output.rank:
    raise Unsupported(
      f"the output {output.name} has rank {len(view.sizes)} in Inductor and {output.rank} in the "
      "exported program",
      remedy=REPORT,
    )
  place = body.place(view.name)
  offset = place.offset + view.byte_offset
  span = body.exprs.int(body.span(view.sizes, view.strides) * view.dtype.itemsize)
  buffer = body.buffers[output.name]
  buffer.bytes = span
  is_whole = place.buffer.space == "arena" and offset == 0 and place.buffer.bytes == span
  on_host = output.on_host and body.backend.is_beside_host
  if is_whole and returned[id(place.buffer)] == 1 and not on_host:
    buffer = place.buffer
    buffer.space, buffer.name = "output", output.name
    buffer.align = max(hir.alignment(view.dtype), body.backend.alignment)
  else:
    buffer.align, buffer.on_host = hir.alignment(view.dtype), on_host
    body.emit(hir.Declare(buffer))
    begin = body.exprs.int(body.offset(offset, view.sizes))
    source = hir.View("read", place.buffer, begin, span)
    body.emit(hir.Copy(hir.View("write", buffer), source, "the output " + output.name))
  return body.typed_view("", buffer, view.dtype, view.sizes, view.strides, 0)
