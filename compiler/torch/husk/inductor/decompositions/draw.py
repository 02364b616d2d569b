"""Random draws in terms of uniform and normal numbers, of which Inductor makes kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions by operator."""
  import torch

  aten, prims = torch.ops.aten, torch.ops.prims
  return {
    aten.bernoulli.p: _bernoulli,
    aten.uniform.default: _uniform,
    aten.normal_functional.default: _normal_like,
    prims.normal.default: _normal,
    aten.multinomial.default: _multinomial,
    aten.randperm.default: _randperm,
  }


def _bernoulli(x: torch.Tensor, p: float = 0.5, *, generator: Any = None) -> torch.Tensor:
  """Inductor's own decomposition returns bools, whatever the dtype of `x` is."""
  import torch

  return (torch.rand_like(x, dtype=torch.float32) < p).to(x.dtype)


def _uniform(
  x: torch.Tensor, from_: float = 0, to: float = 1, *, generator: Any = None, **more: float
) -> torch.Tensor:
  import torch

  low = more.get("from", from_)
  return torch.rand_like(x) * (to - low) + low


def _normal_like(
  x: torch.Tensor, mean: float = 0, std: float = 1, *, generator: Any = None
) -> torch.Tensor:
  import torch

  return torch.randn_like(x) * std + mean


def _normal(
  shape: Sequence[Any],
  *,
  mean: float,
  std: float,
  dtype: torch.dtype,
  device: torch.device,
  requires_grad: bool,
  generator: Any = None,
) -> torch.Tensor:
  import torch

  return torch.randn(shape, dtype=dtype, device=device) * std + mean


def _multinomial(
  x: torch.Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None
) -> torch.Tensor:
  """Without replacement the samples are those whose exponentially distributed times, divided by
  their probabilities, are least (Efraimidis and Spirakis, 2006). With replacement they are found in
  the running sum of the probabilities."""
  import torch

  x = x if x.dtype is torch.float64 else x.float()
  if not replacement or (isinstance(num_samples, int) and num_samples == 1):
    # The logarithm of 1 minus a number of [0, 1) is finite; a time of 0 would be no race.
    times = -torch.log1p(-torch.rand_like(x))
    speeds = x / times.clamp(min=torch.finfo(x.dtype).tiny)
    if isinstance(num_samples, int) and num_samples == 1:
      return speeds.argmax(-1, keepdim=True)
    return torch.topk(speeds, num_samples, -1)[1]
  sums = x.cumsum(-1)
  total = sums[..., -1:].contiguous()
  shape = (*x.shape[:-1], num_samples)
  drawn = torch.rand(shape, dtype=x.dtype, device=x.device) * total
  # A rounded product may reach the total, behind the last element with a probability.
  last = torch.searchsorted(sums, total)
  return torch.searchsorted(sums, drawn.contiguous(), right=True).minimum(last)


def _randperm(
  n: int, *, dtype: torch.dtype | None = None, device: torch.device | None = None, **options: Any
) -> torch.Tensor:
  """The places of random keys in their order. Of 62 bits, equal ones are no matter."""
  import torch

  keys = torch.randint(1 << 62, (n,), dtype=torch.int64, device=device)
  return keys.argsort(stable=True).to(torch.int64 if dtype is None else dtype)
