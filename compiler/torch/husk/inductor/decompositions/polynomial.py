"""Orthogonal polynomials by their recurrences, Abramowitz and Stegun, "Handbook of Mathematical
Functions", 22.7. A degree that is a number gives a fused kernel. Degrees in a tensor give a loop,
which ends after the largest of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .special import in_floats

if TYPE_CHECKING:
  import torch

# The largest degree for which a recurrence is written out.
_UNROLLED = 64


@dataclasses.dataclass(frozen=True)
class _Kind:
  """A sequence of polynomials. The one of degree 0 is 1, `first` is the one of degree 1, and
  `following` gets x, k and the polynomials of degrees k and k - 1. Between -1 and 1 `waves` gives
  those of degrees above `recurring` from the angle arccos x, as eager mode does."""

  first: Callable[[Any], Any]
  following: Callable[[Any, Any, Any, Any], Any]
  waves: Callable[[Any, Any], Any] | None = None
  recurring: int = 0
  shifted: bool = False
  # Eager mode gives NaN for larger degrees in float32 and in float64.
  limits: tuple[int, int] | None = None


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions by operator."""
  import torch

  result = {}
  for name, kind in _kinds().items():
    packet = getattr(torch.ops.aten, f"special_{name}")
    result[packet.default] = in_floats(lambda x, n, kind=kind: _of_tensor(kind, x, n))
    result[packet.n_scalar] = _with_degree(kind)
  return result


def _kinds() -> dict[str, _Kind]:
  kinds = {
    "hermite_polynomial_h": _Kind(
      lambda x: 2 * x, lambda x, k, one, two: 2 * (x * one - k * two), limits=(128, 512)
    ),
    "hermite_polynomial_he": _Kind(
      lambda x: x, lambda x, k, one, two: x * one - k * two, limits=(128, 512)
    ),
    "laguerre_polynomial_l": _Kind(
      lambda x: 1 - x, lambda x, k, one, two: ((2 * k + 1 - x) * one - k * two) / (k + 1)
    ),
    "legendre_polynomial_p": _Kind(
      lambda x: x, lambda x, k, one, two: ((2 * k + 1) * x * one - k * two) / (k + 1)
    ),
  }
  # 22.3.15 and 22.3.16, and the same for the polynomials of the third and fourth kind.
  chebyshev: dict[str, tuple[Any, Any, int]] = {
    "t": (lambda x: x, lambda angle, n: (n * angle).cos(), 6),
    "u": (lambda x: 2 * x, lambda angle, n: ((n + 1) * angle).sin() / angle.sin(), 8),
    "v": (lambda x: 2 * x - 1, lambda angle, n: ((n + 0.5) * angle).cos() / (angle / 2).cos(), 8),
    "w": (lambda x: 2 * x + 1, lambda angle, n: ((n + 0.5) * angle).sin() / (angle / 2).sin(), 8),
  }
  for name, (first, waves, recurring) in chebyshev.items():
    for prefix, shifted in (("", False), ("shifted_", True)):
      kinds[f"{prefix}chebyshev_polynomial_{name}"] = _Kind(
        first, lambda x, k, one, two: 2 * x * one - two, waves, recurring, shifted
      )
  return kinds


def _with_degree(kind: _Kind) -> Callable[..., Any]:
  def decomposition(x: torch.Tensor, n: float) -> torch.Tensor:
    import torch

    degree = int(n)
    if degree > _UNROLLED:
      whole = torch.full((), degree, dtype=torch.int32, device=x.device)
      return in_floats(lambda x: _of_tensor(kind, x, whole.to(x.dtype)))(x)
    return in_floats(lambda x: _of_number(kind, x, degree))(x)

  return decomposition


def _of_number(kind: _Kind, x: torch.Tensor, n: int) -> torch.Tensor:
  import torch

  if n <= 0:
    return torch.full_like(x, float(n == 0))
  x = 2 * x - 1 if kind.shifted else x
  two: Any = torch.ones_like(x)
  one = kind.first(x)
  for k in range(1, n):
    one, two = kind.following(x, k, one, two), one
  return _with_waves(kind, x, torch.full_like(x, n), one)


def _of_tensor(kind: _Kind, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
  import torch
  from torch._higher_order_ops.while_loop import while_loop_op

  x, n = torch.broadcast_tensors(x, n.trunc())
  x = (2 * x - 1 if kind.shifted else x).contiguous()
  n = n.contiguous()
  if isinstance(x.numel(), int) and x.numel() == 0:
    return torch.zeros_like(x)
  needed = n
  if kind.limits is not None:
    needed = torch.where(n > _limit(kind, n.dtype), 0, n)
  if kind.waves is not None:
    needed = torch.where((x.abs() < 1) & (n > kind.recurring), 0, n)
  last = needed.amax()

  def condition(k: Any, two: Any, one: Any, x: Any, n: Any, last: Any) -> Any:
    return k < last

  def body(k: Any, two: Any, one: Any, x: Any, n: Any, last: Any) -> Any:
    is_left = k < n
    following = kind.following(x, k, one, two)
    return k + 1, torch.where(is_left, one, two), torch.where(is_left, following, one)

  start = torch.ones((), dtype=x.dtype, device=x.device)
  loop: Any = while_loop_op
  _, _, result = loop(
    condition, body, (start, torch.ones_like(x), kind.first(x).clone()), (x, n, last)
  )
  result = torch.where(n == 0, 1.0, _with_waves(kind, x, n, result))
  if kind.limits is not None:
    result = torch.where(n > _limit(kind, n.dtype), float("nan"), result)
  return torch.where(n < 0, 0.0, result)


def _limit(kind: _Kind, dtype: torch.dtype) -> int:
  assert kind.limits is not None
  return kind.limits[dtype.itemsize == 8]


def _with_waves(
  kind: _Kind, x: torch.Tensor, n: torch.Tensor, result: torch.Tensor
) -> torch.Tensor:
  """The polynomials of degrees `n`, of which `result` are those that the recurrence gives."""
  import torch

  if kind.waves is None:
    return result
  inside = (x.abs() < 1) & (n > kind.recurring)
  angle = torch.where(inside, x, 0.0).acos()
  return torch.where(inside, kind.waves(angle, n), result)
