"""Operators on complex numbers of hosts, of which the host has only those on real numbers, in terms
of these. Inductor makes no kernels of complex tensors."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch


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
    **{op: _complex_scatter(op) for op in scatters},
    **{op: _with_complex_factors(product) for op, product in _products().items()},
    aten.uniform.default: _complex_uniform,
    aten.normal_functional.default: _complex_normal,
    aten.randn.default: _complex_randn,
  }


def _products() -> dict[Any, Callable[..., Any]]:
  """The operators that add a product to a tensor, each with its product."""
  import torch

  aten = torch.ops.aten
  return {
    aten.addmm.default: aten.mm.default,
    aten.baddbmm.default: aten.bmm.default,
    aten.addbmm.default: lambda a, b: aten.bmm.default(a, b).sum(0),
  }


def _with_complex_factors(product: Callable[..., Any]) -> Callable[..., Any]:
  """A function that adds a product to a tensor. The operators of hosts take real factors."""

  def added(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Any = 1, alpha: Any = 1):
    if not isinstance(beta, complex) and not isinstance(alpha, complex):
      return NotImplemented
    return product(a, b) * alpha + (x * beta if beta != 0 else 0)

  return added


def _complex_uniform(
  x: torch.Tensor, from_: float = 0, to: float = 1, *, generator: Any = None, **more: float
) -> Any:
  """Complex numbers whose parts are uniform."""
  import torch

  if not x.is_complex():
    return NotImplemented
  return torch.view_as_complex(
    torch.ops.aten.uniform.default(torch.view_as_real(x), more.get("from", from_), to)
  )


def _complex_normal(
  x: torch.Tensor, mean: float = 0, std: float = 1, *, generator: Any = None
) -> Any:
  """Complex numbers whose parts each have the mean and half of the variance, as in eager mode."""
  import torch

  if not x.is_complex():
    return NotImplemented
  parts = torch.ops.aten.normal_functional.default(torch.view_as_real(x), mean, std / math.sqrt(2))
  return torch.view_as_complex(parts)


def _complex_randn(size: Any, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
  import torch

  if dtype is None or not dtype.is_complex:
    return NotImplemented
  parts = torch.ops.aten.randn.default([*size, 2], dtype=dtype.to_real(), **options)
  return torch.view_as_complex(parts * math.sqrt(0.5))


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
