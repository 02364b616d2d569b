"""Quantiles, without a question for the number of elements as an int (composites.py)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions by operator."""
  import torch

  aten = torch.ops.aten
  of_all, of_defined = (functools.partial(_quantile, ranks) for ranks in (_ranks, _defined_ranks))
  return {
    aten.quantile.default: of_all,
    aten.quantile.scalar: of_all,
    aten.nanquantile.default: of_defined,
    aten.nanquantile.scalar: of_defined,
  }


def _quantile(
  ranks_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
  x: torch.Tensor,
  q: float | torch.Tensor,
  dim: int | None = None,
  keepdim: bool = False,
  *,
  interpolation: str = "linear",
) -> torch.Tensor:
  """The quantiles `q` of the elements along a dimension, whose ranks in ascending order `ranks_of`
  gives."""
  values, q = _sorted(x, q, dim)
  return _at(values, ranks_of(values, q.reshape(-1)), x, q, dim, keepdim, interpolation)


def _ranks(values: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
  """The ranks of quantiles of all elements, which are undefined if an element is."""
  import torch

  last = values.shape[-1] - 1
  return torch.where(values.isnan().any(-1, keepdim=True), last, q * last)


def _defined_ranks(values: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
  """The ranks of quantiles of the defined elements."""
  count = values.isnan().logical_not().sum(-1, keepdim=True)
  return (q * (count - 1)).clamp(min=0)


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
