"""Numbers at equal distances, and powers of them, where torch traces other ones than eager mode
computes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch

_OF_TENSORS = ("Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor")


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions by operator."""
  import torch

  aten = torch.ops.aten
  return {
    **{getattr(aten.linspace, name): _linspace for name in ("default", *_OF_TENSORS)},
    **{getattr(aten.logspace, name): _logspace for name in _OF_TENSORS},
  }


def _linspace(
  start: Any, end: Any, steps: Any, *, dtype: Any = None, device: Any = None, **_: Any
) -> Any:
  if dtype is not None and not dtype.is_floating_point and not dtype.is_complex:
    return _ints(start, end, steps, dtype, device)
  return _complex(start, end, steps, dtype, device)


def _logspace(
  start: Any,
  end: Any,
  steps: Any,
  base: float = 10.0,
  *,
  dtype: Any = None,
  device: Any = None,
  **_: Any,
) -> Any:
  """Powers of a base with complex exponents."""
  import torch

  exponents = _complex(start, end, steps, dtype, device)
  return exponents if exponents is NotImplemented else torch.pow(base, exponents)


def _ints(start: Any, end: Any, steps: Any, dtype: torch.dtype, device: Any) -> torch.Tensor:
  """Both ends become ints before the steps are computed, as in eager mode, which then computes in
  f64 on a CPU, and in f32 on a GPU. torch traces ends with fractions, and computes in f32."""
  import torch

  device = torch.device(device or "cpu")
  places = torch.arange(steps, device=device)
  numbers = places.to(torch.float64 if device.type == "cpu" else torch.float32)
  return _between(_whole(start), _whole(end), steps, places, numbers).to(dtype)


def _whole(value: Any) -> Any:
  """A number without its fraction, as a Python number or a tensor of f64."""
  import torch

  if isinstance(value, torch.Tensor):
    return value.to(torch.float64).trunc()
  return math.trunc(value) if isinstance(value, float) else value


def _complex(start: Any, end: Any, steps: Any, dtype: Any, device: Any) -> Any:
  """Numbers between two of which one is a complex tensor. torch traces real ones."""
  import torch

  ends = [one for one in (start, end) if isinstance(one, torch.Tensor)]
  if not any(one.is_complex() for one in ends):
    return NotImplemented
  dtype = torch.get_default_dtype().to_complex() if dtype is None else dtype
  device = ends[0].device if device is None else device
  start, end = (
    one.to(device, dtype)
    if isinstance(one, torch.Tensor)
    else torch.full([], one, dtype=dtype, device=device)
    for one in (start, end)
  )
  places = torch.arange(steps, device=device)
  return _between(start, end, steps, places, places)


def _between(
  start: Any, end: Any, steps: Any, places: torch.Tensor, numbers: torch.Tensor
) -> torch.Tensor:
  """`numbers` are `places` in the type in which is computed. The second half is counted from the
  end, as in eager mode. A single number is the start."""
  import torch

  step = (end - start) / torch.sym_max(steps - 1, 1)
  from_start, from_end = start + step * numbers, end - step * (steps - 1 - numbers)
  return torch.where(places < torch.sym_max(steps // 2, 1), from_start, from_end)
