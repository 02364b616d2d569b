"""Convolutions of host targets, with the operations that follow them.

`rewrite` replaces a program's convolutions by `husk::convolution`, before torch decomposes
anything. A call computes activation(channel_scale * convolution + bias + residual). A batch norm of
inference becomes the scale and the bias, which the program computes from the constants of the batch
norm in each run. That takes microseconds, and the constants stay what they are in the model, so
that they can be queried and updated. Inductor lowers the operator to a call of libhusk_ops with
inputs and outputs in the channels-last format (`lowerings`).

A convolution and the depthwise one that alone reads its results are one call of
`husk::convolution_depthwise` if the results between them are large. They are never in memory as a
whole then.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator as python_operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import sympy

from ..fusion import convolutions, parts, rewriting
from ..fusion.chain import Chain, Part
from ..fusion.order import Order
from ..inductor import graphs
from ..inductor.layouts import dense_strides
from ..inductor.lines import InductorObject
from ..inductor.own_operators import define, realized

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

# A torch.ops overload.
Operator = Any


@functools.cache
def operator() -> Operator:
  """husk::convolution. It is defined once per process. Its first arguments are those of
  aten::convolution. Operators that use the result must not rely on its strides."""
  return define(
    "convolution",
    "Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, "
    "bool transposed, int[] output_padding, int groups, Tensor? channel_scale, Tensor? residual, "
    "str activation",
    _fake,
  )


def _fake(input: torch.Tensor, weight: torch.Tensor, bias: Any, *rest: Any) -> torch.Tensor:
  import torch

  return torch.ops.aten.convolution(input, weight, None, *rest[:6])


@functools.cache
def pair_operator() -> Operator:
  """husk::convolution_depthwise, which computes a convolution and the depthwise one that reads its
  results. It is defined once per process."""
  return define(
    "convolution_depthwise",
    "Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, "
    "Tensor? channel_scale, str activation, Tensor depthwise_weight, Tensor? depthwise_bias, "
    "int[] depthwise_stride, int[] depthwise_padding, int[] depthwise_dilation, "
    "Tensor? depthwise_scale, str depthwise_activation",
    _fake_pair,
  )


def _fake_pair(input: torch.Tensor, *rest: Any) -> torch.Tensor:
  first, second = rest[:7], rest[7:]
  result = _fake(input, first[0], None, *first[2:5], False, [0, 0], 1)
  return _fake(result, second[0], None, *second[2:5], False, [0, 0], second[0].shape[0])


# Calls in a program

# The places of arguments of husk::convolution.
_INPUT, _WEIGHT, _BIAS, _TRANSPOSED, _GROUPS, _SCALE, _RESIDUAL = 0, 1, 2, 6, 8, 9, 10


@dataclasses.dataclass
class _BatchNorm:
  """The arguments of a batch norm of inference."""

  weight: torch.fx.Node | None
  bias: torch.fx.Node | None
  mean: torch.fx.Node
  var: torch.fx.Node
  eps: float


def rewrite(exported: ExportedProgram, in_place: bool = False) -> ExportedProgram:
  """A copy of a program in which convolutions are calls of Husk's operator. A program without
  convolutions is returned itself. With `in_place`, the program itself is changed."""
  return rewriting.rewrite(
    exported, lambda node: convolutions.convolution_of(node) is not None, _rewrite_graph, in_place
  )


def _rewrite_graph(graph: torch.fx.Graph) -> None:
  order = Order(graph)
  finds = {"batch_norm": _batch_norm, "residual": parts.residual, "activation": parts.activation}
  for node in list(graph.nodes):
    convolution = convolutions.convolution_of(node)
    if convolution is not None:
      _replace(graph, convolution, Chain(node, order, finds))
  for node in list(graph.nodes):
    first = _first_of_pair(node)
    if first is not None and not order.is_written_between(first, node):
      _join(graph, first, node)


# Two convolutions in one call


def _first_of_pair(node: Any) -> torch.fx.Node | None:
  """The convolution whose results the depthwise convolution `node` reads, if one call computes
  both faster than two."""
  if not _is_plain_call(node):
    return None
  first = node.args[_INPUT]
  if not _is_plain_call(first) or len(first.users) != 1 or first.args[_GROUPS] != 1:
    return None
  channels = [call.args[_WEIGHT].meta["val"].shape[0] for call in (first, node)]
  is_depthwise = channels == [node.args[_GROUPS]] * 2
  return first if is_depthwise and _pays(first.meta["val"]) else None


def _is_plain_call(node: Any) -> bool:
  """Whether a node is a convolution of two dimensions that is not transposed and adds no
  residual."""
  if node.op != "call_function" or node.target is not operator():
    return False
  dims: int = node.args[_WEIGHT].meta["val"].dim() - 2
  return dims == 2 and not node.args[_TRANSPOSED] and node.args[_RESIDUAL] is None


# The results between two convolutions, of one image, that leave a core's second-level cache (1 MiB
# on the machine that this was measured on) before they are read.
_LARGE_BYTES = 640 << 10


def _pays(between: torch.Tensor) -> bool:
  """Whether the results between two convolutions are so large, at the sizes of the example, that
  to compute both together saves their way to slower memory and back."""
  sizes = [size if isinstance(size, int) else size.node.hint for size in between.shape[1:]]
  return None not in sizes and math.prod(sizes) * between.element_size() >= _LARGE_BYTES


def _join(graph: torch.fx.Graph, first: torch.fx.Node, second: torch.fx.Node) -> None:
  """Makes a depthwise convolution a call that computes its input too."""

  def part(call: torch.fx.Node) -> tuple[Any, ...]:
    *_, activation = call.args
    return *call.args[_WEIGHT:_TRANSPOSED], call.args[_SCALE], activation

  second.target = pair_operator()
  second.args = (first.args[_INPUT], *part(first), *part(second))
  graph.erase_node(first)


def _batch_norm(node: torch.fx.Node, value: torch.fx.Node) -> Part | None:
  """A batch norm of `value`, if its statistics are constants and its dtypes are equal. In half
  precision the scale would be rounded."""
  import torch

  aten = torch.ops.aten
  nodes = [node]
  if node.target is aten._native_batch_norm_legit_no_training.default:
    nodes += node.users
    if len(nodes) != 2 or nodes[1].target is not python_operator.getitem or nodes[1].args[1] != 0:
      return None
  elif node.target is not aten.batch_norm.default:
    return None
  values = graphs.arguments(node)
  found = _BatchNorm(
    values["weight"], values["bias"], values["running_mean"], values["running_var"], values["eps"]
  )
  if values.get("training", False) is not False or values["input"] is not value:
    return None
  if found.mean is None or found.var is None:
    return None
  dtype = value.meta["val"].dtype
  tensors = [found.weight, found.bias, found.mean, found.var]
  if dtype not in (torch.float32, torch.float64) or any(
    tensor is not None and tensor.meta["val"].dtype != dtype for tensor in tensors
  ):
    return None
  return Part(found, nodes)


def _replace(graph: torch.fx.Graph, convolution: convolutions.Convolution, chain: Chain) -> None:
  """Makes the last node of a chain the call."""
  scale, bias = None, convolution.bias
  if batch_norm := chain.parts.get("batch_norm"):
    meta = chain.nodes[1].meta
    with graph.inserting_before(chain.last):
      scale, bias = _scale_and_bias(graph, batch_norm, convolution.bias, meta)
  chain.become(
    operator(),
    (
      convolution.input,
      convolution.weight,
      bias,
      convolution.stride,
      convolution.padding,
      convolution.dilation,
      convolution.transposed,
      convolution.output_padding,
      convolution.groups,
      scale,
      chain.parts.get("residual"),
      chain.parts.get("activation", "none"),
    ),
  )


def _scale_and_bias(
  graph: torch.fx.Graph, norm: _BatchNorm, bias: torch.fx.Node | None, meta: dict[str, Any]
) -> tuple[torch.fx.Node, torch.fx.Node]:
  """The scale and the bias of a convolution with a bias and a batch norm; `meta` is of the norm."""
  import torch

  aten = torch.ops.aten

  def call(target: Operator, *args: Any) -> torch.fx.Node:
    node = graph.call_function(target, args)
    values = [arg.meta["val"] if isinstance(arg, torch.fx.Node) else arg for arg in args]
    node.meta = {**meta, "val": target(*values)}
    return node

  scale = call(aten.rsqrt.default, call(aten.add.Scalar, norm.var, norm.eps))
  if norm.weight is not None:
    scale = call(aten.mul.Tensor, norm.weight, scale)
  mean = norm.mean if bias is None else call(aten.sub.Tensor, norm.mean, bias)
  shift = call(aten.mul.Tensor, mean, scale)
  if norm.bias is None:
    return scale, call(aten.neg.default, shift)
  return scale, call(aten.sub.Tensor, norm.bias, shift)


# Inductor's node


def lowerings() -> dict[Operator, Callable[..., Any]]:
  """Inductor's lowerings by operator."""
  return {operator(): _lowered, pair_operator(): _lowered_pair}


