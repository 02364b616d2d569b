"""The decompositions of CUDA targets on the CPU: operators are traced with them, and the graphs run
in eager mode."""

import torch
from husk.inductor.decompositions.kernels import table
from torch._guards import TracingContext, tracing
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx


def graph(function, args, mode="real"):
  """The graph of a function of tensors, with the operators decomposed."""
  # Without a context each value of a trace of real tensors gets a mode of its own, which keeps the
  # stack: this takes most of the time.
  values = TracingContext(FakeTensorMode()) if mode == "real" else None
  with torch.no_grad(), tracing(values):
    return make_fx(function, decomposition_table=table(), tracing_mode=mode)(*args)


def operators(traced):
  """The names of the operators of a graph and of its subgraphs, as "aten::sort.stable"."""
  return {
    f"{node.target._schema.name}.{node.target._schema.overload_name}".removesuffix(".")
    for module in traced.modules()
    if isinstance(module, torch.fx.GraphModule)
    for node in module.graph.nodes
    if hasattr(node.target, "_schema")
  }


def equal(results, expected, **tolerances):
  """Compares results: values, shapes and dtypes."""
  pairs = zip(torch.utils._pytree.tree_leaves(results), torch.utils._pytree.tree_leaves(expected))
  for one, other in pairs:
    if isinstance(other, torch.Tensor):
      torch.testing.assert_close(one, other, equal_nan=True, **tolerances)
    else:
      assert one == other
