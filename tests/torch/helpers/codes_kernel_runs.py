"""Runs the kernel of layers whose weights are codes (husk/rows/codes_kernel.py) by
gluon_interpreter.py."""

import pathlib

import gluon_interpreter
import rows_reference
import torch
from husk import rows
from husk.launches import call
from husk.quantized.operator import numbers
from husk.rows import unpacking

TEXT = call.module_text(pathlib.Path(rows.__file__).parent / "codes_kernel.py")
E4M3 = torch.float8_e4m3fn
INT4 = dict(bits=4, group=32, scales=torch.float16)


def codes_of(count, k, bits, kind, group, scales, zeros):
  """Random codes, scales and zeros of a weight, and the weight in f64."""
  codes = torch.randint(0, 256, (count, k * bits // 8), dtype=torch.uint8)
  if kind == E4M3:
    codes &= 0xBF  # no NaN
  size = 1 / (4 if bits == 4 else 74) / k**0.5
  of_groups = ((torch.rand(count, k // group) + 0.5) * size).to(scales)
  offsets = None
  if zeros is not None:
    offsets = torch.randint(-8, 8, (count, k // group)).to(zeros)
    offsets = offsets + 0.5 if zeros.is_floating_point else offsets
  weight = numbers(codes.view(kind), of_groups.double(), offsets, None, bits, group)
  return codes, of_groups, offsets, weight


def launch(
  text,
  programs,
  x,
  weights,
  columns,
  out,
  bits,
  group,
  factors=None,
  biases=(None,),
  added=None,
  experts=None,
  shares=None,
  norm=False,
  rows=1,
  gate="",
  is_rounded=False,
  times=1,
  offset=0,
  count=0,
  tile=16,
  warps=4,
  depth=4,
  split=None,
):
  """Runs the kernel on rows `x` and weights, each of which has codes, scales, and zeros or None.
  `is_rounded` says whether numbers are multiplied with their scales before, the other arguments are
  the kernel's."""
  padded = rows_reference.padded

  def paired(values):
    return None if values is None else values.view(torch.int32) if bits == 4 else values

  codes = weights[0][0].dtype
  name, codes_name = (str(one).removeprefix("torch.") for one in (out.dtype, codes))
  instructions = unpacking.numbers(bits, codes_name, name)
  if is_rounded:
    has_zeros = weights[0][2] is not None
    instructions = unpacking.scaled_numbers(bits, codes_name, name, has_zeros)
  gluon_interpreter.launch(
    text,
    "few_rows_codes",
    programs,
    [
      paired(x),
      paired(factors),
      *padded([codes.view(torch.int8) for codes, *_ in weights]),
      *padded([scales for _, scales, *_ in weights]),
      *padded([zeros for _, _, zeros, *_ in weights]),
      *padded(biases),
      added,
      experts,
      shares,
      out,
      1e-3 if norm else -1.0,
      x.shape[-1],
      *padded(columns, 0),
      rows,
      gate,
      bits,
      group or x.shape[-1],
      instructions,
      unpacking.order(bits),
      unpacking.scaled(bits, name),
      rows == 1 and codes != E4M3,
      times,
      offset,
      count,
      tile,
      warps,
      depth,
      split or warps,
    ],
  )


def error(out, right):
  """The error of a result, divided by its norm and the distance of numbers of its dtype."""
  return float((out.double() - right).norm() / right.norm()) / torch.finfo(out.dtype).eps
