"""Programs in which calls are replaced by calls of Husk's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..inductor import exported_programs, graphs

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram


def rewrite(
  exported: ExportedProgram,
  is_replaced: Callable[[torch.fx.Node], bool],
  change: Callable[[torch.fx.Graph], None],
  in_place: bool = False,
) -> ExportedProgram:
  """A copy of a program in which `change` has changed each graph. A program without a node that
  `is_replaced` is returned itself. With `in_place`, the program itself is changed."""
  if not any(map(is_replaced, graphs.nodes(exported))):
    return exported
  rewritten = exported if in_place else exported_programs.copied(exported)
  for module in graphs.modules(rewritten):
    change(module.graph)
    module.recompile()
  return rewritten
