"""Complex numbers of CUDA targets on the CPU: graphs of real tensors run in eager mode."""

import torch
from function_module import FunctionModule
from husk.inductor import capture, complex_numbers


def graph(function, args, shapes=None):
  """The graph of a function of tensors, and its constants by name."""

  def forward(self, *tensors):
    return function(*tensors)

  with torch.no_grad():
    exported = torch.export.export(
      FunctionModule(forward), tuple(args), dynamic_shapes=shapes, strict=False
    )
  module, _ = capture._flat(complex_numbers.functional(exported))
  constants = complex_numbers.rewrite(module)
  for name, tensor in constants.items():
    setattr(module, name, tensor)
  return module, constants


def run(module, args):
  """The results of a graph, a list. The hooks of torch.export check what the graph no longer
  has."""
  return torch.fx.Interpreter(module).run(*args)


def complex_operators(module):
  """The operators that have a complex result, but for the views that make complex outputs."""
  return {
    node.target._schema.name
    for node in module.graph.nodes
    if hasattr(node.target, "_schema")
    and any(
      isinstance(leaf, torch.Tensor) and leaf.is_complex()
      for leaf in torch.utils._pytree.tree_leaves(node.meta.get("val"))
    )
    and node.target is not torch.ops.aten.view_as_complex.default
  }


def check(function, *args, shapes=None, others=(), **tolerances):
  """Compares a function with its graph, which has no complex operators."""
  module, _ = graph(function, args, shapes)
  assert complex_operators(module) == set()
  for inputs in (args, *others):
    expected = torch.utils._pytree.tree_leaves(function(*inputs))
    for one, other in zip(run(module, inputs), expected, strict=True):
      torch.testing.assert_close(one, other, equal_nan=True, **tolerances)
