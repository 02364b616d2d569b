"""The operators whose weight has codes, as torch knows them and as arithmetic of torch's:
`husk::linear_quantized`, for which some targets have a kernel, and `husk::embedding_quantized`, for
which none has."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

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


class Call(NamedTuple):
  """The arguments of a call of husk::linear_quantized."""

  input: torch.Tensor
  weight: torch.Tensor
  scales: torch.Tensor
  zeros: torch.Tensor | None
  values: torch.Tensor | None
  bias: torch.Tensor | None
  residual: torch.Tensor | None
  activation: str
  bits: int
  group: int


def _fake(*arguments: Any) -> torch.Tensor:
  call = Call(*arguments)
  return call.input.new_empty([*call.input.shape[:-1], call.weight.shape[0]])


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


def _arithmetic(call: Call) -> torch.Tensor:
  """A call without an activation and a residual, which only targets with a kernel give it."""
  import torch

  assert call.activation == "none" and call.residual is None
  matrix = numbers(call.weight, call.scales, call.zeros, call.values, call.bits, call.group)
  return torch.nn.functional.linear(call.input, matrix.to(call.input.dtype), call.bias)


# So many numbers of a weight are made of its codes at a time in eager mode.
_BLOCK = 1 << 24


def _in_blocks(*arguments: Any) -> torch.Tensor:
  """The operator in eager mode, which has the numbers of some rows of the weight in memory."""
  import torch

  call = Call(*arguments)
  step = max(1, _BLOCK // max(1, call.scales.shape[1] * call.group))
  if call.weight.shape[0] <= step:
    return _arithmetic(call)
  parts = []
  for begin in range(0, call.weight.shape[0], step):
    rows = slice(begin, begin + step)
    part = call._replace(
      weight=call.weight[rows],
      scales=call.scales[rows],
      zeros=None if call.zeros is None else call.zeros[rows],
      bias=None if call.bias is None else call.bias[rows],
    )
    parts.append(_arithmetic(part))
  return torch.cat(parts, -1)


def as_arithmetic(
  exported: ExportedProgram, supports: Callable[[Call], bool] = lambda call: False
) -> ExportedProgram:
  """A program with operators of torch's in place of the calls of the operator for which a target
  has no kernel. `supports` says whether it has one for a call."""
  nodes = [node for node in graphs.nodes(exported) if node.target is operator()]
  calls = [Call(*map(_value, graphs.arguments(node).values())) for node in nodes]
  if all(map(supports, calls)):
    return exported

  def decomposed(*arguments: Any) -> Any:
    call = Call(*arguments)
    return NotImplemented if supports(call) else _arithmetic(call)

  return torch_compat.functional(exported, {operator(): decomposed})


def _value(argument: Any) -> Any:
  """The tensor that an argument of a node is; another argument itself."""
  import torch

  return argument.meta["val"] if isinstance(argument, torch.fx.Node) else argument
