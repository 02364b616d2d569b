"""Attention as one step, in the mode "flash": on a CUDA target a kernel of Husk (kernel.py), on a
host target an operator. The mode "decompose" makes attention of products and a softmax
(decompositions.py), as does "flash" if a target does not support a call (`unsupported_reason`).

`rewrite` replaces the program's calls of attention by `husk::attention`, before torch decomposes
anything. Keys and values that a program dequantizes from codes of 8 bits, with a scale for each key
and head, are given to the operator as codes and scales, and on hosts floats of 16 bits that it
converts to f32 as they are (codes.py). Inductor lowers that operator to a node of Husk
(`lowerings`), whose statements launch.py or host_call.py writes.
"""

from __future__ import annotations

import dataclasses
import functools
import operator as python_operator
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported
from ..fusion import rewriting
from ..inductor import graphs
from ..inductor.layouts import dense_strides, known_equal, order_in_memory
from ..inductor.lines import InductorObject, NodeLine
from ..inductor.origins import place
from ..inductor.own_operators import define, realized
from . import bounds, paged, scores
from .codes import dequantized, halves

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

# A torch.ops overload.
Operator = Any
# A size: an int, or a torch.SymInt.
Size = Any

LARGEST_HEAD = 256


@dataclasses.dataclass(frozen=True)
class Support:
  """The calls of attention that a kind of target supports. `floats` are the dtypes of queries, keys
  and values by name, `masks` the dtypes of masks besides bool and that of the queries. `tuples`
  says whether torch's operators that return a tuple are replaced too. `codes` are the dtypes of
  keys and values that have scales. `halves` says whether keys and values may be f16 or bf16 where
  queries are f32. A page of keys and values is read where it is if its positions are a multiple of
  `page`, and the call has at most so many `queries_of_pages`. `scores` says whether scores may
  have a largest value or sinks (scores.py)."""

  floats: frozenset[str]
  masks: frozenset[str]
  tuples: bool
  codes: frozenset[str]
  halves: bool
  page: int
  queries_of_pages: int
  scores: bool


_HALVES_AND_FLOAT = frozenset({"float16", "bfloat16", "float32"})
_CODES = frozenset({"int8", "float8_e4m3fn"})
# On an H200, 8 sequences of 4 tokens took 0.6 to 1.0 times as long with pages where they are as
# with pages that are copied first, and chunks of 256 tokens 1.0 to 1.2 times: each block of queries
# reads all pages again (tests/gpu/paged_attention.py). A chunk whose pages are copied may also have
# a bound in place of its mask (`after_keys`).
CUDA = Support(
  _HALVES_AND_FLOAT,
  _HALVES_AND_FLOAT,
  tuples=True,
  codes=_CODES,
  halves=False,
  page=16,
  queries_of_pages=64,
  scores=True,
)
HOST = Support(
  _HALVES_AND_FLOAT | {"float64"},
  frozenset({"float32"}),
  tuples=False,
  codes=_CODES,
  halves=True,
  page=1,
  queries_of_pages=sys.maxsize,
  scores=False,
)


# The operator


@functools.cache
def operators() -> tuple[Operator, Operator]:
  """(husk::attention, husk::attention_with_lse). They are defined once per process.

  `order` lists the dimensions of the result from the outermost to the innermost in memory.
  Operators that use the result may rely on it: torch leaves out a copy that eager mode does not
  need. Eager mode keeps the order of the query's dimensions, which is often that of [0, 2, 1, 3].

  With `key_scales` and `value_scales` (f32[batches, heads, keys]), `key` and `value` are codes.
  With a `table` (paged.py), all of these are caches in pages. `softcap` and `sinks` are those of
  scores.py. With `causal`, query i sees the keys 0 to i + `ahead`.
  """
  arguments = (
    "Tensor query, Tensor key, Tensor value, Tensor? mask, bool causal, float scale, int[] order, "
    "Tensor? key_scales=None, Tensor? value_scales=None, Tensor? table=None, float softcap=0.0, "
    "Tensor? sinks=None, SymInt ahead=0"
  )
  return (
    define("attention", arguments, _fake),
    define("attention_with_lse", arguments, _fake_with_lse, "(Tensor, Tensor)"),
  )


