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
  empties = (
    aten.empty.memory_format,
    aten.empty_like.default,
    aten.empty_permuted.default,
    aten.empty_strided.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
  )
  of_complex_tensors = {
    **{op: _complex_scatter(op) for op in scatters},
    aten.add.Tensor: _sum_without_elements,
    aten.any.dims: _any,
    aten.gather.default: _gather,
    aten.ldexp.Tensor: _ldexp,
    aten.logical_and.default: _logical_and,
    aten.logical_or.default: _logical_or,
    aten.logical_xor.default: _logical_xor,
    aten.normal_functional.default: _complex_normal,
    aten.resize.default: _resize,
    aten.slice.Tensor: _slice,
    aten.uniform.default: _complex_uniform,
    aten.var_mean.correction: _var_mean,
  }
  return {
    **{op: _if_complex(function) for op, function in of_complex_tensors.items()},
    **{op: _of_complex_matrices(product) for op, product in _products().items()},
    aten.mm.default: _product,
    aten.bmm.default: _product,
    **{op: _complex_empty(op) for op in empties},
    aten.randn.default: _complex_randn,
    aten.scalar_tensor.default: _complex_scalar,
  }


def _if_complex(function: Callable[..., Any]) -> Callable[..., Any]:
  """A decomposition of an operator that has a complex tensor among its arguments."""
  import torch

  def decomposition(*args: Any, **kwargs: Any) -> Any:
    if any(isinstance(one, torch.Tensor) and one.is_complex() for one in (*args, *kwargs.values())):
      return function(*args, **kwargs)
    return NotImplemented

  return decomposition


def _pairs(x: torch.Tensor) -> torch.Tensor:
  """The real numbers of which complex ones consist, in one dimension more."""
  import torch

  return torch.view_as_real(x.resolve_conj())


def _complex_empty(op: Any) -> Callable[..., Any]:
  """A function that makes a tensor whose elements nobody has written. A complex one is a view of a
  real one, and one like a complex tensor is one like its real parts."""
  import torch

  def empty(*args: Any, **kwargs: Any) -> Any:
    like = args[0] if args and isinstance(args[0], torch.Tensor) else None
    is_like_complex = like is not None and like.is_complex()
    dtype = kwargs.get("dtype") or (None if like is None else like.dtype)
    if dtype is None or not (dtype.is_complex or is_like_complex):
      return NotImplemented
    if is_like_complex:
      args = (_pairs(args[0]).select(-1, 0), *args[1:])
    real = op(*args, **{**kwargs, "dtype": dtype.to_real() if dtype.is_complex else dtype})
    if not dtype.is_complex:
      return real
    strides = [*(2 * stride for stride in real.stride()), 1]
    return torch.view_as_complex(
      torch.empty_strided([*real.shape, 2], strides, dtype=real.dtype, device=real.device)
    )

  return empty


def _complex_scalar(
  value: Any, *, dtype: torch.dtype | None = None, device: torch.device | None = None, **_: Any
) -> Any:
  import torch

  if dtype is None or not dtype.is_complex:
    return NotImplemented
  return torch.full([], value, dtype=dtype, device=device)


def _sum_without_elements(x: Any, y: Any, *, alpha: Any = 1) -> Any:
  """A sum of complex tensors without elements, of which Inductor's own decomposition makes views
  that do not exist."""
  import torch

  if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
    return NotImplemented
  sizes = torch.broadcast_shapes(x.shape, y.shape)
  if not any(isinstance(size, int) and size == 0 for size in sizes):
    return NotImplemented
  return torch.zeros(sizes, dtype=torch.promote_types(x.dtype, y.dtype), device=x.device)


def _any(x: torch.Tensor, dim: Any = None, keepdim: bool = False) -> torch.Tensor:
  import torch

  return torch.ops.aten.any.dims(x != 0, dim, keepdim)


