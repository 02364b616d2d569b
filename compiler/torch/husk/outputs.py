"""The end of a variant: its results in the caller's memory.

A buffer that is wholly one output becomes that output's, so that kernels write straight to the caller. What is given
back otherwise (an input, a constant, a state, a part of a buffer, the same buffer twice) is copied.
"""

import sympy

from . import hir, lines
from .errors import Unsupported


def write(converter, wrapper):
  """Names or copies the outputs; returns the results."""
  nodes = converter.graph.graph_outputs
  signed = converter.signature.outputs
  if len(nodes) != len(signed):
    raise Unsupported(f"the compiled graph has {len(nodes)} outputs, the exported program {len(signed)}")
  tensors = {i: lines.unwrapped(node) for i, node in enumerate(nodes) if _is_tensor(node)}
  users = {}
  for name, *_ in tensors.values():
    buffer = converter.known_place(name).buffer
    users[id(buffer)] = users.get(id(buffer), 0) + 1
  results = []
  for index, (node, output) in enumerate(zip(nodes, signed)):
    results.append(_tensor(converter, output, tensors[index], users) if index in tensors
                   else _scalar(converter, output, node))
  return results


def _is_tensor(node):
  kind = type(node).__name__
  if kind in ("TensorBox", "StorageBox", "MutableBox"):
    return _is_tensor(node.data)
  return not isinstance(node, sympy.Basic) and kind not in ("NoneAsConstantBuffer", "ShapeAsConstantBuffer")


def _scalar(converter, output, node):
  while type(node).__name__ in ("TensorBox", "StorageBox", "MutableBox"):
    node = node.data
  if output.kind == "none":
    return "none"
  if output.value is not None:
    return f"float {hir.number(output.value)}" if output.kind == "float" else f"int {int(output.value)}"
  expression = getattr(node, "expr", node)
  if output.kind == "float":
    return f"float {converter.exprs.float(expression)}"
  return f"int {converter.exprs.int(expression)}"


def _tensor(converter, output, unwrapped, users):
  name, sizes, strides, dtype, extra = unwrapped
  if len(sizes) != output.rank:
    raise Unsupported(f"the output {output.name} has rank {len(sizes)} in Inductor and {output.rank} in the exported "
                      "program")
  place = converter.known_place(name)
  span = converter.exprs.int(converter.span(sizes, strides) * dtype.itemsize)
  given = converter.buffers[output.name]
  given.bytes = span
  whole = place.buffer.space == "arena" and place.offset + extra == 0 and place.buffer.bytes == span
  if whole and users[id(place.buffer)] == 1:
    place.buffer.space, place.buffer.name = "output", output.name
    place.buffer.align = max(hir.alignment(dtype), getattr(converter.backend, "alignment", 1))
    return converter.typed("", place.buffer, dtype, sizes, strides, 0)
  given.align = hir.alignment(dtype)
  converter.statements.append(hir.Statement("", buffer=given))
  offset = converter.exprs.int(place.offset + extra)
  converter.say("copy", [hir.View("write", given), hir.View("read", place.buffer, offset, span)],
                "the output " + output.name)
  return converter.typed("", given, dtype, sizes, strides, 0)
