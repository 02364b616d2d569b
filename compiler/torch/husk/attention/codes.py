"""Keys and values that a program converts: codes of 8 bits with a scale for each key and head, and
floats of 16 bits for queries in f32.

A program computes `codes.to(float) * scales[..., None]`, possibly followed by a conversion to the
type of the queries. Attention then takes codes and scales: a scale is the same for all elements of
a key, so that it can be multiplied with the scores, and the scale of a value with the weights of
its key. The conversion to the type of the queries rounds; attention on codes does not.

Attention takes floats of 16 bits as they are: a conversion to f32 rounds nothing, and reads them
once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ..inductor.layouts import known_equal

if TYPE_CHECKING:
  import torch


def dequantized(
  call: torch.fx.Node, arguments: dict[str, Any], codes: frozenset[str]
) -> dict[str, torch.fx.Node]:
  """What a call of attention takes instead of dequantized keys and values: `key`, `value`,
  `key_scales` and `value_scales`. It is empty if they are no codes of one of the types `codes`.
  The arguments of the call are not changed."""
  found: dict[str, torch.fx.Node] = {}
  for name in ("key", "value"):
    pair = _codes_and_scales(arguments[name])
    if pair is None:
      return {}
    found[name], found[f"{name}_scales"] = pair
  kinds = {str(found[name].meta["val"].dtype).removeprefix("torch.") for name in ("key", "value")}
  query = arguments["query"].meta["val"]
  if len(kinds) != 1 or not kinds <= codes or query.dim() != 4 or query.dtype.itemsize > 4:
    return {}
  return _unless_written(found, call)


def halves(call: torch.fx.Node, arguments: dict[str, Any]) -> dict[str, torch.fx.Node]:
  """What a call of attention with queries in f32 takes instead of keys and values that are
  converted from f16 or bf16: `key` and `value`. It is empty if they are not. The arguments of the
  call are not changed."""
  import torch

  found = {name: _unconverted(arguments[name]) for name in ("key", "value")}
  kinds = {node.meta["val"].dtype for node in found.values()}
  query = arguments["query"].meta["val"]
  if query.dtype != torch.float32 or kinds not in ({torch.float16}, {torch.bfloat16}):
    return {}
  return _unless_written(found, call)


def _unless_written(
  found: dict[str, torch.fx.Node], call: torch.fx.Node
) -> dict[str, torch.fx.Node]:
  """The nodes, or none if the program writes a tensor between them and the call: it has made a
  copy, by a conversion, that attention would not read."""
  return {} if any(map(writes, between(found.values(), call))) else found


def _codes_and_scales(node: Any) -> tuple[torch.fx.Node, torch.fx.Node] | None:
  import torch

  product = _unconverted(node)
  if product.target is not torch.ops.aten.mul.Tensor:
    return None
  for left, right in (product.args, product.args[::-1]):
    if not isinstance(left, torch.fx.Node) or not isinstance(right, torch.fx.Node):
      continue
    codes = _unconverted(left)
    if codes.meta["val"].dtype.itemsize != 1 or codes is left:
      continue
    if right.target is not torch.ops.aten.unsqueeze.default:
      continue
    scales: Any = right.args[0]
    dim, shape = right.args[1], codes.meta["val"].shape
    value = scales.meta["val"]
    if (
      dim in (-1, len(shape) - 1)
      and value.dtype == torch.float32
      and value.dim() == len(shape) - 1
      and all(map(known_equal, value.shape, shape))
    ):
      return codes, scales
  return None


def _unconverted(node: Any) -> torch.fx.Node:
  """The tensor of which a node is a conversion to another type."""
  import torch

  aten = torch.ops.aten
  conversions = (aten.to.dtype, aten._to_copy.default, aten.to.dtype_layout)
  while node.target in conversions:
    node = node.args[0]
  return node


def between(nodes: Iterable[torch.fx.Node], end: torch.fx.Node) -> Iterator[torch.fx.Node]:
  """The nodes after the last of `nodes` and before `end`."""
  remaining = set(nodes)
  for node in end.graph.nodes:
    if node is end:
      return
    if not remaining:
      yield node
    remaining.discard(node)


def writes(node: torch.fx.Node) -> bool:
  """Whether a node writes a tensor that it takes."""
  schema = getattr(node.target, "_schema", None)
  return schema is not None and bool(schema.is_mutable)
