"""Operators that several ranks compute together. Programs call `husk::all_reduce` and its like,
which the host's operators and NCCL implement. PyTorch's operators name a process group, which
exists while a model is traced only; Husk's have the ranks of the group in its place. A residual
that is added to an all-reduce is an argument of it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported
from . import graphs, own_operators, process_groups, symmetric_memory, writes

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

# A torch.ops overload.
Operator = Any

# The operators that a program calls. Each takes a token behind the results, which all of them
# write, so that they keep one order on all ranks (lower/extern.py).
NAMES = frozenset(
  {
    "husk::all_gather_into_tensor",
    "husk::all_reduce",
    "husk::all_to_all_single",
    "husk::broadcast",
    "husk::recv",
    "husk::reduce_scatter_tensor",
    "husk::send",
  }
)

# Arguments of the schemas that a call in a program does not have in their places: those of a trace
# only, and a residual, which comes behind the token.
_AFTER = "after"
RESIDUAL = "residual"
LEFT_OUT = {name: frozenset({_AFTER, RESIDUAL, "size", "dtype", "device"}) for name in NAMES}
# The reductions that operators of all targets compute.
_REDUCTIONS = frozenset({"avg", "max", "min", "product", "sum"})
# The most bytes of an all-reduce with a residual of more than two ranks, times the other ranks: so
# much the port for CUDA exchanges by its own kernel (ports/cuda/ops/peers.cpp), whose last step
# adds the residual. The residual of a larger one would be one more pass over the tensor, behind
# NCCL's. What two ranks exchange goes through kernels of the port, whatever its size.
_MOST_BYTES = 1 << 20


def _define(name: str, arguments: str, fake: Callable[..., Any]) -> Operator:
  """Defines an operator. Its last argument `after` is the result of the call before it, so that no
  pass moves it before that one: ranks whose programs differ would wait for each other. It stays in
  a program whether its result is used or not, since other ranks wait for it."""
  from torch.fx.node import has_side_effect

  def result(*args: Any, after: Any = None, **kwargs: Any) -> Any:
    return fake(*args, **kwargs)

  star = "" if "*" in arguments else "*, "
  return has_side_effect(
    own_operators.define(
      name, f"{arguments}, {star}Tensor? after=None", result, tag="needs_contiguous_strides"
    )
  )


def _dense(tensor: torch.Tensor, rows: Any = None) -> torch.Tensor:
  """A contiguous tensor like another one, of another number of rows if one is given."""
  sizes = list(tensor.shape) if rows is None else [rows, *tensor.shape[1:]]
  return tensor.new_empty(sizes)


@functools.cache
def all_reduce() -> Operator:
  """husk::all_reduce: the sum, average, product, minimum or maximum of a tensor over all ranks, to
  which a residual may be added."""
  return _define(
    "all_reduce",
    "Tensor self, str reduce, int[] ranks, Tensor? residual=None",
    lambda x, reduce, ranks, residual=None: _dense(x),
  )


@functools.cache
def all_gather() -> Operator:
  """husk::all_gather_into_tensor: the tensors of all ranks, one behind the other."""
  return _define(
    "all_gather_into_tensor",
    "Tensor self, int[] ranks",
    lambda x, ranks: _dense(x, x.shape[0] * len(ranks)),
  )


@functools.cache
def reduce_scatter() -> Operator:
  """husk::reduce_scatter_tensor: the rows of this rank in the reduction of all tensors."""
  return _define(
    "reduce_scatter_tensor",
    "Tensor self, str reduce, int[] ranks",
    lambda x, reduce, ranks: _dense(x, x.shape[0] // len(ranks)),
  )


@functools.cache
def all_to_all() -> Operator:
  """husk::all_to_all_single: rows that go to each rank, and come from each rank."""
  return _define(
    "all_to_all_single",
    "Tensor self, SymInt[] output_sizes, SymInt[] input_sizes, int[] ranks",
    lambda x, received, sent, ranks: _dense(x, sum(received) if received else None),
  )


@functools.cache
def broadcast() -> Operator:
  """husk::broadcast: the tensor of one rank."""
  return _define(
    "broadcast", "Tensor self, int source, int[] ranks", lambda x, source, ranks: _dense(x)
  )


@functools.cache
def sent() -> Operator:
  """husk::sent: sends a tensor to one rank, which receives it. The result has no elements."""
  return _define("sent", "Tensor self, int to", lambda x, to: x.new_empty([0]))


@functools.cache
def _send() -> Operator:
  """husk::send, which a program calls in place of husk::sent."""
  return own_operators.define("send", "Tensor self, int to", lambda x, to: None, "()")


@functools.cache
def recv() -> Operator:
  """husk::recv: the tensor that one rank sends."""
  import torch

  return _define(
    "recv",
    "SymInt[] size, int source, *, ScalarType dtype, Device device",
    lambda size, source, *, dtype, device: torch.empty(size, dtype=dtype, device=device),
  )


_ALL = (all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, sent, recv)


def lowerings() -> dict[Operator, Callable[..., Any]]:
  """Inductor's lowerings of the operators."""
  return {define(): _in_order(define()) for define in _ALL}


