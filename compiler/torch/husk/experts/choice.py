"""The choice of experts by a router, as an operator of Husk's for CUDA targets: the largest of the
scores of a row, with a softmax before and shares after.

Inductor makes a sort of it and kernels around. For 128 scores and 8 experts these are two launches,
and a step of a language model has them in each layer."""

from __future__ import annotations

import dataclasses
import functools
import operator
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import hir
from ..fusion import rewriting, shapes
from ..fusion.order import Order
from ..inductor import graphs, own_operators
from ..inductor.lines import InductorObject
from ..launches import node as launched
from ..launches.call import Call, Memory, kind_of
from ..lower import extern
from ..lower.body import Body
from ..lower.nodes import IrNode

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

_FILE = pathlib.Path(__file__).parent / "kernel.py"
_DTYPES = ("torch.bfloat16", "torch.float16", "torch.float32")
# A warp has the scores of a row, and the loop over the chosen ones is written out.
_MOST_SCORES, _MOST_CHOSEN = 1024, 32


@functools.cache
def chosen() -> Any:
  """husk::chosen, which is defined once per process: the `k` largest elements of each row and their
  places. With `softmax`, those of the softmax of the row, which is computed in f32. `share` is
  "sum" if they are divided by their sum, "softmax" if they are replaced by their softmax, else "".
  Elements have the dtype `dtype`."""
  return own_operators.define(
    "chosen",
    "Tensor scores, int k, bool softmax, str share, ScalarType dtype",
    _fake,
    result="(Tensor, Tensor)",
  )


