"""Linear layers of few rows, whose weights are floats or codes (quantized/codes.py): the decoding
of a language model. This page is about one row of floats; 2 to 16 rows and most layers of codes go
to the kernels of `rows`, with the residual that follows.

Such a layer takes the time in which its weights are read. Inductor makes a reduction of each one,
and recomputes in each of its blocks what makes the rows. Here
- layers of the same rows are one launch (queries, keys and values), each with its own weight;
- the product of an activation of one layer and of another layer is one launch (gate and up);
- a root mean square norm of the rows is part of the launch: its weight is multiplied with the rows,
  and its factor with the sums;
- a thread has read all its elements of the weights before it waits for the kernel that makes the
  rows (pdl.py), and the next kernel starts as soon as its blocks find room.

What follows is fused into the kernel. Codes that `rows` does not have become numbers as in
quantized.py, and their scales are multiplied with sums. On an H200 a chain of such layers in bf16,
with the sizes of Llama 3.2 1B, took 1.25 times as long as a read of its weights, and 1.42 times if
each kernel waits first. A whole step of that decoder takes 1.32 times as long, 1.38 with 32,000
words (tests/gpu/decoder.py), with attention as in attention/step.py; before, it took 2.33.

`rewrite` puts `husk::few_rows` into a program before torch decomposes anything."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..fusion import parts, rewriting, shapes
from ..fusion.chain import Chain, only_user
from ..fusion.order import Order
from ..inductor import graphs, own_operators
from ..quantized import operator as quantized_operator
from . import few_rows_kernel, quantized
from .target import Target

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

# The most rows, each of which is multiplied by itself.
MOST_ROWS = 1
# The most rows of a tile of tensor cores (rows), of floats of 16 bits; their weights in
# one launch; and their elements, since the kernel has a loop that is written out.
MOST_ROWS_OF_A_TILE = 16
MOST_WEIGHTS = 4
_MOST_ELEMENTS_OF_A_TILE = 1 << 15
# The least bytes of the weights of a launch. Inductor's kernels of smaller ones have more fused
# into them.
LEAST_BYTES = 1 << 17

_DTYPES = ("torch.bfloat16", "torch.float16", "torch.float32")
_DTYPES_OF_TILES = _DTYPES[:2]


# The operator


@functools.cache
def operator() -> Any:
  """husk::few_rows, which is defined once per process. Without a gate, one weight makes a tensor
  like that of a linear layer, and several make one with the results of all, one after another. With
  a gate, there are two weights, whose result is that of the activation of the first one times that
  of the second. `eps` is below 0 if the rows have no norm; `norm` is the norm's weight. If weights
  are codes, each has scales and may have zeros, as those of husk::linear_quantized; `bits` is 0 if
  they are floats. `is_tiled` says whether tiles of tensor cores compute the result (rows). Then
  `residual` is added to the result of one weight; otherwise Inductor adds it."""
  return own_operators.define(
    "few_rows",
    "Tensor input, Tensor[] weights, Tensor[] scales, Tensor[] zeros, Tensor?[] biases, "
    "Tensor? norm, float eps, str gate, int bits, int group, Tensor? residual=None, "
    "bool is_tiled=False",
    _fake,
  )


def _fake(
  input: torch.Tensor,
  weights: Sequence[torch.Tensor],
  scales: Sequence[torch.Tensor],
  zeros: Sequence[torch.Tensor],
  biases: Sequence[torch.Tensor | None],
  norm: torch.Tensor | None,
  eps: float,
  gate: str,
  bits: int,
  group: int,
  residual: torch.Tensor | None = None,
  is_tiled: bool = False,
) -> torch.Tensor:
  outer = input.shape[:-1]
  if gate or len(weights) == 1:
    return input.new_empty([*outer, weights[0].shape[0]])
  return input.new_empty([math.prod(outer) * sum(weight.shape[0] for weight in weights)])


# The program


def rewrite(exported: ExportedProgram, target: Target) -> ExportedProgram:
  """A copy of a program in which linear layers of few rows are Husk's operator. A program without
  one is returned itself."""

  def is_supported(node: torch.fx.Node) -> bool:
    return _layer(node, target) is not None

  return rewriting.rewrite(exported, is_supported, functools.partial(_rewrite_graph, target))


@dataclasses.dataclass(frozen=True)
class _Layer:
  """A linear layer, with the bits and the group of its codes."""

  node: torch.fx.Node
  input: torch.fx.Node
  weight: torch.fx.Node
  bias: torch.fx.Node | None
  scales: torch.fx.Node | None = None
  zeros: torch.fx.Node | None = None
  bits: int = 0
  group: int = 0
  is_tiled: bool = False

  @property
  def kind(self) -> tuple[Any, ...]:
    """What layers of one launch have in common."""
    dtypes = [
      None if each is None else each.meta["val"].dtype
      for each in (self.weight, self.scales, self.zeros)
    ]
    return (self.input, *dtypes, self.bits, self.group, self.is_tiled)

  @property
  def elements(self) -> int:
    """The elements of a column."""
    size: int = self.input.meta["val"].shape[-1]
    return size

  @property
  def rows(self) -> int:
    """The rows that it multiplies."""
    return math.prod(self.input.meta["val"].shape[:-1])

  @property
  def itemsize(self) -> int:
    """The bytes of an element of the weight."""
    size: int = self.weight.meta["val"].element_size()
    return size


def _layer(node: torch.fx.Node, target: Target) -> _Layer | None:
  """A layer that the operator computes."""
  import torch

  if node.target is torch.ops.aten.linear.default:
    values = graphs.arguments(node)
    layer = _Layer(node, values["input"], values["weight"], values["bias"])
    weight = layer.weight.meta["val"]
    if weight.dim() != 2 or str(weight.dtype) not in _DTYPES:
      return None
    dtypes = {argument.meta["val"].dtype for argument in node.all_input_nodes}
  elif node.target is quantized_operator.operator():
    nodes: Any = quantized_operator.Call(*graphs.arguments(node).values())
    call = quantized_operator.Call(*map(graphs.value, nodes))
    is_plain = call.residual is None and call.activation == "none"
    if not is_plain or not quantized.supports(target, call) or not _has_lines(call):
      return None
    operands = (nodes.input, nodes.weight, nodes.bias, nodes.scales, nodes.zeros)
    layer = _Layer(node, *operands, call.bits, call.group)
    dtypes = {call.input.dtype, *([] if call.bias is None else [call.bias.dtype])}
  else:
    return None
  input, weight = layer.input.meta["val"], layer.weight.meta["val"]
  rows, k = math.prod(input.shape[:-1]), input.shape[-1] if input.dim() else 0
  is_supported = (
    layer.weight.op in ("placeholder", "get_attr")
    and isinstance(rows, int)
    and rows > 0
    and all(isinstance(size, int) for size in (*weight.shape, k))
    and len(dtypes) == 1
    and (layer.bias is None or layer.bias.meta["val"].shape == weight.shape[:1])
    and weight.is_contiguous()
    and k % 8 == 0
  )
  if not is_supported:
    return None
  if _is_for_tiles(layer, target):
    return dataclasses.replace(layer, is_tiled=True)
  has_warps = few_rows_kernel.warps(k, 1, layer.itemsize) <= few_rows_kernel.MOST_WARPS
  return layer if rows <= MOST_ROWS and has_warps else None


def _is_for_tiles(layer: _Layer, target: Target) -> bool:
  """Whether tiles of tensor cores compute a layer, of which compute capability 8.0 has those of
  bf16. Inductor makes one kernel of an activation and the product before it, and tiles have
  activations of gates only."""
  if target.capability < 80 or layer.elements > _MOST_ELEMENTS_OF_A_TILE:
    return False
  if layer.bits:
    is_alone = _is_activated(layer) and _gate(layer.node) is None
    # With more than two rows, numbers less zeros are rounded.
    is_exact = layer.zeros is None or not layer.zeros.meta["val"].dtype.is_floating_point
    most = MOST_ROWS_OF_A_TILE if is_exact else min(2, MOST_ROWS_OF_A_TILE)
    return layer.rows <= most and not is_alone
  return (
    MOST_ROWS < layer.rows <= MOST_ROWS_OF_A_TILE
    and str(layer.weight.meta["val"].dtype) in _DTYPES_OF_TILES
  )


def _has_lines(call: quantized_operator.Call) -> bool:
  """Whether a column of codes has whole lines, each with one scale."""
  of_a_line = few_rows_kernel.LINE * 8 // call.bits
  k = call.input.shape[-1]
  return k % of_a_line == 0 and (call.group == k or call.group % of_a_line == 0)


@dataclasses.dataclass(frozen=True)
class Norm:
  """A root mean square norm: what it reads, where, its weight, and what is added to the mean."""

  input: torch.fx.Node
  first: torch.fx.Node
  scale: torch.fx.Node | None
  eps: float


@dataclasses.dataclass
class _Group:
  """Layers of the same rows."""

  layers: list[_Layer]
  gate: _Gate | None = None


@dataclasses.dataclass(frozen=True)
class _Gate:
  """The activation of a layer, with its nodes, and the product with the layer `other`."""

  activation: str
  nodes: list[torch.fx.Node]
  product: torch.fx.Node
  other: torch.fx.Node


def _rewrite_graph(target: Target, graph: torch.fx.Graph) -> None:
  order = Order(graph)
  for group in _groups(target, graph, order):
    if sum(layer.weight.meta["val"].nbytes for layer in group.layers) >= LEAST_BYTES:
      _replace(graph, order, group)


def _groups(target: Target, graph: torch.fx.Graph, order: Order) -> Iterator[_Group]:
  """The layers, in the order of the graph. All of a group read where the first one stands, so their
  operands are there already, and nothing is written in between."""
  by_kind: dict[tuple[Any, ...], list[list[_Layer]]] = {}
  for node in graph.nodes:
    layer = _layer(node, target)
    if layer is None:
      continue
    groups = by_kind.setdefault(layer.kind, [])
    first = groups[-1][0].node if groups else node
    can_read = order.are_before(node.all_input_nodes, first)
    if groups and can_read and not order.is_written_between(first, node):
      groups[-1].append(layer)
    else:
      groups.append([layer])
  for groups in by_kind.values():
    for layers in groups:
      yield from _with_gates(layers)


def _with_gates(layers: list[_Layer]) -> Iterator[_Group]:
  """The gates among layers of the same rows, and a group of the others."""
  left = {layer.node: layer for layer in layers}
  for layer in layers:
    gate = _gate(layer.node)
    if gate is None or layer.node not in left or gate.other not in left:
      continue
    pair = [layer, left[gate.other]]
    shapes = {each.weight.meta["val"].shape for each in pair}
    warps = few_rows_kernel.warps(layer.elements, 2, layer.itemsize)
    if len(shapes) == 1 and (layer.is_tiled or warps <= few_rows_kernel.MOST_WARPS):
      for each in pair:
        del left[each.node]
      yield _Group(pair, gate)
  rest = [layer for layer in left.values() if not layer.is_tiled or not _is_activated(layer)]
  most = MOST_WEIGHTS if layers[0].is_tiled else len(rest)
  for begin in range(0, len(rest), max(most, 1)):
    yield _Group(rest[begin : begin + most])


def _is_activated(layer: _Layer) -> bool:
  """Whether an activation follows a layer, which Inductor makes one kernel with its product. The
  kernel of several rows has activations of gates only."""
  user = only_user(layer.node)
  return user is not None and parts.activation(user, layer.node) is not None


def _gate(layer: torch.fx.Node) -> _Gate | None:
  """The gate that a layer is the first part of."""
  import torch

  user = only_user(layer)
  part = None if user is None else parts.activation(user, layer)
  if part is None or part.value not in few_rows_kernel.GATES:
    return None
  activation = part.nodes[-1]
  product = only_user(activation)
  if product is None or product.target is not torch.ops.aten.mul.Tensor:
    return None
  factors: list[Any] = list(product.args)
  other = factors[1] if factors[0] is activation else factors[0]
  if not isinstance(other, torch.fx.Node) or only_user(other) is not product:
    return None
  return _Gate(part.value, part.nodes, product, other)


def _replace(graph: torch.fx.Graph, order: Order, group: _Group) -> None:
  """Puts the operator in the place of the first layer, and parts of its result in those of all."""
  import torch

  aten = torch.ops.aten
  first = group.layers[0]
  norm = norm_of(shapes.rows_below(first.input))
  if norm is not None and (
    order.is_written_between(norm.first, first.node)
    # The kernels of codes multiply rows and the weight of the norm by instructions for one dtype.
    or norm.scale is not None
    and (first.bits == 4 or first.bits and first.is_tiled)
    and norm.scale.meta["val"].dtype != first.input.meta["val"].dtype
  ):
    norm = None
  # Inductor adds what follows layers that no tiles compute, and what follows several layers.
  has_residual = len(group.layers) == 1 and first.is_tiled
  chain = Chain(first.node, order, {"residual": parts.residual} if has_residual else {})
  input = first.input
  if norm is not None:
    input, shape = norm.input, input.meta["val"].shape
    if input.meta["val"].shape != shape:  # other shapes are between the norm and the layers
      with graph.inserting_before(first.node):
        input = graph.call_function(aten.reshape.default, (input, list(shape)))
        input.meta = {**norm.input.meta, "val": norm.input.meta["val"].reshape(shape)}
  args = (
    input,
    [layer.weight for layer in group.layers],
    [layer.scales for layer in group.layers if layer.scales is not None],
    [layer.zeros for layer in group.layers if layer.zeros is not None],
    [layer.bias for layer in group.layers],
    None if norm is None else norm.scale,
    -1.0 if norm is None else norm.eps,
    "" if group.gate is None else group.gate.activation,
    first.bits,
    first.group,
    chain.parts.get("residual"),
    first.is_tiled,
  )
  with graph.inserting_before(chain.last):
    call = graph.call_function(operator(), args)
    call.meta = {key: value for key, value in first.node.meta.items() if key != "val"}
    values: Any = torch.fx.map_arg(args, lambda node: node.meta["val"])
    call.meta["val"] = _fake(*values)

  def become(node: torch.fx.Node, target: Any, args: tuple[Any, ...]) -> None:
    # The node stays, because the outputs of a program have the names of nodes.
    node.target, node.args, node.kwargs = target, args, {}

  if group.gate is not None:
    become(group.gate.product, aten.alias.default, (call,))
    for node in [*reversed(group.gate.nodes), group.gate.other, first.node]:
      graph.erase_node(node)
    return
  if len(group.layers) == 1:
    chain.become(aten.alias.default, (call,))
    return
  begin = 0
  for layer in group.layers:
    shape = layer.node.meta["val"].shape
    end = begin + math.prod(shape)
    with graph.inserting_before(layer.node):
      part = graph.call_function(aten.slice.Tensor, (call, 0, begin, end))
      part.meta = {**layer.node.meta, "val": call.meta["val"][begin:end]}
    become(layer.node, aten.view.default, (part, list(shape)))
    begin = end


def norm_of(node: torch.fx.Node) -> Norm | None:
  """The root mean square norm over the last dimension that a node computes."""
  import torch

  aten = torch.ops.aten
  if node.target is aten.rms_norm.default:
    norm = graphs.arguments(node)
    value = norm["input"].meta["val"]
    if list(norm["normalized_shape"]) != [value.shape[-1]]:
      return None
    eps = norm["eps"]
    # Eager mode computes rows of 16 bits in f32, too.
    eps = torch.finfo(torch.float32).eps if eps is None else eps
    return Norm(norm["input"], node, norm["weight"], eps)
  return _norm_of_steps(node)


def _norm_of_steps(node: torch.fx.Node) -> Norm | None:
  """The same, as transformers writes it: x * rsqrt(mean(x ** 2) + eps), times a weight."""
  import torch

  aten = torch.ops.aten
  result = node.meta.get("val")
  if not isinstance(result, torch.Tensor):
    return None

  def uncast(value: Any) -> Any:
    """What a node converts to another dtype."""
    while isinstance(value, torch.fx.Node) and value.target in (
      aten._to_copy.default,
      aten.to.dtype,
      aten.type_as.default,
    ):
      value = value.args[0]
    return value

  def factors(value: Any) -> list[tuple[Any, Any]]:
    if not isinstance(value, torch.fx.Node) or value.target is not aten.mul.Tensor:
      return []
    return [(value.args[0], value.args[1]), (value.args[1], value.args[0])]

  def is_scale(value: Any) -> bool:
    tensor = value.meta.get("val") if isinstance(value, torch.fx.Node) else None
    return isinstance(tensor, torch.Tensor) and tuple(tensor.shape) == (result.shape[-1],)

  for scale, normed in [*factors(uncast(node)), (None, node)]:
    if scale is not None and not is_scale(scale):
      continue
    for value, factor in factors(uncast(normed)):
      found = _inverse_root(factor)
      if found is None or found[0] is not value:
        continue
      input = uncast(value)
      # The rows are multiplied as they are: a conversion to fewer bits would round them.
      if input.meta["val"].dtype != result.dtype:
        continue
      return Norm(input, found[2], scale, found[1])
  return None


def _inverse_root(node: Any) -> tuple[torch.fx.Node, float, torch.fx.Node] | None:
  """x, eps, and the node that squares x, of rsqrt(mean(x ** 2, -1, keepdim=True) + eps)."""
  import torch

  aten = torch.ops.aten

  def call(value: Any, target: Any) -> tuple[Any, ...] | None:
    if not isinstance(value, torch.fx.Node) or value.target is not target:
      return None
    return tuple(graphs.arguments(value).values())

  root = call(node, aten.rsqrt.default)
  total = call(root[0], aten.add.Tensor) if root else None
  mean = call(total[0], aten.mean.dim) if total else None
  if total is None or mean is None or not isinstance(total[1], float) or total[2] != 1:
    return None
  square, dims, keeps, dtype = mean
  power = call(square, aten.pow.Tensor_Scalar)
  if power is None or power[1] != 2 or not keeps or dtype not in (None, torch.float32):
    return None
  x = power[0]
  if list(dims) not in ([-1], [x.meta["val"].dim() - 1]) or x.meta["val"].dtype != torch.float32:
    return None
  return x, total[1], square
