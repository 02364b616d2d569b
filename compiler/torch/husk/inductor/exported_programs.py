"""Copies and changes of exported programs, which keep the conditions that torch would drop."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from . import assumed, graphs, shape_functions
from .replace import replaced

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram


def guards(exported: ExportedProgram) -> list[str]:
  """The conditions that torch.export found, as Python text."""
  return list(getattr(exported, "_guards_code", None) or ())


def with_guards(exported: ExportedProgram, source: ExportedProgram) -> ExportedProgram:
  """`exported` with the guards of `source`. torch drops the guards of a program that it
  decomposes."""
  exported._guards_code = guards(source)
  _assumptions[exported] = assumptions(source)
  return exported


# Conditions that were assumed when a program was decomposed, by program.
_assumptions: weakref.WeakKeyDictionary[Any, list[assumed.Assumption]] = weakref.WeakKeyDictionary()


def assumptions(exported: ExportedProgram) -> list[assumed.Assumption]:
  """The conditions on sizes that were assumed when the program was made of the exported one."""
  return _assumptions.get(exported, [])


def assume(exported: ExportedProgram, conditions: list[assumed.Assumption]) -> None:
  """Adds conditions on sizes that a program, and those that are made of it, need."""
  set_assumptions(exported, [*assumptions(exported), *conditions])


def set_assumptions(exported: ExportedProgram, conditions: list[assumed.Assumption]) -> None:
  """Says which conditions on sizes were assumed when a program was made."""
  _assumptions[exported] = conditions


@contextlib.contextmanager
def _without_guards(exported: ExportedProgram) -> Iterator[None]:
  """While open, a program has no guards. torch traces a program together with its guards when it
  decomposes it, and drops them afterwards. A guard is a text without names for its parts: torch
  computes the sizes in it from the beginning each time, and looks up the line of source for each
  operation. In models with windows these are many more operations than in the model."""
  program: Any = exported
  before = program._guards_code
  program._guards_code = []
  try:
    yield
  finally:
    program._guards_code = before


def functional(exported: ExportedProgram, wanted: dict[Any, Callable[..., Any]]) -> ExportedProgram:
  """The program without operators that write, and with the operators of `wanted` decomposed."""
  from torch._export import utils

  shapes = assumed.environment(exported)
  # torch collects the operators of each namespace, and looks up all composite ones each time.
  looked_up = (utils, "_materialize_cpp_cia_ops", functools.cache(utils._materialize_cpp_cia_ops))
  with assumed.restored(shapes), replaced(shape_functions.smaller_sizes(), looked_up):
    with _without_guards(exported):
      decomposed = exported.run_decompositions(wanted)
    with_guards(decomposed, exported)
    _assumptions[decomposed] = [*assumptions(exported), *assumed.found(shapes)]
  decomposed.example_inputs = exported.example_inputs
  return decomposed


def copied(exported: ExportedProgram) -> ExportedProgram:
  """A copy of a program whose graphs can be changed. Nodes keep their names: torch renames the copy
  of a node that is called "input", which the signature of the program refers to."""
  import torch

  module = copy.deepcopy(exported.graph_module)
  for one, other in zip(exported.graph_module.modules(), module.modules()):
    if isinstance(one, torch.fx.GraphModule) and isinstance(other, torch.fx.GraphModule):
      for node, copied_node in zip(one.graph.nodes, other.graph.nodes):
        copied_node.name = node.name
  changeable: Any = exported._update(module, copy.deepcopy(exported.graph_signature))
  changeable.example_inputs = exported.example_inputs
  return with_guards(changeable, exported)


def with_tensors(
  exported: ExportedProgram,
  signature: Any,
  state_dict: dict[str, Any],
  constants: dict[str, Any],
) -> ExportedProgram:
  """The program with another signature, other parameters and buffers, and other constants."""
  changed: Any = exported
  program: ExportedProgram = changed._update(
    exported.graph_module, signature, state_dict=state_dict, constants=constants
  )
  return with_guards(program, exported)


def state_spec(spec: Any) -> Any:
  """The signature of an input that is a parameter or a buffer, as a buffer; that of a constant
  itself."""
  from torch.export.graph_signature import InputKind

  if spec.kind is not InputKind.PARAMETER:
    return spec
  return dataclasses.replace(spec, kind=InputKind.BUFFER, persistent=True)


def copied_graph(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
  """A copy of a module with one graph. It has the tensors of the module itself, and nodes of the
  same names."""
  from torch.fx._lazy_graph_module import _make_graph_module

  graph = copy.deepcopy(module.graph)
  for node, copied_node in zip(module.graph.nodes, graph.nodes):
    copied_node.name = node.name
  copied_module: Any = _make_graph_module(module, graph)
  copied_module.meta = dict(module.meta)
  return copied_module


def with_right_dtypes(exported: ExportedProgram) -> ExportedProgram:
  """A program that was traced outside of `right_dtypes`, as if it had been traced inside."""
  import torch

  aten = torch.ops.aten
  operators = {
    aten._unique2.default,
    aten.unique_consecutive.default,
    aten.unique_dim.default,
    aten.unique_dim_consecutive.default,
    aten.bincount.default,
    aten.masked_select.default,
  }
  nodes = graphs.nodes(exported)
  if operators.isdisjoint(node.target for node in nodes) and not any(map(_counts_from_last, nodes)):
    return exported
  shapes = assumed.environment(exported)
  if shapes is not None:
    shapes.fake_tensor_cache.clear()
  return functional(exported, {})


def _counts_from_last(node: torch.fx.Node) -> bool:
  """Whether a node is a norm along dimensions that are counted from the last."""
  import torch

  if node.target is not torch.ops.aten.linalg_vector_norm.default:
    return False
  dims: Any = node.args[2] if len(node.args) > 2 else node.kwargs.get("dim")
  return any(each < 0 for each in dims or ())


def argument_names(exported: ExportedProgram) -> list[str]:
  """The names of a program's positional and keyword arguments; `*many` has a name for each
  value."""
  signature = exported.module_call_graph[0].signature
  return list(signature.forward_arg_names or []) if signature else []
