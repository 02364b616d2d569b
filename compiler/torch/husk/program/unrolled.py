"""Loops of Python that torch.export has unrolled: the program has the operations of each turn."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from ..inductor import origins

if TYPE_CHECKING:
  from torch.export import ExportedProgram

# Turns of a loop from which on an export takes noticeably longer.
_MANY = 100


def remark(program: ExportedProgram) -> str:
  """A text about the longest loop that was unrolled, "" if none is long. A line that one module of
  a model runs many times is taken for a loop; layers that are alike run a line once each."""
  counts = collections.Counter(
    (_module(node.meta), node.meta.get("stack_trace") or "", str(node.target))
    for node in program.graph.nodes
    if node.op == "call_function"
  )
  ((_, trace, _), count), *_ = counts.most_common(1) or [(("", "", ""), 0)]
  place = origins.place(trace)
  if count < _MANY or not place:
    return ""
  return (
    f"a loop of Python is unrolled, with about {count} turns: {place}; the export takes as long as "
    "it has turns, and their number is fixed. torch._higher_order_ops.scan.scan, or while_loop, "
    "keeps it a loop"
  )


def _module(meta: dict[str, object]) -> str:
  """The module of a model that runs a node."""
  stack = meta.get("nn_module_stack")
  return str(next(reversed(stack.values()), "")) if isinstance(stack, dict) else ""