def _in_order(operator: Operator) -> Callable[..., Any]:
  import torch
  from torch._inductor import ir, lowering

  full = lowering.lowerings[torch.ops.aten.full.default]

  def lowered(*args: Any, after: Any = None, **kwargs: Any) -> Any:
    if operator is sent():
      _ordered_call().create(_send(), *args)
      return full([0], 0, dtype=args[0].get_dtype(), device=args[0].get_device())
    return ir.TensorBox.create(_ordered_call().create(operator, *args, **kwargs))

  return lowered


@functools.cache
def _ordered_call() -> Any:
  """The class of calls of the operators. Each comes after the one before it, which need not stay in
  memory for it."""
  from torch._inductor import dependencies, ir
  from torch._inductor.virtualized import V

  class OrderedCall(ir.FallbackKernel):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
      super().__init__(*args, **kwargs)
      others = (one for one in reversed(V.graph.operations) if isinstance(one, OrderedCall))
      self.call_before = next((one for one in others if one is not self), None)

    def get_read_writes(self) -> Any:
      found = super().get_read_writes()
      if self.call_before is not None:
        found.reads.add(dependencies.StarDep(self.call_before.get_name()))
      return found

    def has_side_effects(self) -> bool:
      return True

  return OrderedCall


def is_used(exported: ExportedProgram) -> bool:
  """Whether a program has collective operators of PyTorch's."""
  nodes = graphs.nodes(exported)
  return any(node.op == "call_function" and _is_collective(node.target) for node in nodes)


def rewrite(exported: ExportedProgram) -> None:
  """Replaces PyTorch's collective operators by Husk's, in place, and makes each call depend on the
  one before it. The process groups must still exist. Others of their namespaces are refused."""
  symmetric_memory.rewrite(exported)
  for module in graphs.modules(exported):
    for node in list(module.graph.nodes):
      if node.op == "call_function" and _is_collective(node.target):
        _replace(exported, module, node)
    for node in list(module.graph.nodes):
      if node.target is all_reduce():
        _add_residual(exported, module, node)
    own = [define() for define in _ALL]
    calls = [node for node in module.graph.nodes if node.target in own]
    for before, node in itertools.pairwise(calls):
      node.update_kwarg(_AFTER, before)
    if calls:
      module.graph.eliminate_dead_code()
      module.recompile()


def waited_inputs(module: torch.fx.GraphModule) -> list[str]:
  """The names of the inputs of a graph for which it waits, as they come from collectives that have
  begun outside of it."""
  names = ("_c10d_functional::wait_tensor", "_c10d_functional::wait_tensors")
  waits: list[Any] = [
    node
    for node in module.graph.nodes
    if getattr(getattr(node.target, "_schema", None), "name", "") in names
  ]
  inputs = dict.fromkeys(one for node in waits for one in node.all_input_nodes)
  return [str(node.target) for node in inputs if node.op == "placeholder"]


def _is_collective(target: Any) -> bool:
  return getattr(target, "namespace", "") in (
    "_c10d_functional",
    "_c10d_functional_autograd",
    symmetric_memory.NAMESPACE,
  )


def _use(
  exported: ExportedProgram, module: torch.fx.GraphModule, node: torch.fx.Node, other: torch.fx.Node
) -> None:
  """Puts `other` in the place of a node, in the results of the program too."""
  node.replace_all_uses_with(other)
  if module is exported.graph_module:
    exported.graph_signature.replace_all_uses(node.name, other.name)
  module.graph.erase_node(node)


def _replace(exported: ExportedProgram, module: torch.fx.GraphModule, node: torch.fx.Node) -> None:
  """Replaces one call. A wait is what it waits for, since the steps of a program are in order."""
  target: Any = node.target
  name = target._schema.name.partition("::")[2]
  arguments = graphs.arguments(node)
  if name in ("wait_tensor", "_wrap_tensor_autograd"):
    _use(exported, module, node, node.all_input_nodes[0])
    return
  if name == "wait_tensors":
    _use_each(exported, module, node, arguments["tensors"])
    return
  if name.endswith("_coalesced"):
    _separate(exported, module, node, name.removesuffix("_coalesced"), arguments)
    return
  with module.graph.inserting_before(node):
    call = _call(module, name, arguments)
  call.meta = dict(node.meta)
  _use(exported, module, node, call)


