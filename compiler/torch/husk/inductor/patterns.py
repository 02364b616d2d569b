"""Patterns of Inductor that fail for some of the programs in which they occur."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from .lines import InductorObject
from .replace import Replacement

_original: Callable[..., None] | None = None


def replacements() -> list[Replacement]:
  """Functions of torch, each with one that leaves such programs as they are."""
  from torch._inductor.fx_passes import misc_patterns, post_grad

  global _original
  sums: Any = post_grad.pointless_cumsum_replacement
  if sums.__code__ is not _code_of_sums.__code__:
    _original = types.FunctionType(sums.__code__, sums.__globals__)
  register = misc_patterns.register_replacement
  return [
    # The table of patterns has the function, so what it does is replaced.
    (sums, "__code__", _code_of_sums.__code__),
    (misc_patterns, "register_replacement", _unless_it_fails(register)),
  ]


def _code_of_sums(*args: Any, **kwargs: Any) -> None:
  # As the code of torch's function it sees the names of torch's module.
  from husk.inductor.patterns import sums_of_filled

  sums_of_filled(*args, **kwargs)


def sums_of_filled(match: InductorObject, *args: Any, **kwargs: Any) -> None:
  """Replaces the sums up to each element of a filled tensor by products with 1, 2, 3 and so on. The
  number with which it is filled must be known; one that sizes decide is a node of the graph."""
  import torch

  if not isinstance(match.kwargs["fill_value"], torch.fx.Node):
    assert _original is not None
    _original(match, *args, **kwargs)


def _unless_it_fails(register: Callable[..., Any]) -> Callable[..., Any]:
  """Leaves out the pattern of elements in a random order. It has an argument that occurs in no
  program, and Inductor raises an error where it finds such a pattern."""

  def registered(search: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if search.__name__ != "randperm_index_pattern":
      return register(search, *args, **kwargs)
    return None

  return registered
