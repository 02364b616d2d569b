"""The error of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable


class CheckpointError(ValueError):
  """A checkpoint cannot be loaded: a file is damaged, a format is unknown, or names or shapes are
  not those of the model. The model is as it was before."""


def listed(names: Iterable[str], most: int = 12) -> str:
  """Names for a message, in their order, and how many more there are."""
  names = sorted(names)
  more = f" and {len(names) - most} more" if len(names) > most else ""
  return ", ".join(names[:most]) + more
