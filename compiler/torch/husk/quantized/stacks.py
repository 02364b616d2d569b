"""Products with stacks of weights, one for each expert of a mixture, as models spell them: rows
that are sorted by expert with `_grouped_mm`, or a batch of products with the selected matrices."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ..inductor import graphs
from . import schemes
from .codes import Codes, codes_of

if TYPE_CHECKING:
  from collections.abc import Callable, Sequence

  import torch


@dataclasses.dataclass(frozen=True)
class Groups:
  """Which matrix of a stack each row of the input is multiplied with: `ends` or `experts` of
  `husk::grouped_linear_quantized`. The input and the result of a batch of products have a dimension
  `row_dim`, of size 1, more than those of the operator.

  read: the node that reads the numbers of the experts, which may be written after it."""

  ends: torch.fx.Node | None = None
  experts: torch.fx.Node | None = None
  row_dim: int | None = None
  read: torch.fx.Node | None = None


def product(
  node: torch.fx.Node,
) -> tuple[torch.fx.Node, torch.fx.Node, bool, Groups] | None:
  """The input of a product with a stack, the stack, whether it is experts x n x k rather than
  experts x k x n, and its groups. None if the node is no such product."""
  import torch

  aten = torch.ops.aten
  fallback = getattr(torch.ops.transformers, "grouped_mm_fallback", None)
  if node.target == aten._grouped_mm.default or (
    fallback is not None and node.target == fallback.default
  ):
    return _grouped(node)
  if node.target in (aten.bmm.default, aten.matmul.default):
    return _batch(node)
  return None


def _grouped(
  node: torch.fx.Node,
) -> tuple[torch.fx.Node, torch.fx.Node, bool, Groups] | None:
  arguments = graphs.arguments(node)
  input, stack, offs, *more = arguments.values()
  if offs is None or not _has_dims(input, 2) or not _has_dims(stack, 3):
    return None
  out_dtype = arguments.get("out_dtype")
  if arguments.get("bias") is not None or out_dtype not in (None, _value(input).dtype):
    return None
  stack, is_transposed = without_transposes(stack)
  return input, stack, is_transposed, Groups(ends=offs)


def _batch(node: torch.fx.Node) -> tuple[torch.fx.Node, torch.fx.Node, bool, Groups] | None:
  left, right = graphs.arguments(node).values()
  if not _has_dims(left, 3) or not _has_dims(right, 3):
    return None
  # Matrices times one column each, or one row each times matrices.
  for selected, input, row_dim in ((left, right, 2), (right, left, 1)):
    selected, is_transposed = without_transposes(selected)
    found = _selected(selected)
    if found is None or not _is_one(_value(input).shape[row_dim]):
      continue
    stack, experts = found
    stack, is_also = without_transposes(stack)
    has_rows = (row_dim == 2) != (is_transposed != is_also)
    return input, stack, has_rows, Groups(experts=experts, row_dim=row_dim, read=selected)
  return None


def without_transposes(node: torch.fx.Node) -> tuple[torch.fx.Node, bool]:
  """What lies below swaps of the last two dimensions, and whether they swap them in all."""
  import torch

  aten, is_transposed = torch.ops.aten, False
  while isinstance(node.meta.get("val"), torch.Tensor):
    dims = node.meta["val"].dim()
    if node.target in (aten.mT.default, aten.t.default, aten.numpy_T.default):
      if node.target == aten.numpy_T.default and dims != 2:
        break
    elif node.target == aten.transpose.int:
      pair: Any = node.args[1:]
      if {one % dims for one in pair} != {dims - 2, dims - 1}:
        break
    elif node.target == aten.permute.default:
      order: Any = node.args[1]
      if [one % dims for one in order] != [*range(dims - 2), dims - 1, dims - 2]:
        break
    else:
      break
    below: Any = node.args[0]
    node, is_transposed = below, not is_transposed
  return node, is_transposed


def _selected(node: torch.fx.Node) -> tuple[torch.fx.Node, torch.fx.Node] | None:
  """The stack of which a node selects matrices, and the numbers of these."""
  import torch

  arguments: Any = node.args
  if node.target == torch.ops.aten.index.Tensor:
    stack, indices = arguments
    experts = indices[0] if len(indices) == 1 else None
  elif node.target == torch.ops.aten.index_select.default:
    stack, dim, experts = arguments
    experts = experts if dim % 3 == 0 else None
  else:
    return None
  if experts is None or not _has_dims(stack, 3) or not _has_dims(experts, 1):
    return None
  if _value(experts).dtype not in (torch.int64, torch.int32):
    return None
  return stack, experts


def _has_dims(node: Any, dims: int) -> bool:
  import torch

  return (
    isinstance(node, torch.fx.Node)
    and isinstance(node.meta.get("val"), torch.Tensor)
    and node.meta["val"].dim() == dims
  )


def _value(node: torch.fx.Node) -> torch.Tensor:
  return node.meta["val"]


def _is_one(size: Any) -> bool:
  return isinstance(size, int) and size == 1


# ---- codes ----


def codes_of_stack(stack: torch.Tensor, made_from: Sequence[torch.Tensor]) -> Codes | None:
  """As `codes_of`, for a stack of experts x n x k: the rows of all matrices are those of one."""
  experts, n, _ = stack.shape
  flat = []
  for tensor in made_from:
    if tensor.dim() == 3 and tensor.shape[0] == experts:
      flat += [tensor.flatten(0, 1), tensor.mT.flatten(0, 1)]
    elif tensor.numel() == experts:  # a scale for each matrix
      flat.append(tensor.reshape(experts).float().repeat_interleave(n))
    elif tensor.numel() == 1 or tensor.dim() < 3:
      flat.append(tensor)
  found = codes_of(stack.reshape(experts * n, -1), flat)
  return None if found is None else _stacked(found, experts)


def by_rows(scheme: Callable[[torch.Tensor], Codes], name: str, stack: torch.Tensor) -> Codes:
  """As `schemes.by_rows`, for all matrices of a stack."""
  experts, n, _ = stack.shape
  return _stacked(schemes.by_rows(scheme, name, stack.reshape(experts * n, -1)), experts)


def _stacked(found: Codes, experts: int) -> Codes:
  def stacked(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(experts, -1, tensor.shape[-1])

  return dataclasses.replace(
    found,
    codes=stacked(found.codes),
    scales=stacked(found.scales),
    zeros=None if found.zeros is None else stacked(found.zeros),
  )
