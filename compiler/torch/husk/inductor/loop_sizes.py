"""The sizes of what `scan` and `map` return.

Inductor makes loops of both, and allocates their results before the loop. It computes the sizes
from symbols that are arguments of the loop. torch.export passes none, and a loop over `x[1:]` has
n - 1 turns, of which n is no argument either. Here the sizes of the tensors of a loop are known,
too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .replace import Replacement


def replacements() -> list[Replacement]:
  """Functions of Inductor, each with one that knows more sizes."""
  from torch._inductor import pattern_matcher
  from torch._inductor.fx_passes import post_grad

  match: Any = pattern_matcher.Match
  loops: list[tuple[Any, ...]] = []
  return [
    (match, "replace_by_example", _with_arguments(match.replace_by_example, loops)),
    (post_grad, "resolve_shape_to_proxy", _of_tensors(post_grad.resolve_shape_to_proxy, loops)),
  ]


def _with_arguments(replace: Callable[..., Any], loops: list[tuple[Any, ...]]) -> Any:
  """Makes the method that replaces a node by a traced function keep the arguments of the trace as
  the last of `loops`."""

  def replaced(self: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    def traced(*arguments: Any) -> Any:
      loops.append(arguments)
      try:
        return function(*arguments)
      finally:
        loops.pop()

    return replace(self, traced, *args, **kwargs)

  return replaced


def _of_tensors(resolve: Callable[..., Any], loops: list[tuple[Any, ...]]) -> Any:
  """Makes the function that computes sizes take those of the tensors of the current loop."""

  def resolved(shape: Any, known: dict[Any, Any]) -> list[Any]:
    if loops:
      known = {**dict(_sizes(loops[-1])), **known}
      known = {**dict(_symbols(known)), **known}
    sizes: list[Any] = []
    for size in shape:
      whole = getattr(getattr(size, "node", None), "expr", None)
      sizes += [known[whole]] if whole in known else resolve([size], known)
    return sizes

  return resolved


def _sizes(arguments: Any) -> Iterator[tuple[Any, Any]]:
  """The sizes of tensors that vary, each after its expression."""
  import torch
  from torch.utils import _pytree as pytree

  for leaf in pytree.tree_leaves(arguments):
    if isinstance(leaf, torch.Tensor):
      for size in leaf.shape:
        if isinstance(size, torch.SymInt):
          yield size.node.expr, size


def _symbols(known: dict[Any, Any]) -> Iterator[tuple[Any, Any]]:
  """The symbols that follow from known sizes: n from n - 1."""
  for expression, size in known.items():
    for symbol in expression.free_symbols if expression.is_Add else ():
      rest = expression - symbol
      if rest.is_Integer:
        yield symbol, size - int(rest)
