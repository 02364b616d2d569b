"""Husk's operators for recurrent layers, and where a program gets them.

torch.export has a whole LSTM or GRU as one operator. PyTorch's decomposition writes its steps one
after another, so an export took longer with each step, and a program had two kernels for each. Here
a direction of a layer is one operator: a kernel with a loop over the steps on CUDA, an operator of
libhusk_ops on hosts."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..fusion import rewriting
from ..inductor import own_operators
from ..inductor.decompositions import composites

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

# The gates of a step by the kind of the layer.
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
# A number of steps for which an export can write kernels.
_FEW_STEPS = 512


@dataclasses.dataclass(frozen=True)
class Networks:
  """The networks that a device computes as layers.

  kinds: those of GATES.
  dtypes: of the numbers, as PyTorch calls them.
  most_bytes: of the weight of a hidden state, if the number of steps is at most _FEW_STEPS and the
    network is no LSTM. None is any number.
  """

  kinds: frozenset[str]
  dtypes: frozenset[str]
  most_bytes: int | None = None

  def compute(self, kind: str, dtype: torch.dtype, steps: Any, weight: torch.Tensor) -> bool:
    if kind not in self.kinds or str(dtype).removeprefix("torch.") not in self.dtypes:
      return False
    is_short = kind != "lstm" and isinstance(steps, int) and steps <= _FEW_STEPS
    return self.most_bytes is None or not is_short or weight.nbytes <= self.most_bytes


# A program of the kernel reads the weights of the hidden state in each step: on an H200 a step of
# 12 KB took 1.5 us, and one of 262 KB 17. More bytes are read several times faster by kernels for
# each step, which all multiprocessors compute.
CUDA = Networks(frozenset(GATES), frozenset(("float32", "float16", "bfloat16")), most_bytes=1 << 17)
# torch's own operator for layers of LSTMs takes those of hosts (inductor/decompositions/model.py).
HOSTS = Networks(frozenset(GATES) - {"lstm"}, frozenset(("float32",)))


@functools.cache
def network() -> Any:
  """husk::recurrent, all layers of a recurrent network, which is defined once per process. It
  returns the outputs and the last states, as PyTorch's operators do."""
  return own_operators.define(
    "recurrent",
    "str kind, Tensor input, Tensor[] states, Tensor[] weights, bool has_biases, int layers, "
    "bool is_bidirectional, bool is_batch_first",
    _fake_network,
    result="Tensor[]",
    decomposed=_layers,
  )


@functools.cache
def layer() -> Any:
  """husk::recurrent_layer, one direction of one layer, which is defined once per process. `gates`
  are the products of all inputs with the input's weight and their bias, of step, batch and gate.

  The result has the hidden states of step, batch and element: before the first step and after each,
  or for a reversed layer after each and before the last. The last cell state follows."""
  return own_operators.define(
    "recurrent_layer",
    "str kind, Tensor gates, Tensor hidden, Tensor? cell, Tensor weight, Tensor? bias, "
    "bool is_reverse",
    _fake_layer,
  )


def _fake_network(
  kind: str,
  input: torch.Tensor,
  states: Sequence[torch.Tensor],
  weights: Sequence[torch.Tensor],
  has_biases: bool,
  layers: int,
  is_bidirectional: bool,
  is_batch_first: bool,
) -> list[torch.Tensor]:
  options = (has_biases, layers, 0.0, False, is_bidirectional, is_batch_first)
  return list(composites.shapes_of_network(input, states, weights, *options))


def _fake_layer(
  kind: str,
  gates: torch.Tensor,
  hidden: torch.Tensor,
  cell: torch.Tensor | None,
  weight: torch.Tensor,
  bias: torch.Tensor | None,
  is_reverse: bool,
) -> torch.Tensor:
  return gates.new_empty([gates.shape[0] + (1 if cell is None else 2), *hidden.shape])


def _layers(
  kind: str,
  input: torch.Tensor,
  states: Sequence[torch.Tensor],
  weights: Sequence[torch.Tensor],
  has_biases: bool,
  layers: int,
  is_bidirectional: bool,
  is_batch_first: bool,
) -> list[torch.Tensor]:
  """The directions of all layers. The products of the inputs of a layer are one product."""
  import torch

  values = input.transpose(0, 1) if is_batch_first else input
  steps, directions = values.shape[0], 2 if is_bidirectional else 1
  count = 4 if has_biases else 2
  last: list[list[torch.Tensor]] = [[] for _ in states]
  for index in range(layers):
    outputs = []
    for direction in range(directions):
      place = index * directions + direction
      own = weights[place * count : (place + 1) * count]
      gates = torch.nn.functional.linear(values, own[0], own[2] if has_biases else None)
      before = [one[place] for one in states]
      result = layer()(
        kind,
        gates,
        before[0],
        before[1] if kind == "lstm" else None,
        own[1],
        own[3] if has_biases else None,
        direction == 1,
      )
      # Python's index of a size that varies would be a number.
      outputs.append(result.narrow(0, 0 if direction else 1, steps))
      last[0].append(result.select(0, 0 if direction else -len(states)))
      if kind == "lstm":
        last[1].append(result.select(0, -1))
    values = torch.cat(outputs, -1) if is_bidirectional else outputs[0]
  found = values.transpose(0, 1) if is_batch_first else values
  return [found, *(torch.stack(one) for one in last)]


# The program


def rewrite(exported: ExportedProgram, devices: Iterable[Networks | None]) -> ExportedProgram:
  """A copy of a program in which the recurrent networks that all devices compute are Husk's
  operator. A program without one is returned itself."""
  networks = list(devices)

  def is_replaced(node: torch.fx.Node) -> bool:
    return _call(node, networks) is not None

  def change(graph: torch.fx.Graph) -> None:
    for node in list(graph.nodes):
      arguments = _call(node, networks)
      if arguments is not None:
        node.args, node.kwargs = arguments, {}
        node.target = network()

  return rewriting.rewrite(exported, is_replaced, change)


def _call(node: torch.fx.Node, devices: Sequence[Networks | None]) -> tuple[Any, ...] | None:
  """The arguments of husk::recurrent for a recurrent network; None if a node is none, or one that
  a device does not compute."""
  import torch

  aten = torch.ops.aten
  kinds = {
    aten.lstm.input: "lstm",
    aten.gru.input: "gru",
    aten.rnn_tanh.input: "rnn_tanh",
    aten.rnn_relu.input: "rnn_relu",
  }
  target: Any = node.target
  kind = kinds.get(target) if node.op == "call_function" else None
  if kind is None or node.kwargs:
    return None
  arguments: Any = node.args
  input, states, weights, has_biases, layers, dropout, train, both, batch_first = arguments
  states = list(states) if kind == "lstm" else [states]
  per_direction = len(weights) // (layers * (1 + both))
  if (dropout and train) or per_direction != (4 if has_biases else 2):
    return None
  values = [one.meta["val"] for one in (input, *states, *weights)]
  dtype = values[0].dtype
  if len(values[0].shape) != 3 or any(value.dtype != dtype for value in values):
    return None
  steps, weight = values[0].shape[1 if batch_first else 0], weights[1].meta["val"]
  for networks in devices:
    if networks is None or not networks.compute(kind, dtype, steps, weight):
      return None
  return kind, input, states, list(weights), has_biases, layers, both, batch_first
