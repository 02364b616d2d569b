"""Linear algebra that cuSOLVER computes where the program runs (`linalg="cusolver"`), by operators
of the CUDA port with the names of PyTorch's.

cuSOLVER takes and returns matrices that lie column by column, as PyTorch's own results do. So the
operators get their arguments in that order; Inductor copies those that lie otherwise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from ..inductor.layouts import dense_strides
from ..inductor.replace import replaced_entries

# How an argument lies: its matrices by columns; by rows, as vectors and numbers do; by columns if
# the argument `left` is set, otherwise by rows.
_COLUMNS, _ROWS, _SIDES = "columns", "rows", "sides"

# The arguments that are tensors, by operator.
_ARGUMENTS = {
  "_linalg_eigh": {"A": _COLUMNS},
  "_linalg_svd": {"A": _COLUMNS},
  "linalg_lu_factor_ex": {"A": _COLUMNS},
  "linalg_lu_solve": {"LU": _COLUMNS, "pivots": _ROWS, "B": _SIDES},
  "_linalg_solve_ex": {"A": _COLUMNS, "B": _SIDES},
  "linalg_inv_ex": {"A": _COLUMNS},
  "linalg_cholesky_ex": {"self": _COLUMNS},
  "_linalg_check_errors": {"info": _ROWS},
  "geqrf": {"self": _COLUMNS},
  "linalg_qr": {"A": _COLUMNS},
  "linalg_householder_product": {"input": _COLUMNS, "tau": _ROWS},
  "ormqr": {"self": _COLUMNS, "input2": _ROWS, "input3": _COLUMNS},
}

Constraint = Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]


@contextlib.contextmanager
def called(wanted: bool) -> Iterator[None]:
  """While open, and if `wanted`, Inductor gives the operators their arguments as cuSOLVER takes
  them."""
  import torch

  ops = [getattr(torch.ops.aten, name).default for name in _ARGUMENTS] if wanted else []
  constraints = {op: _constraint(op, _ARGUMENTS[op._schema.name.partition("::")[2]]) for op in ops}
  with replaced_entries("torch._inductor.lowering._maybe_layout_constraints", constraints):
    yield


def _constraint(op: Any, layouts: dict[str, str]) -> Constraint:
  def constrain(fx_node: Any, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    schema = op._schema.arguments
    named = {argument.name: value for argument, value in zip(schema, args)} | kwargs
    tensors = {name: named[name] for name in layouts}
    # Complex numbers are left to the host, which takes every layout.
    if any(tensor.get_dtype().is_complex for tensor in tensors.values()):
      return args, kwargs
    if "B" in tensors:
      tensors = _with_one_batch(tensors, "LU" if "LU" in tensors else "A")
    left = named.get("left", True)
    placed = {
      name: _placed(tensor, layouts[name] == _COLUMNS or layouts[name] == _SIDES and left)
      for name, tensor in tensors.items()
    }
    placed_args = [placed.get(argument.name, value) for argument, value in zip(schema, args)]
    return tuple(placed_args), {name: placed.get(name, value) for name, value in kwargs.items()}

  return constrain


def _with_one_batch(tensors: dict[str, Any], matrix: str) -> dict[str, Any]:
  """The tensors of a system of equations, with right sides for each matrix of the batch. PyTorch
  also takes right sides that several matrices share."""
  from torch._inductor import lowering
  from torch._inductor.virtualized import V

  batch, sides = list(tensors[matrix].get_size()[:-2]), tensors["B"]
  sizes = list(sides.get_size())
  equal = V.graph.sizevars.statically_known_equals
  if len(sizes) == len(batch) + 2 and all(map(equal, sizes, batch)):
    return tensors
  return {**tensors, "B": lowering.expand(sides, [*batch, *sizes[-2:]])}


def _placed(tensor: Any, by_columns: bool) -> Any:
  """A tensor without gaps, by columns or by rows."""
  from torch._inductor import ir

  sizes = tensor.get_size()
  order = list(range(len(sizes)))
  if by_columns and len(sizes) > 1:
    order[-2:] = order[-1], order[-2]
  # A stride of a tensor without elements is never 0.
  strides = dense_strides([_at_least_one(size) for size in sizes], order)
  return ir.ExternKernel.require_exact_strides(tensor, strides)


def _at_least_one(size: Any) -> Any:
  return max(size, 1) if isinstance(size, int) else size
