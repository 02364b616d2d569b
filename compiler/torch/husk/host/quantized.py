"""Linear layers whose weights have codes, as one step each on hosts: `husk::linear_quantized`, or
`husk::linear_rounded`, with the bias, the activation that follows, and the residual that is added
last."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import hir
from ..fusion import parts, rewriting
from ..fusion.chain import Chain
from ..fusion.order import Order
from ..inductor import graphs, own_operators
from ..inductor.lines import InductorObject, NodeLine
from ..lower.body import Body
from ..lower.nodes import IrNode
from ..quantized import stacks
from ..quantized.operator import Call, grouped_operator, may_round, operator, rounded_operator
from .linear import residual_part

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram


def rewrite(
  exported: ExportedProgram, in_place: bool = False, rounds: bool = False
) -> ExportedProgram:
  """As `linear.rewrite`, for the layers that are Husk's operator already: adds the activation and
  the residual that follow. If `rounds` is set, inputs of layers are rounded where they can be."""
  change = functools.partial(_rewrite_graph, rounds)
  return rewriting.rewrite(exported, _is_layer, change, in_place)


def _is_layer(node: torch.fx.Node) -> bool:
  return node.target is operator()


def _rewrite_graph(rounds: bool, graph: torch.fx.Graph) -> None:
  order = Order(graph)
  for node in list(filter(_is_layer, graph.nodes)):
    layer = graphs.arguments(node)
    chain = Chain(node, order, {"activation": parts.activation, "residual": residual_part})
    changed = {
      "residual": chain.parts.get("residual"),
      "activation": chain.parts.get("activation", "none"),
    }
    is_rounded = rounds and may_round(Call(*map(graphs.value, layer.values())))
    target = rounded_operator() if is_rounded else operator()
    chain.become(target, tuple({**layer, **changed}.values()))


@functools.cache
def _node_class() -> Any:
  from torch._inductor import ir

  class LinearQuantized(ir.ExternKernelOut):
    """A linear layer over two-dimensional tensors, or one with a stack of weights, as the operator
    `operator`. `tensors` says of each tensor argument of the operator whether it is among the
    inputs, and `others` are the arguments that follow the tensors."""

    operator: str
    tensors: list[bool]
    others: list[hir.Argument]

    def codegen(self, wrapper: InductorObject) -> None:
      wrapper.writeline(NodeLine(self))

  return LinearQuantized


@functools.cache
def grouped_product() -> Any:
  """husk::grouped_product: rows that are sorted by expert, of which `ends` has the ends, times the
  matrix of their expert, of experts x k x n floats."""
  return own_operators.define(
    "grouped_product",
    "Tensor input, Tensor stack, Tensor ends",
    lambda input, stack, ends: input.new_empty([input.shape[0], stack.shape[2]]),
    eager=_by_group,
  )


def _by_group(input: torch.Tensor, stack: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
  result = input.new_zeros([input.shape[0], stack.shape[2]])
  begin = 0
  for matrix, end in zip(stack, ends.tolist()):
    result[begin:end] = input[begin:end] @ matrix
    begin = end
  return result


def rewrite_groups(exported: ExportedProgram, in_place: bool = False) -> ExportedProgram:
  """As `linear.rewrite`, for products of sorted rows with stacks of floats."""
  return rewriting.rewrite(exported, _is_grouped, _rewrite_groups, in_place)


def _is_grouped(node: torch.fx.Node) -> bool:
  found = stacks.product(node) if node.op == "call_function" else None
  if found is None or found[3].ends is None:
    return False
  dtypes = {str(each.meta["val"].dtype) for each in (found[0], found[1], node)}
  return len(dtypes) == 1 and dtypes < {"torch.float32", "torch.bfloat16", "torch.float16"}


def _rewrite_groups(graph: torch.fx.Graph) -> None:
  for node in list(filter(_is_grouped, graph.nodes)):
    input, stack, ends, *_ = graphs.arguments(node).values()
    node.target, node.args, node.kwargs = grouped_product(), (input, stack, ends), {}


def lowerings() -> dict[Any, Callable[..., Any]]:
  """Inductor's lowerings by operator."""
  return {
    grouped_product(): _product_lowered,
    operator(): functools.partial(_lowered, "husk::linear_quantized"),
    rounded_operator(): functools.partial(_lowered, "husk::linear_rounded"),
    grouped_operator(): _grouped_lowered,
  }


def _lowered(name: str, *arguments: Any) -> InductorObject:
  import torch
  from torch._inductor.lowering import lowerings as table
  from torch._inductor.utils import sympy_product

  *tensors, activation, bits, group = arguments
  input, weight, residual = tensors[0], tensors[1], tensors[-1]
  reshape = table[torch.ops.aten.reshape.default]
  size = [*input.get_size()[:-1], weight.get_size()[0]]
  rows = sympy_product(size[:-1])
  tensors[0] = reshape(input, [rows, input.get_size()[-1]])
  if residual is not None:
    tensors[-1] = reshape(residual, [rows, size[-1]])
  others = [hir.Text(activation), hir.Literal(bits), hir.Literal(group)]
  result = _node(name, tensors, others, [rows, size[-1]])
  return reshape(result, size)


def _grouped_lowered(*arguments: Any) -> InductorObject:
  *tensors, bits, group = arguments
  size = [tensors[0].get_size()[0], tensors[1].get_size()[1]]
  others: list[hir.Argument] = [hir.Literal(bits), hir.Literal(group)]
  return _node("husk::grouped_linear_quantized", tensors, others, size)


def _product_lowered(*tensors: InductorObject) -> InductorObject:
  size = [tensors[0].get_size()[0], tensors[1].get_size()[2]]
  return _node("husk::grouped_product", list(tensors), [], size)


def _node(
  name: str, tensors: list[InductorObject], others: list[hir.Argument], size: list[Any]
) -> InductorObject:
  """A LinearQuantized node, whose result has the dtype of the first tensor."""
  from torch._inductor import ir

  inputs = [own_operators.realized(one) for one in tensors if one is not None]
  layout = ir.FixedLayout(tensors[0].get_device(), tensors[0].get_dtype(), size)
  node = _node_class()(layout=layout, inputs=inputs)
  node.operator, node.others = name, others
  node.tensors = [one is not None for one in tensors]
  return ir.TensorBox.create(node)


def call(body: Body, node: IrNode) -> None:
  """Writes the call for a LinearQuantized node."""
  inputs = iter(node.inputs)
  arguments: list[hir.Argument] = [
    body.tensor("read", next(inputs)) if is_given else hir.NoneArg() for is_given in node.tensors
  ]
  results: list[hir.Argument] = [body.tensor("write", node)]
  body.call_operator(
    hir.OperatorCall(node.operator, arguments + node.others, results, body.origin(node))
  )


# Classes of nodes -> the functions that write them, for a VariantWriter.
NODES = {"LinearQuantized": call}
