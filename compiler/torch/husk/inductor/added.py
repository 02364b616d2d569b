"""Constants that a program gets besides its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import torch_compat

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram


class AddedConstants:
  """Adds constants to a program, whose graph is changed: it must be a copy (torch_compat.copied).
  `program` returns the program that has them."""

  def __init__(self, exported: ExportedProgram) -> None:
    self._exported = exported
    self._tensors: dict[str, torch.Tensor] = {}
    self._nodes: dict[str, torch.fx.Node] = {}  # by the name of a constant
    # The first placeholder that is an input of the user: constants stand before it.
    signature = exported.graph_signature
    placeholders = exported.graph.find_nodes(op="placeholder")
    self._place = sum(spec.target is not None for spec in signature.input_specs)
    places = [*placeholders[self._place :], None]
    self._before = places[0] or next(
      node for node in exported.graph.nodes if node.op != "placeholder"
    )
    self._mode = next(
      node.meta["val"].fake_mode
      for node in exported.graph.nodes
      if hasattr(node.meta.get("val"), "fake_mode")
    )

  def node(self, name: str, tensor: torch.Tensor) -> torch.fx.Node:
    """The placeholder of a constant, which the program gets with the name `name`, or with a name
    that begins so if another constant has it."""
    import torch
    from torch.export.graph_signature import InputKind, InputSpec, TensorArgument

    taken = {**self._exported.state_dict, **self._exported.constants}
    for known, other in self._tensors.items():
      if other is tensor:
        return self._nodes[known]
    free = name
    while free in taken or free in self._tensors:
      free += "_"
    with self._exported.graph.inserting_before(self._before):
      node = self._exported.graph.placeholder("c_" + "".join(
        letter if letter.isalnum() else "_" for letter in free
      ))
    with torch.no_grad():
      node.meta["val"] = self._mode.from_tensor(tensor, static_shapes=True)
    spec = InputSpec(
      kind=InputKind.CONSTANT_TENSOR, arg=TensorArgument(name=node.name), target=free
    )
    self._exported.graph_signature.input_specs.insert(self._place + len(self._nodes), spec)
    self._tensors[free], self._nodes[free] = tensor, node
    return node

  def program(self, source: ExportedProgram) -> ExportedProgram:
    """The program with its constants, and with the guards of `source`, of which it is a copy."""
    exported: Any = self._exported
    changed: Any = torch_compat.with_tensors(
      exported,
      exported.graph_signature,
      dict(exported.state_dict),
      {**exported.constants, **self._tensors},
    )
    changed.example_inputs = source.example_inputs
    return torch_compat.with_guards(changed, source)
