"""Tensor descriptors that a user's kernel takes as arguments (`TensorDescriptor`).

A descriptor that the host encodes holds an address, so it would have to be encoded again for each
run and for each graph. Instead the kernel makes the descriptor: it gets the pointer, the sizes and
the strides, and its first statement is `tl.make_tensor_descriptor` of them, in the kernel's own
scratch memory. So a descriptor always has the addresses of the run.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import Unsupported
from ..inductor.replace import replaced
from . import source_edit

_TYPE = re.compile(r"'(\w+)': 'tensordesc<(\w+)\[([\d, ]+)\]>'")


def rewrite(source: str, name: str) -> str:
  """The module in which each descriptor of the kernel `name` is a pointer, sizes and strides."""
  statements: list[str] = []
  types: dict[str, str] = {}
  for parameter, _, block in _TYPE.findall(source):
    dims = range(len(block.split(",")))
    sizes = [f"husk_{parameter}_size{d}" for d in dims]
    strides = [f"husk_{parameter}_stride{d}" for d in dims[:-1]]
    types.update(dict.fromkeys(sizes, "i32"))
    types.update(dict.fromkeys(strides, "i64"))
    statements.append(
      f"{parameter} = tl.make_tensor_descriptor({parameter}, [{', '.join(sizes)}], "
      f"[{', '.join([*strides, '1'])}], [{block}])"
    )
  if not statements:
    return source
  source = _TYPE.sub(r"'\1': '*\2'", source)
  source = source_edit.with_statements(source, name, statements)
  return source_edit.with_parameters(source, name, types)


@contextlib.contextmanager
def traced() -> Iterator[None]:
  """While open, a descriptor that is an argument of a kernel reaches Inductor as the tensor that it
  describes. Torch does that only in code that Dynamo traces; otherwise it would lose the kernel's
  writes."""
  from torch._higher_order_ops import triton_kernel_wrap
  from torch.utils import _triton

  wrap: Any = triton_kernel_wrap
  triton: Any = _triton
  original_call = wrap.TracingTritonHOPifier.call_HOP

  def call(
    self: Any, variable: Any, grids: Any, arguments: Mapping[str, Any], *more: Any, **named: Any
  ) -> Any:
    metadata = {
      name: wrap.create_tma_stable_metadata(_checked(name, value).block_shape)
      for name, value in arguments.items()
      if type(value).__name__ == "TensorDescriptor"
    }
    tensors = {name: value.base if name in metadata else value for name, value in arguments.items()}
    mutation = wrap.triton_kernel_wrapper_mutation
    with contextlib.ExitStack() as stack:

      def mutation_with_metadata(**arguments: Any) -> Any:
        stack.close()  # the graph gets the operator by this name
        return mutation(**{**arguments, "tma_descriptor_metadata": metadata})

      if metadata:  # the original function makes one call, with empty metadata
        replacement = (wrap, "triton_kernel_wrapper_mutation", mutation_with_metadata)
        stack.enter_context(replaced(replacement))
      return original_call(self, variable, grids, tensors, *more, **named)

  # Torch asks the GPU of this machine. If the answer is no, torch does not see what the kernel
  # writes.
  with replaced(
    (wrap.TracingTritonHOPifier, "call_HOP", call),
    (triton, "has_triton_tensor_descriptor_host_tma", lambda: True),
  ):
    yield


def _checked(name: str, descriptor: Any) -> Any:
  """Refuses a descriptor of less than a whole tensor, since torch can only tell Inductor of those
  that `from_tensor` makes."""
  base = descriptor.base
  if list(descriptor.shape) != list(base.shape) or list(descriptor.strides) != list(base.stride()):
    raise Unsupported(
      f"parameter {name} of a kernel: a descriptor of another shape than its tensor's; "
      "describe a view of it"
    )
  if descriptor.padding != "zero":
    raise Unsupported(
      f"parameter {name} of a kernel: a descriptor with padding {descriptor.padding!r}; "
      "zero is possible"
    )
  return descriptor
