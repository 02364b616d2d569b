"""Products with stacks of matrices, one for each expert of a mixture, as operators of Husk's for
CUDA targets, and where a program has them. quantized/stacks.py knows how models spell them.

- Each row has the number of its expert: a step of a language model. If the numbers are of a `topk`,
  all are experts of the stack; `parallel/experts.py` has numbers of a rank, which may be none. What
  makes the rows, a root mean square norm and copies for each expert, is part of the call, and so is
  a gate that follows.
- If rows are added for each token, with weights, that is one call with their products, and with
  what is added to the sum.
- Rows are sorted by expert: a prompt.

`rewrite` puts the operators into a program before torch decomposes anything."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..cuda import few_rows, few_rows_kernel, formats
from ..cuda.target import Target
from ..fusion import parts, rewriting, shapes
from ..fusion.order import Order
from ..inductor import graphs, own_operators, rank_experts
from ..inductor.layouts import known_equal
from ..quantized import stacks
from ..quantized.operator import GroupedCall, grouped_operator

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

_DTYPES = ("torch.bfloat16", "torch.float16", "torch.float32")
_CODES = ("torch.uint8", "torch.int8", "torch.float8_e4m3fn")
# The most elements of a row with the number of an expert, since a block has all of them at once.
_MOST_ELEMENTS = 1 << 15
# The most rows that are added for a token, since the kernel has their loop written out.
_MOST_TIMES = 32


# The operators


class Stack(NamedTuple):
  """The first arguments of the operators: rows, and a stack of matrices. A stack of floats is
  experts x n x k, or experts x k x n unless `by_rows`; one of codes, which are as
  husk::grouped_linear_quantized takes them, has `bits` and is by rows."""

  input: Any
  stack: Any
  scales: Any = None
  zeros: Any = None
  values: Any = None
  bits: int = 0
  group: int = 0
  by_rows: bool = True

  def columns(self, gate: str = "") -> Any:
    """The columns of a result."""
    return self.stack.shape[1 if self.by_rows else 2] // (2 if gate else 1)


def divided(arguments: Sequence[Any]) -> tuple[Stack, Sequence[Any]]:
  """The arguments of an operator: those of the stack, and the others."""
  count = len(Stack._fields)
  return Stack(*arguments[:count]), arguments[count:]


_STACK = (
  "Tensor input, Tensor stack, Tensor? scales, Tensor? zeros, Tensor? values, int bits, int group, "
  "bool by_rows"
)


@functools.cache
def of_numbers() -> Any:
  """husk::expert_rows, which is defined once per process: row i of the result is row i / `times` of
  the input times the matrix of its expert, less `offset`; 0 if the stack lacks that. The rows are
  those of a norm unless `eps` is below 0; `norm` is its weight. With a gate, the first half of the
  columns gets the activation, and is multiplied with the other half."""
  return own_operators.define(
    "expert_rows",
    f"{_STACK}, Tensor experts, int times, int offset, Tensor? norm, float eps, str gate",
    _fake_rows,
  )


def _fake_rows(*arguments: Any) -> torch.Tensor:
  of_stack, (experts, *_, gate) = divided(arguments)
  rows: torch.Tensor = of_stack.input.new_empty([experts.shape[0], of_stack.columns(gate)])
  return rows


@functools.cache
def of_sums() -> Any:
  """husk::experts_of_rows: the sums of `times` rows each of what husk::expert_rows computes of a
  row for each expert, times their weights, and a residual."""
  return own_operators.define(
    "experts_of_rows",
    f"{_STACK}, Tensor experts, Tensor weights, Tensor? residual, int times, int offset",
    _fake_sums,
  )


def _fake_sums(*arguments: Any) -> torch.Tensor:
  of_stack, (experts, _, _, times, _) = divided(arguments)
  sums: torch.Tensor = of_stack.input.new_empty([experts.shape[0] // times, of_stack.columns()])
  return sums


@functools.cache
def of_ends() -> Any:
  """husk::rows_by_expert: rows that are sorted by expert, of which `ends` has the ends, times the
  matrices of their experts. Rows behind the last end are 0."""
  return own_operators.define(
    "rows_by_expert",
    f"{_STACK}, Tensor ends, str gate",
    _fake_sorted,
  )


def _fake_sorted(*arguments: Any) -> torch.Tensor:
  of_stack, (_, gate) = divided(arguments)
  rows: torch.Tensor = of_stack.input.new_empty([of_stack.input.shape[0], of_stack.columns(gate)])
  return rows


# The program


def rewrite(exported: ExportedProgram, target: Target) -> ExportedProgram:
  """A copy of a program in which products with stacks are Husk's operators. A program without one
  is returned itself."""

  def is_supported(node: torch.fx.Node) -> bool:
    return _product(target, node) is not None

  return rewriting.rewrite(exported, is_supported, functools.partial(_rewrite_graph, target))


@dataclasses.dataclass(frozen=True)
class _Product:
  """A product with a stack. `first` is the node that reads the first of its operands, `offset` the
  first expert of the stack."""

  node: torch.fx.Node
  first: torch.fx.Node
  of_stack: Stack
  ends: torch.fx.Node | None
  experts: torch.fx.Node | None
  offset: int = 0
  row_dim: int = -2  # of size 1, which the operators lack

  @property
  def input(self) -> torch.fx.Node:
    node: torch.fx.Node = self.of_stack.input
    return node

  def with_input(self, input: torch.fx.Node) -> Stack:
    return self.of_stack._replace(input=input)


def _product(target: Target, node: torch.fx.Node) -> _Product | None:
  """A product that the operators compute."""
  if node.op != "call_function":
    return None
  found = _of_codes(target, node) if node.target is grouped_operator() else _of_floats(node)
  if found is None:
    return None
  value, stack = found.input.meta["val"], found.of_stack.stack
  matrices = stack.meta["val"]
  if (
    stack.op not in ("placeholder", "get_attr")
    or str(value.dtype) not in _DTYPES
    or not matrices.is_contiguous()
    or not all(isinstance(size, int) and size > 0 for size in matrices.shape)
  ):
    return None
  if found.experts is None:
    return found
  k = value.shape[1 if found.row_dim == 2 else -1]
  numbers = _numbers(found.experts, matrices.shape[0])
  if not isinstance(k, int) or k > _MOST_ELEMENTS or k % 8 or numbers is None:
    return None
  return dataclasses.replace(found, experts=numbers[0], offset=numbers[1])


def _of_floats(node: torch.fx.Node) -> _Product | None:
  found = stacks.product(node)
  if found is None:
    return None
  input, stack, by_rows, groups = found
  dtypes = {each.meta["val"].dtype for each in (input, stack, node)}
  if len(dtypes) != 1:
    return None
  row_dim = -2 if groups.row_dim is None else groups.row_dim
  of_stack = Stack(input, stack, by_rows=by_rows)
  return _Product(node, groups.read or node, of_stack, groups.ends, groups.experts, 0, row_dim)


def _of_codes(target: Target, node: torch.fx.Node) -> _Product | None:
  call: Any = GroupedCall(*graphs.arguments(node).values())
  k, codes = call.input.meta["val"].shape[1], call.weight.meta["val"].dtype
  is_part = call.group & (call.group - 1) == 0 and call.group * call.bits >= 128
  groups = call.scales.meta["val"].shape[-1]
  kind = formats.of(call.bits, codes)
  tensors = [call.scales, call.zeros, call.values]
  if (
    kind is not None
    and target.capability < kind.capability
    or groups * call.group != k
    or not (groups == 1 or is_part)
    or k * call.bits % 128
    or str(codes) not in _CODES
    or not all(one is None or one.meta["val"].is_contiguous() for one in tensors)
  ):
    return None
  of_stack = Stack(
    call.input, call.weight, call.scales, call.zeros, call.values, call.bits, call.group
  )
  return _Product(node, node, of_stack, call.ends, call.experts)


def _numbers(node: torch.fx.Node, count: int) -> tuple[torch.fx.Node, int] | None:
  """The numbers of experts, and the first expert of the stack, if each number is below `count` or
  may be that of no expert of the stack."""
  import torch

  below = node
  while shapes.is_shape(below) or below.target is torch.ops.aten.clamp.default:
    below = graphs.arguments(below)["self"]
  if below.target is rank_experts.number():
    index, first, own, _ = graphs.arguments(below).values()
    return (index, first) if own == count else None
  return (node, 0) if _are_below(node, count) else None


def _are_below(node: torch.fx.Node, count: int) -> bool:
  """Whether numbers are known to be from 0 to `count` - 1: places in a dimension of at most this
  size, or bounded."""
  import torch

  aten = torch.ops.aten
  if shapes.is_shape(node):
    return _are_below(graphs.arguments(node)["self"], count)
  if node.target is operator.getitem and node.args[1] == 1:
    node = node.args[0]  # type: ignore[assignment]
    if node.target not in (aten.topk.default, aten.max.dim):
      return False
  elif node.target in (aten.cat.default, aten.concat.default):
    parts_of: Any = node.args[0]
    return all(_are_below(part, count) for part in parts_of)
  elif node.target is aten.clamp.default:
    arguments = graphs.arguments(node)
    return (arguments["min"], arguments["max"]) == (0, count - 1)
  elif node.target is not aten.argmax.default:
    return False
  arguments = graphs.arguments(node)
  dim, value = arguments["dim"], arguments["self"].meta["val"]
  size = None if dim is None or value.dim() == 0 else value.shape[dim]
  return isinstance(size, int) and size <= count


def _rewrite_graph(target: Target, graph: torch.fx.Graph) -> None:
  order = Order(graph)
  for node in list(graph.nodes):
    product = _product(target, node)
    if product is None:
      continue
    if product.ends is not None:
      _replace_sorted(graph, order, product)
    elif (total := _sum(order, product)) is not None:
      _replace_sum(graph, product, total)
    else:
      _replace_rows(graph, order, product)


def _replace_sorted(graph: torch.fx.Graph, order: Order, product: _Product) -> None:
  gate = _gate(order, product)
  args = (*product.of_stack, product.ends, gate.activation)
  _replace(graph, gate.nodes, of_ends(), args)


def _replace_rows(graph: torch.fx.Graph, order: Order, product: _Product) -> None:
  gate = _gate(order, product)
  last = gate.nodes[-1]
  input, times = _copied(product)
  norm = few_rows.norm_of(shapes.rows_below(input))
  if norm is not None and order.is_written_between(norm.first, last):
    norm = None
  assert product.experts is not None
  with graph.inserting_before(last):
    args = (
      *product.with_input(_flat_rows(graph, input if norm is None else norm.input)),
      _reshaped(graph, product.experts, [-1]),
      times,
      product.offset,
      None if norm is None else norm.scale,
      -1.0 if norm is None else norm.eps,
      gate.activation,
    )
  _replace(graph, gate.nodes, of_numbers(), args)


def _replace_sum(graph: torch.fx.Graph, product: _Product, total: _Sum) -> None:
  assert product.experts is not None
  with graph.inserting_before(total.nodes[-1]):
    residual = total.residual
    args = (
      *product.with_input(_flat_rows(graph, product.input, product.row_dim)),
      _reshaped(graph, product.experts, [-1]),
      _reshaped(graph, total.weights, [-1]),
      None if residual is None else _flat_rows(graph, residual),
      total.times,
      product.offset,
    )
  _replace(graph, total.nodes, of_sums(), args)


def _replace(
  graph: torch.fx.Graph, nodes: list[torch.fx.Node], target: Any, args: tuple[Any, ...]
) -> None:
  """Puts a call in the place of the last of `nodes`, which stays, because the outputs of a program
  have the names of nodes."""
  import torch

  aten, last = torch.ops.aten, nodes[-1]
  fakes = {of_numbers(): _fake_rows, of_sums(): _fake_sums, of_ends(): _fake_sorted}
  with graph.inserting_before(last):
    call = graph.call_function(target, args)
    call.meta = {key: value for key, value in nodes[0].meta.items() if key != "val"}
    values: Any = torch.fx.map_arg(args, lambda node: node.meta["val"])
    call.meta["val"] = fakes[target](*values)
  shape = last.meta["val"].shape
  is_same = len(shape) == call.meta["val"].dim()
  last.target, last.kwargs = (aten.alias if is_same else aten.reshape).default, {}
  last.args = (call,) if is_same else (call, _sizes(shape))
  for node in reversed(nodes[:-1]):
    for user in list(node.users):
      if user.target is aten._assert_tensor_metadata.default:
        graph.erase_node(user)
    graph.erase_node(node)


def _sizes(shape: Sequence[Any]) -> list[int]:
  """A shape as an argument of a reshape: -1 for its only size that varies."""
  return [size if isinstance(size, int) else -1 for size in shape]


def _flat_rows(graph: torch.fx.Graph, node: torch.fx.Node, row_dim: int = -2) -> torch.fx.Node:
  """Rows as a matrix, without a dimension `row_dim`, of size 1."""
  elements = node.meta["val"].shape[1 if row_dim == 2 else -1]
  return _reshaped(graph, node, [-1, elements])


def _reshaped(graph: torch.fx.Graph, node: torch.fx.Node, shape: list[int]) -> torch.fx.Node:
  import torch

  made = graph.call_function(torch.ops.aten.reshape.default, (node, shape))
  made.meta = {**node.meta, "val": node.meta["val"].reshape(shape)}
  return made


# The nodes before and after a product


def _copied(product: _Product) -> tuple[torch.fx.Node, int]:
  """What makes the rows of a product, and how many rows in sequence are equal."""
  import torch

  aten = torch.ops.aten
  below = shapes.rows_below(product.input)
  if below.target is aten.repeat_interleave.self_int:
    rows, times, dim, _ = graphs.arguments(below).values()
    if isinstance(times, int) and dim == 0 and rows.meta["val"].dim() == 2:
      return rows, times
  return below, 1


@dataclasses.dataclass(frozen=True)
class _Gate:
  """The activation of a gate, "" for none, and the nodes from a product to the last of the gate."""

  activation: str
  nodes: list[torch.fx.Node]


def _gate(order: Order, product: _Product) -> _Gate:
  """The gate that follows a product: the activation of the first half of its columns, times the
  other half."""
  import torch

  aten, nodes = torch.ops.aten, [product.node]
  none = _Gate("", nodes[:])
  halves = shapes.user_after(nodes)
  if halves is None or nodes[-1].meta["val"].dim() != 2:
    return none
  arguments = graphs.arguments(halves) if hasattr(halves.target, "_schema") else {}
  columns = nodes[-1].meta["val"].shape[1]
  if halves.target is aten.chunk.default:
    is_half = arguments["chunks"] == 2
  elif halves.target is aten.split.Tensor:
    is_half = arguments["split_size"] * 2 == columns
  else:
    return none
  if not is_half or columns % 2 or arguments["dim"] not in (1, -1):
    return none
  parts_of = {user.args[1]: user for user in halves.users if user.target is operator.getitem}
  if len(halves.users) != 2 or set(parts_of) != {0, 1}:
    return none
  first, second = parts_of[0], parts_of[1]
  activated = shapes.only_user(first)
  found = None if activated is None else parts.activation(activated, first)
  if found is None or found.value not in few_rows_kernel.GATES:
    return none
  last = shapes.only_user(found.nodes[-1])
  if last is None or last.target is not aten.mul.Tensor or shapes.only_user(second) is not last:
    return none
  if order.is_written_between(product.first, last):
    return none
  return _Gate(found.value, [*nodes, halves, first, second, *found.nodes, last])


@dataclasses.dataclass(frozen=True)
class _Sum:
  """The sum of the products of a token, with their weights, what is added to it, and the nodes from
  the product to the last one."""

  weights: torch.fx.Node
  times: int
  residual: torch.fx.Node | None
  nodes: list[torch.fx.Node]


def _sum(order: Order, product: _Product) -> _Sum | None:
  """The sum that follows a product."""
  import torch

  aten, nodes, value = torch.ops.aten, [product.node], product.node.meta["val"]
  weighted = shapes.user_after(nodes)
  if weighted is None or weighted.target is not aten.mul.Tensor:
    return None
  left, right = weighted.args
  weights: Any = right if left is nodes[-1] else left
  rows, columns = value.shape[0], nodes[-1].meta["val"].shape[-1]
  if not isinstance(weights, torch.fx.Node):
    return None
  of_weights = weights.meta["val"].shape
  if len(of_weights) != 2 or of_weights[1] != 1 or not known_equal(of_weights[0], rows):
    return None
  nodes.append(weighted)
  added = shapes.user_after(nodes)
  shape = nodes[-1].meta["val"].shape
  if added is None or added.target is not aten.sum.dim_IntList or len(shape) != 3:
    return None
  arguments = graphs.arguments(added)
  is_sum = list(arguments["dim"]) == [1] and not arguments["keepdim"]
  if not is_sum or shape[2] != columns or not isinstance(shape[1], int) or shape[1] > _MOST_TIMES:
    return None
  nodes.append(added)
  after = shapes.user_after(nodes)
  if after is not None and nodes[-1].meta["val"].dtype != value.dtype:
    if shapes.is_cast(after) and after.meta["val"].dtype == value.dtype:
      nodes.append(after)
      after = shapes.user_after(nodes)
  result = nodes[-1].meta["val"]
  varying = [size for size in result.shape if not isinstance(size, int)]
  if result.dtype != value.dtype or len(varying) > 1:
    return None
  if order.is_written_between(product.first, nodes[-1]):
    return None
  found = None if after is None else parts.residual(after, nodes[-1])
  if found is not None and not order.is_written_between(product.first, found.nodes[-1], nodes):
    return _Sum(weights, shape[1], found.value, [*nodes, *found.nodes])
  return _Sum(weights, shape[1], None, nodes)
