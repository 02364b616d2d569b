"""What a layer keeps beside keys and values: the last inputs of a convolution, and what a
recurrence has after the last token. A state has a row for each slot, and belongs to the number of
tokens that the slot has taken."""

from __future__ import annotations

from typing import Any

import torch

# The kinds, by the names of the methods that transformers' caches have for them.
KINDS = ("conv", "recurrent")


class State:
  """One state of a layer. A call of the model reads the rows of its slots, changes them, and writes
  them at its end."""

  def __init__(self, buffer: torch.Tensor) -> None:
    self.buffer = buffer
    self.value: torch.Tensor | None = None

  def _rows(self, step: Any) -> torch.Tensor:
    # By numbers of rows, since torch asks of a slice whether it begins at the first row.
    rows: torch.Tensor = torch.ops.aten.index(self.buffer, (step.slots[:, 0],))
    return rows

  def read(self, step: Any) -> torch.Tensor:
    """The rows of a step. Code of a model may write to the result. A sequence begins with zeros,
    whatever the slot has of another one."""
    if self.value is None:
      rows = self._rows(step)
      is_first = _each_row(step.positions[:, 0] == 0, rows)
      self.value = torch.where(is_first, torch.zeros_like(rows), rows)
    return self.value

  def join(self, step: Any, inputs: torch.Tensor) -> torch.Tensor:
    """For a convolution: the inputs that the state has, and those of the step after them, of which
    the state keeps the last ones."""
    joined = torch.cat([self.read(step), inputs], dim=-1)
    self.value = joined[..., -self.buffer.shape[-1] :]
    return joined

  def write(self, step: Any) -> None:
    """Writes what the model has left. Slots that take no part in a step keep their state."""
    if self.value is None:
      return
    takes_part = _each_row(step.positions[:, 0] < step.max_tokens, self.value)
    rows = torch.where(takes_part, self.value.to(self.buffer.dtype), self._rows(step))
    torch.ops.aten.index_put_(self.buffer, (step.slots[:, 0],), rows)


def _each_row(condition: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
  """A condition on each row, in the shape in which it is broadcast."""
  return condition.reshape(-1, *[1] * (rows.dim() - 1))
