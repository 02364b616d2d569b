"""Values that are written into a tensor that they read.

At the end of a program Inductor copies the new value of a buffer into it. The loop that computes
the value also writes it, so it may read elements that it has written before. `buffer.copy_(
buffer[0] + 1)` then adds 1 to its own result, as it does with torch.compile of 2.11."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .replace import replaced


@contextlib.contextmanager
def from_whole_values() -> Iterator[None]:
  """While open, a value that reads other elements of a tensor than those which it is written to is
  computed as a whole before it is written."""
  from torch._inductor import ir

  layout: Any = ir.MutationLayoutSHOULDREMOVE
  write = layout.realize_into

  def realize_into(src: Any, dst: Any, *args: Any, **kwargs: Any) -> Any:
    dst.realize()  # only then it has a name
    value = src.data if isinstance(src, ir.TensorBox) else src
    if _reads_other_elements(value, dst):
      src = ir.Pointwise.create(
        device=value.get_device(),
        dtype=value.get_dtype(),
        inner_fn=value.make_loader(),
        ranges=value.get_size(),
      )
      src.realize()
    return write(src, dst, *args, **kwargs)

  with replaced((layout, "realize_into", staticmethod(realize_into))):
    yield


def _reads_other_elements(value: Any, target: Any) -> bool:
  """Whether an element of a value is computed from other elements of the tensor `target` than the
  one that it is written to."""
  from torch._inductor.dependencies import MemoryDep, extract_read_writes
  from torch._inductor.ir import FlexibleLayout
  from torch._inductor.virtualized import ops

  name = target.get_name()
  if name not in value.get_read_names():
    return False

  def update(index: Any) -> Any:
    return ops.store(name, target.make_indexer()(index), value.make_loader()(index))

  # Inductor refuses to index a tensor whose strides it has not chosen. Only reads of the target
  # count here, and its strides are known.
  with replaced((FlexibleLayout, "allow_indexing", True)):
    found = extract_read_writes(update, value.get_size())
  reads = [each for each in found.reads if each.name == name]
  return any(
    not isinstance(read, MemoryDep) or read.index != written.index
    for read in reads
    for written in found.writes
  )
