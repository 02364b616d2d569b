"""The operators whose weight has codes, as torch knows them and as arithmetic of torch's:
`husk::linear_quantized` and `husk::grouped_linear_quantized`, for which some targets have a kernel,
and `husk::embedding_quantized` and `husk::dequantized`, for which none has."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ..inductor import exported_programs, graphs, own_operators

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


@functools.cache
def rounded_operator() -> Operator:
  """husk::linear_rounded: husk::linear_quantized with an input that is rounded to ints of 8 bits,
  which hosts have for codes that are ints (`may_round`)."""
  schema = str(operator()._schema)
  arguments = schema[schema.index("(") + 1 : schema.rindex(") ->")]
  return own_operators.define("linear_rounded", arguments, _fake)


# So many elements of a row share a scale if they are rounded.
_ROUNDED_BLOCK = 32


def may_round(call: Call) -> bool:
  """Whether the input of a call of husk::linear_quantized can be rounded."""
  are_ints = not call.weight.dtype.is_floating_point and call.values is None
  return are_ints and call.group % _ROUNDED_BLOCK == 0


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

  of_zeros = None if zeros is None else rows(zeros)
  return _numbers(rows(weight), rows(scales), of_zeros, values, bits, group, dtype)


@functools.cache
def dequantized() -> Operator:
  """husk::dequantized: the numbers of a weight, or of a stack of weights."""
  return own_operators.define(
    "dequantized",
    "Tensor weight, Tensor scales, Tensor? zeros, Tensor? values, int bits, int group, "
    "ScalarType dtype",
    _fake_numbers,
    decomposed=_numbers,
    eager=_numbers_in_blocks,
  )


def _fake_numbers(_weight: torch.Tensor, scales: torch.Tensor, *rest: Any) -> torch.Tensor:
  *_, group, dtype = rest
  return scales.new_empty([*scales.shape[:-1], scales.shape[-1] * group], dtype=dtype)


def _numbers(*arguments: Any) -> torch.Tensor:
  *of_weight, dtype = arguments
  return numbers(*of_weight).to(dtype)


def _numbers_in_blocks(
  weight: torch.Tensor,
  scales: torch.Tensor,
  zeros: torch.Tensor | None,
  values: torch.Tensor | None,
  bits: int,
  group: int,
  dtype: torch.dtype,
) -> torch.Tensor:
  """The same in eager mode, which has the numbers of some rows in f32 in memory."""
  import torch

  *rows, groups = scales.shape
  result = torch.empty(math.prod(rows), groups * group, dtype=dtype, device=scales.device)
  flat, of_scales = weight.flatten(0, -2), scales.flatten(0, -2)
  of_zeros = None if zeros is None else zeros.flatten(0, -2)
  step = max(1, _BLOCK // max(1, groups * group))
  for begin in range(0, len(result), step):
    part = slice(begin, begin + step)
    part_zeros = None if of_zeros is None else of_zeros[part]
    result[part] = numbers(flat[part], of_scales[part], part_zeros, values, bits, group)
  return result.reshape(*rows, groups * group)


# ---- stacks of weights ----


@functools.cache
def grouped_operator() -> Operator:
  """husk::grouped_linear_quantized: each row of the input times the transposed weight of its
  expert. weight, scales and zeros are stacks. Either `ends` has the ends of the experts' rows, and
  rows behind the last end are 0, or `experts` the expert of each row."""
  return own_operators.define(
    "grouped_linear_quantized",
    "Tensor input, Tensor weight, Tensor scales, Tensor? zeros, Tensor? values, Tensor? ends, "
    "Tensor? experts, int bits, int group",
    _fake_grouped,
    eager=_by_expert,
  )


class GroupedCall(NamedTuple):
  """The arguments of a call of husk::grouped_linear_quantized."""

  input: torch.Tensor
  weight: torch.Tensor
  scales: torch.Tensor
  zeros: torch.Tensor | None
  values: torch.Tensor | None
  ends: torch.Tensor | None
  experts: torch.Tensor | None
  bits: int
  group: int


def _fake_grouped(*arguments: Any) -> torch.Tensor:
  call = GroupedCall(*arguments)
  return call.input.new_empty([call.input.shape[0], call.weight.shape[1]])


def _matrices(call: GroupedCall, which: Any) -> torch.Tensor:
  """The numbers of one or several matrices of the stack."""
  zeros = None if call.zeros is None else call.zeros[which]
  matrices = numbers(
    call.weight[which], call.scales[which], zeros, call.values, call.bits, call.group
  )
  return matrices.to(call.input.dtype)


def _by_expert(*arguments: Any) -> torch.Tensor:
  """The operator in eager mode, which has the numbers of one matrix in memory."""
  call = GroupedCall(*arguments)
  result = _fake_grouped(*arguments).zero_()
  begin = 0
  for expert in range(call.weight.shape[0]):
    if call.experts is not None:
      rows: Any = (call.experts % call.weight.shape[0] == expert).nonzero()[:, 0]
      if not rows.numel():
        continue
    else:
      assert call.ends is not None
      rows = slice(begin, int(call.ends[expert]))
      begin = rows.stop
    result[rows] = call.input[rows] @ _matrices(call, expert).T
  return result


def _grouped_arithmetic(*arguments: Any) -> torch.Tensor:
  """The operator as arithmetic: numbers of the selected matrices, or products of all rows with each
  matrix, of which a row takes the one of its expert."""
  import torch

  call = GroupedCall(*arguments)
  if call.experts is not None:
    return torch.bmm(_matrices(call, call.experts), call.input.unsqueeze(2)).squeeze(2)
  assert call.ends is not None
  places = torch.arange(call.input.shape[0], device=call.input.device)
  expert_of = (call.ends.unsqueeze(0) <= places.unsqueeze(1)).sum(1).unsqueeze(1)
  result = torch.zeros_like(_fake_grouped(*arguments))
  for expert in range(call.weight.shape[0]):
    part = call.input @ _matrices(call, expert).T
    result = torch.where(expert_of == expert, part, result)
  return result


def _arithmetic(call: Call) -> torch.Tensor:
  """A call without an activation and a residual, which only targets with a kernel give it."""
  import torch

  assert call.activation == "none" and call.residual is None
  matrix = numbers(call.weight, call.scales, call.zeros, call.values, call.bits, call.group)
  return torch.nn.functional.linear(call.input, matrix.to(call.input.dtype), call.bias)


# So many numbers of a weight are made of its codes at a time in eager mode. Larger blocks leave the
# caches of a core, and take three times as long.
_BLOCK = 1 << 19


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
  """A program with operators of torch's in place of the calls for which a target has no kernel.
  `supports` says whether it has one for a call of husk::linear_quantized; the target has none for
  stacks of weights."""
  nodes = [node for node in graphs.nodes(exported) if node.target is operator()]
  calls = [Call(*map(graphs.value, graphs.arguments(node).values())) for node in nodes]
  has_stacks = any(node.target is grouped_operator() for node in graphs.nodes(exported))
  if all(map(supports, calls)) and not has_stacks:
    return exported

  def decomposed(*arguments: Any) -> Any:
    call = Call(*arguments)
    return NotImplemented if supports(call) else _arithmetic(call)

  wanted = {operator(): decomposed, grouped_operator(): _grouped_arithmetic}
  return exported_programs.functional(exported, wanted)
