"""The decompositions of CUDA targets: operators of which Inductor makes no kernel, or a slow one,
in terms of operators that become fused Triton kernels. Those of hosts are few, and in host.py.

Each module has a function `table` with its decompositions by operator. A decomposition gets the
arguments of the operator, and returns NotImplemented if Inductor itself has a kernel for them. What
a decomposition calls is decomposed in turn."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import Any

from .. import torch_compat
from ..libraries import NO_LIBRARIES, Libraries
from . import (
  activations,
  arguments,
  blocks,
  convolution,
  division,
  draw,
  exponents,
  hash,
  host,
  linear_algebra,
  memory,
  order,
  places,
  polynomial,
  pool,
  product,
  quantized,
  reduce,
  resize,
  sample,
  select,
  special,
)

Decomposition = Callable[..., Any]


def table(libraries: Libraries = NO_LIBRARIES) -> dict[Any, Decomposition]:
  """The decompositions by operator. What `libraries` compute is not decomposed."""
  modules = (
    activations,
    blocks,
    division,
    draw,
    exponents,
    hash,
    memory,
    order,
    places,
    polynomial,
    pool,
    quantized,
    reduce,
    resize,
    sample,
    select,
    special,
  )
  tables = [
    product.table(library=libraries.gemm == "cublaslt"),
    convolution.table(library=libraries.conv == "cudnn"),
    linear_algebra.table(library=libraries.linalg == "cusolver"),
    *(module.table() for module in modules),
  ]
  return {op: function for table in tables for op, function in table.items()}


@contextlib.contextmanager
def kernels(device: str, libraries: Libraries = NO_LIBRARIES) -> Iterator[None]:
  """While open, Inductor decomposes the operators of `table(libraries)` on devices of the type
  `device`, as PyTorch names it."""
  with _decomposed(table(libraries), device):
    yield


@contextlib.contextmanager
def hosts() -> Iterator[None]:
  """While open, Inductor decomposes the operators of `host.table()` on CPUs."""
  import torch

  with _decomposed(host.table(), "cpu", {torch.ops.aten.grid_sampler_2d.default}):
    yield


@contextlib.contextmanager
def _decomposed(
  decompositions: dict[Any, Decomposition], device: str, called: Collection[Any] = ()
) -> Iterator[None]:
  """While open, Inductor has these decompositions too. Those of the operators `called` may return
  `host.CALLED`."""
  from torch._decomp.decompositions_for_rng import extra_random_decomps
  from torch._inductor import decomposition, lowering

  inductors = {**decomposition.decompositions, **extra_random_decomps}
  checks = arguments.checks()
  others = {op: _left for op in checks if op not in decompositions}
  decompositions = {**decompositions, **others}
  for op in decompositions:
    # What is not decomposed is called. Inductor would make this lowering when it meets the call,
    # but not for an operator that it finds in its table of decompositions.
    if op not in lowering.lowerings and op not in inductors:
      lowering.make_fallback(op, warn=False)
    elif op not in lowering.lowerings and op in called:
      lowering.make_fallback(op, warn=False, override_decomp=True)
  wanted = {
    op: _on(device, function, inductors.get(op), checks.get(op))
    for op, function in decompositions.items()
  }
  with torch_compat.decomposed(wanted):
    yield


def _left(*_: Any, **__: Any) -> Any:
  """A decomposition that leaves the call as it is."""
  return NotImplemented


def _on(
  device: str,
  function: Decomposition,
  otherwise: Decomposition | None,
  check: Callable[..., None] | None,
) -> Decomposition:
  """A decomposition for tensors on devices of this type. Others, and those for which `function`
  returns NotImplemented, keep the decomposition `otherwise`. `check` checks the arguments."""
  from torch.utils import _pytree as pytree

  def decomposition(*args: Any, **kwargs: Any) -> Any:
    if check is not None:
      check(*args, **kwargs)
    place = _device(pytree.tree_leaves((args, kwargs)))
    result = function(*args, **kwargs) if place == device else NotImplemented
    if result is host.CALLED:
      return NotImplemented
    if result is NotImplemented and otherwise is not None:
      return otherwise(*args, **kwargs)
    return result

  return decomposition


def _device(leaves: list[Any]) -> str:
  """The type of the device on which an operator with these arguments runs."""
  import torch

  for leaf in leaves:
    if isinstance(leaf, torch.Tensor) and leaf.device.type != "cpu":
      return leaf.device.type
    if isinstance(leaf, torch.device):
      return leaf.type
  return "cpu"
