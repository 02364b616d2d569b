"""Layers between tensors of codes of 8 bits: convolutions and linear layers whose input is
dequantized from u8 or i8 and whose weight is dequantized from i8 constants with zeros of 0, as
`convert_pt2e` of torchao writes them. Hosts have an operator for them
(host/convolution_int8.py). For GPUs `rewrite` makes them products of ints."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..fusion import convolutions, rewriting
from ..inductor import graphs, own_operators
from . import operator as quantized_operator
from .rewriting import Constants

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

# A torch.ops overload.
Operator = Any


@dataclasses.dataclass(frozen=True)
class Codes:
  """A tensor of codes, and the numbers that they stand for: (code - zero) * scale. Scale and zero
  are numbers, or nodes of tensors with one element."""

  node: torch.fx.Node
  scale: Any
  zero: Any


@dataclasses.dataclass(frozen=True)
class Weight:
  """Codes of i8, and the node of their scales, or a scale for all."""

  codes: torch.fx.Node
  scales: torch.fx.Node | float


@dataclasses.dataclass(frozen=True)
class Layer:
  """A layer of codes; the lists are empty for a linear layer."""

  input: Codes
  weight: Weight
  bias: torch.fx.Node | None
  stride: list[int]
  padding: list[int]
  dilation: list[int]
  groups: int


def layers(exported: ExportedProgram) -> Iterator[tuple[torch.fx.Node, Layer]]:
  import torch

  constants = Constants(exported)
  for node in exported.graph.nodes:
    if node.op != "call_function":
      continue
    if node.target is torch.ops.aten.linear.default:
      layer = _linear(node, constants)
    elif node.target is quantized_operator.operator():
      layer = _linear_quantized(node)
    else:
      layer = _convolution(node, constants)
    if layer is not None and _is_supported(layer):
      yield node, layer


# With more products of two codes, a sum may leave i32.
_MOST_DEPTH = 65536


def _is_supported(layer: Layer) -> bool:
  import torch

  shape = layer.weight.codes.meta["val"].shape
  if not all(isinstance(size, int) for size in shape) or not 0 < shape[1:].numel() <= _MOST_DEPTH:
    return False
  if layer.bias is not None and layer.bias.meta["val"].dtype != torch.float32:
    return False
  return len(shape) == 2 or layer.input.node.meta["val"].dim() == len(shape) <= 4


def _convolution(node: torch.fx.Node, constants: Constants) -> Layer | None:
  found = convolutions.convolution_of(node)
  if found is None or found.transposed:
    return None
  input, weight = activations(found.input), _weight(found.weight, constants)
  if input is None or weight is None:
    return None
  return Layer(input, weight, found.bias, found.stride, found.padding, found.dilation, found.groups)


def _linear(node: torch.fx.Node, constants: Constants) -> Layer | None:
  values = graphs.arguments(node)
  input, weight = activations(values["input"]), _weight(values["weight"], constants)
  if input is None or weight is None:
    return None
  return Layer(input, weight, values["bias"], [], [], [], 1)


def _linear_quantized(node: torch.fx.Node) -> Layer | None:
  """A linear layer whose weight was recognised before."""
  import torch

  call = quantized_operator.Call(*graphs.arguments(node).values())
  input = activations(call.input)
  weight: Any = call.weight
  scales: Any = call.scales
  if input is None or call.zeros is not None or call.values is not None or call.bits != 8:
    return None
  if weight.meta["val"].dtype != torch.int8 or scales.meta["val"].shape[1] != 1:
    return None
  if call.residual is not None or call.activation != "none":
    return None
  bias: Any = call.bias
  return Layer(input, Weight(weight, scales), bias, [], [], [], 1)


def names(node: Any) -> tuple[str, str]:
  """The packet and the overload of a call of an operator for quantized tensors."""
  schema = getattr(getattr(node, "target", None), "_schema", None)
  if getattr(node, "op", "") != "call_function" or schema is None:
    return "", ""
  namespace, _, packet = schema.name.partition("::")
  if namespace != "quantized_decomposed":
    return "", ""
  return packet, schema.overload_name or "default"


def activations(node: Any) -> Codes | None:
  """The codes of a tensor of f32 that is dequantized with one scale and one zero."""
  import torch

  packet, _ = names(node)
  if packet != "dequantize_per_tensor" or node.meta["val"].dtype != torch.float32:
    return None
  values = graphs.arguments(node)
  codes, scale, zero = values["input"], values["scale"], values["zero_point"]
  if codes.meta["val"].dtype not in (torch.uint8, torch.int8):
    return None
  if isinstance(scale, torch.fx.Node) != isinstance(zero, torch.fx.Node):
    return None
  if isinstance(scale, torch.fx.Node) and not _is_dynamic(scale, zero):
    return None
  return Codes(codes, scale, zero)


def _is_dynamic(scale: torch.fx.Node, zero: torch.fx.Node) -> bool:
  import torch

  values = [node.meta["val"] for node in (scale, zero)]
  return (
    all(value.numel() == 1 for value in values)
    and values[0].dtype in (torch.float32, torch.float64)
    and values[1].dtype in (torch.int32, torch.int64)
  )


def _weight(node: Any, constants: Constants) -> Weight | None:
  """The codes of a weight whose zeros are 0, with a scale for each channel or one for all."""
  import torch

  packet, overload = names(node)
  if packet not in ("dequantize_per_channel", "dequantize_per_tensor"):
    return None
  values = graphs.arguments(node)
  codes, zero = values["input"], values.get("zero_point", values.get("zero_points"))
  if node.meta["val"].dtype != torch.float32 or codes.meta["val"].dtype != torch.int8:
    return None
  if codes not in constants.tensors:
    return None
  if packet == "dequantize_per_tensor":
    scale = values["scale"]
    return Weight(codes, scale) if overload == "default" and zero == 0 else None
  scales = values["scales"]
  if values["axis"] != 0 or (zero is not None and not _is_zero(zero, constants)):
    return None
  return Weight(codes, scales)


def _is_zero(node: torch.fx.Node, constants: Constants) -> bool:
  found = constants.tensors.get(node)
  return found is not None and not found[1].any()


# Products of ints


# A product adds so many elements of a row at a time; shorter rows are filled with zeros. Layers
# with fewer are left to products of floats.
_DEPTH, _LEAST_DEPTH = 128, 32


@functools.cache
def operator() -> Operator:
  """husk::layer_of_codes, which programs have as products of ints. It is defined once per
  process. The lists are empty for a linear layer. `dynamic_scale` and `dynamic_zero`, of one
  element each, take the place of the numbers of the input."""
  return own_operators.define(
    "layer_of_codes",
    "Tensor input, Tensor weight, Tensor? scales, float weight_scale, Tensor? bias, int[] stride, "
    "int[] padding, int[] dilation, float input_scale, int input_zero, Tensor? dynamic_scale, "
    "Tensor? dynamic_zero",
    _fake,
    decomposed=_products,
  )


def rewrite(exported: ExportedProgram) -> ExportedProgram:
  """A copy of a program in which linear layers and convolutions of codes are products of ints. A
  program without one is returned itself."""
  names = {node.name for node, layer in layers(exported) if _is_product(layer)}
  if not names:
    return exported

  def change(graph: torch.fx.Graph) -> None:
    for node, layer in list(layers(copy)):
      if node.name in names:
        _become_product(node, layer)

  copy = rewriting.rewrite(exported, lambda node: node.name in names, lambda graph: None)
  change(copy.graph)
  copy.graph.eliminate_dead_code()
  copy.graph_module.recompile()
  return copy


def _is_product(layer: Layer) -> bool:
  shape = layer.weight.codes.meta["val"].shape
  return layer.groups == 1 and len(shape) in (2, 4) and shape[1:].numel() >= _LEAST_DEPTH


def _become_product(node: torch.fx.Node, layer: Layer) -> None:
  import torch

  scales: Any = layer.weight.scales
  is_node = isinstance(scales, torch.fx.Node)
  dynamic = isinstance(layer.input.scale, torch.fx.Node)
  numbers = (layer.input.scale, layer.input.zero)
  node.target, node.kwargs = operator(), {}
  node.args = (
    layer.input.node,
    layer.weight.codes,
    *((scales, 1.0) if is_node else (None, scales)),
    layer.bias,
    layer.stride,
    layer.padding,
    layer.dilation,
    *((1.0, 0, *numbers) if dynamic else (*numbers, None, None)),
  )


def _fake(input: torch.Tensor, weight: torch.Tensor, *rest: Any) -> torch.Tensor:
  import torch

  if weight.dim() == 2:
    return input.new_empty([*input.shape[:-1], weight.shape[0]], dtype=torch.float32)
  stride, padding, dilation = rest[3:6]
  numbers = [torch.empty_like(one, dtype=torch.float32) for one in (input, weight)]
  return torch.ops.aten.convolution(
    *numbers, None, stride, padding, dilation, False, [0] * len(stride), 1
  )


def _products(
  input: torch.Tensor,
  weight: torch.Tensor,
  scales: torch.Tensor | None,
  weight_scale: float,
  bias: torch.Tensor | None,
  stride: list[int],
  padding: list[int],
  dilation: list[int],
  input_scale: float,
  input_zero: int,
  dynamic_scale: torch.Tensor | None,
  dynamic_zero: torch.Tensor | None,
) -> torch.Tensor:
  import torch
  from torch.nn import functional

  zero: Any = input_zero if dynamic_zero is None else dynamic_zero.reshape(()).to(torch.int32)
  if input.dtype == torch.uint8:  # the product takes i8
    input, zero = (input.to(torch.int16) - 128).to(torch.int8), zero - 128
  if weight.dim() == 2:
    shape, rows = [*input.shape[:-1], weight.shape[0]], input.reshape(-1, weight.shape[1])
  else:
    rows, shape = _patches(input, weight, zero, stride, padding, dilation)
    weight = weight.permute(0, 2, 3, 1).reshape(weight.shape[0], -1)
  missing = -weight.shape[1] % _DEPTH
  if missing:
    rows, weight = functional.pad(rows, [0, missing]), functional.pad(weight, [0, missing])
  sums = torch.ops.aten._int_mm(rows, weight.T)
  if dynamic_zero is not None or zero != 0:
    sums = sums - zero * weight.sum(1, dtype=torch.int32)
  factor: Any = input_scale if dynamic_scale is None else dynamic_scale.reshape(()).float()
  factor = factor * (weight_scale if scales is None else scales.reshape(-1).float())
  result = sums.to(torch.float32) * factor
  if bias is not None:
    result = result + bias
  result = result.reshape(shape)
  return result if len(stride) == 0 else result.permute(0, 3, 1, 2)


def _patches(
  input: torch.Tensor,
  weight: torch.Tensor,
  zero: Any,
  stride: list[int],
  padding: list[int],
  dilation: list[int],
) -> tuple[torch.Tensor, list[Any]]:
  """The codes that each element of a convolution reads, as a row each, and the sizes of its result
  with the channels last."""
  import torch
  from torch.nn import functional

  images = input.permute(0, 2, 3, 1)
  if any(padding):
    height, width = padding
    sides = [0, 0, width, width, height, height]
    if isinstance(zero, torch.Tensor):
      inside = functional.pad(torch.ones_like(images, dtype=torch.bool), sides)
      images = torch.where(inside, functional.pad(images, sides), zero.to(torch.int8))
    else:
      images = functional.pad(images, sides, value=zero)
  kernel = weight.shape[2:]
  sizes = [
    (size - step * (taps - 1) - 1) // jump + 1
    for size, taps, step, jump in zip(images.shape[1:3], kernel, dilation, stride, strict=True)
  ]
  patches = [
    images[
      :,
      y * dilation[0] : y * dilation[0] + stride[0] * (sizes[0] - 1) + 1 : stride[0],
      x * dilation[1] : x * dilation[1] + stride[1] * (sizes[1] - 1) + 1 : stride[1],
    ]
    for y in range(kernel[0])
    for x in range(kernel[1])
  ]
  joined = patches[0] if len(patches) == 1 else torch.cat(patches, -1)
  shape = [input.shape[0], *sizes, weight.shape[0]]
  return joined.reshape(-1, joined.shape[-1]), shape
