"""Nodes of Inductor's IR that would print themselves as strings, or vanish: while `of_our_own` is open, they become
lines that `lines.py` knows."""

import contextlib

# Classes of torch._inductor.ir whose `codegen` writes text.
_PRINTED = ("InplaceBernoulliFallback", "InplaceCopyFallback", "DeviceCopy", "ResizeStorageBytes", "MemoryCheckKernel")


@contextlib.contextmanager
def of_our_own(flash=False):
  """Patches Inductor, and puts it back. `flash`: attention that a model writes out, as far as Inductor sees that it is, becomes
  our kernel too (attention.py)."""
  import torch
  from torch._inductor import ir, lowering
  from torch._inductor.fx_passes import fuse_attention
  from . import attention, capture

  def codegen(self, wrapper):
    wrapper.writeline(capture.NodeLine(self))

  with contextlib.ExitStack() as stack:
    for name in _PRINTED:
      if hasattr(ir, name):
        _set(stack, getattr(ir, name), "codegen", codegen)
    for name in ("_assert_async", "_functional_assert_async"):
      packet = getattr(torch.ops.aten, name)
      for overload in packet.overloads():
        _put(stack, lowering.lowerings, getattr(packet, overload), _lowered_assert(codegen))
    for op, lowered in attention.lowerings().items():
      _put(stack, lowering.lowerings, op, lowered)
    if flash:
      _set(stack, fuse_attention, "_scaled_dot_product_attention", attention.found)
    for name in ("maybe_free_symbols", "maybe_free_unbacked_symbols"):
      _set(stack, ir, name, _of_conditions_too(getattr(ir, name), unbacked="unbacked" in name))
    yield


def _of_conditions_too(find, unbacked):
  """2.11 overlooks the symbols of a condition, the predicate of cond: what defines them was dropped as unused."""
  import sympy
  from torch._inductor.utils import get_free_symbols
  return lambda what: get_free_symbols(what, unbacked) if isinstance(what, sympy.logic.boolalg.Boolean) else find(what)


def _lowered_assert(codegen):
  """What aten._assert_async becomes: a number that is read, and a check. Inductor's own is an assertion in a kernel,
  which a GPU program leaves out or dies of."""
  from torch._inductor import ir
  from torch._inductor.virtualized import V

  class TensorAssert(ir.ExternKernel):
    def __init__(self, condition, text):
      super().__init__(None, ir.NoneLayout(device=condition.get_device()), self.unwrap_storage([condition]))
      self.text = text
      self.name = V.graph.register_buffer(self)
      V.graph.register_operation(self)

    def should_allocate(self):
      return False

    def has_side_effects(self):
      return True

    def get_unbacked_symbol_defs(self):
      from torch.utils._ordered_set import OrderedSet
      return OrderedSet()

  TensorAssert.codegen = codegen

  def lowered(condition, text="an assertion of a tensor", *token, **_):
    condition.realize()
    TensorAssert(condition, text)
    return token[0] if token else condition

  return lowered


def _set(stack, owner, name, value):
  before = owner.__dict__.get(name)
  setattr(owner, name, value)
  stack.callback(lambda: delattr(owner, name) if before is None else setattr(owner, name, before))


def _put(stack, table, key, value):
  before = table.get(key)
  table[key] = value
  stack.callback(lambda: table.pop(key) if before is None else table.__setitem__(key, before))
