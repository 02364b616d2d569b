"""Equal layers of a graph are lowered, scheduled and written once.

Inductor takes as long for the thirtieth layer of a model as for the first. Here the nodes of equal
layers, which follow one another, become calls of one graph (`invoke_subgraph`) after Inductor's
passes have seen the whole graph. The wrapper has the lines of that graph once, and Husk writes its
statements where it is called (lower/control.py), so a program has the same steps as without calls.

Inductor fuses nothing across a call. Layers are therefore cut behind a node that is a step by
itself, such as a linear layer, where nothing would be fused: what a layer passes on is the result
of that step, or one that the step itself needs, which is in memory before."""

from __future__ import annotations

import collections
import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from . import origins, writes
from .replace import replaced

if TYPE_CHECKING:
  import torch

# A call is worth its work for so many layers, and so many nodes that need no lowering.
_FEWEST_LAYERS = 3
_FEWEST_NODES = 60
# How many periods are tried: the most frequent distances between equal nodes.
_PERIODS = 16


@contextlib.contextmanager
def once() -> Iterator[None]:
  """While open, Inductor gets the equal layers of each graph as calls of one graph."""
  from torch._inductor import compile_fx

  passes, depth = compile_fx._recursive_post_grad_passes, 0

  def shared(module: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> None:
    nonlocal depth
    depth += 1
    try:
      passes(module, *args, **kwargs)
    finally:
      depth -= 1
    if depth == 0:
      share(module)

  with replaced((compile_fx, "_recursive_post_grad_passes", shared)):
    yield


def share(module: torch.fx.GraphModule) -> int:
  """Makes calls of the equal layers of a graph, and returns how many."""
  nodes = [node for node in module.graph.nodes if node.op not in _NO_STEPS]
  layers = _layers(nodes)
  if not layers:
    return 0
  call = _Call(layers)
  if not call.may_be_made():
    return 0
  call.make(module)
  return len(layers)


_NO_STEPS = ("placeholder", "get_attr", "output")

# The nodes of a layer, in order.
_Layer = Sequence[Any]


# Where equal layers are


def _layers(nodes: list[torch.fx.Node]) -> list[_Layer]:
  """The longest series of equal layers among the nodes; empty if there is none."""
  numbers: dict[Any, int] = {}
  keys = [numbers.setdefault(_key(node), len(numbers)) for node in nodes]
  best: tuple[int, int, int] = (0, 0, 0)
  saved = _FEWEST_NODES - 1
  for period in _periods(keys):
    begin, end = _run(keys, period)
    count = (end - begin) // period
    if count >= _FEWEST_LAYERS and (count - 1) * period > saved:
      saved, best = (count - 1) * period, (begin, end, period)
  begin, end, period = best
  if not period:
    return []
  cut = _cut(nodes, begin, end, period)
  if cut is None:
    return []
  starts = range(cut, end - period + 1, period)
  return _alike([nodes[start : start + period] for start in starts])


def _periods(keys: list[int]) -> list[int]:
  """How many nodes a layer may have, the likeliest number first."""
  last: dict[int, int] = {}
  counts: collections.Counter[int] = collections.Counter()
  for place, key in enumerate(keys):
    if key in last:
      counts[place - last[key]] += 1
    last[key] = place
  return [period for period, _ in counts.most_common(_PERIODS)]


def _run(keys: list[int], period: int) -> tuple[int, int]:
  """The longest part of the nodes in which each is like the one a period before."""
  best, begin = (0, 0), 0
  for place in range(period, len(keys) + 1):
    if place < len(keys) and keys[place] == keys[place - period]:
      continue
    if place - begin > best[1] - best[0]:
      best = (begin, place)
    begin = place - period + 1
  return best


def _key(node: torch.fx.Node) -> Any:
  """What equal nodes of equal layers have in common: all but the values that they take."""
  from torch.fx.node import map_arg

  arguments = map_arg((node.args, node.kwargs), lambda each: _ANY)
  value = _described(node.meta.get("val"))
  if value is None or "unbacked_bindings" in node.meta:
    return node  # It is like no other one: it has an effect, or defines numbers.
  return node.op, node.target, repr(arguments), value


class _Any:
  """The place of a value among arguments."""

  def __repr__(self) -> str:
    return "_"


_ANY: Any = _Any()


def _described(value: Any) -> Any:
  """The dtype, device, sizes and strides of a value, or those of its parts; None if it has none of
  these."""
  import torch

  if isinstance(value, torch.Tensor):
    if value.layout is not torch.strided:
      return None
    sizes = (*value.shape, *value.stride(), value.storage_offset())
    return value.dtype, value.device, tuple(map(_number, sizes))
  if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)):
    return type(value), _number(value)
  if isinstance(value, (list, tuple)):
    parts = tuple(map(_described, value))
    return None if None in parts else parts
  return None


