"""Constants that a program gets in place of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import exported_programs

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram


class AddedConstants:
  """Adds constants to a program, whose graph is changed: it must be a copy
  (exported_programs.copied). `program` returns the program that has them."""

  def __init__(self, exported: ExportedProgram) -> None:
    self._exported = exported
    self._added: list[tuple[str, torch.Tensor, torch.fx.Node]] = []
    # Constants stand before the first input of the user.
    self._place = sum(spec.target is not None for spec in exported.graph_signature.input_specs)
    nodes = list(exported.graph.nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    self._before = nodes[nodes.index(placeholders[self._place - 1]) + 1]
    self._mode = placeholders[self._place - 1].meta["val"].fake_mode

  def node(self, name: str, tensor: torch.Tensor) -> torch.fx.Node:
    """The placeholder of a constant, which the program gets with the name `name`, or with a name
    that begins so if another constant has it."""
    import torch

    for _, other, node in self._added:
      if other is tensor:
        return node
    plain = "".join(letter if letter.isalnum() else "_" for letter in name)
    with self._exported.graph.inserting_before(self._before):
      node = self._exported.graph.placeholder(f"c_{plain}")
    with torch.no_grad():
      node.meta["val"] = self._mode.from_tensor(tensor, static_shapes=True)
    self._added.append((name, tensor, node))
    return node

  def program(self, source: ExportedProgram) -> ExportedProgram:
    """The program with its constants, without those that nothing reads any more, and with the
    guards of `source`, of which it is a copy."""
    from torch.export.graph_signature import InputKind, InputSpec, TensorArgument

    program = self._exported
    program.graph.eliminate_dead_code()
    signature = program.graph_signature
    used = {spec.target for spec in source.graph_signature.output_specs}
    before = {node.name: node for node in source.graph.find_nodes(op="placeholder")}
    gone = set()
    for node in program.graph.find_nodes(op="placeholder"):
      spec = next((one for one in signature.input_specs if one.arg.name == node.name), None)
      if spec is None or spec.target is None or spec.target in used or node.users:
        continue
      if before[node.name].users:
        program.graph.erase_node(node)
        signature.input_specs.remove(spec)
        gone.add(spec.target)
    tables = [
      {name: one for name, one in table.items() if name not in gone}
      for table in (program.state_dict, program.constants)
    ]
    place = sum(spec.target is not None for spec in signature.input_specs)
    for name, tensor, node in self._added:
      while name in tables[0] or name in tables[1]:
        name += "_"
      tables[1][name] = tensor
      argument = TensorArgument(name=node.name)
      spec = InputSpec(kind=InputKind.CONSTANT_TENSOR, arg=argument, target=name)
      signature.input_specs.insert(place, spec)
      place += 1
    program.graph_module.recompile()
    changed: Any = exported_programs.with_tensors(program, signature, *tables)
    changed.example_inputs = source.example_inputs
    return exported_programs.with_guards(changed, source)
