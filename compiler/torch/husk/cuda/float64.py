"""Computes expressions of sizes in float64 where a model does.

A factor that is made of sizes, as in `x * (1 / x.shape[0])`, is computed in the kernel. Triton
divides two ints in float32, and Inductor takes roots of ints in float32, whatever the dtype of the
result is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ..inductor.replace import replaced


@contextlib.contextmanager
def exact_sizes() -> Iterator[None]:
  """While open, kernels compute expressions of sizes in float64 if the result is float64."""
  import torch
  from torch._inductor.codegen import triton

  inductor: Any = triton
  printer, overrides = inductor.TritonPrinter, inductor.TritonKernelOverrides
  index_expr = overrides.index_expr.__func__
  divided, root = printer._print_IntTrueDiv, printer._helper_sqrt
  is_wide = False

  def of_dtype(cls: Any, expr: Any, dtype: torch.dtype) -> Any:
    nonlocal is_wide
    before, is_wide = is_wide, dtype == torch.float64 and not expr.is_integer
    try:
      return index_expr(cls, expr, dtype)
    finally:
      is_wide = before

  def wide_quotient(self: Any, expr: Any) -> str:
    if not is_wide:
      return divided(self, expr)
    over, under = expr.args
    return f"({self._print(over)} / {wide(self, under)})"

  def wide_root(self: Any, expr: Any) -> str:
    return f"libdevice.sqrt({wide(self, expr)})" if is_wide else root(self, expr)

  def wide(self: Any, expr: Any) -> str:
    if expr.is_Integer:
      return f"tl.full([], {float(expr)}, tl.float64)"
    return f"({self._print(expr)}).to(tl.float64)"

  with replaced(
    (overrides, "index_expr", classmethod(of_dtype)),
    (printer, "_print_IntTrueDiv", wide_quotient),
    (printer, "_helper_sqrt", wide_root),
  ):
    yield