@functools.cache
def _node_class() -> Any:
  from torch._inductor import ir

  class Convolution(ir.ExternKernelAlloc):
    """A call of the operator. `inputs` are the tensors among its arguments, in their order."""

    call_args: tuple[Any, ...]  # the arguments; tensors are None
    tensor_places: list[int]  # the places of the tensors in `call_args`

    def unflatten_args(
      self, inputs: Sequence[InductorObject], constants: Sequence[Any]
    ) -> tuple[list[Any], dict[str, Any]]:
      args = list(self.call_args)
      for place, tensor in zip(self.tensor_places, inputs, strict=True):
        args[place] = tensor
      return args, {}

  return Convolution


def _lowered(*args: Any) -> Any:
  places = (_INPUT, _WEIGHT, _BIAS, _SCALE, _RESIDUAL)
  images = {_RESIDUAL} if _is_shallow(*args) else {_INPUT, _RESIDUAL}
  return call(operator(), args, places, images)


def _lowered_pair(*args: Any) -> Any:
  places = (_INPUT, _WEIGHT, _BIAS, 6, 8, 9, 13)  # the last four: the scale, the other convolution
  images = set() if _is_shallow(*args[:_TRANSPOSED], False) else {_INPUT}
  return call(pair_operator(), args, places, images)


