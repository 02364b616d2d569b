"""The decompositions of hosts: operators that the host computes in part only, in terms of those
that it has."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from . import pool, reduce


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions by operator. One that returns NotImplemented leaves the call as it is."""
  import torch

  aten = torch.ops.aten
  scatters = (
    aten.slice_scatter.default,
    aten.select_scatter.default,
    aten.diagonal_scatter.default,
  )
  return {
    **pool.averages(),
    **{op: _complex_scatter(op) for op in scatters},
    aten.index_add.default: reduce.index_add_of_bf16,
  }


def _complex_scatter(op: Any) -> Callable[..., Any]:
  """A function that copies a tensor into a part of another. If they are complex, it copies the real
  numbers of which they consist: Inductor makes no kernel of the operator then, and hosts have no
  such operator."""
  import torch

  signature = inspect.Signature(
    [
      inspect.Parameter(
        argument.name,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=argument.default_value if argument.has_default_value() else inspect.Parameter.empty,
      )
      for argument in op._schema.arguments
    ]
  )
  diagonal = torch.ops.aten.diagonal_scatter.default
  dims = [name for name in signature.parameters if name.startswith("dim")]

  def scatter(*args: Any, **kwargs: Any) -> Any:
    call = signature.bind(*args, **kwargs)
    call.apply_defaults()
    values = call.arguments
    x, part = values["self"], values["src"]
    if not x.is_complex():
      return NotImplemented
    for name in dims:
      values[name] %= x.dim()  # the real numbers have one dimension more
    values["self"] = torch.view_as_real(x.resolve_conj())
    part = torch.view_as_real(part.to(x.dtype).resolve_conj())
    # The last dimension of a diagonal is the one along it.
    values["src"] = part.transpose(-1, -2) if op is diagonal else part
    return torch.view_as_complex(op(*call.args))

  return scatter