def _fake(
  scores: torch.Tensor, k: int, softmax: bool, share: str, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
  import torch

  shape = [*scores.shape[:-1], k]
  return scores.new_empty(shape, dtype=dtype), scores.new_empty(shape, dtype=torch.int64)


# The program


@dataclasses.dataclass
class _Choice:
  """A `topk` with what is part of its call: the first node that reads scores, and the node that has
  the chosen elements in the end, after those of `between`."""

  topk: torch.fx.Node
  scores: torch.fx.Node
  first: torch.fx.Node
  softmax: bool
  share: str
  last: torch.fx.Node | None
  between: list[torch.fx.Node]


def rewrite(exported: ExportedProgram) -> ExportedProgram:
  """A copy of a program in which choices of experts are Husk's operator. A program without one is
  returned itself."""
  return rewriting.rewrite(exported, lambda node: _choice(node) is not None, _rewrite_graph)


def _choice(node: torch.fx.Node) -> _Choice | None:
  import torch

  aten = torch.ops.aten
  if node.op != "call_function" or node.target is not aten.topk.default:
    return None
  arguments = graphs.arguments(node)
  scores, k, value = arguments["self"], arguments["k"], arguments["self"].meta["val"]
  size = value.shape[-1] if value.dim() else 0
  if (
    not arguments["largest"]
    or arguments["dim"] not in (-1, value.dim() - 1)
    or not isinstance(size, int)
    or not 0 < size <= _MOST_SCORES
    or not 0 < k <= min(size, _MOST_CHOSEN)
    or any(user.target is not operator.getitem for user in node.users)
  ):
    return None
  parts = {user.args[1]: user for user in node.users}
  if len(parts) != len(node.users):
    return None
  first, softmax = node, False
  if scores.target is aten.softmax.int and _is_of_rows(scores):
    softmax, first = True, scores
    scores = graphs.arguments(scores)["self"]
  cast, dtypes = scores, (torch.float32, value.dtype)
  if shapes.is_cast(cast) and cast.meta["val"].dtype in dtypes:
    below = graphs.arguments(cast)["self"]
    if below.meta["val"].dtype.is_floating_point and below.meta["val"].dtype.itemsize <= 4:
      scores, first = below, cast
  if str(scores.meta["val"].dtype) not in _DTYPES or str(value.dtype) not in _DTYPES:
    return None
  if softmax and value.dtype != torch.float32:
    return None
  share, between, last = "", [], parts.get(0)
  if last is not None:
    share, between, last = _share(last)
    between, last = _cast(between, last)
  return _Choice(node, scores, first, softmax, share, last, between) if softmax or share else None


def _is_of_rows(softmax: torch.fx.Node) -> bool:
  value = softmax.meta["val"]
  return graphs.arguments(softmax)["dim"] in (-1, value.dim() - 1)


def _share(values: torch.fx.Node) -> tuple[str, list[torch.fx.Node], torch.fx.Node]:
  """What becomes of chosen elements, the nodes before the last one that does it, and the last."""
  import torch

  aten = torch.ops.aten
  users = [one for one in values.users if one.target is not aten._assert_tensor_metadata.default]
  if len(users) == 1 and users[0].target is aten.softmax.int and _is_of_rows(users[0]):
    return "softmax", [values], users[0]
  totals = [one for one in users if one.target is aten.sum.dim_IntList]
  divided = [one for one in users if one.target in (aten.div.Tensor, aten.div_.Tensor)]
  none = "", [], values
  if len(users) != 2 or len(totals) != 1 or len(divided) != 1:
    return none
  (total,), (share,) = totals, divided
  arguments = graphs.arguments(total)
  if not arguments["keepdim"] or list(arguments["dim"]) not in (
    [-1],
    [values.meta["val"].dim() - 1],
  ):
    return none
  if share.args != (values, total) or shapes.only_user(total) is not share:
    return none
  if not all(one.meta["val"].dtype == torch.float32 for one in (values, total, share)):
    return none
  return "sum", [values, total], share


def _cast(
  between: list[torch.fx.Node], last: torch.fx.Node
) -> tuple[list[torch.fx.Node], torch.fx.Node]:
  """The same with a cast to another dtype that follows."""
  user = shapes.only_user(last)
  if user is not None and shapes.is_cast(user) and str(user.meta["val"].dtype) in _DTYPES:
    return [*between, last], user
  return between, last


def _rewrite_graph(graph: torch.fx.Graph) -> None:
  import torch

  order, aten = Order(graph), torch.ops.aten
  for node in list(graph.nodes):
    choice = _choice(node)
    if choice is None or order.is_written_between(choice.first, node):
      continue
    last = choice.last
    dtype = node.meta["val"][0].dtype if last is None else last.meta["val"].dtype
    args = (choice.scores, int(graphs.arguments(node)["k"]), choice.softmax, choice.share, dtype)
    with graph.inserting_before(node):
      call = graph.call_function(chosen(), args)
      call.meta = {**node.meta, "val": _fake(choice.scores.meta["val"], *args[1:])}
      for place, user in ((0, last), (1, _part(node, 1))):
        if user is not None:
          part = graph.call_function(operator.getitem, (call, place))
          part.meta = {**user.meta, "val": call.meta["val"][place]}
          # The node stays, because the outputs of a program have the names of nodes.
          user.target, user.args, user.kwargs = aten.alias.default, (part,), {}
    for between in reversed(choice.between):
      for user in list(between.users):
        if user.target is aten._assert_tensor_metadata.default:
          graph.erase_node(user)
      graph.erase_node(between)
    graph.erase_node(node)


def _part(node: torch.fx.Node, place: int) -> torch.fx.Node | None:
  return next((user for user in node.users if user.args[1] == place), None)


# The launch


@functools.cache
def _node_class() -> Any:
  class Choice(launched.base()):
    """The choice of experts by the kernel `chosen_of_row`, with the constants `numbers`."""

    def __init__(self, scores: InductorObject, numbers: dict[str, Any]) -> None:
      super().__init__([scores])
      self.numbers = numbers

  return Choice


def lowerings() -> dict[Any, Callable[..., Any]]:
  """Inductor's lowerings by operator."""
  return {chosen(): _lowered}


def _lowered(
  scores: InductorObject, k: int, softmax: bool, share: str, dtype: torch.dtype
) -> tuple[InductorObject, ...]:
  import torch

  scores = launched.in_memory(scores)
  *outer, size = scores.get_size()
  numbers = {"N": int(size), "K": k, "SOFTMAX": softmax, "SHARE": share}
  made = _node_class()(scores, numbers)
  shape = [*outer, k]
  return tuple(launched.results(made, scores, [(shape, dtype), (shape, torch.int64)]))


def launch(body: Body, node: IrNode) -> None:
  """Writes the launch of a Choice node."""
  import sympy

  weights, places = node.outputs
  (scores,) = node.inputs
  for output in node.outputs:
    extern.declared(body, None, output)
  call = Call(body, "chosen_of_row", _FILE)
  call.pointer("x", Memory.of(body, scores), kind_of(scores))
  call.pointer("weights", Memory.of(body, weights), kind_of(weights))
  call.pointer("numbers", Memory.of(body, places), kind_of(places))
  n, k = node.numbers["N"], node.numbers["K"]
  call.constant(**node.numbers, WIDTH=1 << (n - 1).bit_length(), K_WIDTH=1 << (k - 1).bit_length())
  parts = ["chosen", *(hir.dtype(one.get_dtype()) for one in (scores, weights)), str(n), str(k)]
  parts += ["softmax"] * node.numbers["SOFTMAX"] + [node.numbers["SHARE"]]
  call.launch(
    "_".join(filter(None, parts)),
    [{"num_warps": 1, "num_stages": 1, "maxnreg": None}],
    ("rows", "1", "1"),
    {"rows": sympy.prod(scores.get_size()[:-1])},
    body.origin(weights),
  )


# Classes of nodes -> the functions that write them, for a VariantWriter.
NODES: dict[str, Callable[[Body, IrNode], None]] = {"Choice": launch}
