"""Operators of PyTorch's symmetric memory, and collectives that write to an argument, as functional
collectives and products.

An operator of `torch.ops.symm_mem` says how GPUs compute a collective: in memory that the ranks
share, in one step or two, by NVLink multicast, or piece by piece beside a product of matrices. Its
results are those of functional collectives. How a program computes these is chosen where it runs,
by their size (ports/cuda/DESIGN.md), so the operators are replaced by functional collectives, and
memory that a model asks for is ordinary memory. Multicast is never used. Operators that read and
write memory of other ranks by themselves are refused."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported
from . import graphs, inlining
from .process_groups import ranks
from .replace import replaced

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

Tensor = Any
Operator = Any

NAMESPACE = "symm_mem"
_REMEDY = (
  "use a collective operator, such as torch.ops.symm_mem.one_shot_all_reduce or those of "
  "torch.distributed._functional_collectives, which need no memory that ranks share"
)


def rewrite(exported: ExportedProgram) -> None:
  """Replaces the operators in a program, in place. The process groups must still exist. Other
  operators of symmetric memory are refused."""
  for node in graphs.nodes(exported):
    if node.op != "call_function":
      continue
    if (function := _functions().get(_name(node.target))) is not None:
      inlining.replace_by_parts(node, _of_inputs(node, function))
    elif getattr(node.target, "namespace", "") == NAMESPACE:
      raise Unsupported(f"the operator {_name(node.target)}", remedy=_REMEDY)


def replace_calls(module: torch.fx.GraphModule) -> None:
  """Replaces the operators of symmetric memory in a graph of Dynamo's by functions of functional
  collectives. Other operators of symmetric memory stay: PyTorch computes them."""
  import torch

  for each in module.modules():
    if not isinstance(each, torch.fx.GraphModule):
      continue
    for node in each.graph.nodes:
      name = _name(node.target)
      if name not in _functions() or not name.startswith(NAMESPACE):
        continue
      node.target = getattr(node.target, "default", node.target)
      node.args, node.kwargs = tuple(graphs.arguments(node).values()), {}
      node.target = _functions()[name]
    each.recompile()


@contextlib.contextmanager
def traced() -> Iterator[None]:
  """While open, models with operators of symmetric memory can be traced on any device. PyTorch has
  no fake implementation of some of them. Memory that a model asks for is ordinary memory."""
  import torch
  import torch.distributed as dist

  if not dist.is_available() or not dist.is_initialized():
    yield
    return
  operators = torch.ops.symm_mem
  with contextlib.ExitStack() as stack:
    library = stack.enter_context(torch.library._scoped_library(NAMESPACE, "IMPL"))
    for qualified in (*_functions(), *_REFUSED):
      short = qualified.partition("::")[2]
      if not qualified.startswith(NAMESPACE) or not hasattr(operators, short):
        continue
      operator = getattr(operators, short).default
      if not torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "Meta"):
        library.impl(short, functools.partial(_fake, operator), "Meta")
    if module := sys.modules.get("torch.distributed._symmetric_memory"):
      stack.enter_context(
        replaced((module, "empty", torch.empty), (module, "rendezvous", _rendezvous))
      )
    yield


def _name(target: Any) -> str:
  """The name of an operator, with or without an overload; empty if it is none."""
  operator = getattr(target, "default", target)
  schema = getattr(operator, "_schema", None)
  return "" if schema is None else str(schema.name)


def _of_inputs(node: torch.fx.Node, function: Callable[..., Any]) -> Callable[..., Any]:
  """What a call computes, as a function of the values of its inputs."""
  from torch.fx.node import map_arg

  inputs = inlining.tensor_inputs(node)

  def call(*values: Any) -> Any:
    known = dict(zip(inputs, values, strict=True))
    return function(*map_arg(tuple(graphs.arguments(node).values()), known.__getitem__))

  return call


def _fake(operator: Operator, *args: Any, **kwargs: Any) -> Any:
  """The results of an operator: an argument that it writes, or a tensor like the first one."""
  import torch

  schema = operator._schema
  if schema.name in _REFUSED:
    raise Unsupported(f"the operator {schema.name}", remedy=_REMEDY)
  if not schema.returns:
    return None
  values = dict(zip((argument.name for argument in schema.arguments), args)) | kwargs
  alias = schema.returns[0].alias_info
  if alias is None:
    return torch.empty_like(args[0])
  written = (one for one in schema.arguments if one.alias_info is not None)
  return next(values[one.name] for one in written if one.alias_info.before_set == alias.before_set)


class _Handle:
  """What a model gets that asks for the memory of other ranks."""

  def __getattr__(self, attribute: str) -> Any:
    raise Unsupported(f"{attribute} of symmetric memory", remedy=_REMEDY)


def _rendezvous(tensor: Tensor, group: Any = None) -> _Handle:
  return _Handle()


# The computations that `_functions` gives for operators, and the parts that they share.


def _all_reduce(x: Tensor, reduce: str, group: str) -> Tensor:
  import torch

  functional = torch.ops._c10d_functional
  return functional.wait_tensor(functional.all_reduce(x.contiguous(), reduce, group))


def _all_gather(x: Tensor, group: str) -> Tensor:
  import torch

  functional = torch.ops._c10d_functional
  gathered = functional.all_gather_into_tensor(x.contiguous(), len(ranks(group)), group)
  return functional.wait_tensor(gathered)


def _reduce_scatter(x: Tensor, reduce: str, dim: int, group: str) -> Tensor:
  import torch

  functional, count = torch.ops._c10d_functional, len(ranks(group))
  dim %= x.dim()
  if dim:  # the parts of the dimension, one behind the other
    x = x.unflatten(dim, (count, -1)).movedim(dim, 0).flatten(0, 1)
  return functional.wait_tensor(
    functional.reduce_scatter_tensor(x.contiguous(), reduce, count, group)
  )


def _all_reduce_in_place(input: Tensor, reduce_op: str, group_name: str) -> Tensor:
  return input.copy_(_all_reduce(input, reduce_op, group_name))


def _all_reduce_out(input: Tensor, reduce_op: str, group_name: str, out: Tensor) -> Tensor:
  return out.copy_(_all_reduce(input, reduce_op, group_name))


def _all_reduce_copy(
  symm_buffer: Tensor, local_input: Tensor, reduce_op: str, group_name: str
) -> Tensor:
  return _all_reduce(local_input, reduce_op, group_name)


def _all_reduce_copy_out(
  symm_buffer: Tensor, local_input: Tensor, reduce_op: str, group_name: str, out: Tensor
) -> Tensor:
  return out.copy_(_all_reduce(local_input, reduce_op, group_name))


def _reduce_out(input: Tensor, reduce_op: str, root: int, group_name: str, out: Tensor) -> Tensor:
  """One rank alone gets the result, and the others keep what they have. `root` counts within the
  group."""
  reduced = _all_reduce(input, reduce_op, group_name)
  return out.copy_(reduced if _own_place(group_name) == root else out)


def _tile_reduce(
  in_tile: Tensor, out_tile: Tensor, root: int, group_name: str, reduce_op: str = "sum"
) -> None:
  _reduce_out(in_tile, reduce_op, root, group_name, out_tile)


def _tiles_reduce(
  in_tiles: Sequence[Tensor],
  out_tile: Tensor,
  roots: Sequence[int],
  group_name: str,
  reduce_op: str = "sum",
) -> None:
  for tile, root in zip(in_tiles, roots, strict=True):
    _reduce_out(tile, reduce_op, root, group_name, out_tile)


def _own_place(group_name: str) -> int:
  """The place of this rank in a group."""
  import torch.distributed as dist

  return ranks(group_name).index(dist.get_rank())


def _all_gather_out(input: Tensor, group_name: str, out: Tensor) -> Tensor:
  return out.copy_(_all_gather(input, group_name).view(out.shape))


def _reduce_scatter_out(
  input: Tensor, group_name: str, split_last_dim: bool, output: Tensor
) -> Tensor:
  return output.copy_(_reduce_scatter(input, "sum", -1 if split_last_dim else 0, group_name))


def _rows_reduce_scatter(tensor: Tensor, reduce_op: str, group_name: str) -> Tensor:
  return _reduce_scatter(tensor, reduce_op, 0, group_name)


def _broadcast_in_place(input: Tensor, root: int, group_name: str) -> Tensor:
  import torch

  functional = torch.ops._c10d_functional
  sent = functional.broadcast(input.contiguous(), root, group_name)
  return input.copy_(functional.wait_tensor(sent))


def _all_to_all_out(input: Tensor, out: Tensor, group_name: str) -> Tensor:
  import torch

  functional, count = torch.ops._c10d_functional, len(ranks(group_name))
  rows = [input.shape[0] // count] * count
  moved = functional.all_to_all_single(input.contiguous(), rows, rows, group_name)
  return out.copy_(functional.wait_tensor(moved).view(out.shape))


def _products_of_gathered(
  A: Tensor, Bs: Sequence[Tensor], gather_dim: int, group_name: str, return_A: bool = True
) -> tuple[Tensor | None, list[Tensor]]:
  """Products with what all ranks have of a tensor, which is gathered along one dimension."""
  dim = gather_dim % A.dim()
  if dim == A.dim() - 1:
    gathered = _all_gather(A.movedim(dim, 0), group_name).movedim(0, dim).contiguous()
    return (gathered if return_A else None), [gathered @ B for B in Bs]
  # The strides are those of PyTorch's fake implementation: the dimension is the outermost one.
  gathered = _all_gather(A.movedim(dim, 0), group_name)
  products = [(gathered @ B).movedim(0, dim) for B in Bs]
  return (gathered.movedim(0, dim) if return_A else None), products


def _scaled_products_of_gathered(
  A: Tensor,
  Bs: Sequence[Tensor],
  A_scale: Tensor,
  B_scales: Sequence[Tensor],
  gather_dim: int,
  group_name: str,
  biases: Sequence[Tensor | None],
  result_scales: Sequence[Tensor | None],
  out_dtypes: Sequence[torch.dtype | None],
  use_fast_accum: Sequence[bool],
) -> tuple[Tensor, list[Tensor]]:
  """The same with scales of the whole tensor, of the rows of this rank, or of all rows."""
  dim = gather_dim % A.dim()
  gathered = _all_gather(A.movedim(dim, 0), group_name)
  scale = A_scale
  if tuple(scale.shape) == (*A.shape[:-1], 1):
    scale = _all_gather(scale.movedim(dim, 0), group_name).flatten(0, -2)
  elif scale.numel() != 1:
    scale = scale.movedim(dim, 0).flatten(0, -2)
  rows = gathered.flatten(0, -2)
  products = [
    _scaled_product(rows, B, scale, *others).unflatten(0, gathered.shape[:-1]).movedim(0, dim)
    for B, *others in zip(
      Bs, B_scales, biases, result_scales, out_dtypes, use_fast_accum, strict=True
    )
  ]
  return gathered.movedim(0, dim), products


def _scaled_product(
  rows: Tensor,
  B: Tensor,
  scale: Tensor,
  B_scale: Tensor,
  bias: Tensor | None,
  result_scale: Tensor | None,
  out_dtype: torch.dtype | None,
  use_fast_accum: bool,
) -> Tensor:
  import torch

  return torch.ops.aten._scaled_mm.default(
    rows, B, scale, B_scale, bias, result_scale, out_dtype, use_fast_accum
  )


def _scattered_product(
  A: Tensor, B: Tensor, reduce_op: str, scatter_dim: int, group_name: str
) -> Tensor:
  """The part of this rank in the sum of the products of all ranks."""
  return _reduce_scatter(A @ B, reduce_op, scatter_dim, group_name)


def _scattered_scaled_product(
  A: Tensor,
  B: Tensor,
  A_scale: Tensor,
  B_scale: Tensor,
  reduce_op: str,
  orig_scatter_dim: int,
  scatter_dim_after_maybe_reshape: int,
  group_name: str,
  output_shape: Sequence[Any],
  bias: Tensor | None = None,
  result_scale: Tensor | None = None,
  out_dtype: torch.dtype | None = None,
  use_fast_accum: bool = False,
) -> Tensor:
  """The same with scales of the whole tensor or of its rows. The product has two dimensions, and
  its parts are those of a tensor with the sizes `output_shape`."""
  scale = A_scale.flatten(0, -2).contiguous() if A_scale.numel() > 1 else A_scale
  rows = A.flatten(0, -2).contiguous()
  others = (B_scale, bias, result_scale, out_dtype, use_fast_accum)
  product = _scaled_product(rows, B, scale, *others).view(*output_shape[:-1], B.shape[1])
  return _reduce_scatter(product, reduce_op, orig_scatter_dim, group_name)


def _each_all_reduced(inputs: Sequence[Tensor], reduce_op: str, group_name: str) -> list[Tensor]:
  return [_all_reduce_in_place(x, reduce_op, group_name) for x in inputs]


def _gathered_into(input: Tensor, group_size: int, group_name: str, out: Tensor) -> Tensor:
  return _all_gather_out(input, group_name, out)


def _scattered_into(
  input: Tensor, reduce_op: str, group_size: int, group_name: str, out: Tensor
) -> Tensor:
  return out.copy_(_reduce_scatter(input, reduce_op, 0, group_name))


@functools.cache
def _functions() -> dict[str, Callable[..., Any]]:
  """By the name of an operator: a function of all arguments of its schema, in their order."""
  symmetric: dict[str, Callable[..., Any]] = {
    "_low_contention_all_gather": _all_gather,
    "_low_contention_reduce_scatter": _rows_reduce_scatter,
    "fused_all_gather_matmul": _products_of_gathered,
    "fused_all_gather_scaled_matmul": _scaled_products_of_gathered,
    "fused_matmul_reduce_scatter": _scattered_product,
    "fused_scaled_matmul_reduce_scatter": _scattered_scaled_product,
    "multi_root_tile_reduce": _tiles_reduce,
    "multimem_all_gather_out": _all_gather_out,
    "multimem_all_reduce_": _all_reduce_in_place,
    "multimem_one_shot_all_reduce": _all_reduce,
    "multimem_one_shot_all_reduce_out": _all_reduce_out,
    "multimem_one_shot_reduce_out": _reduce_out,
    "nvshmem_all_to_all": _all_to_all_out,
    "nvshmem_broadcast": _broadcast_in_place,
    "one_shot_all_reduce": _all_reduce,
    "one_shot_all_reduce_copy": _all_reduce_copy,
    "one_shot_all_reduce_copy_out": _all_reduce_copy_out,
    "one_shot_all_reduce_out": _all_reduce_out,
    "reduce_scatter_out": _reduce_scatter_out,
    "tile_reduce": _tile_reduce,
    "two_shot_all_reduce_": _all_reduce_in_place,
    "two_shot_all_reduce_out": _all_reduce_out,
  }
  writing: dict[str, Callable[..., Any]] = {
    "all_gather_into_tensor_out": _gathered_into,
    "all_reduce_": _all_reduce_in_place,
    "all_reduce_coalesced_": _each_all_reduced,
    "broadcast_": _broadcast_in_place,
    "reduce_scatter_tensor_out": _scattered_into,
  }
  return {
    **{f"{NAMESPACE}::{each}": function for each, function in symmetric.items()},
    **{f"_c10d_functional::{each}": function for each, function in writing.items()},
  }


# Operators by which a rank reads and writes memory of another one, or whose sizes are data. Those
# that PyTorch can trace are refused in the program.
_REFUSED = frozenset(
  f"{NAMESPACE}::{each}"
  for each in (
    "_async_input_mm",
    "all_to_all_vdev",
    "memset32_",
    "nccl_get",
    "nccl_put",
    "nccl_put_with_signal",
    "nccl_wait_for_signal",
    "nvshmem_get",
    "nvshmem_put",
    "nvshmem_put_with_signal",
    "nvshmem_wait_for_signal",
    "stream_write_value32_",
  )
)
