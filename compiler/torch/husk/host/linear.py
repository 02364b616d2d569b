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
from ..inductor import layouts, torch_compat
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
  import torch

  torch.library.define(
    "husk::linear",
    "(Tensor input, Tensor weight, Tensor? bias, Tensor? residual, str activation) -> Tensor",
    tags=(torch.Tag.flexible_layout,),
  )
  torch.library.register_fake("husk::linear", _fake)
  return torch.ops.husk.linear.default


def _fake(
  input: torch.Tensor,
  weight: torch.Tensor,
  bias: torch.Tensor | None,
  residual: torch.Tensor | None,
  activation: str,
) -> torch.Tensor:
  return input.new_empty([*input.shape[:-1], weight.shape[0]])


# The program


@functools.cache
def _activations() -> dict[Operator, str]:
  """The host's names of activations by operator. gelu has two names."""
  import torch

  aten = torch.ops.aten
  return {
    aten.relu.default: "relu",
    aten.relu_.default: "relu",
    aten.gelu.default: "gelu",
    aten.silu.default: "silu",
    aten.silu_.default: "silu",
    aten.sigmoid.default: "sigmoid",
    aten.tanh.default: "tanh",
  }


def rewrite(exported: ExportedProgram, in_place: bool = False) -> ExportedProgram:
  """A copy of a program in which each linear layer is Husk's operator, with the activation and the
  residual that follow. A program without linear layers is returned itself. With `in_place`, the
  program itself is changed."""
  import torch

  def graphs(program: ExportedProgram) -> list[torch.fx.GraphModule]:
    modules = program.graph_module.modules()
    return [module for module in modules if isinstance(module, torch.fx.GraphModule)]

  linear = torch.ops.aten.linear.default
  if not any(node.target is linear for module in graphs(exported) for node in module.graph.nodes):
    return exported
  rewritten = exported if in_place else torch_compat.copied(exported)
  for module in graphs(rewritten):
    for node in list(module.graph.nodes):
      if node.target is linear and _is_supported(node):
        _rewrite_node(module.graph, node)
    module.recompile()
  return rewritten


def _is_supported(node: torch.fx.Node) -> bool:
  """Whether the host's operator computes this layer."""
  tensors = [argument.meta["val"] for argument in node.all_input_nodes]
  return (
    {str(tensor.dtype) for tensor in tensors} <= _DTYPES
    and len({tensor.dtype for tensor in tensors}) == 1
    and tensors[0].dim() >= 2
    and node.args[1].meta["val"].dim() == 2  # type: ignore[union-attr]
    and all(tensor.device.type == "cpu" for tensor in tensors)
  )


def _rewrite_node(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
  inputs: list[Any] = list(node.args)
  bias = inputs[2] if len(inputs) > 2 else node.kwargs.get("bias")
  last, replaced, activation, residual = node, [node], "none", None
  user = _only_user(node)
  if user is not None and user.target in _activations():
    activation = _activations()[user.target]
    if user.kwargs.get("approximate", "none") == "tanh" or "tanh" in user.args[1:]:
      activation = "gelu_tanh"
    last = user
    replaced.append(user)
    user = _only_user(last)
  if user is not None and (other := _residual(user, last)) is not None:
    residual, last = other, user
    replaced.append(user)
  if last is not node and _something_is_written(node, last):
    last, replaced, activation, residual = node, [node], "none", None
  # The last node becomes the call, because outputs of the program have the names of nodes.
  last.target = operator()
  last.args = (*inputs[:2], bias, residual, activation)
  last.kwargs = {}
  for each in reversed(replaced):
    if each is not last:
      graph.erase_node(each)


def _only_user(node: torch.fx.Node) -> torch.fx.Node | None:
  return next(iter(node.users)) if len(node.users) == 1 else None


def _residual(user: torch.fx.Node, node: torch.fx.Node) -> torch.fx.Node | None:
  """The tensor that `user` adds to `node`, if it has the shape and the dtype of `node`, and the sum
  has the order in memory of husk::linear. In eager mode the sum has that of its first operand."""
  import torch

  if user.target is not torch.ops.aten.add.Tensor or user.kwargs.get("alpha", 1) != 1:
    return None
  left, right = user.args[:2]
  other = right if left is node else left
  if not isinstance(other, torch.fx.Node) or other is node:
    return None
  value, own = other.meta.get("val"), node.meta["val"]
  if not isinstance(value, torch.Tensor) or value.dtype != own.dtype or value.dim() != own.dim():
    return None
  sizes = zip(value.shape, own.shape)
  total = user.meta["val"]
  strides = layouts.dense_strides(total.shape, range(total.dim()))
  same = all(layouts.known_equal(left, right) for left, right in sizes)
  in_order = all(map(layouts.known_equal, total.stride(), strides))
  return other if same and in_order else None


def _something_is_written(first: torch.fx.Node, last: torch.fx.Node) -> bool:
  """Whether a node between two nodes writes a tensor. The operands of the first one are then read
  too late if the last one reads them. An activation may write the first one's own result."""
  node = first.next
  while node is not last:
    schema = getattr(node.target, "_schema", None)
    is_own = node in first.users
    if node.op == "call_function" and not is_own and (schema is None or schema.is_mutable):
      return True
    node = node.next
  return False


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
  inputs = [ir.ExternKernel.realize_input(tensor) for tensor in tensors]
  for tensor in inputs:
    ir.as_storage_and_layout(tensor, freeze=True)
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
