"""Convolutions and linear layers between tensors of codes of 8 bits, as one step each on hosts.

`rewrite` looks for convolutions and linear layers whose input is dequantized from u8 or i8 and
whose weight is dequantized from i8 constants with zeros of 0, as `convert_pt2e` of torchao writes
them. Such a layer becomes `husk::convolution_int8`, which adds codes, with the residual, the
activation and the quantization that follow. Without a quantization the result is f32. Every other
layer stays as it is, and is computed in f32 from the numbers that its codes stand for.

Sums of products of codes are exact. What follows them is computed in f32, as in the model, but
scales are multiplied in another order, so that a result can round to the neighbouring code.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..fusion import parts
from ..fusion.chain import Chain, Part
from ..fusion.order import Order
from ..inductor import exported_programs, graphs, own_operators
from ..inductor.lines import InductorObject
from ..quantized import int_layers
from . import convolution

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

# A torch.ops overload.
Operator = Any


@functools.cache
def operator() -> Operator:
  """husk::convolution_int8. It is defined once per process. `dynamic_scale` and `dynamic_zero`, of
  one element each, take the place of the numbers of the input. `dtype` is that of the result; if
  it is f32, the numbers of the output are not used."""
  return own_operators.define(
    "convolution_int8",
    "Tensor input, Tensor weight, Tensor scales, Tensor? bias, int[] stride, int[] padding, "
    "int[] dilation, int groups, float input_scale, int input_zero, Tensor? dynamic_scale, "
    "Tensor? dynamic_zero, Tensor? residual, float residual_scale, int residual_zero, "
    "str activation, float out_scale, int out_zero, int out_least, int out_most, "
    "ScalarType dtype",
    _fake,
  )


_INPUT, _WEIGHT, _RESIDUAL, _DTYPE = 0, 1, 12, 20
_TENSORS = (_INPUT, _WEIGHT, 2, 3, 10, 11, _RESIDUAL)


def _fake(input: torch.Tensor, weight: torch.Tensor, *rest: Any) -> torch.Tensor:
  import torch

  dtype = rest[-1]
  if weight.dim() == 2:
    return input.new_empty([*input.shape[:-1], weight.shape[0]], dtype=dtype)
  numbers = [torch.empty_like(one, dtype=torch.float32) for one in (input, weight)]
  stride, padding, dilation, groups = rest[2:6]
  zeros = [0] * len(stride)
  result = torch.ops.aten.convolution(
    *numbers, None, stride, padding, dilation, False, zeros, groups
  )
  return torch.empty_like(result, dtype=dtype)


# Calls in a program


@dataclasses.dataclass(frozen=True)
class _Quantization:
  scale: float
  zero: int
  least: int
  most: int
  dtype: torch.dtype


def rewrite(exported: ExportedProgram, in_place: bool = False) -> ExportedProgram:
  """A copy of a program in which layers of codes are calls of Husk's operator. A program without
  one is returned itself. With `in_place`, the program itself is changed."""
  if not any(True for _ in int_layers.layers(exported)):
    return exported
  program = exported if in_place else exported_programs.copied(exported)
  order = Order(program.graph)
  finds = {
    "residual": parts.residual,
    "activation": parts.activation,
    "quantization": _quantization,
  }
  for node, layer in list(int_layers.layers(program)):
    _replace(program.graph, layer, Chain(node, order, finds))
  program.graph.eliminate_dead_code()
  program.graph_module.recompile()
  return program


def _quantization(node: torch.fx.Node, value: torch.fx.Node) -> Part | None:
  """A quantization of `value` with one scale and one zero, which are numbers."""
  import torch

  if int_layers.names(node) != ("quantize_per_tensor", "default"):
    return None
  values = graphs.arguments(node)
  dtype = values["dtype"]
  if values["input"] is not value or dtype not in (torch.uint8, torch.int8):
    return None
  numbers = (values["scale"], values["zero_point"], values["quant_min"], values["quant_max"])
  return Part(_Quantization(*numbers, dtype), [node])


def _replace(graph: torch.fx.Graph, layer: int_layers.Layer, chain: Chain) -> None:
  """Makes the last node of a chain the call."""
  import torch

  quantization = chain.parts.get("quantization")
  residual = chain.parts.get("residual")
  added = None if residual is None else int_layers.activations(residual)
  if added is not None and isinstance(added.scale, torch.fx.Node):
    added = None
  dynamic = isinstance(layer.input.scale, torch.fx.Node)
  with graph.inserting_before(chain.last):
    scales = _scales(graph, layer.weight)
  plain = _Quantization(1.0, 0, 0, 0, torch.float32)
  out = quantization or plain
  chain.become(
    operator(),
    (
      layer.input.node,
      layer.weight.codes,
      scales,
      layer.bias,
      layer.stride,
      layer.padding,
      layer.dilation,
      layer.groups,
      *((1.0, 0) if dynamic else (layer.input.scale, layer.input.zero)),
      *((layer.input.scale, layer.input.zero) if dynamic else (None, None)),
      residual if added is None else added.node,
      *((1.0, 0) if added is None else (added.scale, added.zero)),
      chain.parts.get("activation", "none"),
      *dataclasses.astuple(out),
    ),
  )


def _scales(graph: torch.fx.Graph, weight: int_layers.Weight) -> torch.fx.Node:
  """The scales of a weight as a vector of f32."""
  import torch

  aten = torch.ops.aten
  mode: Any = weight.codes.meta["val"].fake_mode

  def call(target: Operator, *args: Any, **kwargs: Any) -> torch.fx.Node:
    node = graph.call_function(target, args, kwargs)
    values = [arg.meta["val"] if isinstance(arg, torch.fx.Node) else arg for arg in args]
    with mode:
      node.meta["val"] = target(*values, **kwargs)
    return node

  if not isinstance(weight.scales, torch.fx.Node):
    options = {"dtype": torch.float32, "device": weight.codes.meta["val"].device}
    return call(aten.full.default, [1], weight.scales, **options)
  scales = weight.scales
  if scales.meta["val"].dim() != 1:
    scales = call(aten.reshape.default, scales, [-1])
  if scales.meta["val"].dtype != torch.float32:
    scales = call(aten._to_copy.default, scales, dtype=torch.float32)
  return scales


# Inductor's node


def lowerings() -> dict[Operator, Callable[..., Any]]:
  """Inductor's lowerings by operator."""
  return {operator(): _lowered}


def _lowered(*arguments: Any) -> InductorObject:
  import torch
  from torch._inductor.lowering import lowerings as table
  from torch._inductor.utils import sympy_product

  args = list(arguments)
  input, weight, dtype = args[_INPUT], args[_WEIGHT], args[_DTYPE]
  if len(weight.get_size()) > 2:
    images = {_INPUT, _RESIDUAL}
    return convolution.call(operator(), args, _TENSORS, images, dtype)
  reshape = table[torch.ops.aten.reshape.default]
  size = [*input.get_size()[:-1], weight.get_size()[0]]
  rows = [sympy_product(size[:-1]), size[-1]]
  args[_INPUT] = reshape(input, [rows[0], input.get_size()[-1]])
  if args[_RESIDUAL] is not None:
    args[_RESIDUAL] = reshape(args[_RESIDUAL], rows)
  return reshape(convolution.call(operator(), args, _TENSORS, set(), dtype, rows), size)
