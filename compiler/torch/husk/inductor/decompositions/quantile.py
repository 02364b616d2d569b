"""Quantiles, without a question for the number of elements as an int (composites.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions by operator."""
  import torch

  aten = torch.ops.aten
  return {
    aten.quantile.default: _quantile,
    aten.quantile.scalar: _quantile,
    aten.nanquantile.default: _nanquantile,
    aten.nanquantile.scalar: _nanquantile,
  }


def _quantile(
  x: torch.Tensor,
  q: float | torch.Tensor,
  dim: int | None = None,
  keepdim: bool = False,
  *,
  interpolation: str = "linear",
) -> torch.Tensor:
  """The quantiles `q` of the elements along a dimension. They are undefined if an element is."""
  import torch

  values, q = _sorted(x, q, dim)
  last = values.shape[-1] - 1
  ranks = torch.where(values.isnan().any(-1, keepdim=True), last, q.reshape(-1) * last)
  return _at(values, ranks, x, q, dim, keepdim, interpolation)


def _nanquantile(
  x: torch.Tensor,
  q: float | torch.Tensor,
  dim: int | None = None,
  keepdim: bool = False,
  *,
  interpolation: str = "linear",
) -> torch.Tensor:
  """The quantiles `q` of the defined elements along a dimension."""
  values, q = _sorted(x, q, dim)
  count = values.isnan().logical_not().sum(-1, keepdim=True)
  ranks = (q.reshape(-1) * (count - 1)).clamp(min=0)
  return _at(values, ranks, x, q, dim, keepdim, interpolation)


def _sorted(
  x: torch.Tensor, q: float | torch.Tensor, dim: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
  """The elements in ascending order along the last dimension, undefined ones last; and `q` as a
  tensor."""
  import torch

  if not isinstance(q, torch.Tensor):
    if not 0 <= q <= 1:
      raise ValueError(f"quantile() q must be in the range [0, 1] but got {q}")
    q = torch.full((), q, dtype=x.dtype, device=x.device)
  along = x.reshape(-1) if dim is None or not x.dim() else x.movedim(dim, -1)
  return along.sort(-1)[0], q


def _at(
  values: torch.Tensor,
  ranks: torch.Tensor,
  x: torch.Tensor,
  q: torch.Tensor,
  dim: int | None,
  keepdim: bool,
  interpolation: str,
) -> torch.Tensor:
  """The elements at `ranks`, of which the last dimension is that of `q`. It becomes the first one
  of the result, or none if `q` is a number."""
  import torch

  rounding = {"lower": torch.floor, "higher": torch.ceil, "nearest": torch.round}
  if interpolation in rounding:
    result = values.gather(-1, rounding[interpolation](ranks).to(torch.int64))
  elif interpolation in ("linear", "midpoint"):
    below = ranks.floor()
    weights = torch.full_like(ranks, 0.5) if interpolation == "midpoint" else ranks - below
    result = torch.lerp(
      values.gather(-1, below.to(torch.int64)),
      values.gather(-1, ranks.ceil().to(torch.int64)),
      weights,
    )
  else:
    raise ValueError(
      "quantile() interpolation must be one of linear, lower, higher, midpoint or nearest, but got "
      f"{interpolation}"
    )
  result = result.movedim(-1, 0)
  if keepdim and dim is None:
    result = result.reshape(-1, *[1] * x.dim())
  elif keepdim and dim is not None and x.dim():
    result = result.unsqueeze(1 + dim % x.dim())
  return result if q.dim() else result.squeeze(0)
