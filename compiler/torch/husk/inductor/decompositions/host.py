"""The decompositions of hosts: operators that the host computes in part only, in terms of those
that it has."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import convolution, pool, product, reduce, resize

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
    **pool.averages(),
    **{op: _complex_scatter(op) for op in scatters},
    aten.index_add.default: reduce.index_add_of_bf16,
    **{op: _with_complex_factors(product) for op, product in _products().items()},
    aten.uniform.default: _complex_uniform,
    aten.normal_functional.default: _complex_normal,
    aten.randn.default: _complex_randn,
    aten.convolution.default: _of_ints(convolution.table()[aten.convolution.default]),
    aten._trilinear.default: _of_ints(product.table()[aten._trilinear.default]),
    **{op: _of_bytes(op) for op in resize.table()},
    aten.linalg_matrix_exp.default: _matrix_exp,
    aten.argmin.default: _in_wide_ints(aten.argmin.default),
    aten.argmax.default: _in_wide_ints(aten.argmax.default),
  }


def _of_bytes(resized: Any) -> Callable[..., Any]:
  """The resizing of images of bytes, as that of floats. Eager mode computes it in integers, and is
  off by 1 where the exact value is near a half."""
  import torch

  def decomposed(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    if x.dtype is not torch.uint8:
      return NotImplemented
    return resized(x.to(torch.float32), *args, **kwargs).round().clamp(0, 255).to(torch.uint8)

  return decomposed


def _matrix_exp(x: torch.Tensor) -> Any:
  """Matrices of f16 and bf16 in f32, for which Husk's library has the operator."""
  import torch

  if x.dtype not in (torch.float16, torch.bfloat16):
    return NotImplemented
  return torch.ops.aten.linalg_matrix_exp.default(x.to(torch.float32)).to(x.dtype)


def _of_ints(decomposition: Callable[..., Any]) -> Callable[..., Any]:
  """The decomposition of an operator that Husk's library computes for floats only."""

  def decomposed(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    if x.is_floating_point() or x.is_complex():
      return NotImplemented
    return decomposition(x, *args, **kwargs)

  return decomposed


def _in_wide_ints(op: Any) -> Callable[..., Any]:
  """A search in ints of 8 or 16 bits as one in ints of 32 bits. Inductor's kernels of vectors have
  fewer places than elements for the smaller types, and return numbers that are no places."""
  import torch

  def search(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    if x.dtype not in (torch.int8, torch.uint8, torch.int16):
      return NotImplemented
    return op(x.to(torch.int32), *args, **kwargs)

  return search


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
