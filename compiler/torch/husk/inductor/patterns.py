"""Patterns of Inductor that fail for some of the programs in which they occur."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .lines import InductorObject
from .replace import Replacement


def replacements() -> list[Replacement]:
  """Parts of torch that leave such programs as they are."""
  from torch._inductor.fx_passes import misc_patterns, post_grad

  registering: Any = misc_patterns
  sums = [
    (entry, "extra_check", _fills_with_a_number)
    for patterns in post_grad.pass_patterns
    for entries in patterns.patterns.values()
    for entry in entries
    if getattr(entry, "handler", None) is post_grad.pointless_cumsum_replacement
  ]
  register = registering.register_replacement
  return [*sums, (registering, "register_replacement", _unless_it_fails(register))]


def _fills_with_a_number(match: InductorObject) -> bool:
  """Whether Inductor can replace the sums up to each element of a filled tensor by products with 1,
  2, 3 and so on. A number that sizes decide is a node of the graph, with which it cannot."""
  import torch

  return not isinstance(match.kwargs["fill_value"], torch.fx.Node)


def _unless_it_fails(register: Callable[..., Any]) -> Callable[..., Any]:
  """Leaves out the pattern of elements in a random order. It has an argument that occurs in no
  program, and Inductor raises an error where it finds such a pattern."""

  def registered(search: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if search.__name__ != "randperm_index_pattern":
      return register(search, *args, **kwargs)
    return None

  return registered
