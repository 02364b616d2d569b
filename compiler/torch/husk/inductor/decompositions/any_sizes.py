"""Operators of torch that consist of others and ask for the numbers of their sizes, in terms of
operators that ask for none. Programs then have all sizes, not those of the example alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions by operator."""
  import torch

  aten = torch.ops.aten
  return {
    aten.take_along_dim.default: _take_along_dim,
    aten.kron.default: _kron,
    aten.cov.default: _cov,
    aten.corrcoef.default: _corrcoef,
    aten.vander.default: _vander,
    aten.linalg_vander.default: _powers,
    aten.affine_grid_generator.default: _affine_grid,
    aten.gradient.scalarint: _gradient,
    aten.gradient.scalararray: _gradient,
    aten.gradient.array: _gradient,
    aten.gradient.scalarrayint: _gradient,
    aten.gradient.scalarrayarray: _gradient,
  }


def _take_along_dim(x: torch.Tensor, indices: torch.Tensor, dim: int | None = None) -> torch.Tensor:
  import torch

  if dim is None:
    return x.reshape(-1).gather(0, indices.reshape(-1))
  if x.dim() != indices.dim():
    raise RuntimeError(
      f"take_along_dim: the indices have {indices.dim()} dimensions, and the tensor {x.dim()}"
    )
  place = dim % x.dim()
  shapes = [[*one.shape[:place], 1, *one.shape[place + 1 :]] for one in (x, indices)]
  shape = torch.broadcast_shapes(*shapes)
  wide, places = (
    one.expand(*shape[:place], one.shape[place], *shape[place + 1 :]) for one in (x, indices)
  )
  return wide.gather(place, places)


def _kron(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
  rank = max(x.dim(), y.dim())
  left, right = ([*[1] * (rank - one.dim()), *one.shape] for one in (x, y))
  blocks = x.reshape([size for one in left for size in (one, 1)])
  block = y.reshape([size for one in right for size in (1, one)])
  return (blocks * block).reshape([one * other for one, other in zip(left, right, strict=True)])


def _cov(
  x: torch.Tensor,
  *,
  correction: int = 1,
  fweights: torch.Tensor | None = None,
  aweights: torch.Tensor | None = None,
) -> torch.Tensor:
  import torch

  rows = x.reshape(1, -1) if x.dim() < 2 else x
  weights = fweights if aweights is None else aweights
  if fweights is not None and aweights is not None:
    weights = fweights * aweights
  total = rows.shape[1] if weights is None else weights.sum()
  mean = (rows if weights is None else rows * weights).sum(1) / total
  lost: Any = correction
  if weights is not None and aweights is not None and correction:
    lost = correction * (weights * aweights).sum() / total
  rest = total - lost
  divisor = rest.clamp(min=0) if isinstance(rest, torch.Tensor) else torch.sym_max(rest, 0)
  centred = rows - mean[:, None]
  product = (centred if weights is None else centred * weights) @ centred.mT.conj()
  return (product / divisor).squeeze()


def _corrcoef(x: torch.Tensor) -> torch.Tensor:
  import torch

  covariance = _cov(x)
  if covariance.dim() == 0:
    return covariance / covariance
  deviation = covariance.diagonal().real.sqrt()
  found = covariance / deviation[:, None] / deviation[None]
  if not found.is_complex():
    return found.clamp(-1, 1)
  return torch.complex(found.real.clamp(-1, 1), found.imag.clamp(-1, 1))


def _gradient(
  x: torch.Tensor, *, spacing: Any = None, dim: Any = None, edge_order: int = 1
) -> list[torch.Tensor]:
  """Central differences, and one-sided ones at the ends."""
  dims = list(range(x.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
  steps = list(spacing) if isinstance(spacing, Sequence) else [spacing] * len(dims)
  return [
    _differences(x, place, 1 if step is None else step, edge_order)
    for place, step in zip(dims, steps, strict=True)
  ]


def _differences(x: torch.Tensor, dim: int, step: Any, edge_order: int) -> torch.Tensor:
  import torch

  def part(begin: int, end: int | None = None) -> torch.Tensor:
    return torch.ops.aten.slice.Tensor(x, dim, begin, end)

  middle = (part(2) - part(0, -2)) / (2 * step)
  if edge_order == 1:
    first, last = part(1, 2) - part(0, 1), part(-1) - part(-2, -1)
  else:
    first = 2 * part(1, 2) - 1.5 * part(0, 1) - 0.5 * part(2, 3)
    last = 1.5 * part(-1) - 2 * part(-2, -1) + 0.5 * part(-3, -2)
  return torch.cat((first / step, middle, last / step), dim)


def _affine_grid(theta: torch.Tensor, size: Sequence[Any], align_corners: bool) -> torch.Tensor:
  """The places of the samples of images or volumes, from -1 to 1 before they are transformed."""
  import torch

  options: Any = {"dtype": theta.dtype, "device": theta.device}
  sizes, places = list(size[2:]), []
  for one in sizes:
    number = 2 * torch.arange(one, **options)
    from_centre = number - (one - 1)
    places.append(from_centre / (torch.sym_max(one - 1, 1) if align_corners else one))
  grid = torch.meshgrid(*places, indexing="ij")
  columns = torch.stack([*grid[::-1], torch.ones_like(grid[0])], -1)
  # A sum is exact to the roundings of f32 where products of matrices may round to tf32.
  moved = (columns.reshape(1, -1, len(sizes) + 1, 1) * theta.mT[:, None]).sum(-2)
  return moved.reshape([size[0], *sizes, len(sizes)])


def _vander(x: torch.Tensor, N: int | None = None, increasing: bool = False) -> torch.Tensor:
  powers = _powers(x, N=N)
  return powers if increasing else powers.flip(-1)


def _powers(x: torch.Tensor, *, N: int | None = None) -> torch.Tensor:
  """The powers from 0 to N - 1 of each element, along a new dimension."""
  import torch

  count = x.shape[-1] if N is None else N
  one = x if x.is_floating_point() or x.is_complex() else x.to(torch.int64)
  factors = one[..., None].expand(*x.shape, count - 1)
  return torch.cat((torch.ones_like(one[..., None]), factors), -1).cumprod(-1)
