"""Weights that are rounded to tf32 once, when a program is opened, and not in each product.

rounding.py rounds the operands of products in tf32 where a kernel reads them. For the second one
that costs a fifth of a layer's time and more, since its tile is written to shared memory again. A
weight is always the same, so a step of its own rounds it. Such a step depends on constants alone,
and the exporter moves it to the function that runs when the file is opened (hir/folding.py), and
again after an update of the weight.

`once` makes the step. The templates get an argument that says so, and rounding.py finds it in the
text of their kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy

from ..inductor.lines import InductorObject

# The argument of a template whose last operand is rounded already, and the line that templates
# write of it.
MARK = "HUSK_LAST_IS_ROUNDED"
LINE = f"{MARK} : tl.constexpr = True"

# The attribute of Inductor's buffers that are rounded.
_ROUNDED = "husk_is_rounded"

# The instruction that rounds to the nearest number of tf32.
CONVERSION = "cvt.rna.tf32.f32 $0, $1;"


def once(weight: InductorObject) -> InductorObject:
  """The rounded weight of a product in tf32, in the same order in memory. A tensor that is no
  constant stays as it is, and so does a part of a constant whose sizes or strides vary: only a run
  knows that part."""
  import torch
  from torch._inductor import ir
  from torch._inductor.virtualized import V, ops

  names = _names(weight)
  if weight.get_dtype() != torch.float32 or not names or not names <= set(V.graph.constants):
    return weight
  strides = weight.maybe_get_stride()
  numbers = (*weight.get_size(), *(strides or ()))
  if not all(isinstance(each, (int, sympy.Integer)) for each in numbers):
    return weight
  load = weight.make_loader()

  def element(index: Any) -> Any:
    return ops.inline_asm_elementwise(
      load(index), asm=CONVERSION, constraints="=r,r", dtype=torch.float32, is_pure=True, pack=1
    )

  rounded = ir.Pointwise.create(
    device=weight.get_device(),
    dtype=torch.float32,
    inner_fn=element,
    ranges=list(weight.get_size()),
  )
  rounded.realize()
  if strides is not None:
    order = ir.get_stride_order([int(stride) for stride in strides])
    rounded = ir.ExternKernel.require_stride_order(rounded, order)
  setattr(V.graph.get_buffer(rounded.get_name()), _ROUNDED, True)
  return rounded


def _names(node: InductorObject) -> set[str]:
  """The names of the buffers that a node reads; its own name if it is memory itself."""
  from torch._inductor import ir

  base = node
  while isinstance(base, (ir.TensorBox, ir.StorageBox, ir.BaseView)):
    base = base.data
  return {base.get_name()} if isinstance(base, ir.Buffer) else set(base.get_read_names())


def _is_rounded(name: str) -> bool:
  """Whether a buffer is a rounded weight, or a copy of one in another order. Only the lowering of
  the product has the weight that `once` made, and it changes nothing but the order."""
  from torch._inductor import ir
  from torch._inductor.virtualized import V

  buffer: Any = V.graph.try_get_buffer(name)
  if getattr(buffer, _ROUNDED, False):
    return True
  read = buffer.get_read_names() if isinstance(buffer, ir.ComputedBuffer) else ()
  return bool(read) and all(map(_is_rounded, read))


def marking(original: Callable[..., Any]) -> Callable[..., Any]:
  """TritonTemplate.maybe_append_choice, which says whether the last operand is rounded."""

  def maybe_append_choice(self: Any, choices: list[Any], **kwargs: Any) -> Any:
    nodes = kwargs["input_nodes"]
    if nodes and _is_rounded(nodes[-1].get_name()):
      kwargs[MARK] = True
    return original(self, choices, **kwargs)

  return maybe_append_choice
