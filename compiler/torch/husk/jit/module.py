"""What the modules of compiled graphs use when they run."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..runtime.program import Program
from ..runtime.program import load as load_program
from .operators import function

if TYPE_CHECKING:
  import torch


def load(text: str, operators: Sequence[str] = ()) -> Program:
  """The program of an artifact in a module's text, with as many threads as torch has. `operators`
  are called through torch's dispatcher."""
  import torch

  ops = {name: function(name) for name in operators}
  return load_program(base64.b85decode(text), ops=ops, threads=torch.get_num_threads())


def part(
  base: torch.Tensor, sizes: Sequence[int], strides: Sequence[int], offset: int, dtype: str
) -> torch.Tensor:
  """A view of the memory of `base`, which begins `offset` elements of `dtype` after its first."""
  import torch

  kind: Any = getattr(torch, dtype.removeprefix("torch."))
  if base.dtype == kind:
    return base.as_strided(sizes, strides, base.storage_offset() + offset)
  begin = base.storage_offset() * base.element_size() // kind.itemsize + offset
  view = torch.empty(0, dtype=kind, device=base.device)
  return view.set_(base.untyped_storage(), begin, sizes, strides)
