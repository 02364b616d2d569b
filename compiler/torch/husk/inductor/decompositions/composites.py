"""Operators that PyTorch computes by others, with code that asks about sizes: torch.export refuses
sizes that vary, or has the program for those of the example alone. `traced` gives torch.export the
code below in its place. Recurrent networks only have their shapes there, not their steps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import Unsupported
from . import any_sizes, quantile

if TYPE_CHECKING:
  import torch


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions by operator."""
  import torch

  aten = torch.ops.aten
  networks = (aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input)
  return {
    **quantile.table(),
    **any_sizes.table(),
    aten.cdist.default: _cdist,
    **{network: _with_known_steps(network) for network in networks},
  }


@contextlib.contextmanager
def traced() -> Iterator[None]:
  """While open, the operators have this implementation for tensors that are traced."""
  import torch

  aten, keys = torch.ops.aten, torch._C.DispatchKey
  functions = {
    **quantile.table(),
    **any_sizes.table(),
    aten.cdist.default: _cdist,
    aten.lstm.input: shapes_of_network,
    aten.gru.input: shapes_of_network,
    aten.rnn_tanh.input: shapes_of_network,
    aten.rnn_relu.input: shapes_of_network,
  }
  kept = []
  for op, function in functions.items():
    for key in (keys.Autograd, keys.CompositeImplicitAutograd):
      before = op.py_kernels.get(key)
      if before is None and key is keys.Autograd:
        continue
      kept.append((op, key, before))
      op.py_kernels[key] = _for_fakes(function, before)
    op._dispatch_cache.clear()
  try:
    yield
  finally:
    for op, key, before in kept:
      if before is None:
        del op.py_kernels[key]
      else:
        op.py_kernels[key] = before
      op._dispatch_cache.clear()


def _for_fakes(function: Callable[..., Any], before: Any) -> Callable[..., Any]:
  """An implementation of an operator for tensors without elements; others keep their own."""
  from torch._subclasses.fake_tensor import FakeTensor

  def implementation(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    if before is None or isinstance(x, FakeTensor):
      return function(x, *args, **kwargs)
    return before(x, *args, **kwargs)

  return implementation


def shapes_of_network(
  input: torch.Tensor,
  states: Any,
  weights: Sequence[torch.Tensor],
  has_biases: bool,
  layers: int,
  dropout: float,
  train: bool,
  bidirectional: bool,
  batch_first: bool,
) -> tuple[torch.Tensor, ...]:
  """Tensors like the results of a recurrent network: the outputs and the last states."""
  import torch

  states = [states] if isinstance(states, torch.Tensor) else states
  size = states[0].shape[-1] * (1 + bidirectional)
  return (input.new_empty([*input.shape[:-1], size]), *map(torch.empty_like, states))


def _with_known_steps(network: Any) -> Callable[..., Any]:
  """torch's own decomposition of a recurrent network, which writes its steps one after another."""

  def decomposition(input: torch.Tensor, *args: Any) -> Any:
    steps = input.shape[1 if args[-1] else 0]
    if isinstance(steps, int):
      return NotImplemented
    name = network.name().partition("::")[2].partition(".")[0]
    raise Unsupported(
      f"{name} whose number of steps varies: here it has kernels for each step; export it for one "
      "number of steps, or with numbers of float32"
    )

  return decomposition


# Eager mode computes the distances of more rows by a product, unless it is told not to.
_FEW_ROWS = 25
_ALWAYS_BY_PRODUCT, _NEVER_BY_PRODUCT = 1, 2


def _cdist(
  x: torch.Tensor, y: torch.Tensor, p: float = 2, compute_mode: int | None = None
) -> torch.Tensor:
  """The distances of all rows of `x` from all rows of `y`. Without a number of rows that the export
  knows they are not computed by a product, which has larger rounding errors."""
  import torch

  rows = x.shape[-2], y.shape[-2]
  many = any(size > _FEW_ROWS for size in rows if isinstance(size, int))
  if p == 2 and (compute_mode == _ALWAYS_BY_PRODUCT or many and not compute_mode):
    return torch.ops.aten._euclidean_dist.default(x, y)
  return torch.ops.aten._cdist_forward.default(x, y, p, _NEVER_BY_PRODUCT)
