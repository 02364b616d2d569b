"""Attention of a step of decoding: `rewrite` finds calls of `husk::attention` whose keys and values
are a cache to which the program has just written one new token of each sequence, and makes
`husk::attention_step` of each. That operator turns query and key by their positions (rotary
embedding), and writes the new key and value to the cache.

A step of a language model is a chain of kernels that read the weights. Between the product of
queries, keys and values and the attention stood three more: one turned the query, one turned the
new key and wrote it, and one wrote the new value. They read and write little, so that most of
their time is that of a launch.

The program has to say this in the form of `index_copy_` or `index_put_` on a buffer that nothing
else reads or writes, followed by slices. Calls in other forms stay as they are."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..fusion import rewriting
from ..inductor import graphs, own_operators, writes
from ..inductor.layouts import dense_strides, known_equal
from ..inductor.lines import InductorObject, NodeLine
from . import bounds, paged
from . import operator as attention_operator

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

_LEAST_HEAD = 16
# The most heads of queries that share one of keys.
_LARGEST_GROUP = 64


# The operator


@functools.cache
def operator() -> Any:
  """husk::attention_step, which is defined once per process. `query`, `key` and `value` are
  batches x heads x 1 x elements. `keys` and `values` are the cache, with a row for each batch or
  more: rows x heads x positions x elements. The first `count` positions are read. `positions`
  (int64, one or one for each batch) are those of the new tokens; those below 0 count from the end
  if `from_end` is set. `cosine` and `sine` have one row, or one for each batch. Keys after the
  position are not seen unless `window` is -1, and only the last `window` before that are seen
  unless it is 0. With a `table` (int64[batches, n]) the rows of the cache are pages, of which it
  has those of each batch; all its positions are read, and those beyond it are not written. Without
  a table, row `first` of the cache is that of the first batch. `softcap` and `sinks` are those of
  scores.py."""
  return own_operators.define(
    "attention_step",
    "Tensor query, Tensor key, Tensor value, Tensor? cosine, Tensor? sine, Tensor(a!) keys, "
    "Tensor(b!) values, Tensor positions, bool from_end, SymInt count, int window, "
    "Tensor? mask, float scale, int[] order, Tensor? table=None, SymInt first=0, "
    "float softcap=0.0, Tensor? sinks=None",
    _fake,
  )


def _fake(
  query: torch.Tensor,
  key: torch.Tensor,
  value: torch.Tensor,
  cosine: torch.Tensor | None,
  sine: torch.Tensor | None,
  keys: torch.Tensor,
  values: torch.Tensor,
  positions: torch.Tensor,
  from_end: bool,
  count: Any,
  window: int,
  mask: torch.Tensor | None,
  scale: float,
  order: Sequence[int],
  *_others: Any,
) -> torch.Tensor:
  shape = [*query.shape[:-1], value.shape[-1]]
  dense = query.new_empty([shape[dim] for dim in order])
  return dense.permute([order.index(dim) for dim in range(len(order))])


# The program


def rewrite(exported: ExportedProgram) -> ExportedProgram:
  """A copy of a program in which attention of steps is Husk's operator. A program without it is
  returned itself."""
  found = {node for module in graphs.modules(exported) for node, _ in _steps(module)}

  def change(graph: torch.fx.Graph) -> None:
    module = graph.owning_module
    assert module is not None
    for node, step in _steps(module):
      _replace(graph, node, step)

  return rewriting.rewrite(exported, found.__contains__, change)


@dataclasses.dataclass(frozen=True)
class _Written:
  """A cache to which a node writes one row for each batch, and of which the first `count` positions
  are read after that, or the pages of a table. The row of the first batch is `first`."""

  write: torch.fx.Node
  cache: torch.fx.Node
  new: torch.fx.Node
  positions: torch.fx.Node
  counts_from_the_end: bool
  count: Any
  table: torch.fx.Node | None = None
  first: Any = 0


@dataclasses.dataclass(frozen=True)
class _Rotation:
  """`x * cosine + turned(x) * sine`."""

  x: torch.fx.Node
  cosine: torch.fx.Node
  sine: torch.fx.Node


@dataclasses.dataclass(frozen=True)
class _Step:
  """`window` is that of the operator, for which a mask is left out."""

  keys: _Written
  values: _Written
  query: torch.fx.Node
  key: torch.fx.Node
  value: torch.fx.Node
  rotation: _Rotation | None
  window: int


def _steps(module: torch.fx.GraphModule) -> list[tuple[torch.fx.Node, _Step]]:
  """The calls of attention that are those of steps. The operator reads where the call stands, so
  nothing that it reads beside the caches may be written anywhere."""
  import torch

  attention, _ = attention_operator.operators()
  found = [
    (node, step)
    for node in module.graph.nodes
    if node.target is attention and (step := _step(node)) is not None
  ]
  if not found:
    return []
  memory = writes.Memory(module)

  def is_written(node: Any) -> bool:
    return isinstance(node, torch.fx.Node) and not memory.written.isdisjoint(
      memory.roots.get(node, ())
    )

  return [(node, step) for node, step in found if not any(map(is_written, _operands(node, step)))]


def _operands(node: torch.fx.Node, step: _Step) -> list[Any]:
  """What the operator reads beside the caches, and what the mask of the call is made of."""
  rotation = step.rotation
  return [
    step.query,
    step.key,
    step.value,
    *([rotation.cosine, rotation.sine] if rotation else []),
    step.keys.positions,
    step.keys.table,
    *(graphs.arguments(node)[name] for name in ("mask", "sinks")),
  ]


def _step(node: torch.fx.Node) -> _Step | None:
  """What a call of attention is, if it is that of a step."""
  arguments = graphs.arguments(node)
  query, key, value, mask, causal, *_ = arguments.values()
  shape = query.meta["val"].shape
  if causal or arguments["key_scales"] or arguments["table"] or len(shape) != 4:
    return None
  if not isinstance(shape[-2], int) or shape[-2] != 1:
    return None
  heads = key.meta["val"].shape[1]
  sizes = (shape[-1], value.meta["val"].shape[-1])
  if shape[1] > heads * _LARGEST_GROUP or not all(map(_is_width, sizes)):
    return None
  keys, values = (
    _written(each, shape[0]) or _written_to_pages(each, shape[0]) for each in (key, value)
  )
  if keys is None or values is None or not _at_equal_places(keys, values):
    return None
  new = [_of_heads(each) for each in (keys, values)]
  if any(each is None for each in new):
    return None
  wanted = [(shape[0], heads, 1, size) for size in sizes]
  for one, expected in zip(new, wanted, strict=True):
    assert one is not None
    found = one.meta["val"]
    if found.dtype != query.meta["val"].dtype or not all(map(known_equal, found.shape, expected)):
      return None
  new_key, new_value = new
  assert new_key is not None and new_value is not None
  window = -1 if mask is None else bounds.window(mask, keys.positions, keys.count)
  of_query, of_key = _rotation(query), _rotation(new_key)
  if of_query is None or of_key is None:
    if of_query is not None or of_key is not None:
      return None
    return _Step(keys, values, query, new_key, new_value, None, window)
  if (of_query.cosine, of_query.sine) != (of_key.cosine, of_key.sine):
    return None
  return _Step(keys, values, of_query.x, of_key.x, new_value, of_query, window)


def _at_equal_places(keys: _Written, values: _Written) -> bool:
  """Whether both caches are written and read at the same positions."""
  return (
    bounds.source(keys.positions) is bounds.source(values.positions)
    and keys.counts_from_the_end == values.counts_from_the_end
    and keys.cache.meta["val"].shape[2] == values.cache.meta["val"].shape[2]
    and keys.table is values.table
    and keys.first is values.first
    and (keys.table is not None or keys.count == values.count)
  )


def _is_width(size: Any) -> bool:
  return (
    isinstance(size, int)
    and _LEAST_HEAD <= size <= attention_operator.LARGEST_HEAD
    and size & (size - 1) == 0
  )


def _written(node: torch.fx.Node, batches: Any) -> _Written | None:
  """The cache that a node reads whole, or the first rows and positions of it, or a single row of
  which the program has the number, if it has just been written."""
  import torch

  aten = torch.ops.aten
  path: list[torch.fx.Node] = []
  dims: set[int] = set()
  dtype = node.meta["val"].dtype
  count: Any = None
  first: Any = 0
  while node.target not in (aten.index_put_.default, aten.index_copy_.default):
    if node.target is aten.slice.Tensor:
      _, dim, begin, end, step = graphs.arguments(node).values()
      if dim == 0 and isinstance(begin, torch.fx.Node):
        first, begin = begin, 0
      if dim not in (0, 2) or dim in dims or begin not in (None, 0) or step != 1:
        return None
      dims.add(dim)
      count = end if dim == 2 else count
    elif node.target not in _conversions() or node.meta["val"].dtype != dtype:
      return None
    path.append(node)
    before = node.args[0]
    if not isinstance(before, torch.fx.Node) or before.meta["val"].dtype != dtype:
      return None
    node = before
  if not path and len(node.users) != 1:
    return None
  if any(_readers(each) > 1 for each in (*path, node)):
    return None
  cache: Any = node.args[0]
  if cache.op not in ("placeholder", "get_attr") or len(cache.users) != 1:
    return None
  size = cache.meta["val"].shape
  if 0 not in dims and not known_equal(size[0], batches):
    return None
  if not isinstance(size[2], int):
    return None
  # A number that the program computes may be larger than the cache, where a slice ends.
  if count is None or isinstance(count, int):
    count = size[2] if count is None or count < 0 else min(count, size[2])
  arguments = graphs.arguments(node)
  if node.target is aten.index_copy_.default:
    index: Any = arguments["index"]
    if arguments["dim"] not in (2, -2) or tuple(index.meta["val"].shape) != (1,) or first != 0:
      return None
    return _Written(node, cache, arguments["source"], index, False, count)
  indices = arguments["indices"]
  if arguments["accumulate"] or len(indices) != 3 or indices[1] is not None:
    return None
  rows, _, positions = indices
  if rows is None or positions is None:
    return None
  if not (_are_all_rows(rows, batches) if first == 0 else _is_only_row(rows, batches, first)):
    return None
  if not _is_column(positions, batches) or positions.meta["val"].dtype != torch.int64:
    return None
  return _Written(node, cache, arguments["values"], positions, True, count, first=first)


def _written_to_pages(node: torch.fx.Node, batches: Any) -> _Written | None:
  """As `_written`, for a cache in pages."""
  import torch

  count, dtype = node.meta["val"].shape[2], node.meta["val"].dtype
  path: list[torch.fx.Node] = []
  while node.target in _conversions() and node.meta["val"].dtype == dtype:
    path.append(node)
    node = node.args[0]  # type: ignore[assignment]
  found = paged.read_of(node)
  if found is None:
    return None
  nodes, table = found
  write: Any = nodes[-1].args[0]
  if write.target is not torch.ops.aten.index_put_.default:
    return None
  if any(_readers(each) > 1 for each in (*path, *nodes, write)):
    return None
  arguments = graphs.arguments(write)
  cache, indices = arguments["self"], arguments["indices"]
  if cache.op not in ("placeholder", "get_attr") or len(cache.users) != 1:
    return None
  if arguments["accumulate"] or len(indices) != 3 or indices[1] is not None:
    return None
  place = paged.place_of(indices[0], indices[2])
  value = cache.meta["val"]
  if place is None or place.table is not table or value.dtype != dtype:
    return None
  if not _is_column(place.positions, batches) or place.size != value.shape[2]:
    return None
  if place.positions.meta["val"].dtype != torch.int64 or table.meta["val"].dtype != torch.int64:
    return None
  new, positions = arguments["values"], place.positions
  return _Written(write, cache, new, positions, False, count, table)


def _conversions() -> tuple[Any, ...]:
  import torch

  aten = torch.ops.aten
  return (aten.to.dtype, aten.to.dtype_layout, aten._to_copy.default, aten.alias.default)


def _readers(node: torch.fx.Node) -> int:
  """How many nodes take the elements of a node."""
  import torch

  aten = torch.ops.aten
  others = (aten._assert_tensor_metadata.default, aten.sym_size.int)
  return sum(user.target not in others for user in node.users)


def _is_column(node: torch.fx.Node, batches: Any) -> bool:
  shape = node.meta["val"].shape
  return len(shape) == 2 and known_equal(shape[0], batches) and known_equal(shape[1], 1)


def _are_all_rows(node: torch.fx.Node, batches: Any) -> bool:
  """Whether an index is 0, 1 and so on, a row for each batch."""
  import torch

  aten = torch.ops.aten
  if not _is_column(node, batches) or node.target is not aten.unsqueeze.default:
    return False
  numbers: Any = node.args[0]
  return numbers.target is aten.arange.default and len(numbers.args) == 1


def _is_only_row(node: torch.fx.Node, batches: Any, first: torch.fx.Node) -> bool:
  """Whether an index is the number `first`, of the only batch."""
  import torch

  aten = torch.ops.aten
  if not known_equal(batches, 1) or not _is_column(node, batches):
    return False
  if node.target is not aten.add.Tensor or node.kwargs or node.args[1] is not first:
    return False
  zeros: Any = node.args[0]
  return isinstance(zeros, torch.fx.Node) and zeros.target is aten.zeros_like.default


def _of_heads(written: _Written) -> torch.fx.Node | None:
  """The new rows as batches x heads x 1 x elements."""
  import torch

  aten = torch.ops.aten
  node = written.new
  if written.write.target is aten.index_copy_.default:
    return node
  # Indices of two dimensions that are not neighbours put these first.
  dtype = node.meta["val"].dtype
  while node.target in _conversions() and node.meta["val"].dtype == dtype:
    before: Any = node.args[0]
    if before.meta["val"].dtype != dtype:
      return None
    node = before
  if node.target is not aten.transpose.int:
    return None
  found, *dims = graphs.arguments(node).values()
  if sorted(dim % 4 for dim in dims) != [1, 2]:
    return None
  return found if isinstance(found, torch.fx.Node) else None


def _rotation(node: torch.fx.Node) -> _Rotation | None:
  """The rotation of rows by their positions that a node computes, in the form that transformers
  writes it."""
  import torch

  aten = torch.ops.aten
  if node.target is not aten.add.Tensor or node.kwargs or len(node.args) != 2:
    return None
  for straight, turned in (node.args, node.args[::-1]):
    for x, cosine in _factors(straight):
      for other, sine in _factors(turned):
        if (
          _turns(other, x)
          and _is_row(cosine, x)
          and _is_row(sine, x)
          and cosine.meta["val"].dtype == sine.meta["val"].dtype
          and node.meta["val"].dtype == x.meta["val"].dtype
        ):
          return _Rotation(x, cosine, sine)
  return None


def _factors(node: Any) -> Iterator[tuple[torch.fx.Node, torch.fx.Node]]:
  """The factors of a product of two tensors, in both orders."""
  import torch

  if not isinstance(node, torch.fx.Node) or node.target is not torch.ops.aten.mul.Tensor:
    return
  left, right = node.args
  if isinstance(left, torch.fx.Node) and isinstance(right, torch.fx.Node):
    yield left, right
    yield right, left


def _turns(node: torch.fx.Node, x: torch.fx.Node) -> bool:
  """Whether a node is the second half of the rows of x, negative, and then their first half."""
  import torch

  aten = torch.ops.aten
  if node.target is not aten.cat.default:
    return False
  arguments = graphs.arguments(node)
  parts, dim = arguments["tensors"], arguments["dim"]
  if len(parts) != 2 or dim not in (-1, 3) or parts[0].target is not aten.neg.default:
    return False
  size = x.meta["val"].shape[-1]
  halves = (parts[0].args[0], parts[1])
  return all(_is_half(half, x, place, size) for half, place in zip(halves, (1, 0), strict=True))


def _is_half(node: Any, x: torch.fx.Node, place: int, size: int) -> bool:
  """Whether a node is the first (0) or the second half (1) of the rows of x."""
  import operator as python_operator

  import torch

  aten = torch.ops.aten
  if node.target is aten.slice.Tensor:
    source, dim, begin, end, step = graphs.arguments(node).values()
    ends = (0 if begin is None else begin, size if end is None else min(end, size))
    wanted = (place * size // 2, (place + 1) * size // 2)
    return source is x and dim in (-1, 3) and step == 1 and ends == wanted
  if node.target is python_operator.getitem:
    chunks: Any
    chunks, number = node.args
    if number != place or chunks.args[0] is not x:
      return False
    how, dim = chunks.args[1], graphs.arguments(chunks)["dim"]
    is_half = (chunks.target is aten.chunk.default and how == 2) or (
      chunks.target is aten.split.Tensor and how == size // 2
    )
    return is_half and dim in (-1, 3)
  return False


def _is_row(node: torch.fx.Node, x: torch.fx.Node) -> bool:
  """Whether a tensor has one row for all of x, or one for each batch."""
  value, shape = node.meta["val"], x.meta["val"].shape
  sizes = [1] * (4 - value.dim()) + list(value.shape)
  return (
    len(sizes) == 4
    and known_equal(sizes[3], shape[3])
    and all(known_equal(size, 1) for size in sizes[1:3])
    and (known_equal(sizes[0], 1) or known_equal(sizes[0], shape[0]))
  )


def _replace(graph: torch.fx.Graph, node: torch.fx.Node, step: _Step) -> None:
  """Makes a call of attention that of a step, which writes the cache."""
  arguments = graphs.arguments(node)
  names = ("key", "value", "mask", "scale", "order", "softcap", "sinks")
  key, value, mask, scale, order, softcap, sinks = (arguments[name] for name in names)
  rotation = step.rotation
  node.target = operator()
  node.args = (
    step.query,
    step.key,
    step.value,
    rotation and rotation.cosine,
    rotation and rotation.sine,
    step.keys.cache,
    step.values.cache,
    step.keys.positions,
    step.keys.counts_from_the_end,
    0 if step.keys.table else step.keys.count,
    step.window,
    mask if step.window < 0 else None,
    scale,
    order,
    step.keys.table,
    step.keys.first,
    softcap,
    sinks,
  )
  node.kwargs = {}
  # Nodes that read sizes of the caches stay.
  for written, read in ((step.values, value), (step.keys, key)):
    _erase_read(graph, read, written.write)
    written.write.replace_all_uses_with(written.cache)
    graph.erase_node(written.write)


def _erase_read(graph: torch.fx.Graph, node: torch.fx.Node, write: torch.fx.Node) -> None:
  """Erases the parts of a cache, after it was written, that nothing reads any more. Inductor would
  ask whether one of them and the cache overlap, which depends on the row with which it begins."""
  import torch

  check = torch.ops.aten._assert_tensor_metadata.default
  while node is not write and all(user.target is check for user in node.users):
    before: Any = node.args[0]
    for user in list(node.users):
      graph.erase_node(user)
    graph.erase_node(node)
    node = before


# Inductor's node


@functools.cache
def _node_class() -> Any:
  from torch._inductor import ir
  from torch._inductor.virtualized import V

  class AttentionStep(ir.ExternKernel):
    """A call of attention of a step. `inputs` begins with the query, the keys and the values of the
    cache, as that of Attention does."""

    scales = ()
    causal = False

    def __init__(
      self,
      inputs: dict[str, InductorObject],
      from_end: bool,
      count: Any,
      window: int,
      scale: float,
      first: Any,
      softcap: float,
    ) -> None:
      tensors = list(inputs.values())
      super().__init__(
        None, ir.MultiOutputLayout(device=tensors[0].get_device()), self.unwrap_storage(tensors)
      )
      self.names = list(inputs)
      self.from_end, self.count, self.window, self.scale = from_end, count, window, scale
      self.first, self.softcap = first, softcap
      self.outputs: list[InductorObject] = []
      self.name = V.graph.register_buffer(self)
      nothing = ir.NoneLayout(device=tensors[0].get_device())
      self.mutation_outputs = [ir.MutationOutput(nothing, cache, self) for cache in tensors[1:3]]
      V.graph.register_operation(self)

    def _input(self, name: str) -> InductorObject | None:
      return self.inputs[self.names.index(name)] if name in self.names else None

    @property
    def new_key(self) -> InductorObject:
      return self._input("new_key")

    @property
    def new_value(self) -> InductorObject:
      return self._input("new_value")

    @property
    def positions(self) -> InductorObject:
      return self._input("positions")

    @property
    def rotation(self) -> Sequence[InductorObject]:
      """The cosines and sines; empty if nothing is turned."""
      return [self._input(name) for name in ("cosine", "sine") if name in self.names]

    @property
    def table(self) -> InductorObject | None:
      """The pages of each batch, if the cache is in pages."""
      return self._input("table")

    @property
    def mask(self) -> InductorObject | None:
      return self._input("mask")

    @property
    def sinks(self) -> InductorObject | None:
      """A score for each head of the query."""
      return self._input("sinks")

    def should_allocate(self) -> bool:
      return False

    def codegen(self, wrapper: InductorObject) -> None:
      wrapper.writeline(NodeLine(self))

  return AttentionStep


def lowerings() -> dict[Any, Callable[..., Any]]:
  """Inductor's lowerings by operator."""
  return {operator(): _lowered}


