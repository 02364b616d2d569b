"""Functions of torch that take the number of elements of their result as an int: `linspace` and
others. torch.export then has the program for the number of the example alone. While a model is
traced, a number that varies gets the functions below, which are made of `arange`."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .replace import replaced

if TYPE_CHECKING:
  import torch


@contextlib.contextmanager
def traced() -> Iterator[None]:
  """While open, the functions take numbers of elements that vary."""
  import torch

  functions: Any = torch
  transforms: Any = torch.fft
  with replaced(
    (functions, "linspace", _counting(torch.linspace, _linspace, place=2)),
    (functions, "logspace", _counting(torch.logspace, _logspace, place=2)),
    (functions, "bartlett_window", _counting(torch.bartlett_window, _bartlett)),
    (functions, "blackman_window", _counting(torch.blackman_window, _blackman)),
    (functions, "kaiser_window", _counting(torch.kaiser_window, _kaiser)),
    (transforms, "fftfreq", _counting(torch.fft.fftfreq, _frequencies)),
    (transforms, "rfftfreq", _counting(torch.fft.rfftfreq, _frequencies_of_reals)),
  ):
    yield


_COUNTS = ("steps", "window_length", "n")


def _counting(original: Any, function: Callable[..., Any], place: int = 0) -> Any:
  """The function for a count that varies, which is the argument at `place` or has one of the names
  `_COUNTS`, and torch's own otherwise. The results of ints are torch's own, too."""
  import torch

  def counting(*args: Any, **kwargs: Any) -> Any:
    counts = [*args[place : place + 1], *(kwargs.get(name) for name in _COUNTS)]
    dtype = kwargs.get("dtype") or torch.get_default_dtype()
    varies = any(isinstance(one, torch.SymInt) for one in counts)
    if not varies or not dtype.is_floating_point or kwargs.get("out") is not None:
      return original(*args, **kwargs)
    options = {name: kwargs.pop(name) for name in ("dtype", "device") if name in kwargs}
    for name in ("out", "layout", "pin_memory", "requires_grad"):
      kwargs.pop(name, None)
    return function(*args, **kwargs, options={"dtype": dtype, **options})

  return counting


def _linspace(start: Any, end: Any, steps: Any, *, options: dict[str, Any]) -> torch.Tensor:
  """Numbers that are counted from the nearer end, as in eager mode."""
  import torch

  places = torch.arange(steps, **options)
  step = (places.new_tensor(0.0) + end - start) / torch.sym_max(steps - 1, 1)
  near = torch.arange(steps, device=places.device) < torch.sym_max(steps // 2, 1)
  return torch.where(near, start + step * places, end - step * (steps - 1 - places))


def _logspace(
  start: Any, end: Any, steps: Any, base: float = 10.0, *, options: dict[str, Any]
) -> torch.Tensor:
  import torch

  return torch.pow(base, _linspace(start, end, steps, options=options))


def _window(
  length: Any, periodic: bool, value: Callable[[Any, Any], Any], options: dict[str, Any]
) -> torch.Tensor:
  """The values at places of a window whose last place has the number `last`. A window of one
  element is 1."""
  import torch

  last = length if periodic else torch.sym_max(length - 1, 1)
  values: torch.Tensor = value(torch.arange(length, **options), last)
  is_single = torch.sym_max(2 - length, 0)
  return values + is_single * (1 - values)


def _bartlett(
  window_length: Any, periodic: bool = True, *, options: dict[str, Any]
) -> torch.Tensor:
  def value(places: torch.Tensor, last: Any) -> torch.Tensor:
    return 1 - (2 * places / last - 1).abs()

  return _window(window_length, periodic, value, options)


def _blackman(
  window_length: Any, periodic: bool = True, *, options: dict[str, Any]
) -> torch.Tensor:
  def value(places: torch.Tensor, last: Any) -> torch.Tensor:
    turns = places * (2 * math.pi) / last
    return 0.42 - 0.5 * turns.cos() + 0.08 * (2 * turns).cos()

  return _window(window_length, periodic, value, options)


def _kaiser(
  window_length: Any, periodic: bool = True, beta: float = 12.0, *, options: dict[str, Any]
) -> torch.Tensor:
  import torch

  def value(places: torch.Tensor, last: Any) -> torch.Tensor:
    height = (1 - (2 * places / last - 1).square()).clamp(min=0).sqrt()
    return torch.i0(beta * height) / torch.i0(places.new_tensor(beta))

  return _window(window_length, periodic, value, options)


def _frequencies(n: Any, d: float = 1.0, *, options: dict[str, Any]) -> torch.Tensor:
  import torch

  places = torch.arange(n, **options)
  return torch.where(places < (n + 1) // 2, places, places - n) / (n * d)


def _frequencies_of_reals(n: Any, d: float = 1.0, *, options: dict[str, Any]) -> torch.Tensor:
  import torch

  return torch.arange(n // 2 + 1, **options) / (n * d)
