"""Work that Inductor repeats for each operation of each kernel that it writes, with equal results.
Without it an export for a host takes about four fifths of the time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .lines import InductorObject
from .replace import Replacement, replaced

if TYPE_CHECKING:
  import torch


def replacements() -> list[Replacement]:
  """Functions of torch, each with one that remembers."""
  from torch._inductor.dtype_propagation import DtypePropagationOpsHandler
  from torch.utils._sympy.value_ranges import ValueRanges

  return [
    (DtypePropagationOpsHandler, "__init__", _unless_known(DtypePropagationOpsHandler.__init__)),
    (ValueRanges, "tighten", _unless_equal(ValueRanges.tighten)),
  ]


def _unless_known(initialize: Callable[..., None]) -> Callable[..., None]:
  """Makes the handler of dtypes set its rules only if there are others than before. There is one
  handler, which torch before 2.15 constructs again for each operation: it then sets hundreds of
  rules."""
  from torch._inductor.utils import op_dtype_propagation_rules

  known: tuple[Any, ...] = ()

  def initialized(self: InductorObject) -> None:
    nonlocal known
    rules = tuple(op_dtype_propagation_rules.items())
    if rules != known:
      initialize(self)
      known = rules

  return initialized


def _unless_equal(tighten: Callable[..., Any]) -> Callable[..., Any]:
  """Makes the intersection of a range with an equal one the range itself. Otherwise SymPy compares
  the bounds, which takes a millisecond."""

  def tightened(self: InductorObject, other: InductorObject) -> Any:
    return self if self == other else tighten(self, other)

  return tightened


@contextlib.contextmanager
def known_values() -> Iterator[None]:
  """While open, Inductor does not compute the shapes of a graph again whose nodes all have theirs,
  as those that come from AOTAutograd. It takes a seventh of the time of an export."""
  from torch._inductor import compile_fx

  compute = compile_fx.fake_tensor_prop

  def computed(module: torch.fx.GraphModule, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    from torch._guards import detect_fake_mode

    mode = detect_fake_mode(inputs)
    nodes = (node for node in module.graph.nodes if node.op != "output")
    if mode is not None and all("val" in node.meta for node in nodes):
      return mode
    return compute(module, inputs, *args, **kwargs)

  with replaced((compile_fx, "fake_tensor_prop", computed)):
    yield
