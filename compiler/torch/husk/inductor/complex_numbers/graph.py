"""A graph without complex tensors. Each complex value of the graph becomes two real ones."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import Unsupported
from .. import exported_programs, graphs, origins
from . import dispatch, operators, strided
from .parts import Parts, component, stacked

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram


def is_used(exported: ExportedProgram) -> bool:
  """Whether a program computes with complex numbers."""
  return any(map(_is_complex_node, graphs.nodes(exported)))


def functional(exported: ExportedProgram) -> ExportedProgram:
  """The program as `rewrite` needs it: without operators that write, also within what torch writes
  in terms of other operators, as `stft`."""
  wanted = _composites(exported)
  exported = exported_programs.functional(exported, wanted)
  # What has been decomposed may consist of others that are.
  while more := {op: found for op, found in _composites(exported).items() if op not in wanted}:
    wanted |= more
    exported = exported_programs.functional(exported, more)
  return exported


def _composites(exported: ExportedProgram) -> dict[Any, Callable[..., Any]]:
  """What computes the operators on complex numbers that torch writes in terms of others."""
  import torch

  found: dict[Any, Callable[..., Any]] = {}
  for node in graphs.nodes(exported):
    op: Any = node.target
    if isinstance(op, torch._ops.OpOverload) and _is_complex_node(node):
      # One overload of `stft` calls the other.
      for name in op.overloadpacket.overloads():
        overload = getattr(op.overloadpacket, name)
        function = None if dispatch.is_in_table(op) else dispatch.composite(overload)
        if function is not None:
          found[overload] = function
  return found


def rewrite(module: torch.fx.GraphModule, library: bool = False) -> dict[str, torch.Tensor]:
  """Replaces the complex values of a graph by real ones. Complex inputs are read, and complex
  outputs made, as views of real tensors. Complex constants become real. No operator of the
  graph writes but `copy_` to an input or a constant. `library`: whether Fourier transforms are
  calls of cuFFT.

  Returns the tensors of constants that the graph has got, by name. The module itself has fake ones
  under these names."""
  import torch

  for name, inner in module.named_modules():
    if name and isinstance(inner, torch.fx.GraphModule):
      _refuse(inner)
  rewriting = _Rewriting(module, library)
  for node in list(module.graph.nodes):
    rewriting.visit(node)
  rewriting.finish()
  return rewriting.constants


def _refuse(module: torch.fx.GraphModule) -> None:
  """Refuses a subgraph with complex numbers."""
  for node in module.graph.nodes:
    if _is_complex_node(node):
      place = origins.place(node.meta.get("stack_trace"))
      near = f" (near {place})" if place else ""
      raise Unsupported(
        f"complex numbers in a branch or a loop on CUDA targets{near}", has_place=bool(place)
      )


def _is_complex_node(node: torch.fx.Node) -> bool:
  """Whether the value of a node, or a value that its operator computes with, is complex."""
  import torch
  from torch.utils import _pytree as pytree

  schema = getattr(node.target, "_schema", None)
  if schema is not None and any(word in schema.name for word in operators.MAKING_COMPLEX):
    return True
  values = [node.meta.get("val"), *(one.meta.get("val") for one in node.all_input_nodes)]
  return any(
    isinstance(leaf, torch.Tensor) and leaf.is_complex() for leaf in pytree.tree_leaves(values)
  )


class _Rewriting:
  """The rewriting of one graph."""

  def __init__(self, module: torch.fx.GraphModule, library: bool) -> None:
    from torch._guards import detect_fake_mode

    self.module, self.graph, self.library = module, module.graph, library
    values = [node.meta["val"] for node in module.graph.nodes if "val" in node.meta]
    self.fake_mode: Any = detect_fake_mode(values)
    # Where an operator without arguments that are tensors makes its result.
    self.device = next(leaf.device for leaf in values if hasattr(leaf, "device"))
    self.constants: dict[str, torch.Tensor] = {}
    # What nodes with complex results have become: Parts of nodes, or lists with them.
    self.values: dict[torch.fx.Node, Any] = {}
    # The views of complex inputs and constants as real numbers.
    self.reals: dict[torch.fx.Node, torch.fx.Node] = {}
    self.real_constants: dict[Any, torch.Tensor] = {}  # by the complex one
    self.replaced: list[torch.fx.Node] = []

  def visit(self, node: torch.fx.Node) -> None:
    if node.op == "output":
      self._visit_output(node)
    elif node.op == "call_function" and node.target is operator.getitem:
      self._visit_item(node)
    elif node.op == "call_function" and _is_complex_node(node):
      self._visit_call(node)

  def finish(self) -> None:
    import torch

    for node in reversed(self.replaced):
      self.graph.erase_node(node)
    for node in self.graph.find_nodes(op="call_function", target=torch.ops.aten.stack.default):
      if (source := _unstacked_source(node)) is not None:
        node.replace_all_uses_with(source)
    if self.replaced:
      for node in self.graph.nodes:
        # The strides of what the view is made of may be others than in eager mode.
        if node.target is torch.ops.aten.view.default:
          node.target = torch.ops.aten.reshape.default
    self.graph.lint()
    self.module.recompile()

  def _visit_item(self, node: torch.fx.Node) -> None:
    source, index = node.args
    if source not in self.values:
      return
    value = self.values[source][index]
    if isinstance(value, Parts):
      self.values[node] = value
    else:
      node.replace_all_uses_with(value)
    self.replaced.append(node)

  def _visit_call(self, node: torch.fx.Node) -> None:
    import torch

    op: Any = node.target
    if op is torch.ops.aten._assert_tensor_metadata.default:
      # Checks a dtype or a device, which are known.
      self.replaced.append(node)
      return
    if not isinstance(op, torch._ops.OpOverload):
      raise Unsupported(
        f"complex numbers as arguments of {getattr(op, '__name__', op)} on CUDA targets"
      )
    if op is torch.ops.aten.copy_.default:
      self._visit_write(node)
      return
    if op in strided.operators():
      self._visit_strided(node)
      return
    with self.graph.inserting_before(node):
      args, kwargs = torch.fx.map_arg((node.args, node.kwargs), self._read)
      try:
        value = self._traced(
          node,
          lambda call, arguments: _like(call(op, *arguments), node.meta.get("val")),
          _plain((args, kwargs)),
        )
      except dispatch.Missing:
        # The operator is called with complex tensors. The application may have it.
        node.args, node.kwargs = torch.fx.map_arg((node.args, node.kwargs), self._made_complex)
        return
    if isinstance(value, torch.fx.Node):
      node.replace_all_uses_with(value)
    elif isinstance(value, (bool, int, float)):
      for user in list(node.users):
        user.args = torch.fx.map_arg(user.args, lambda one: value if one is node else one)
    else:
      self.values[node] = value
    self.replaced.append(node)

  def _visit_write(self, node: torch.fx.Node) -> None:
    """A complex buffer or input gets a value. It is read and written as real numbers."""
    import torch

    destination, source = node.args[:2]
    assert isinstance(destination, torch.fx.Node) and isinstance(source, torch.fx.Node)
    self._read(destination)
    source_value = self._read(source)
    with self.graph.inserting_before(node):
      value = self._traced(
        node, lambda call, operand: stacked(dispatch.parts_of(operand)), source_value
      )
      real = self.reals[destination]
      copy = self.graph.call_function(torch.ops.aten.copy_.default, (real, value))
      copy.meta.update(node.meta)
      copy.meta["val"] = real.meta["val"]
    self.values[node] = source_value
    self.replaced.append(node)

  def _visit_strided(self, node: torch.fx.Node) -> None:
    """An operator that depends on where the elements of its complex tensor lie in memory."""
    import torch

    values: Any = graphs.arguments(node)
    x, *rest = values.values()
    layout = x.meta["val"]
    source = self._read(x)
    if x in self.reals and node.target not in strided.resizes():
      source = self.reals[x]  # lies there as the complex tensor does
    with self.graph.inserting_before(node):
      rest = [torch.fx.map_arg(one, self._read) for one in rest]
      self.values[node] = self._traced(
        node,
        lambda call, arguments: strided.computed(node.target, layout, *arguments),
        [source, *rest],
      )
    self.replaced.append(node)

  def _visit_output(self, node: torch.fx.Node) -> None:
    import torch

    with self.graph.inserting_before(node):
      node.args = torch.fx.map_arg(node.args, self._made_complex)

  def _made_complex(self, node: torch.fx.Node) -> Any:
    """The value of a node as a complex tensor, a view of a real one, if it is complex."""
    import torch

    if node not in self.values:
      return node
    return self._traced(
      node,
      lambda call, operand: torch.view_as_complex(stacked(dispatch.parts_of(operand))),
      self.values[node],
    )

  def _read(self, node: torch.fx.Node) -> Any:
    """The value of an argument: the parts of a complex one. Those of inputs and constants are
    views."""
    import torch

    if node in self.values:
      return self.values[node]
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not value.is_complex():
      return node
    self.reals[node] = real = self._real(node, value)
    nodes = []
    last = real
    for index in (0, 1):
      with self.graph.inserting_after(last):
        last = self.graph.call_function(torch.ops.aten.select.int, (real, -1, index))
        last.meta["val"] = real.meta["val"].select(-1, index)
        nodes.append(last)
    self.values[node] = Parts(*nodes)
    return self.values[node]

  def _real(self, node: torch.fx.Node, value: torch.Tensor) -> torch.fx.Node:
    """An input or a constant as real numbers. A constant becomes real itself, so that a copy to it
    is one of real numbers."""
    import torch

    with self.graph.inserting_after(node):
      if node.op != "get_attr":
        real = self.graph.call_function(torch.ops.aten.view_as_real.default, (node,))
      else:
        self._make_real(str(node.target))
        real = self.graph.get_attr(str(node.target))
        self.replaced.append(node)
      real.meta["val"] = torch.view_as_real(value)
    return real

  def _make_real(self, name: str) -> None:
    """Makes a complex constant of the module a view of itself as real numbers. Constants that are
    one tensor stay one."""
    import torch

    path, _, own = name.rpartition(".")
    owner = self.module.get_submodule(path)
    value = getattr(owner, own)
    if not value.is_complex():
      return
    if value.is_conj():
      raise Unsupported(f"the constant {name} is a conjugated view: give resolve_conj() of it")
    if value not in self.real_constants:
      self.real_constants[value] = torch.view_as_real(value.detach())
    delattr(owner, own)
    owner.register_buffer(own, self.real_constants[value])

  def _traced(
    self, node: torch.fx.Node, function: Callable[[Any, Any], Any], arguments: Any
  ) -> Any:
    """Inserts what `function(call, arguments)` computes, in which `call` calls an operator.
    `arguments` and the results have nodes for tensors, and Parts of nodes for complex ones."""
    import torch
    from torch._dispatch.python import enable_python_dispatcher
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils import _pytree as pytree

    leaves, tree = pytree.tree_flatten(
      arguments, is_leaf=lambda leaf: isinstance(leaf, (Parts, torch.fx.Node))
    )
    inputs: list[torch.fx.Node] = []
    for leaf in leaves:
      if isinstance(leaf, Parts):
        inputs += [leaf.re, leaf.im]
      elif isinstance(leaf, torch.fx.Node):
        inputs.append(leaf)
    results: list[Any] = []
    constants: dict[str, torch.Tensor] = {}  # fake ones, by name

    def compute(*tensors: Any) -> list[Any]:
      values = iter(tensors)
      known = dict(zip(constants, tensors[len(inputs) :]))

      def value_of(leaf: Any) -> Any:
        if isinstance(leaf, Parts):
          return dispatch.tensor(Parts(next(values), next(values)))
        return next(values) if isinstance(leaf, torch.fx.Node) else leaf

      def constant(name: str, make: Callable[[], torch.Tensor]) -> torch.Tensor:
        if name not in known:
          known[name] = constants[name] = self._constant(name, make, device)
        return known[name]

      args = pytree.tree_unflatten([value_of(leaf) for leaf in leaves], tree)
      result = function(dispatch.computing(constant, self.library).call, args)
      flat: list[Any] = []
      results[:] = [_numbered(result, flat)]
      return flat

    values = [one.meta["val"] for one in inputs]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    device = tensors[0].device if tensors else self.device
    assert self.fake_mode is not None
    with self.fake_mode, torch.no_grad(), enable_python_dispatcher():
      if "fft" in str(node.target):
        compute(*values)  # finds the constants, which are arguments of the graph
      traced = make_fx(compute)(*values, *constants.values())
    for name in constants:
      node_of_constant = self.graph.get_attr(name)
      node_of_constant.meta["val"] = constants[name]
      inputs.append(node_of_constant)
    return _filled(results[0], self._inserted(traced, inputs, node))

  def _constant(
    self, name: str, make: Callable[[], torch.Tensor], device: torch.device
  ) -> torch.Tensor:
    """A fake tensor of constants."""
    import torch
    from torch.utils import _python_dispatch

    if name not in self.constants:
      with _python_dispatch._disable_current_modes():
        self.constants[name] = _made(name, make)
      value = self.constants[name]
      self.module.register_buffer(name, torch.empty(value.shape, dtype=value.dtype, device=device))
    return self.module.get_buffer(name)

  def _inserted(
    self, traced: torch.fx.GraphModule, inputs: list[torch.fx.Node], origin: torch.fx.Node
  ) -> list[Any]:
    """Copies the nodes of a graph, and returns its results. The line of the model is that of
    `origin`."""
    import torch

    kept = {key: origin.meta[key] for key in _ORIGIN if key in origin.meta}
    arguments = iter(inputs)
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in traced.graph.nodes:
      if node.op == "placeholder":
        copies[node] = next(arguments)
      elif node.op == "output":
        results: Any = torch.fx.map_arg(node.args[0], copies.__getitem__)
        return results
      else:
        copies[node] = self.graph.node_copy(node, copies.__getitem__)
        copies[node].meta.update(kept)
    raise AssertionError("a graph without an output")


def _unstacked_source(stack: torch.fx.Node) -> torch.fx.Node | None:
  """The tensor whose two parts a node puts together again, None if there is no such tensor."""
  import torch

  select = torch.ops.aten.select.int
  last = stack.meta["val"].dim() - 1
  parts: Any = stack.args[0]
  dim: Any = stack.args[1] if len(stack.args) > 1 else 0
  if len(parts) != 2 or dim % (last + 1) != last or any(one.target is not select for one in parts):
    return None
  (source, first, index), (other, second, next_index) = (one.args for one in parts)
  places = first % (last + 1), second % (last + 1), index, next_index
  if source is not other or places != (last, last, 0, 1):
    return None
  return source if source.meta["val"].shape[-1] == 2 else None


def _like(result: Any, wanted: Any) -> Any:
  """A result of an operator with the dtypes that torch has found for it."""
  import torch

  if isinstance(result, (list, tuple)) and isinstance(wanted, (list, tuple)):
    return [_like(*pair) for pair in zip(result, wanted, strict=True)]
  if not isinstance(result, torch.Tensor) or not isinstance(wanted, torch.Tensor):
    return result
  assert result.dim() == wanted.dim(), f"{result.shape} in place of {wanted.shape}"
  parts = dispatch.parts_of(result)
  if parts is None:
    return result.to(wanted.dtype)
  dtype = component(wanted.dtype)
  return dispatch.tensor(Parts(parts.re.to(dtype), parts.im.to(dtype)))


def _plain(value: Any) -> Any:
  """A value with lists that operators can change, which those of nodes are not."""
  if isinstance(value, list):
    return [_plain(one) for one in value]
  if isinstance(value, dict):
    return {key: _plain(one) for key, one in value.items()}
  return tuple(_plain(one) for one in value) if type(value) is tuple else value


# What nodes tell of the model's code.
_ORIGIN = ("stack_trace", "nn_module_stack", "source_fn_stack")

# The constants of all graphs, so that targets and functions share them.
_all_constants: dict[str, Any] = {}


def _made(name: str, make: Callable[[], torch.Tensor]) -> torch.Tensor:
  if name not in _all_constants:
    _all_constants[name] = make().contiguous()
  return _all_constants[name]


def _numbered(result: Any, flat: list[Any]) -> Any:
  """A result with indices in `flat` in place of tensors. `flat` gets the tensors."""
  if isinstance(result, (list, tuple)):
    return [_numbered(one, flat) for one in result]
  parts = dispatch.parts_of(result)
  if parts is not None:
    flat += [parts.re, parts.im]
    return Parts(len(flat) - 2, len(flat) - 1)
  flat.append(result)
  return len(flat) - 1


def _filled(result: Any, flat: list[Any]) -> Any:
  """The inverse of `_numbered`."""
  if isinstance(result, list):
    return [_filled(one, flat) for one in result]
  return Parts(flat[result.re], flat[result.im]) if isinstance(result, Parts) else flat[result]
