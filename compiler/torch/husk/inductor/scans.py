"""Associative scans of a length that varies, and models of transformers that scan.

`associative_scan` of torch halves the length again and again in Python, so that torch.export fixes
it. While a model is traced, a scan over a length that varies doubles how far back each element
reaches, as often as the longest one needs: each element is combined with what the one before it by
that distance has, and those without such an element stay as they are.

transformers computes the states of Mamba 1 by such a scan in torch.compile, and by a loop of Python
over all tokens in torch.export, since ONNX has no scan. An export of a thousand tokens would have
thousands of steps, for that length alone. So these modules are told that they are compiled."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .assumed import largest
from .replace import Replacement, replaced

if TYPE_CHECKING:
  import torch

# The longest scan, if the length has no bound.
_LONGEST = 1 << 32


@contextlib.contextmanager
def traced(model: torch.nn.Module) -> Iterator[None]:
  """While open, scans can be traced for all lengths."""
  # The package has a function of that name, too.
  module: Any = importlib.import_module("torch._higher_order_ops.associative_scan")
  of_one_length = module.generic_associative_scan

  def scan(
    operator: Callable[..., Any],
    leaves: list[torch.Tensor],
    dim: int = 0,
    additional_inputs: Any = (),
  ) -> list[torch.Tensor]:
    if dim or additional_inputs or isinstance(leaves[0].shape[0], int):
      return of_one_length(operator, leaves, dim, additional_inputs)
    return doubled(operator, leaves)

  with replaced((module, "generic_associative_scan", scan), *_of_transformers(model)):
    yield


def doubled(operator: Callable[..., Any], leaves: list[torch.Tensor]) -> list[torch.Tensor]:
  """The scan of tensors over their first dimension. `operator` takes the elements of all tensors on
  the left, then those on the right, and works on several elements at once."""
  import torch
  from torch.utils import _pytree as pytree

  count = leaves[0].shape[0]
  place = torch.arange(count, device=leaves[0].device)
  reach = 1
  while reach < largest(count, _LONGEST):
    before = place - reach
    # All places are inside, so that a kernel need not check them.
    left = [torch.ops.aten._unsafe_index.Tensor(x, [before.clamp(min=0)]) for x in leaves]
    combined = pytree.tree_leaves(operator(*left, *leaves))
    leaves = [
      torch.where((before >= 0).view(-1, *[1] * (x.dim() - 1)), one, x)
      for one, x in zip(combined, leaves, strict=True)
    ]
    reach *= 2
  return leaves


def _of_transformers(model: torch.nn.Module) -> list[Replacement]:
  """What lets the modules of a model scan. On a GPU they would ask for a scan by one kernel, which
  torch.export keeps as an operator that hosts do not have, so a model there keeps its loops."""
  if any(one.device.type != "cpu" for one in model.parameters()):
    return []
  names = {type(one).__module__ for one in model.modules()}
  modules = [sys.modules[name] for name in sorted(names) if name.startswith("transformers.")]
  return [
    (module, "is_torchdynamo_exporting", lambda: False)
    for module in modules
    if {"is_torchdynamo_exporting", "mamba_selective_scan"} <= vars(module).keys()
  ]
