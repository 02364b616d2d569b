"""Linear layers of a host target as one step each: the product with the weight, the bias, the
activation that follows, and the residual that is added last.

`rewrite` replaces these operators of a program by `husk::linear`, before torch decomposes anything.
Inductor lowers `husk::linear` to a node, for which `call` writes the call of the host's operator
`husk::linear`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import hir
from ..fusion import parts, rewriting
from ..fusion.chain import Chain, Part
from ..fusion.order import Order
from ..inductor import graphs, layouts, own_operators
from ..inductor.lines import InductorObject, NodeLine
from ..lower.body import Body
from ..lower.nodes import IrNode

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

# A torch.ops overload.
Operator = Any

_DTYPES = frozenset({"torch.float16", "torch.bfloat16", "torch.float32", "torch.float64"})


@functools.cache
def operator() -> Operator:
  """husk::linear, which is defined once per process."""
  return own_operators.define(
    "linear",
    "Tensor input, Tensor weight, Tensor? bias, Tensor? residual, str activation",
    _fake,
  )


def _fake(
  input: torch.Tensor,
  weight: torch.Tensor,
  bias: torch.Tensor | None,
  residual: torch.Tensor | None,
  activation: str,
) -> torch.Tensor:
  return input.new_empty([*input.shape[:-1], weight.shape[0]])


# The program


def rewrite(exported: ExportedProgram, in_place: bool = False) -> ExportedProgram:
  """A copy of a program in which each linear layer is Husk's operator, with the activation and the
  residual that follow. A program without linear layers is returned itself. With `in_place`, the
  program itself is changed."""
  return rewriting.rewrite(exported, _is_supported, _rewrite_graph, in_place)


def _is_supported(node: torch.fx.Node) -> bool:
  """Whether a node is a linear layer that the host's operator computes."""
  import torch

  if node.target is not torch.ops.aten.linear.default:
    return False
  tensors = [argument.meta["val"] for argument in node.all_input_nodes]
  return (
    {str(tensor.dtype) for tensor in tensors} <= _DTYPES
    and len({tensor.dtype for tensor in tensors}) == 1
    and tensors[0].dim() >= 2
    and node.args[1].meta["val"].dim() == 2  # type: ignore[union-attr]
    and all(tensor.device.type == "cpu" for tensor in tensors)
  )


def _rewrite_graph(graph: torch.fx.Graph) -> None:
  order = Order(graph)
  for node in list(graph.nodes):
    if not _is_supported(node):
      continue
    layer = graphs.arguments(node)
    chain = Chain(node, order, {"activation": parts.activation, "residual": residual_part})
    found = chain.parts
    chain.become(
      operator(),
      (
        *(layer[name] for name in ("input", "weight", "bias")),
        found.get("residual"),
        found.get("activation", "none"),
      ),
    )


def residual_part(node: torch.fx.Node, value: torch.fx.Node) -> Part | None:
  """A residual, if the sum has the order in memory of husk::linear. In eager mode the sum has that
  of its first operand."""
  total = node.meta.get("val")
  part = parts.residual(node, value)
  if part is None or total is None:
    return None
  strides = layouts.dense_strides(total.shape, range(total.dim()))
  return part if all(map(layouts.known_equal, total.stride(), strides)) else None


# Inductor's node


@functools.cache
def _node_class() -> Any:
  from torch._inductor import ir

  class Linear(ir.ExternKernelOut):
    """A linear layer over two-dimensional tensors. `inputs` are input, weight, then the bias and
    the residual if `has_bias` and `has_residual` say so."""

    has_bias: bool
    has_residual: bool
    activation: str

    def codegen(self, wrapper: InductorObject) -> None:
      wrapper.writeline(NodeLine(self))

  return Linear


def lowerings() -> dict[Operator, Callable[..., Any]]:
  """Inductor's lowerings by operator."""
  return {operator(): _lowered}


def _lowered(
  input: InductorObject,
  weight: InductorObject,
  bias: InductorObject | None,
  residual: InductorObject | None,
  activation: str,
) -> InductorObject:
  import torch
  from torch._inductor import ir
  from torch._inductor.lowering import lowerings as table
  from torch._inductor.utils import sympy_product

  reshape = table[torch.ops.aten.reshape.default]
  size = [*input.get_size()[:-1], weight.get_size()[0]]
  rows = sympy_product(size[:-1])
  tensors = [reshape(input, [rows, input.get_size()[-1]]), weight]
  tensors += [] if bias is None else [bias]
  tensors += [] if residual is None else [reshape(residual, [rows, size[-1]])]
  inputs = [own_operators.realized(tensor) for tensor in tensors]
  layout = ir.FixedLayout(input.get_device(), input.get_dtype(), [rows, size[-1]])
  node = _node_class()(layout=layout, inputs=inputs)
  node.has_bias, node.has_residual = bias is not None, residual is not None
  node.activation = activation
  return reshape(ir.TensorBox.create(node), size)


def call(body: Body, node: IrNode) -> None:
  """Writes the call for a Linear node."""
  input, weight, *more = node.inputs
  bias = more.pop(0) if node.has_bias else None
  residual = more.pop(0) if node.has_residual else None
  arguments: list[hir.Argument] = [
    body.tensor("read", input),
    body.tensor("read", weight),
    *(hir.NoneArg() if each is None else body.tensor("read", each) for each in (bias, residual)),
    hir.Text(node.activation),
  ]
  results: list[hir.Argument] = [body.tensor("write", node)]
  body.call_operator(hir.OperatorCall("husk::linear", arguments, results, body.origin(node)))


# Classes of nodes -> the functions that write them, for a VariantWriter.
NODES = {"Linear": call}
