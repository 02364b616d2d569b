"""Patterns of Inductor that fail for some of the programs in which they occur."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .lines import InductorObject
from .replace import Replacement


def replacements() -> list[Replacement]:
  """Parts of torch that leave such programs as they are."""
  from torch._inductor.fx_passes import joint_graph, misc_patterns, post_grad

  registering: Any = misc_patterns
  of_joint_graph: Any = joint_graph.patterns
  passes = [*post_grad.pass_patterns, of_joint_graph]
  known = [entry for one in passes for entries in one.patterns.values() for entry in entries]
  sums = [
    (entry, "extra_check", _fills_with_a_number)
    for entry in known
    if getattr(entry, "handler", None) is post_grad.pointless_cumsum_replacement
  ]
  # If the process has compiled a graph before, the pattern is there already.
  orders = [(entry, "extra_check", _never) for entry in known if _search(entry) == _RANDOM_ORDER]
  register = registering.register_replacement
  return [*sums, *orders, (registering, "register_replacement", _unless_it_fails(register))]


# The function of Inductor that is the pattern of elements in a random order. It has an argument
# that occurs in no program, and Inductor raises an error where it finds such a pattern.
_RANDOM_ORDER = "randperm_index_pattern"


def _search(entry: InductorObject) -> str:
  """The name of the function that is a pattern, which its check refers to; "" if there is none."""
  check = getattr(entry, "extra_check", None)
  names = getattr(getattr(check, "__code__", None), "co_freevars", ())
  if check is None or "search_fn" not in names:
    return ""
  return str(check.__closure__[names.index("search_fn")].cell_contents.__name__)


def _never(match: InductorObject) -> bool:
  return False


def _fills_with_a_number(match: InductorObject) -> bool:
  """Whether Inductor can replace the sums up to each element of a filled tensor by products with 1,
  2, 3 and so on. A number that sizes decide is a node of the graph, with which it cannot."""
  import torch

  return not isinstance(match.kwargs["fill_value"], torch.fx.Node)


def _unless_it_fails(register: Callable[..., Any]) -> Callable[..., Any]:
  """Leaves out the pattern of elements in a random order."""

  def registered(search: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if search.__name__ != _RANDOM_ORDER:
      return register(search, *args, **kwargs)
    return None

  return registered
