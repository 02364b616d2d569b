"""Views by sizes and strides that the model states (`as_strided`). Eager mode refuses one that
reaches behind the memory of its tensor; fake tensors do not, so that this is no guard of
torch.export."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sympy

from ..errors import Unsupported
from . import assumed, graphs
from .assumed import Assumption
from .layouts import span
from .origins import operator_place

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram


def refusals(exported: ExportedProgram) -> list[Assumption]:
  """The conditions under which views of a program reach no element behind the memory of their
  tensors. Raises `Unsupported` if one always does."""
  import torch

  aten = torch.ops.aten
  views = (
    aten.as_strided.default,
    aten.as_strided_.default,
    aten.as_strided_copy.default,
    aten.as_strided_scatter.default,
  )
  nodes: list[Any] = graphs.nodes(exported)
  if not any(node.target in views for node in nodes):
    return []
  inputs = {
    _storage(value): value
    for node in nodes
    if node.op == "placeholder" and isinstance(value := node.meta.get("val"), torch.Tensor)
  }
  shapes = assumed.environment(exported)
  found: list[Assumption] = []
  for node in nodes:
    if node.target not in views:
      continue
    x: Any = node.args[0].meta["val"]
    values = graphs.arguments(node)
    offset = values["storage_offset"]
    offset = x.storage_offset() if offset is None else offset
    end = _expression(offset) + _span(values["size"], values["stride"])
    whole = inputs.get(_storage(x))
    if whole is None:
      room = _expression(x.untyped_storage().nbytes())
    else:  # a program gets the elements of an input, and not its storage
      if whole.storage_offset() != 0:
        raise Unsupported(
          f"{operator_place(node)}: a view of an input or a state of the model that begins inside "
          "of its storage: export with a clone of that tensor",
          has_place=True,
        )
      room = _span(whole.shape, whole.stride()) * whole.element_size()
    found += _condition(shapes, node, end * x.element_size(), room)
  return found


def _condition(shapes: Any, node: torch.fx.Node, end: Any, room: Any) -> list[Assumption]:
  """The condition that a view which ends at byte `end` fits memory of `room` bytes; none if that is
  so for all sizes."""
  rest = sympy.expand(room - end)
  if rest.is_Integer and rest < 0:
    raise Unsupported(
      f"{operator_place(node)}: a view that ends {-rest} bytes behind the memory of its tensor: "
      "state sizes and strides that fit, as eager mode demands",
      has_place=True,
    )
  if rest.is_Integer or assumed.bounds(shapes, rest).lower >= 0:
    return []
  text = "the view ends behind the memory of its tensor"
  return [Assumption(sympy.Le(end, room, evaluate=False), operator_place(node), text)]


def _storage(x: torch.Tensor) -> int:
  return int(x.untyped_storage()._cdata)


def _expression(value: Any) -> Any:
  """A number of the model, or a node that is one, as an expression."""
  import torch

  if isinstance(value, torch.fx.Node):
    value = value.meta["val"]
  return value.node.expr if isinstance(value, torch.SymInt) else sympy.Integer(value)


def _span(sizes: Sequence[Any], strides: Sequence[Any]) -> Any:
  """The number of elements from the first to the last one of a view."""
  return sympy.sympify(span([*map(_expression, sizes)], [*map(_expression, strides)]))