def _logical_and(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
  return (x != 0) & (y != 0)


def _logical_or(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
  return (x != 0) | (y != 0)


def _logical_xor(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
  return (x != 0) ^ (y != 0)


def _ldexp(x: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
  import torch

  return x * torch.pow(2.0, exponent)


def _var_mean(
  x: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
  import torch

  variance = torch.ops.aten.var.correction(x, dim, correction=correction, keepdim=keepdim)
  return variance, torch.ops.aten.mean.dim(x, dim, keepdim)


def _resize(x: torch.Tensor, size: Any, *, memory_format: Any = None) -> Any:
  import torch

  if memory_format not in (None, torch.contiguous_format, torch.preserve_format):
    return NotImplemented
  return torch.view_as_complex(torch.ops.aten.resize.default(_pairs(x), [*size, 2]))


def _gather(
  x: torch.Tensor, dim: int, index: torch.Tensor, *, sparse_grad: bool = False
) -> torch.Tensor:
  """The elements at indices. As in eager mode, a tensor without dimensions is one of one element,
  on either side, and an index without elements may have any type."""
  import torch

  if x.dim() == index.dim() and index.dtype == torch.int64:
    return NotImplemented
  if any(isinstance(size, int) and size == 0 for size in index.shape):
    return torch.zeros(index.shape, dtype=x.dtype, device=x.device)
  indices = index.long().reshape(-1) if index.dim() == 0 else index.long()
  return torch.gather(x.reshape(-1) if x.dim() == 0 else x, dim, indices).reshape(index.shape)


def _slice(x: torch.Tensor, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Any:
  """A slice whose size the data decides. Hosts have no such operator, and Inductor computes the
  size for real numbers only. The slice is copied: where it begins in memory would be half of a
  number that only a run knows, which torch does not rename."""
  import torch
  from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

  if not any(free_unbacked_symbols(bound) for bound in (start, end) if bound is not None):
    return NotImplemented
  pairs = torch.ops.aten.slice.Tensor(_pairs(x), dim % x.dim(), start, end, step)
  return torch.view_as_complex(pairs.clone(memory_format=torch.contiguous_format))


def _products() -> dict[Any, Callable[..., Any]]:
  """The operators that add a product to a tensor, each with its product."""
  import torch

  aten = torch.ops.aten
  return {
    aten.addmm.default: aten.mm.default,
    aten.baddbmm.default: aten.bmm.default,
    aten.addbmm.default: lambda a, b: aten.bmm.default(a, b).sum(0),
  }


def _product(a: torch.Tensor, b: torch.Tensor) -> Any:
  """A product of complex matrices, as one of real matrices: the real and the imaginary parts of
  `a`, as rows, times those of `b`, which take turns in its columns. Real products have kernels for
  each instruction set."""
  import torch

  if a.dtype not in (torch.complex64, torch.complex128):
    return NotImplemented
  *batch, rows, depth = a.shape
  columns = b.shape[-1]
  parts = _pairs(a).movedim(-1, -3).reshape([*batch, 2 * rows, depth])
  product = parts @ _pairs(b).reshape([*batch, depth, 2 * columns])
  of_real, of_imaginary = product.reshape([*batch, 2, rows, columns, 2]).unbind(-4)
  real = of_real.select(-1, 0) - of_imaginary.select(-1, 1)
  imaginary = of_real.select(-1, 1) + of_imaginary.select(-1, 0)
  return torch.view_as_complex(torch.stack([real, imaginary], -1))


def _of_complex_matrices(product: Callable[..., Any]) -> Callable[..., Any]:
  """A function that adds a product to a tensor. The factors may be complex too."""

  def added(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Any = 1, alpha: Any = 1):
    if not a.is_complex():
      return NotImplemented
    result = product(a, b)
    result = result if alpha == 1 else result * alpha
    return result if beta == 0 else result + (x if beta == 1 else x * beta)

  return added


def _complex_uniform(
  x: torch.Tensor, from_: float = 0, to: float = 1, *, generator: Any = None, **more: float
) -> Any:
  """Complex numbers whose parts are uniform."""
  import torch

  return torch.view_as_complex(
    torch.ops.aten.uniform.default(_pairs(x), more.get("from", from_), to)
  )


def _complex_normal(
  x: torch.Tensor, mean: float = 0, std: float = 1, *, generator: Any = None
) -> Any:
  """Complex numbers whose parts each have the mean and half of the variance, as in eager mode."""
  import torch

  parts = torch.ops.aten.normal_functional.default(_pairs(x), mean, std / math.sqrt(2))
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
      return NotImplemented  # only the source is complex
    for name in dims:
      values[name] %= x.dim()  # the real numbers have one dimension more
    values["self"] = _pairs(x)
    part = _pairs(part.to(x.dtype))
    # The last dimension of a diagonal is the one along it.
    values["src"] = part.transpose(-1, -2) if op is diagonal else part
    return torch.view_as_complex(op(*call.args))

  return scatter
