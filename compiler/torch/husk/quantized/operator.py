"""The operators whose weight has codes, as torch knows them and as arithmetic of torch's:
`husk::linear_quantized`, for which some targets have a kernel, and `husk::embedding_quantized`, for
which none has."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..inductor import graphs, own_operators, torch_compat

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

# A torch.ops overload.
Operator = Any


@functools.cache
def operator() -> Operator:
  """husk::linear_quantized, which is defined once per process. `codes.Codes` describes weight,
  scales, zeros, values, bits and group; the rest is as for husk::linear."""
  return own_operators.define(
    "linear_quantized",
    "Tensor input, Tensor weight, Tensor scales, Tensor? zeros, Tensor? values, Tensor? bias, "
    "Tensor? residual, str activation, int bits, int group",
    _fake,
    eager=_in_blocks,
  )


def _fake(
  input: torch.Tensor,
  weight: torch.Tensor,
  scales: torch.Tensor,
  zeros: torch.Tensor | None,
  values: torch.Tensor | None,
  bias: torch.Tensor | None,
  residual: torch.Tensor | None,
  activation: str,
  bits: int,
  group: int,
) -> torch.Tensor:
  return input.new_empty([*input.shape[:-1], weight.shape[0]])


def numbers(
  weight: torch.Tensor,
  scales: torch.Tensor,
  zeros: torch.Tensor | None,
  values: torch.Tensor | None,
  bits: int,
  group: int,
) -> torch.Tensor:
  """The numbers in f32 that codes stand for, n x k of them or more dimensions of rows."""
  import torch

  rows, groups = list(scales.shape[:-1]), scales.shape[-1]
  if bits == 4:
    codes = torch.stack([weight & 15, weight >> 4], -1).reshape([*rows, -1])
    codes = codes[..., : groups * group]
    plain = codes.to(torch.float32) - 8 if values is None else values[codes.to(torch.int32)]
  else:
    plain = weight.to(torch.float32)
  plain = plain.reshape([*rows, groups, group])
  if zeros is not None:
    plain = plain - zeros.to(torch.float32)[..., None]
  return (plain * scales.to(torch.float32)[..., None]).reshape([*rows, groups * group])


@functools.cache
def embedding() -> Operator:
  """husk::embedding_quantized: rows of a weight, as numbers of `dtype`. Its decomposition reads the
  codes of these rows alone."""
  return own_operators.define(
    "embedding_quantized",
    "Tensor indices, Tensor weight, Tensor scales, Tensor? zeros, Tensor? values, int bits, "
    "int group, ScalarType dtype",
    _fake_rows,
    decomposed=_rows,
    eager=_rows,
  )


def _fake_rows(
  indices: torch.Tensor,
  weight: torch.Tensor,
  scales: torch.Tensor,
  zeros: torch.Tensor | None,
  values: torch.Tensor | None,
  bits: int,
  group: int,
  dtype: torch.dtype,
) -> torch.Tensor:
  return indices.new_empty([*indices.shape, scales.shape[1] * group], dtype=dtype)


def _rows(
  indices: torch.Tensor,
  weight: torch.Tensor,
  scales: torch.Tensor,
  zeros: torch.Tensor | None,
  values: torch.Tensor | None,
  bits: int,
  group: int,
  dtype: torch.dtype,
) -> torch.Tensor:
  import torch

  def rows(table: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.embedding(table, indices)

  groups = scales.shape[1]
  of_zeros = None if zeros is None else rows(zeros)
  result = numbers(rows(weight), rows(scales), of_zeros, values, bits, group)
  return result.reshape([*indices.shape, groups * group]).to(dtype)


def arithmetic(
  input: torch.Tensor,
  weight: torch.Tensor,
  scales: torch.Tensor,
  zeros: torch.Tensor | None,
  values: torch.Tensor | None,
  bias: torch.Tensor | None,
  residual: torch.Tensor | None,
  activation: str,
  bits: int,
  group: int,
) -> torch.Tensor:
  """The operator without an activation and a residual, which only targets with a kernel give it."""
  import torch

  assert activation == "none" and residual is None
  matrix = numbers(weight, scales, zeros, values, bits, group).to(input.dtype)
  return torch.nn.functional.linear(input, matrix, bias)


# So many numbers of a weight are made of its codes at a time in eager mode.
_BLOCK = 1 << 24


def _in_blocks(
  input: torch.Tensor,
  weight: torch.Tensor,
  scales: torch.Tensor,
  zeros: torch.Tensor | None,
  values: torch.Tensor | None,
  bias: torch.Tensor | None,
  residual: torch.Tensor | None,
  activation: str,
  bits: int,
  group: int,
) -> torch.Tensor:
  """The operator in eager mode, which has the numbers of some rows of the weight in memory."""
  import torch

  step = max(1, _BLOCK // max(1, scales.shape[1] * group))
  if weight.shape[0] <= step:
    return arithmetic(input, weight, scales, zeros, values, bias, residual, activation, bits, group)
  parts = []
  for begin in range(0, weight.shape[0], step):
    weight_, scales_, zeros_, bias_ = (
      None if one is None else one[begin : begin + step] for one in (weight, scales, zeros, bias)
    )
    assert weight_ is not None and scales_ is not None
    parts.append(
      arithmetic(input, weight_, scales_, zeros_, values, bias_, None, activation, bits, group)
    )
  return torch.cat(parts, -1)


def as_arithmetic(
  exported: ExportedProgram, supports: Callable[..., bool] | None = None
) -> ExportedProgram:
  """A program with operators of torch's in place of the calls of the operator for which a target
  has no kernel. `supports` says of the arguments of a call whether there is one; without it there
  is none at all."""

  def has_kernel(*arguments: Any) -> bool:
    return supports is not None and supports(*arguments)

  calls = [graphs.arguments(node) for node in graphs.nodes(exported) if node.target is operator()]
  if all(has_kernel(*map(_value, call.values())) for call in calls):
    return exported

  def decomposed(*arguments: Any) -> Any:
    return NotImplemented if has_kernel(*arguments) else arithmetic(*arguments)

  return torch_compat.functional(exported, {operator(): decomposed})


def _value(argument: Any) -> Any:
  """The tensor that an argument of a node is."""
  import torch

  return argument.meta["val"] if isinstance(argument, torch.fx.Node) else argument
