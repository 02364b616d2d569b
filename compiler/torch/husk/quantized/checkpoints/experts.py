"""Experts that a checkpoint has one by one, and a model as stacks: a stack is one entry made of
those of its experts."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..codes import Codes, small
from .errors import CheckpointError
from .layouts import Shape, Weight
from .sources import Entry

if TYPE_CHECKING:
  import torch

# The parameter of a model -> the layers of an expert whose rows it has, one below the other; one
# row for each way to call them.
_ROWS = (
  ("gate_up_proj", ("gate_proj", "up_proj")),
  ("gate_up_proj", ("w1", "w3")),
  ("down_proj", ("down_proj",)),
  ("down_proj", ("w2",)),
)


def stacked(entries: Sequence[Entry], tensors: Mapping[str, torch.Tensor]) -> list[Entry]:
  """The entries of a model, in which those of experts are stacks if the model has these."""
  found: dict[str, dict[tuple[int, str], Entry]] = {}
  rest = []
  for entry in entries:
    match = re.fullmatch(r"(.+)\.(\d+)\.(\w+)\.weight", entry.target)
    if entry.target in tensors or not match:
      rest.append(entry)
      continue
    parent, number, part = match.groups()
    found.setdefault(parent, {})[int(number), part] = entry
  for parent, experts in found.items():
    for name, parts in _ROWS:
      target = f"{parent}.{name}"
      stack = tensors.get(target)
      if stack is None or stack.dim() != 3 or not any(part in parts for _, part in experts):
        continue
      keys = [(number, part) for number in range(stack.shape[0]) for part in parts]
      if missing := [key for key in keys if key not in experts]:
        number, part = missing[0]
        raise CheckpointError(
          f"no tensor of the checkpoint is {parent}.{number}.{part}.weight, a part of {target!r}"
        )
      rest.append(_stack(target, [experts.pop(key) for key in keys], len(parts)))
    rest += experts.values()
  return rest


def _stack(target: str, entries: Sequence[Entry], parts: int) -> Entry:
  """One entry for the experts' entries, `parts` for each."""

  def shape_of_part(shape: Shape) -> Shape:
    return shape[1] // parts, shape[2]

  def check(shape: Shape) -> None:
    for entry in entries:
      entry.check(shape_of_part(shape))

  def read(shape: Shape) -> torch.Tensor | Weight:
    import torch

    found = [entry.read(shape_of_part(shape)) for entry in entries]
    numbers = [one for one in found if isinstance(one, torch.Tensor)]
    if len(numbers) < len(found):
      return _joined(target, found, shape)
    return torch.stack(numbers).reshape(shape)

  def read_each(shape: Shape, codes_of: Callable[[torch.Tensor], Codes]) -> Weight:
    import torch

    found = []
    for entry in entries:
      one = entry.read(shape_of_part(shape))
      found.append(Weight(codes_of(one)) if isinstance(one, torch.Tensor) else one)
    return _joined(target, found, shape)

  return dataclasses.replace(
    entries[0],
    target=target,
    names=[name for entry in entries for name in entry.names],
    check=check,
    read=read,
    is_mapped=False,
    read_each=read_each,
  )


def _joined(target: str, found: Sequence[torch.Tensor | Weight], shape: Shape) -> Weight:
  """A stack of weights that have codes. Raises CheckpointError if they are of several kinds."""
  import torch

  weights = [one for one in found if isinstance(one, Weight)]
  if len(weights) < len(found):
    raise CheckpointError(f"{target!r} is a stack of weights of which some have codes, some not")
  kinds = {
    (one.codes.bits, one.codes.group, one.codes.codes.dtype, one.codes.values is None)
    for one in weights
  }
  if len(kinds) > 1 or any(one.order is not None for one in weights):
    raise CheckpointError(f"{target!r} is a stack of weights whose codes are of several kinds")
  first = weights[0].codes

  def stack(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack(list(tensors)).reshape(*shape[:2], -1)

  scales = stack([one.codes.scales.float() for one in weights])
  zeros = None
  if any(one.codes.zeros is not None for one in weights):
    plain = [
      torch.zeros_like(one.codes.scales, dtype=torch.float32)
      if one.codes.zeros is None
      else one.codes.zeros.float()
      for one in weights
    ]
    zeros = small(stack(plain))
  codes = stack([one.codes.codes for one in weights])
  return Weight(Codes(first.bits, first.group, codes, small(scales), zeros, first.values))
