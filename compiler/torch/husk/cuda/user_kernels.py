"""Triton kernels that a model launches itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..inductor import graphs
from ..inductor.replace import replaced

if TYPE_CHECKING:
  from torch.export import ExportedProgram


@contextlib.contextmanager
def traced() -> Iterator[None]:
  """While open, a model that torch.export traces may launch its kernels as in eager mode, by
  `kernel[grid](...)`. Without it torch asks for `torch.library.wrap_triton(kernel)[grid](...)`, and
  runs other launches on tensors that have no memory."""
  try:
    from torch.library import wrap_triton
    from triton.runtime.jit import KernelInterface
  except ImportError:  # a model has no kernels if Triton is not installed
    yield
    return
  with replaced((KernelInterface, "__getitem__", lambda kernel, grid: wrap_triton(kernel)[grid])):
    yield


def names(exported: ExportedProgram) -> list[str]:
  """The names of the Triton kernels that an exported program launches."""
  from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

  kernels = []
  for node in graphs.nodes(exported):
    if node.op == "call_function" and str(node.target).startswith("triton_kernel_wrapper"):
      index: Any = node.kwargs["kernel_idx"]
      kernel: Any = kernel_side_table.get_kernel(index)
      while not hasattr(kernel, "__name__"):  # an Autotuner or Heuristics around a kernel
        kernel = kernel.fn
      kernels.append(kernel.__name__)
  return kernels
