"""Nested arguments and results whose leaves are replaced by names or numbers.

A class of the application's own may need tensors: a cache reads the device of the first one. Where
it refuses other leaves, a list takes its place."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  from torch.utils._pytree import TreeSpec


def filled(spec: TreeSpec, leaves: Sequence[Any]) -> Any:
  """The nested value that `spec` describes, with these leaves."""
  from torch.utils import _pytree as pytree

  try:
    return pytree.tree_unflatten(leaves, spec)
  except Exception:  # what the constructor of a class raises
    return pytree.tree_unflatten(leaves, _without_classes(spec))


def is_plain(spec: TreeSpec) -> bool:
  """Whether only dicts, lists and tuples nest, or classes derived from these."""
  return spec.is_leaf() or _is_container(spec.type) and all(map(is_plain, spec.children()))


def _is_container(kind: Any) -> bool:
  return isinstance(kind, type) and issubclass(kind, (dict, list, tuple, collections.deque))


def _without_classes(spec: TreeSpec) -> TreeSpec:
  from torch.utils._pytree import TreeSpec

  if spec.is_leaf():
    return spec
  children = [_without_classes(child) for child in spec.children()]
  if _is_container(spec.type):
    return TreeSpec(spec.type, spec.context, children)
  return TreeSpec(list, None, children)
