"""Triton kernels that a model launches itself."""

import contextlib


@contextlib.contextmanager
def traced():
  """While open, a model that torch.export traces may launch its kernels as in eager mode, `kernel[grid](...)`: torch asks for
  `torch.library.wrap_triton(kernel)[grid](...)`, and otherwise runs the kernel on tensors that have no memory."""
  try:
    from torch.library import wrap_triton
    from triton.runtime.jit import KernelInterface
  except ImportError:     # no Triton, no kernels
    yield
    return
  before = KernelInterface.__getitem__
  KernelInterface.__getitem__ = lambda kernel, grid: wrap_triton(kernel)[grid]
  try:
    yield
  finally:
    KernelInterface.__getitem__ = before


def names(exported):
  """The names of those that an exported program launches."""
  import torch
  from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table
  graphs = [module.graph for module in exported.graph_module.modules() if isinstance(module, torch.fx.GraphModule)]
  found = []
  for graph in graphs:
    for node in graph.nodes:
      if node.op == "call_function" and str(node.target).startswith("triton_kernel_wrapper"):
        kernel = kernel_side_table.get_kernel(node.kwargs["kernel_idx"])
        while not hasattr(kernel, "__name__"):     # an Autotuner or Heuristics of one
          kernel = kernel.fn
        found.append(kernel.__name__)
  return found
