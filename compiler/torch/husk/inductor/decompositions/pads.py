"""Pads with elements of the tensor itself, as concatenations. A kernel that reads each element at
an index between two bounds reads no vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions of hosts by operator. One that returns NotImplemented leaves the call to
  Inductor."""
  import torch

  aten = torch.ops.aten
  return {
    **{getattr(aten, f"reflection_pad{n}d").default: _padded(_mirrored) for n in (1, 2, 3)},
    **{getattr(aten, f"replication_pad{n}d").default: _padded(_repeated) for n in (1, 2, 3)},
  }


def circular(x: torch.Tensor, pad: Any, mode: str = "constant", value: float | None = None) -> Any:
  """A pad that goes on at the other end. PyTorch copies parts of the result to others."""
  return _padded(_wrapped)(x, pad) if mode == "circular" else NotImplemented


def _padded(parts: Callable[..., tuple[torch.Tensor, torch.Tensor]]) -> Callable[..., Any]:
  """A pad of the last dimensions, the last one first. parts(x, dim, before, after) returns what is
  before and behind a tensor. A size that varies is left to Inductor, which checks it."""

  def padded(x: torch.Tensor, padding: Any) -> Any:
    import torch

    sides = [(dim, *padding[2 * at : 2 * at + 2]) for at, dim in enumerate(_dims(x, padding))]
    numbers = [number for dim, *pads in sides for number in (x.shape[dim], *pads)]
    if not all(type(number) is int and number >= 0 for number in numbers):
      return NotImplemented
    if any(max(before, after) > x.shape[dim] for dim, before, after in sides):
      return NotImplemented
    result = x
    for dim, before, after in sides:
      if before or after:
        first, last = parts(result, dim, before, after)
        whole = [(first, before), (result, 1), (last, after)]
        result = torch.cat([part for part, count in whole if count], dim)
    return x.clone() if result is x else result

  return padded


def _dims(x: torch.Tensor, padding: Any) -> list[int]:
  return [x.dim() - 1 - at for at in range(len(padding) // 2)]


def _wrapped(
  x: torch.Tensor, dim: int, before: int, after: int
) -> tuple[torch.Tensor, torch.Tensor]:
  size = x.shape[dim]
  return x.narrow(dim, size - before, before), x.narrow(dim, 0, after)


def _mirrored(
  x: torch.Tensor, dim: int, before: int, after: int
) -> tuple[torch.Tensor, torch.Tensor]:
  size = x.shape[dim]
  first, last = min(1, size - before), max(size - 1 - after, 0)
  return x.narrow(dim, first, before).flip(dim), x.narrow(dim, last, after).flip(dim)


def _repeated(
  x: torch.Tensor, dim: int, before: int, after: int
) -> tuple[torch.Tensor, torch.Tensor]:
  def parts(at: int, count: int) -> torch.Tensor:
    sizes = [count if each == dim else size for each, size in enumerate(x.shape)]
    return x.narrow(dim, at, 1).expand(sizes)

  return parts(0, before), parts(x.shape[dim] - 1, after)
