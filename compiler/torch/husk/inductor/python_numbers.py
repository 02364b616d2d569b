"""What Python computes of sizes, where torch.export traces another number or nothing.

While a model is traced, sizes are objects of torch. Their methods that are wrong or missing are
replaced by ones that compute what Python does."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported
from . import origins
from .replace import replaced

if TYPE_CHECKING:
  import torch


@contextlib.contextmanager
def traced() -> Iterator[None]:
  """While open, sizes have the operations of Python's ints."""
  import torch

  whole: Any = torch.SymInt
  fraction: Any = torch.SymFloat
  with replaced(
    (whole, "__round__", _rounded),
    (whole, "__divmod__", lambda size, other: (size // other, size % other)),
    (whole, "__rdivmod__", lambda size, other: (other // size, other % size)),
    (whole, "__invert__", lambda size: -size - 1),
    (whole, "__xor__", _different_bits(whole.__xor__)),
    (whole, "__rxor__", _different_bits(whole.__rxor__)),
    (fraction, "__round__", _rounded_float(fraction.__round__)),
  ):
    yield


def _rounded(size: torch.SymInt, digits: int | None = None) -> Any:
  """A size that is rounded to a power of ten, of two that are equally far to the even multiple.
  torch leaves the size as it is."""
  if digits is None or digits >= 0:
    return size
  unit = 10**-digits
  return (size + (unit // 2 - 1) + (size // unit) % 2) // unit * unit


def _rounded_float(original: Any) -> Any:
  """Python rounds the exact value of a float. torch multiplies it by a power of ten before, which
  makes a half of what is slightly more or less."""

  def rounded(number: Any, digits: int | None = None) -> Any:
    if digits is None:
      return original(number)
    place = origins.place("".join(traceback.format_stack(sys._getframe(1), limit=1)))
    raise Unsupported(
      f"round(..., {digits}) of a number that sizes decide (near {place}): torch traces another "
      "number than Python's; round to an int, or compute the number outside of the model",
      has_place=True,
    )

  return rounded


def _different_bits(original: Any) -> Any:
  """An exclusive or, which torch.export takes for no operation of a program, by others. The
  result of two numbers that are not negative is none either, which its form tells torch."""

  def xor(a: Any, b: Any) -> Any:
    import torch
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    if not isinstance(b, (int, torch.SymInt)) or not all(
      statically_known_true(one >= 0) for one in (a, b)
    ):
      return original(a, b)
    return torch.sym_max((a | b) - (a & b), 0)

  return xor