def _number(value: Any) -> Any:
  return value.node.expr if hasattr(value, "node") else value


def _cut(nodes: list[torch.fx.Node], begin: int, end: int, period: int) -> int | None:
  """Where the first layer begins, so that no kernel belongs to two layers and each layer passes on
  as little as can be. None if there is no such place."""
  places = {node: place for place, node in enumerate(nodes)}
  best: tuple[int, int, int] | None = None
  for cut in range(max(begin, 1), min(begin + period, end - _FEWEST_LAYERS * period + 1)):
    step = nodes[cut - 1 + period]
    if not _is_step(step):
      continue
    passed = _passed_on(nodes[cut : cut + period], places)
    needed = _needed(step, places, cut)
    if not all(node is step or _is_step(node) or node in needed for node in passed):
      continue
    score = len(passed), -((end - cut) // period), cut
    best = score if best is None else min(best, score)
  return None if best is None else best[2]


def _passed_on(layer: _Layer, places: dict[torch.fx.Node, int]) -> list[torch.fx.Node]:
  """The nodes of a layer that nodes behind it use."""
  last = places[layer[-1]]
  return [node for node in layer if any(places.get(user, last + 1) > last for user in node.users)]


def _needed(step: torch.fx.Node, places: dict[torch.fx.Node, int], begin: int) -> set[Any]:
  """The nodes from `begin` on whose values a step needs."""
  found, waiting = set(), [step]
  while waiting:
    for node in waiting.pop().all_input_nodes:
      if node not in found and places.get(node, -1) >= begin:
        found.add(node)
        waiting.append(node)
  return found


def _is_step(node: torch.fx.Node) -> bool:
  """Whether an operator is no loop that Inductor fuses with others."""
  from torch._inductor import lowering

  namespace = getattr(node.target, "namespace", "")
  return namespace == "husk" or node.target in lowering.fallbacks or node.target in _products()


@functools.cache
def _products() -> frozenset[Any]:
  import torch

  aten = torch.ops.aten
  return frozenset(
    (aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default)
  ) | {aten.convolution.default}


def _alike(layers: list[_Layer]) -> list[_Layer]:
  """The longest series of layers whose nodes take values in the same way: from the same nodes of
  their layer, or from somewhere else."""
  ways = [_ways(layer) for layer in layers]
  best, begin = (0, 0), 0
  for place in range(1, len(layers) + 1):
    if place < len(layers) and ways[place] == ways[begin]:
      continue
    if place - begin > best[1] - best[0]:
      best = (begin, place)
    begin = place
  found = layers[best[0] : best[1]]
  enough = (len(found) - 1) * len(layers[0]) >= _FEWEST_NODES
  return found if len(found) >= _FEWEST_LAYERS and enough else []


def _ways(layer: _Layer) -> list[Any]:
  """The origin of each input of each node."""
  places = {node: place for place, node in enumerate(layer)}
  return [
    places[each] if each in places else _described(each.meta.get("val"))
    for node in layer
    for each in _inputs(node)
  ]


def _inputs(node: torch.fx.Node) -> list[torch.fx.Node]:
  """The values that a node takes, in the order of its arguments."""
  from torch.fx.node import map_arg

  found: list[torch.fx.Node] = []
  map_arg((node.args, node.kwargs), found.append)
  return found


def _needed_nodes(graph: torch.fx.Graph) -> set[torch.fx.Node]:
  """The nodes that a result of the graph or a write needs."""
  found = {node for node in graph.nodes if node.op == "output" or writes.may_write(node)}
  waiting = list(found)
  while waiting:
    for node in waiting.pop().all_input_nodes:
      if node not in found:
        found.add(node)
        waiting.append(node)
  return found


# Their calls


class _Call:
  """The calls of equal layers. `operands` has the values that each layer takes, `results` the
  places of those that it passes on."""

  def __init__(self, layers: list[_Layer]) -> None:
    self.layers = layers
    within = [set(layer) for layer in layers]
    takes = [[each for node in layer for each in _inputs(node)] for layer in layers]
    self.operands = list(
      dict.fromkeys(each for each in zip(*takes, strict=True) if each[0] not in within[0])
    )
    self.results = sorted(
      {
        place
        for layer, own in zip(layers, within, strict=True)
        for place, node in enumerate(layer)
        if any(user not in own for user in node.users)
      }
    )
    self.body = self._body()

  def may_be_made(self) -> bool:
    """Whether a call of the layers does what they do. What a layer writes must be its own, and what
    it passes on must lie in other memory than what it takes."""
    import torch

    first = self.layers[0]
    values = [first[place].meta["val"] for place in self.results]
    if not values or not all(isinstance(value, torch.Tensor) for value in values):
      return False
    # A result that is copied to the memory of a state would be written there without a call.
    copies = torch.ops.aten.copy_.default
    if any(
      user.target is copies and user not in layer
      for layer in self.layers
      for place in self.results
      for user in layer[place].users
    ):
      return False
    for operand in self.operands:
      for node in operand:
        if _described(node.meta.get("val")) is None:
          return False  # such as a graph
    memory = writes.Memory(self.body)
    placeholders = list(self.body.graph.find_nodes(op="placeholder"))
    results: Any = self.body.graph.output_node().args[0]
    shared: set[Any] = set().union(*(memory.roots[result] for result in results))
    if not shared.isdisjoint(placeholders):
      return False
    if memory.written and not self._are_needed():
      return False
    return all(
      node.op in ("placeholder", "get_attr") and all(user in layer for user in node.users)
      for placeholder, operand in zip(placeholders, self.operands, strict=True)
      if placeholder in memory.written
      for node, layer in zip(operand, map(set, self.layers), strict=True)
    )

  def _are_needed(self) -> bool:
    """Whether something needs a result of each layer. Inductor drops a call of which nothing needs
    a result, with all that it writes."""
    needed = _needed_nodes(self.layers[0][0].graph)
    return all(
      any(
        user in needed and user not in own for place in self.results for user in layer[place].users
      )
      for layer, own in zip(self.layers, map(set, self.layers), strict=True)
    )

  def _body(self) -> torch.fx.GraphModule:
    """The graph of the first layer."""
    import torch

    graph = torch.fx.Graph()
    values: dict[torch.fx.Node, torch.fx.Node] = {}
    placeholders = []
    for number, operand in enumerate(self.operands):
      placeholders.append(graph.placeholder(f"operand_{number}"))
      placeholders[-1].meta = {"val": operand[0].meta.get("val")}
    # Layers may take one value in places where others take two: each place has its own.
    takes = iter(self._places())
    for node in self.layers[0]:
      own = iter([next(takes) for _ in _inputs(node)])

      def value(each: torch.fx.Node, own: Iterator[int | None] = own) -> torch.fx.Node:
        number = next(own)
        return values[each] if number is None else placeholders[number]

      values[node] = graph.node_copy(node, value)
    graph.output(tuple(values[self.layers[0][place]] for place in self.results))
    return torch.fx.GraphModule(torch.nn.Module(), graph)

  def _places(self) -> Iterator[int | None]:
    """The number of the operand for each value that the nodes of a layer take; None if the value
    comes from the layer."""
    numbers = {operand: number for number, operand in enumerate(self.operands)}
    takes = [[each for node in layer for each in _inputs(node)] for layer in self.layers]
    return (numbers.get(each) for each in zip(*takes, strict=True))

  def make(self, module: torch.fx.GraphModule) -> None:
    """Puts the calls in place of the layers."""
    import operator

    import torch

    graph, name = module.graph, "equal_layers"
    module.add_module(name, self.body)
    with graph.inserting_before(self.layers[0][0]):
      body = graph.get_attr(name)
    # The nodes of the first layer are erased when it has its call.
    first = [node for node in self.body.graph.nodes if node.op not in _NO_STEPS]
    for index, layer in enumerate(self.layers):
      results = [layer[place] for place in self.results]
      operands = [operand[index] for operand in self.operands]
      with graph.inserting_before(layer[-1]):
        region = torch.ops.higher_order.invoke_subgraph
        call = graph.call_function(region, (body, name, *operands))
        places = [[origins.of_meta(each.meta) for each in own] for own in (first, layer)]
        call.meta = {
          "val": tuple(result.meta["val"] for result in results),
          origins.OF_CALL: dict(zip(*places, strict=True)),
        }
        for number, result in enumerate(results):
          part = graph.call_function(operator.getitem, (call, number))
          part.meta = dict(result.meta)
          self._replace(result, part, index)
      for node in reversed(layer):
        graph.erase_node(node)
    graph.lint()
    module.recompile()

  def _replace(self, node: torch.fx.Node, part: torch.fx.Node, index: int) -> None:
    """Gives the users of a node behind its layer the part of a call, also as operands of later
    calls."""
    own = set(self.layers[index])
    node.replace_all_uses_with(part, delete_user_cb=lambda user: user not in own)
    self.operands = [
      tuple(part if each is node else each for each in operand) for operand in self.operands
    ]