def _add_residual(
  exported: ExportedProgram, module: torch.fx.GraphModule, node: torch.fx.Node
) -> None:
  """Makes one call of an all-reduce and of the addition that follows, if that adds a tensor like it
  which exists before the all-reduce."""
  import torch

  user: Any = next(iter(node.users), None)
  if len(node.users) != 1 or user.target is not torch.ops.aten.add.Tensor:
    return
  values = graphs.arguments(user)
  one, other = values["self"], values["other"]
  residual = one if other is node else other
  if values["alpha"] != 1 or not isinstance(residual, torch.fx.Node):
    return
  if not _suits(exported, node, residual) or not _is_before(residual, node, user):
    return
  node.args = (*node.args, residual)
  node.meta = dict(user.meta)
  _use(exported, module, user, node)


def _suits(exported: ExportedProgram, node: torch.fx.Node, residual: torch.fx.Node) -> bool:
  """Whether the tensors of two nodes are alike, and suit a kernel of the port."""
  import torch
  from torch.utils._sympy.value_ranges import bound_sympy

  x, y = node.meta["val"], residual.meta["val"]
  if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
    return False
  if (y.dtype, y.device, _sizes(y)) != (x.dtype, x.device, _sizes(x)) or not y.is_contiguous():
    return False
  size: Any = x.numel()
  if isinstance(size, torch.SymInt):
    shapes: Any = size.node.shape_env
    ranges = {**shapes.var_to_range, **exported.range_constraints}
    size = bound_sympy(size.node.expr, ranges).upper
  others = len(graphs.arguments(node)["ranks"]) - 1
  return others == 1 or bool(size * x.itemsize * others <= _MOST_BYTES)


def _sizes(tensor: torch.Tensor) -> list[Any]:
  """The sizes of a tensor as numbers and expressions, which compare without a guard."""
  return [getattr(getattr(size, "node", None), "expr", size) for size in tensor.shape]


def _is_before(residual: torch.fx.Node, node: torch.fx.Node, user: torch.fx.Node) -> bool:
  """Whether `residual` is computed before `node`, and nothing is written until `user` reads it."""
  if not residual < node:
    return False
  between = node.next
  while between is not user:
    if writes.may_write(between):
      return False
    between = between.next
  return True


def _separate(
  exported: ExportedProgram,
  module: torch.fx.GraphModule,
  node: torch.fx.Node,
  name: str,
  arguments: dict[str, Any],
) -> None:
  """Replaces a call with several tensors by one for each."""
  inputs: Sequence[torch.fx.Node] = arguments.pop("inputs")
  calls = []
  with module.graph.inserting_before(node):
    for index, one in enumerate(inputs):
      call = _call(module, name, {"input": one, **arguments})
      call.meta = {**node.meta, "val": node.meta["val"][index]}
      calls.append(call)
  _use_each(exported, module, node, calls)


def _use_each(
  exported: ExportedProgram,
  module: torch.fx.GraphModule,
  node: torch.fx.Node,
  others: Sequence[torch.fx.Node],
) -> None:
  """Puts `others` in the place of the tensors of a list that a node computes."""
  import operator

  user: Any
  for user in list(node.users):
    if user.target is not operator.getitem:
      raise Unsupported(f"a list of results of {node.target} that is used as a whole")
    _use(exported, module, user, others[user.args[1]])
  module.graph.erase_node(node)


def _call(module: torch.fx.GraphModule, name: str, arguments: dict[str, Any]) -> torch.fx.Node:
  """A call of Husk's operator for PyTorch's `name`."""
  x, ranks = arguments.get("input"), process_groups.ranks(arguments.get("group_name"))
  calls = {
    "all_reduce": lambda: (all_reduce(), x, arguments["reduce_op"], ranks),
    "all_gather_into_tensor": lambda: (all_gather(), x, ranks),
    "reduce_scatter_tensor": lambda: (reduce_scatter(), x, arguments["reduce_op"], ranks),
    "all_to_all_single": lambda: (
      *(all_to_all(), x),
      *(list(arguments["output_split_sizes"]), list(arguments["input_split_sizes"]), ranks),
    ),
    "broadcast": lambda: (broadcast(), x, ranks[arguments["src"]], ranks),
  }
  if name not in calls:
    raise Unsupported(
      f"the operator _c10d_functional::{name}",
      remedy=f"use one of {', '.join(sorted(calls))} of torch.distributed._functional_collectives",
    )
  if (reduction := arguments.get("reduce_op", "sum")) not in _REDUCTIONS:
    raise Unsupported(
      f"the reduction {reduction!r} of _c10d_functional::{name}",
      remedy=f"give one of {', '.join(sorted(_REDUCTIONS))}",
    )
  target, *args = calls[name]()
  return module.graph.call_function(target, tuple(args))