def call(
  called: Operator,
  args: Sequence[Any],
  places: Sequence[int],
  images: set[int],
  dtype: torch.dtype | None = None,
  size: Sequence[Any] | None = None,
) -> Any:
  """A call whose result is in the channels-last format. Tensors lie at `places` of the arguments;
  those of `images` are brought into that format too. Without `dtype`, the result has the dtype of
  the first argument, and without `size` the size of the node that is lowered."""
  from torch._inductor import ir
  from torch._inductor.utils import convert_shape_to_inductor
  from torch._inductor.virtualized import V

  tensors = {
    place: _channels_last(args[place]) if place in images else realized(args[place])
    for place in places
    if args[place] is not None
  }
  if size is None:
    current: Any = V.graph.current_node
    size = convert_shape_to_inductor(current.meta["val"].shape)
  strides = dense_strides(size, _order(len(size))[::-1])
  input = args[_INPUT]
  layout = ir.FixedLayout(input.get_device(), dtype or input.get_dtype(), size, strides)
  node = _node_class()(layout, list(tensors.values()), op_overload=called)
  node.call_args = tuple(None if place in tensors else value for place, value in enumerate(args))
  node.tensor_places = list(tensors)
  return ir.TensorBox.create(node)


_SHALLOW = 32


def _is_shallow(*args: Any) -> bool:
  """Whether the kernel reads an input of any format faster than a copy of it in the channels-last
  format could be made: it has few channels, and each element of the output has few products."""
  sizes = [sympy.sympify(size) for size in args[_WEIGHT].get_size()[1:]]
  if args[_TRANSPOSED] or not all(size.is_Integer for size in sizes):
    return False
  return bool(1 < sizes[0] <= 4 and sympy.prod(sizes) <= _SHALLOW)


def _order(rank: int) -> list[int]:
  """The dimensions in the channels-last order, the innermost first."""
  return [1, *range(rank - 1, 1, -1), 0]


def _channels_last(tensor: InductorObject) -> InductorObject:
  """A tensor in memory in the channels-last format."""
  from torch._inductor import ir

  rank = len(tensor.get_size())
  ranks: list[int] = [0] * rank  # of each dimension, 0 for the innermost
  for index, dim in enumerate(_order(rank)):
    ranks[dim] = index
  return ir.ExternKernel.require_stride_order(tensor, ranks)
