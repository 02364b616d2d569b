"""Changes to the C++ that Inductor writes for kernels of hosts: vectors, functions and loads."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from .lines import InductorObject
from .replace import replaced


@contextlib.contextmanager
def host_codegen(vectors: str, mark: str) -> Iterator[None]:
  """Changes how Inductor writes C++ while open.

  Loop nests that are not fused become functions of their own. Vectors are those of the class
  `vectors` ("VecAVX2") of cpu_vec_isa, whatever this machine has. A line of `mark` and the number
  of elements that the loops cover, as a C++ expression, precedes each loop nest."""
  import torch
  from torch._inductor import cpu_vec_isa
  from torch._inductor.codegen import cpp
  from torch._inductor.codegen.cpp import CppKernel, CppScheduling, CppVecKernel
  from torch._inductor.codegen.cpp_utils import cexpr_index
  from torch._inductor.utils import sympy_product

  isa, write_loops = getattr(cpu_vec_isa, vectors)(), CppKernel.codegen_loops_impl
  write_load = CppVecKernel._get_vec_load_line
  inductor: Any = cpp
  # torch 2.15 simplifies indices in another way.
  simplify = getattr(inductor, "simplify_index_in_vec_range", None)

  def marked(self: InductorObject, nest: Any, code: Any, *args: Any) -> Any:
    code.writeline(mark + cexpr_index(self.rename_indexing(sympy_product(self.call_ranges))))
    return write_loops(self, nest, code, *args)

  def loaded(self: InductorObject, place: str, index: Any, dtype: Any, mask: Any = None) -> str:
    """The text of a load. Under a mask, torch's own reads a whole vector at the end of a loop, too,
    where only some lanes are left; of bools it also reads the lanes that the mask leaves out."""
    if not mask:
      return str(write_load(self, place, index, dtype, mask))
    is_bool = dtype == torch.bool
    text = write_load(self, place, index, torch.uint8 if is_bool else dtype, mask)
    lanes, load, rest = text.rpartition(".template loadu<")
    kind = self._get_mask_type(torch.float)
    if self.tail_size:
      count = cexpr_index(self.num_elems)
      lanes = f"{kind}::set({kind}::from(false), {lanes}, {count})"
    if not is_bool:
      return f"{lanes}{load}{rest}"
    types, _, address = rest.partition(">(")
    bytes_ = f"reinterpret_cast<const uint8_t*>({address}"
    return f"{kind}::from(at::vec::VectorizedN<{types}>({lanes}{load}{types}>({bytes_})))"

  def simplified(index: Any, *args: Any) -> Any:
    assert simplify is not None
    return index if _is_linear(index) else simplify(index, *args)

  with replaced(
    *([(cpp, "simplify_index_in_vec_range", simplified)] if simplify else ()),
    # The layers of a model ask for the same quotients, whose divisor sympy parses each time.
    (cpp, "CeilDiv", functools.lru_cache(maxsize=None, typed=True)(inductor.CeilDiv)),
    (CppScheduling, "ready_to_flush", lambda self: True),
    (CppKernel, "codegen_loops_impl", marked),
    (CppVecKernel, "_get_vec_load_line", loaded),
    (cpu_vec_isa, "valid_vec_isa_list", lambda: [isa]),
    (type(isa), "__bool__", lambda self: True),
  ):
    yield


def _is_linear(index: Any) -> bool:
  """Whether an index is a sum of symbols times integers. sympy searches long for a simpler form of
  it, and finds none."""
  return all(
    term.is_Integer
    or term.is_Symbol
    or (term.is_Mul and len(term.args) == 2 and term.args[0].is_Integer and term.args[1].is_Symbol)
    for term in (index.args if index.is_Add else (index,))
  )
