"""Tensor descriptors that a user's kernel takes as arguments (`TensorDescriptor`).

A descriptor that the host encodes holds an address, so it would have to be encoded in each run, and again for each graph. Instead
the kernel makes it: it gets the pointer, the sizes and the strides, and its first statement is `tl.make_tensor_descriptor` of them,
in scratch of its own. So it is always that of this run.
"""

import contextlib
import dataclasses
import re

from . import sources
from .errors import Unsupported

_TYPE = re.compile(r"'(\w+)': 'tensordesc<(\w+)\[([\d, ]+)\]>'")


@dataclasses.dataclass
class Descriptor:
  """What a call gives: `tensor` is the name of a place."""

  tensor: str
  sizes: list
  strides: list

  def arguments(self, name):
    """Those of the parameters that stand for parameter `name`."""
    given = {name: self.tensor}
    given.update({f"husk_{name}_size{d}": size for d, size in enumerate(self.sizes)})
    given.update({f"husk_{name}_stride{d}": stride for d, stride in enumerate(self.strides[:-1])})
    return given


def rewritten(source, name):
  """The module, with a pointer, sizes and strides in place of each descriptor of kernel `name`."""
  statements, types = [], {}
  for parameter, _, block in _TYPE.findall(source):
    dims = range(len(block.split(",")))
    sizes, strides = [f"husk_{parameter}_size{d}" for d in dims], [f"husk_{parameter}_stride{d}" for d in dims[:-1]]
    types.update({size: "i32" for size in sizes})
    types.update({stride: "i64" for stride in strides})
    statements.append(f"{parameter} = tl.make_tensor_descriptor({parameter}, [{', '.join(sizes)}], "
                      f"[{', '.join([*strides, '1'])}], [{block}])")
  if not statements:
    return source
  source = _TYPE.sub(r"'\1': '*\2'", source)
  return sources.with_parameters(sources.with_statements(source, name, statements), name, types)


@contextlib.contextmanager
def traced():
  """While open, descriptors that are given to a kernel reach Inductor as the tensors that they describe; torch does that only where
  Dynamo traces, and would lose what the kernel writes."""
  from torch._higher_order_ops import triton_kernel_wrap as wrap
  from torch.utils import _triton
  original = wrap.TracingTritonHOPifier.call_HOP

  def call(self, variable, grids, combined_args, *more, **named):
    metadata = {name: wrap.create_tma_stable_metadata(_checked(name, value).block_shape) for name, value in combined_args.items()
                if type(value).__name__ == "TensorDescriptor"}
    given = {name: value.base if name in metadata else value for name, value in combined_args.items()}
    mutation = wrap.triton_kernel_wrapper_mutation

    def called(**arguments):
      wrap.triton_kernel_wrapper_mutation = mutation
      return mutation(**{**arguments, "tma_descriptor_metadata": metadata})

    if metadata:     # which the original leaves empty in its one call
      wrap.triton_kernel_wrapper_mutation = called
    try:
      return original(self, variable, grids, given, *more, **named)
    finally:
      wrap.triton_kernel_wrapper_mutation = mutation

  # Asked of the GPU, which is not here: else torch does not see what such a kernel writes.
  is_there = _triton.has_triton_tensor_descriptor_host_tma
  wrap.TracingTritonHOPifier.call_HOP, _triton.has_triton_tensor_descriptor_host_tma = call, lambda: True
  try:
    yield
  finally:
    wrap.TracingTritonHOPifier.call_HOP, _triton.has_triton_tensor_descriptor_host_tma = original, is_there


def _checked(name, descriptor):
  """A descriptor of a whole tensor, as `from_tensor` makes it: that is all that torch can tell Inductor."""
  base = descriptor.base
  if list(descriptor.shape) != list(base.shape) or list(descriptor.strides) != list(base.stride()):
    raise Unsupported(f"parameter {name} of a kernel: a descriptor of another shape than its tensor's; describe a view of it")
  if descriptor.padding != "zero":
    raise Unsupported(f"parameter {name} of a kernel: a descriptor with padding {descriptor.padding!r}; zero is possible")
  return descriptor