def _lowered(
  query: InductorObject,
  key: InductorObject,
  value: InductorObject,
  cosine: InductorObject | None,
  sine: InductorObject | None,
  keys: InductorObject,
  values: InductorObject,
  positions: InductorObject,
  from_end: bool,
  count: Any,
  window: int,
  mask: InductorObject | None,
  scale: float,
  order: Sequence[int],
  table: InductorObject | None = None,
  first: Any = 0,
  softcap: float = 0.0,
  sinks: InductorObject | None = None,
) -> Any:
  from torch._inductor import ir

  dense, realized = attention_operator.dense, own_operators.realized
  tensors = {
    "query": (dense, query),
    "keys": (realized, keys),
    "values": (realized, values),
    "new_key": (dense, key),
    "new_value": (dense, value),
    "positions": (realized, positions),
    "cosine": (dense, cosine),
    "sine": (dense, sine),
    "table": (dense, table),
    "mask": (realized, mask),
    "sinks": (dense, sinks),
  }
  inputs = {
    name: in_memory(tensor) for name, (in_memory, tensor) in tensors.items() if tensor is not None
  }
  if table is not None:
    count = table.get_size()[1] * keys.get_size()[2]
  node = _node_class()(inputs, from_end, count, window, scale, first, softcap)
  size = [*query.get_size()[:-1], value.get_size()[-1]]
  layout = ir.FixedLayout(
    query.get_device(),
    query.get_dtype(),
    size,
    dense_strides(size, attention_operator.order_of_result(order)),
  )
  node.outputs = [ir.MultiOutput(layout, node, [(tuple, 0)], True)]
  return ir.TensorBox.create(node.outputs[0])
