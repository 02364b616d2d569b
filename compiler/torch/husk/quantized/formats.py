"""What the weights of programs are, in words: for the log of an export, and for husk-dump."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..inductor import graphs
from .operator import embedding, grouped_operator, operator

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

# The key of the metadata of an artifact.
KEY = "husk.weights"


def weights(programs: Iterable[ExportedProgram]) -> dict[str, tuple[str, int]]:
  """The kind of each weight of codes, and its bytes with those of its scales, by its name."""
  found: dict[str, tuple[str, int]] = {}
  for exported in programs:
    names = {spec.arg.name: spec.target for spec in exported.graph_signature.input_specs}
    for node in graphs.nodes(exported):
      if node.target not in (operator(), embedding(), grouped_operator()):
        continue
      call = graphs.arguments(node)
      name = names.get(call["weight"].name)
      if name:
        parts = [call[part] for part in ("weight", "scales", "zeros", "values")]
        tensors = [part.meta["val"] for part in parts if part is not None]
        size = sum(one.numel() * one.element_size() for one in tensors)
        found[name] = (_kind(tensors[0].dtype, tensors[1].shape[-1], call), size)
  return found


def _kind(dtype: torch.dtype, groups: int, call: dict[str, Any]) -> str:
  name = str(dtype).removeprefix("torch.")
  if call["bits"] == 4:
    name = "int4" if call["values"] is None else "4 bits by a table"
  each = "a row" if groups == 1 else f"{call['group']} columns"
  return f"{name} with a scale for {each}" + (" and zeros" if call["zeros"] is not None else "")


def lines(found: dict[str, tuple[str, int]]) -> list[str]:
  """A line for each kind."""
  kinds: dict[str, list[int]] = {}
  for kind, size in found.values():
    kinds.setdefault(kind, []).append(size)
  return [
    f"weights of {kind}: {len(sizes)}, {sum(sizes):,} bytes"
    for kind, sizes in sorted(kinds.items())
  ]


def text(found: dict[str, tuple[str, int]]) -> str:
  """All weights in a line."""
  return "; ".join(f"{name}: {kind}, {size} bytes" for name, (kind, size) in found.items())