def _fake(
  query: torch.Tensor,
  key: torch.Tensor,
  value: torch.Tensor,
  mask: torch.Tensor | None,
  causal: bool,
  scale: float,
  order: Sequence[int],
  *_others: Any,
) -> torch.Tensor:
  shape = [*query.shape[:-1], value.shape[-1]]
  dense = query.new_empty([shape[dim] for dim in order])
  return dense.permute([order.index(dim) for dim in range(len(order))])


def _fake_with_lse(
  query: torch.Tensor,
  key: torch.Tensor,
  value: torch.Tensor,
  mask: torch.Tensor | None,
  causal: bool,
  scale: float,
  order: Sequence[int],
  *_others: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
  import torch

  result = _fake(query, key, value, mask, causal, scale, order)
  return result, query.new_empty(query.shape[:-1], dtype=torch.float32)


def replacement(
  support: Support,
  query: torch.Tensor,
  key: torch.Tensor,
  value: torch.Tensor,
  attn_mask: torch.Tensor | None = None,
  dropout_p: float = 0.0,
  is_causal: bool = False,
  scale: float | None = None,
  enable_gqa: bool = False,
) -> torch.Tensor:
  """Replaces products and a softmax in which Inductor recognises attention. Inductor's own
  replacement would be decomposed again, into more operations than before."""
  import torch

  if unsupported_reason(
    support, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
  ):
    return torch.ops.aten.scaled_dot_product_attention(
      query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )
  factor = float(query.shape[-1] ** -0.5 if scale is None else scale)
  attention, _ = operators()
  return attention(query, key, value, attn_mask, is_causal, factor, list(range(query.dim())))


# Calls in a program


def rewrite(
  exported: ExportedProgram, note: Callable[[str], object], support: Support = CUDA
) -> ExportedProgram:
  """A copy of a program in which attention is Husk's operator, if the target supports the call;
  `note` is called with a text about each other call. A program without attention is returned
  itself."""
  replaced = _calls_of(support)
  return rewriting.rewrite(
    exported,
    lambda node: node.target in replaced,
    lambda graph: _rewrite_graph(graph, note, support),
  )


def in_pages(
  exported: ExportedProgram, support: Support, in_place: bool = False
) -> ExportedProgram:
  """A copy of a program in which Husk's operator reads caches in pages where they are, if the
  program reads them by a table. A program without such calls is returned itself."""

  def changes(query: torch.fx.Node, call: torch.fx.Node) -> dict[str, Any]:
    if not _are_few(query, support.queries_of_pages):
      return {}
    return paged.in_place(call, graphs.arguments(call), support.page)

  return _with_other_arguments(exported, changes, in_place)


def after_keys(exported: ExportedProgram) -> ExportedProgram:
  """A copy of a program in which queries that follow the keys before them have no mask, if theirs
  says that each query sees the keys up to its own (bounds.py). A program without such calls is
  returned itself."""

  def changes(query: torch.fx.Node, call: torch.fx.Node) -> dict[str, Any]:
    arguments = graphs.arguments(call)
    mask, key = arguments["mask"], arguments["key"]
    if mask is None or arguments["causal"] or arguments["table"] is not None:
      return {}
    first = bounds.first_position(mask, query.meta["val"].shape[-2], key.meta["val"].shape[-2])
    return {} if first is None else {"mask": None, "causal": True, "ahead": first}

  return _with_other_arguments(exported, changes)


def _with_other_arguments(
  exported: ExportedProgram,
  changes: Callable[[torch.fx.Node, torch.fx.Node], dict[str, Any]],
  in_place: bool = False,
) -> ExportedProgram:
  """A copy of a program whose calls of Husk's operator have the arguments that `changes` returns
  for their query and the call. A program without a change is returned itself."""
  attention, _ = operators()

  def found(node: torch.fx.Node) -> dict[str, Any]:
    query: Any = node.args[0] if node.target is attention else None
    return {} if query is None else changes(query, node)

  def change(graph: torch.fx.Graph) -> None:
    for node in graph.nodes:
      if changed := found(node):
        node.args = tuple((graphs.arguments(node) | changed).values())
        node.kwargs = {}

  return rewriting.rewrite(exported, lambda node: bool(found(node)), change, in_place)


def _are_few(query: Any, most: int) -> bool:
  """Whether a call has at most so many queries at all sizes of the program."""
  from torch.fx.experimental.symbolic_shapes import statically_known_true

  return statically_known_true(query.meta["val"].shape[-2] <= most)


def rewrite_decomposed(graph: torch.fx.Graph, support: Support = CUDA) -> None:
  """Makes attention Husk's operator in a graph that torch has decomposed, where the target supports
  the call. Other calls stay as they are."""
  _rewrite_graph(graph, None, support)


def _rewrite_graph(
  graph: torch.fx.Graph, note: Callable[[str], object] | None, support: Support
) -> None:
  replaced = _calls_of(support)
  for node in list(graph.nodes):
    if node.target in replaced:
      _rewrite_node(graph, node, note, support)


def _calls_of(support: Support) -> set[Operator]:
  """The operators of torch that are replaced on a kind of target."""
  found = {op for op, has_lse in _calls().items() if support.tuples or has_lse is None}
  return found | {scores.operator()} if support.scores else found


# Operators that return a tuple, and whether its second entry is the log-sum-exp.
_TUPLE_OPERATORS = {
  "_scaled_dot_product_flash_attention": True,
  "_scaled_dot_product_efficient_attention": True,
  "_scaled_dot_product_cudnn_attention": True,
  "_scaled_dot_product_flash_attention_for_cpu": True,
  "_scaled_dot_product_fused_attention_overrideable": True,
  "_scaled_dot_product_attention_math": False,
}


@functools.cache
def _calls() -> dict[Operator, bool | None]:
  """The operators of torch that are attention, and whether the second entry of the tuple that they
  return is the log-sum-exp; None if they do not return a tuple."""
  import torch

  calls: dict[Operator, bool | None] = {torch.ops.aten.scaled_dot_product_attention.default: None}
  for name, has_lse in _TUPLE_OPERATORS.items():
    packet = getattr(torch.ops.aten, name, None)
    if packet is not None:
      calls[packet.default] = has_lse
  return calls


def _rewrite_node(
  graph: torch.fx.Graph,
  node: torch.fx.Node,
  note: Callable[[str], object] | None,
  support: Support,
) -> None:
  """Replaces one call of attention. `note` is None if torch has decomposed the graph."""
  import torch

  has_lse = _calls().get(node.target)
  # The users that take an entry of the tuple, with the index of the entry.
  entries: dict[torch.fx.Node, Any] = {}
  if has_lse is not None:
    entries = {user: user.args[1] for user in node.users if user.target is python_operator.getitem}
    used = {index for user, index in entries.items() if user.users}
    supported = {0, 1} if has_lse else {0}
    if len(entries) < len(node.users) or not used or used - supported:
      return  # the call stays as it is
    with_lse = 1 in used
  else:
    with_lse = False
  arguments = _arguments(node)
  values = {
    name: value.meta["val"] if isinstance(value, torch.fx.Node) else value
    for name, value in arguments.items()
  }
  reason = unsupported_reason(support, **values) or _unsupported_results(node, values, with_lse)
  if reason or _counts_from_the_end(node, values):
    if note is None:
      return
    if node.target is scores.operator():
      return  # it is decomposed later
    if not reason:
      raise Unsupported(
        f"{node.target} with is_causal and other numbers of queries and keys: call "
        "torch.nn.functional.scaled_dot_product_attention"
      )
    outcome = "stays an operator of torch" if with_lse else "is products and a softmax"
    location = place(node.meta.get("stack_trace")) or node.name
    note(f"attention {outcome} ({location}): {reason}")
    if with_lse:
      return
  # The outputs of a program have the names of nodes. So an existing node becomes the call: the call
  # itself if its users still take entries of a tuple, else the first user that takes the result.
  results = [user for user, index in entries.items() if index == 0 and user.users]
  call = node if has_lse is None or with_lse else results[0]
  if reason:
    call.target = torch.ops.aten.scaled_dot_product_attention.default
    call.args = tuple(
      arguments[name] for name in ("query", "key", "value", "mask", "dropout", "causal")
    )
    call.kwargs = {"scale": arguments["scale"], "enable_gqa": arguments["gqa"]}
  else:
    if not with_lse:
      arguments |= dequantized(node, arguments, support.codes)
      if support.halves:
        arguments |= halves(node, arguments)
    _call_husk(call, arguments, values, with_lse)
  if with_lse:
    call.meta["val"] = tuple(call.meta["val"][:2])
  _remove_unused(graph, node, call, [user for user in entries if not user.users], results)


def _call_husk(
  call: torch.fx.Node, arguments: dict[str, Any], values: dict[str, Any], with_lse: bool
) -> None:
  """Makes a node the call of Husk's operator."""
  result = call.meta["val"][0] if with_lse else call.meta["val"]
  scale = arguments["scale"]
  if scale is None:
    scale = values["query"].shape[-1] ** -0.5
  attention, attention_with_lse = operators()
  call.target = attention_with_lse if with_lse else attention
  call.args = (
    *(arguments[name] for name in ("query", "key", "value", "mask", "causal")),
    float(scale),
    order_in_memory(result),
    *(arguments.get(name) for name in ("key_scales", "value_scales", "table")),
    arguments["softcap"] or 0.0,
    arguments["sinks"],
  )
  call.kwargs = {}


def _remove_unused(
  graph: torch.fx.Graph,
  node: torch.fx.Node,
  call: torch.fx.Node,
  unused: Iterable[torch.fx.Node],
  results: Sequence[torch.fx.Node],
) -> None:
  """Removes the nodes that are not needed after `call` replaced `node`. `results` are the users
  that took the result."""
  for user in unused:
    graph.erase_node(user)
  if call is not node:
    for user in results[1:]:
      user.replace_all_uses_with(call)
      graph.erase_node(user)
    graph.erase_node(node)


def _arguments(node: torch.fx.Node) -> dict[str, Any]:
  """The arguments of a call by names that are the same for all operators."""
  arguments = graphs.arguments(node)
  return {
    "query": arguments["query"],
    "key": arguments["key"],
    "value": arguments["value"],
    "mask": arguments.get("attn_mask", arguments.get("attn_bias")),
    "dropout": arguments.get("dropout_p", 0.0),
    "causal": arguments.get("is_causal", False),
    "scale": arguments["scale"],
    "gqa": arguments.get("enable_gqa", True),
    "softcap": arguments.get("softcap"),
    "sinks": arguments.get("sinks"),
  }


def unsupported_reason(
  support: Support,
  query: torch.Tensor,
  key: torch.Tensor,
  value: torch.Tensor,
  mask: torch.Tensor | None,
  dropout: float,
  causal: bool,
  scale: Any,
  gqa: bool,
  softcap: float | None = None,
  sinks: torch.Tensor | None = None,
) -> str | None:
  """Why a target does not support attention over these (fake) tensors; None if it does."""
  from torch.fx.experimental.symbolic_shapes import statically_known_true

  if dropout:
    return f"dropout of {dropout}"
  if _name(query.dtype) not in support.floats or {key.dtype, value.dtype} != {query.dtype}:
    return f"elements of {query.dtype}, {key.dtype} and {value.dtype}"
  rank = query.dim()
  if not 2 <= rank <= 4 or key.dim() != rank or value.dim() != rank:
    return f"tensors of rank {rank}, {key.dim()} and {value.dim()}"
  for size in (query.shape[-1], value.shape[-1]):
    if not isinstance(size, int) or not 1 <= size <= LARGEST_HEAD:
      return f"a head size of {size}; at most {LARGEST_HEAD}, known when it is exported, is covered"
  heads: list[Size] = [1, 1, 1]
  if rank == 4:
    heads = [tensor.shape[-3] for tensor in (query, key, value)]
  if (
    not all(isinstance(count, int) and count > 0 for count in heads)
    or heads[1] != heads[2]
    or heads[0] % heads[1]
  ):
    return f"{heads[0]} heads over {heads[1]} and {heads[2]}"
  if heads[0] != heads[1] and heads[1] != 1 and not gqa:
    return f"{heads[0]} heads over {heads[1]} without enable_gqa"
  pairs = [(key.shape[-2], value.shape[-2]), (query.shape[-1], key.shape[-1])]
  if rank > 2:
    pairs += [(query.shape[0], key.shape[0]), (query.shape[0], value.shape[0])]
  # A size may be known to equal another one by a check of the program alone.
  if not all(statically_known_true(left == right) for left, right in pairs):
    return f"shapes {_shape(query)}, {_shape(key)} and {_shape(value)}"
  if scale is not None and not (isinstance(scale, (int, float)) and 0 < scale < float("inf")):
    return f"a scale of {scale}"
  if mask is not None and (
    _name(mask.dtype) not in {"bool", _name(query.dtype), *support.masks} or mask.dim() > rank
  ):
    return f"a mask of {mask.dtype} and rank {mask.dim()}"
  if softcap is not None and not softcap > 0:
    return f"a largest score of {softcap}"
  if sinks is not None and tuple(sinks.shape) != (heads[0],):
    return f"sinks of shape {_shape(sinks)}"
  return None


def _name(dtype: torch.dtype) -> str:
  return str(dtype).removeprefix("torch.")


# With is_causal the last query of these operators sees all keys, unlike that of the others.
_CAUSAL_FROM_THE_END = (
  "_scaled_dot_product_flash_attention",
  "_scaled_dot_product_cudnn_attention",
)


def _unsupported_results(node: torch.fx.Node, values: dict[str, Any], with_lse: bool) -> str | None:
  """Why the kernel cannot return the results of an operator; None if it can. The efficient operator
  pads its log-sum-exp."""
  if with_lse:
    result, lse = node.meta["val"][:2]
    if lse.dim() != result.dim() - 1 or not all(map(known_equal, lse.shape, result.shape)):
      return "a log-sum-exp that is padded"
  return None


def _counts_from_the_end(node: torch.fx.Node, values: dict[str, Any]) -> bool:
  """Whether the mask of a call differs from that of the kernel."""
  return (
    str(node.target).split(".")[1] in _CAUSAL_FROM_THE_END
    and values["causal"]
    and not known_equal(values["query"].shape[-2], values["key"].shape[-2])
  )


def _shape(tensor: torch.Tensor) -> str:
  return f"[{', '.join(map(str, tensor.shape))}]"


# Inductor's node


@functools.cache
def _node_class() -> Any:
  from torch._inductor import ir
  from torch._inductor.virtualized import V

  class Attention(ir.ExternKernel):
    """A call of attention. `inputs` are query, key, value and, if there are, the scales of keys and
    values, the mask, the table of pages and the sinks, by their `names`; `outputs` are the result
    and, if it is used, the log-sum-exp."""

    def __init__(
      self,
      inputs: dict[str, InductorObject],
      causal: bool,
      scale: float,
      softcap: float,
      ahead: Any,
    ) -> None:
      super().__init__(
        None,
        ir.MultiOutputLayout(device=inputs["query"].get_device()),
        self.unwrap_storage(list(inputs.values())),
      )
      self.names = list(inputs)
      self.causal, self.scale, self.softcap, self.ahead = causal, scale, softcap, ahead
      self.outputs: list[InductorObject] = []
      self.name = V.graph.register_buffer(self)
      V.graph.register_operation(self)

    def _input(self, name: str) -> InductorObject | None:
      return self.inputs[self.names.index(name)] if name in self.names else None

    @property
    def scales(self) -> Sequence[InductorObject]:
      """The scales of keys and values, if these are codes."""
      return self.inputs[3:5] if "key_scales" in self.names else ()

    @property
    def mask(self) -> InductorObject | None:
      return self._input("mask")

    @property
    def table(self) -> InductorObject | None:
      """The pages of each batch, if keys and values are in pages."""
      return self._input("table")

    @property
    def sinks(self) -> InductorObject | None:
      """A score for each head of the query."""
      return self._input("sinks")

    def should_allocate(self) -> bool:
      return False

    def codegen(self, wrapper: InductorObject) -> None:
      wrapper.writeline(NodeLine(self))

  return Attention


def lowerings() -> dict[Operator, Callable[..., Any]]:
  """Inductor's lowerings by operator."""
  attention, attention_with_lse = operators()
  return {
    attention: functools.partial(_lowered, False),
    attention_with_lse: functools.partial(_lowered, True),
  }


def _lowered(
  with_lse: bool,
  query: InductorObject,
  key: InductorObject,
  value: InductorObject,
  mask: InductorObject | None,
  causal: bool,
  scale: float,
  order: Sequence[int],
  key_scales: InductorObject | None = None,
  value_scales: InductorObject | None = None,
  table: InductorObject | None = None,
  softcap: float = 0.0,
  sinks: InductorObject | None = None,
  ahead: Any = 0,
) -> Any:
  import torch
  from torch._inductor import ir

  inputs = {"query": dense(query), "key": dense(key), "value": dense(value)}
  optional = {
    "key_scales": (realized, key_scales),
    "value_scales": (realized, value_scales),
    "mask": (with_whole_lines, mask),
    "table": (dense, table),
    "sinks": (dense, sinks),
  }
  for name, (in_memory, tensor) in optional.items():
    if tensor is not None:
      inputs[name] = in_memory(tensor)
  node = _node_class()(inputs, causal, scale, softcap, ahead)
  size = [*query.get_size()[:-1], value.get_size()[-1]]
  outputs = [(query.get_dtype(), size, dense_strides(size, order_of_result(order)))]
  if with_lse:
    lse_size = size[:-1]
    outputs.append((torch.float32, lse_size, ir.FlexibleLayout.contiguous_strides(lse_size)))
  node.outputs = [
    ir.MultiOutput(
      ir.FixedLayout(query.get_device(), dtype, sizes, strides), node, [(tuple, index)], True
    )
    for index, (dtype, sizes, strides) in enumerate(outputs)
  ]
  results = tuple(ir.TensorBox.create(output) for output in node.outputs)
  return results if with_lse else results[0]


def order_of_result(order: Sequence[int]) -> Sequence[int]:
  """The order in memory of the dimensions of the node that is being lowered. The layout of an
  output of the program is fixed. Operators that use another result can mostly take it as the heads
  of each query without a copy."""
  from torch._inductor.virtualized import V

  current: Any = V.graph.current_node
  if list(order) == [0, 1, 2, 3] and not any(user.op == "output" for user in current.users):
    return [0, 2, 1, 3]
  return order


def with_whole_lines(mask: InductorObject) -> InductorObject:
  """A mask in memory. If the program computes it for a GPU, its rows begin at multiples of 16
  elements, whatever the number of keys: the kernel then reads several elements at once. On an H200
  attention of 256 tokens to 2,048 keys of a cache took 1.3 to 3.6 times as long where it read them
  one by one."""
  from torch._inductor import ir
  from torch._inductor.virtualized import V
  from torch.utils._sympy.functions import FloorDiv

  tensor = ir.ExternKernel.realize_input(mask)
  *outer, keys = tensor.get_size()
  if (
    tensor.get_device().type != "cuda"
    or not ir.is_storage_and_layout(tensor)
    or not isinstance(tensor.get_layout(), ir.FlexibleLayout)
    or V.graph.sizevars.statically_known_multiple_of(keys, 16)
  ):
    return realized(tensor)
  lines: Any = FloorDiv(keys + 15, 16)
  strides = ir.FlexibleLayout.contiguous_strides([*outer, lines * 16])
  return ir.ExternKernel.require_exact_strides(tensor, strides)


def dense(tensor: InductorObject) -> InductorObject:
  """A tensor in memory whose rows are dense."""
  from torch._inductor import ir
  from torch._inductor.virtualized import V

  tensor = realized(tensor)
  if (
    V.graph.sizevars.statically_known_equals(tensor.get_stride()[-1], 1)
    or tensor.get_size()[-1] == 1
  ):
    return tensor
  return ir.ExternKernel.require_contiguous(ir.ExternKernel.copy_input(tensor))
