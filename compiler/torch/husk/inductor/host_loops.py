"""Changes to the C++ that Inductor writes for kernels of hosts: vectors, functions and loads."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import sympy
from sympy.core.relational import Relational

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
  from torch._inductor.codegen.cpp import (
    CppKernel,
    CppKernelProxy,
    CppScheduling,
    CppTile2DKernel,
    CppVecKernel,
    CppVecOverrides,
  )
  from torch._inductor.codegen.cpp_utils import cexpr_index
  from torch._inductor.utils import sympy_product
  from torch.utils._sympy.functions import Where
  from torch.utils._sympy.symbol import SymT, free_symbol_is_type

  isa, write_loops = getattr(cpu_vec_isa, vectors)(), CppKernel.codegen_loops_impl
  write_load = CppVecKernel._get_vec_load_line
  inductor: Any = cpp
  # torch 2.15 simplifies indices in another way.
  simplify = getattr(inductor, "simplify_index_in_vec_range", None)
  find_stride = getattr(inductor, "stride_at", None)

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

  check_bounds = CppKernel.check_bounds
  in_loads: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()

  def checked(self: InductorObject, index: Any, size: Any, lower: bool, upper: bool) -> None:
    """Checks the index of a load before it. torch 2.11 then uses a variable that holds the index
    already, although it is computed behind all loads, and torch 2.15 checks behind the load. Here
    the variable is hidden, so that another one is computed before the load."""
    if free_symbol_is_type(index, SymT.TMP):
      return check_bounds(self, index, size, lower, upper)
    cse, early = self.cse, in_loads.setdefault(self, set())
    every = cse._cache
    cse._cache = {key: value for key, value in every.items() if str(value) in early}
    try:
      check_bounds(self, index, size, lower, upper)
    finally:
      found, cse._cache = cse._cache, every
    for key, value in found.items():
      early.add(str(value))
      every.setdefault(key, value)

  combine = CppVecKernel.reduction_combine_vec
  counts_in_tiles = hasattr(CppTile2DKernel, "_adjust_argreduce_index")

  def combined(self: InductorObject, *args: Any, **named: Any) -> Any:
    """The text that takes the next numbers into an `argmin` or `argmax`. In a tile of two loops
    torch 2.11 gives all numbers of the outer loop the index of the first one."""
    if named.get("index") is not None and isinstance(self, CppTile2DKernel):
      named["index"] = self.transform_indexing(named["index"])
    return combine(self, *args, **named)

  join = CppKernelProxy.aggregate_reduction_buffers

  def joined(self: InductorObject, is_outside: bool, loop: InductorObject) -> None:
    """Writes what follows a reduction, once for whole vectors and once for the rest of a loop that
    is outside of it. torch knows that a loop is outside only if it is the next one, and stores a
    whole vector for the rest of any other, behind the end of a tensor."""
    nest = self.loop_nest.loops or ()
    if loop is not None and not loop.is_reduction and any(one.is_reduction for one in nest):
      is_outside = True
    join(self, is_outside, loop)

  # Both are asked for the stride of a variable alone. The other terms of an index do not change it,
  # and sympy searches long for a simpler form of all terms together. It compares the sides of a
  # condition at random numbers, though an index that depends on one has no constant stride.
  def simplified(index: Any, variable: Any, length: Any) -> Any:
    index, sizes = _without_sizes(sympy.Add(*_terms_with(index, variable)), variable)
    if sizes and index.has(Where, Relational):
      return index.xreplace(sizes)
    return sympy.Add(
      *(
        _kept(_in_a_vector, simplify, term, variable, length)
        if _may_simplify(term, variable)
        else term
        for term in _terms(index)
      )
    ).xreplace(sizes)

  def stride_at(index: Any, variable: Any) -> Any:
    index, sizes = _without_sizes(sympy.Add(*_terms_with(index, variable)), variable)
    if sizes and index.has(Where, Relational):
      return _kept(_growth, index, variable).xreplace(sizes)
    return stride_without_sizes(index, variable).xreplace(sizes)

  def stride_without_sizes(index: Any, variable: Any) -> Any:
    known = variable.is_Symbol and _is_polynomial(index)
    stride = _stride(index, variable) if known else None
    if stride is not None:
      return stride
    return _kept(_growth if _is_index(index) else find_stride, index, variable)

  with replaced(
    *([(cpp, "simplify_index_in_vec_range", simplified)] if simplify else ()),
    *([(cpp, "stride_at", stride_at)] if find_stride else ()),
    # The layers of a model ask for the same quotients, whose divisor sympy parses each time.
    (cpp, "CeilDiv", functools.lru_cache(maxsize=None, typed=True)(inductor.CeilDiv)),
    (CppScheduling, "ready_to_flush", lambda self: True),
    (CppScheduling, "try_loop_split", _of_whole_parts(CppScheduling.try_loop_split)),
    (CppKernel, "codegen_loops_impl", marked),
    (CppKernel, "check_bounds", checked),
    (CppKernelProxy, "aggregate_reduction_buffers", joined),
    (CppVecKernel, "_get_vec_load_line", loaded),
    (CppVecOverrides, "masked", staticmethod(_of_numbers(CppVecOverrides.masked))),
    *((CppVecOverrides, name, staticmethod(text)) for name, text in _whole_vectors().items()),
    *([] if counts_in_tiles else [(CppVecKernel, "reduction_combine_vec", combined)]),
    (cpu_vec_isa, "valid_vec_isa_list", lambda: [isa]),
    (type(isa), "__bool__", lambda self: True),
  ):
    yield


def _of_numbers(masked: Callable[..., Any]) -> Callable[..., Any]:
  """Makes the function that writes values under a mask leave numbers what they are. If the mask is
  a vector, torch 2.11 marks the value itself as one. A number such as the 0 of a tensor of zeros
  has one variable in all of a kernel, and what is computed from it later is C++ that no compiler
  takes."""

  def of_numbers(mask: Any, body: Callable[[], InductorObject], other: Any) -> Any:
    values: list[tuple[InductorObject, bool]] = []

    def value() -> InductorObject:
      values.append((found := body(), found.is_vec))
      return found

    result = masked(mask, value, other)
    for found, is_vector in values:
      found.is_vec = is_vector
    return result

  return of_numbers


def _whole_vectors() -> dict[str, Callable[..., str]]:
  """The texts of operators that Inductor computes one lane at a time: what a number is, and
  quotients of integers (host/vectors.h)."""
  import torch
  from torch._inductor.codegen.cpp import CppVecOverrides
  from torch._inductor.codegen.cpp_utils import cexpr_index
  from torch._inductor.virtualized import V

  of_floats, product = CppVecOverrides.floordiv, CppVecOverrides.mul

  def kernel() -> InductorObject:
    """The CppVecKernel that is written now."""
    return V.kernel

  def is_mask(x: Any, condition: str) -> str:
    return f"{kernel()._get_mask_type(x.dtype)}({condition})"

  def quotients(a: Any, b: Any, floor: str) -> str:
    lanes = cexpr_index(kernel().num_elems)
    return f"husk_kernels::quotients<{floor}>({a}, {b}, {lanes})"

  def floordiv(a: Any, b: Any) -> str:
    return of_floats(a, b) if a.dtype.is_floating_point else quotients(a, b, "true")

  def mul(a: Any, b: Any) -> str:
    is_byte = a.dtype in (torch.int8, torch.uint8) and b.dtype == a.dtype
    return f"husk_kernels::byte_products({a}, {b})" if is_byte else product(a, b)

  def isnan(x: Any) -> str:
    return is_mask(x, f"{x} != {x}")

  def isinf(x: Any) -> str:
    return is_mask(x, f"{x}.abs() == decltype({x})(INFINITY)")

  def signbit(x: Any) -> str:
    return is_mask(x, f"decltype({x})(1).copysign({x}) < decltype({x})(0)")

  def truncdiv(a: Any, b: Any) -> str:
    return quotients(a, b, "false")

  # Where an operand is no vector, Inductor finds the text for numbers by the name of the function.
  return {each.__name__: each for each in (isnan, isinf, signbit, mul, floordiv, truncdiv)}


def _of_whole_parts(split: Callable[..., Any]) -> Callable[..., Any]:
  """Makes `CppScheduling.try_loop_split` leave loops as they are whose length is no multiple of a
  divisor in their indices. torch divides a loop over 100 elements, of which `n // 12` is read, into
  8 loops over 12, and never computes the last 4 elements."""
  from torch._inductor.virtualized import V
  from torch.utils._sympy.functions import FloorDiv

  def has_a_rest(body: InductorObject, quotient: Any) -> bool:
    dividend, divisor = quotient.args
    length = body.var_ranges.get(dividend)
    if length is None or not divisor.is_Integer:  # which torch does not divide
      return False
    return not V.graph.sizevars.statically_known_multiple_of(length, divisor)

  def of_whole_parts(self: InductorObject, nodes: list[InductorObject]) -> Any:
    for node in nodes:
      body = node.node.get_default_sizes_body()[1]
      for index in body.indexing_exprs.values():
        quotients = index.find(FloorDiv) if isinstance(index, sympy.Expr) else ()
        if any(has_a_rest(body, quotient) for quotient in quotients):
          return nodes
    return split(self, nodes)

  return of_whole_parts


def _is_polynomial(index: Any) -> bool:
  """Whether an index is a sum of products of an integer and different symbols. sympy searches long
  for a simpler form of it, which has the same strides."""
  return all(
    factor.is_Symbol or (factor.is_Integer and place == 0)
    for term in _terms(index)
    for place, factor in enumerate(_factors(term))
  )


def _stride(index: Any, variable: Any) -> Any:
  """What a polynomial grows by if a variable grows by 1, or None if it is a sum."""
  growing = [factors for factors in map(_factors, _terms(index)) if variable in factors]
  if len(growing) != 1:
    return None if growing else sympy.S.Zero
  return sympy.Mul(*(factor for factor in growing[0] if factor != variable))


def _without_sizes(index: Any, variable: Any) -> tuple[Any, dict[Any, Any]]:
  """An index with symbols for the sizes in it, if it has more than sums, products, quotients and
  remainders, and the sizes by symbol. A size of a model with windows is a quotient of a sum whose
  parts are quotients themselves. sympy would search for a simpler form of each of these parts, for
  minutes, and finds none that changes the strides."""
  sizes: dict[Any, Any] = {}
  if not variable.is_Symbol or _is_index(index):
    return index, sizes
  symbols: dict[Any, Any] = {}

  def replaced_in(part: Any) -> Any:
    if part.is_Symbol or part.is_Integer:
      return part
    if variable in part.free_symbols:
      return part.func(*map(replaced_in, part.args))
    # Whether a quotient is constant in a vector depends on the integers that divide its divisor.
    factor, rest = part.primitive()
    if not factor.is_Integer or rest.is_Symbol:
      factor, rest = sympy.S.One, part
    symbol = symbols.setdefault(rest, sympy.Symbol(f"size_{len(symbols)}", integer=True))
    sizes[symbol] = rest
    return factor * symbol

  return replaced_in(index), sizes


@functools.lru_cache(maxsize=1 << 14)
def _is_index(index: Any) -> bool:
  """Whether an index has only sums, products, quotients and remainders. sympy has no simpler form
  of the last two."""
  from torch.utils._sympy.functions import FloorDiv, ModularIndexing

  kinds = (sympy.Add, sympy.Mul, sympy.Symbol, sympy.Integer, FloorDiv, ModularIndexing)
  return isinstance(index, kinds) and all(map(_is_index, index.args))


def _may_simplify(term: Any, variable: Any) -> bool:
  """Whether a term may be simpler for the numbers that a variable has in a vector: if it has a
  quotient or a remainder of the variable, which may be constant then."""
  from torch.utils._sympy.functions import FloorDiv, ModularIndexing

  return not _is_index(term) or any(
    part.args[0] == variable for part in term.atoms(FloorDiv, ModularIndexing)
  )


def _in_a_vector(simplify: Any, term: Any, variable: Any, length: Any) -> Any:
  """A term for the numbers that a variable has in a vector, as Inductor's `simplify` finds it, with
  symbols for what is constant there. Inductor then lets sympy search for a simpler form, which
  takes a fifth of the time of models with windows, and finds none of quotients and remainders."""
  from torch.utils._sympy.functions import FloorDiv, ModularIndexing

  parts = term.atoms(FloorDiv, ModularIndexing)
  if not _is_index(term) or not all(n.is_Integer for part in parts for n in part.args[1:]):
    return simplify(term, variable, length)
  known: dict[Any, Any] = {}
  for part in parts:
    numbers = part.args[1:]
    if part.args[0] != variable:
      continue
    if numbers[0] % length == 0:
      known[part] = sympy.Symbol(f"{variable}_c{len(known)}")
    elif len(numbers) == 2 and numbers[0] == 1 and numbers[1] % length == 0:
      known[part] = variable + sympy.Symbol(f"{variable}_c{len(known)}")
  return _in_a_vector(simplify, term.xreplace(known), variable, length) if known else term


def _growth(index: Any, variable: Any) -> Any:
  """What an index grows by if a variable grows by 1."""
  return sympy.expand(index.xreplace({variable: variable + 1}) - index)


def _terms(index: Any) -> Any:
  return index.args if index.is_Add else (index,)


def _terms_with(index: Any, variable: Any) -> list[Any]:
  if not variable.is_Symbol:
    return [term for term in _terms(index) if term.has(variable)]
  return [term for term in _terms(index) if variable in term.free_symbols]


def _factors(term: Any) -> Any:
  return term.args if term.is_Mul else (term,)


@functools.lru_cache(maxsize=1 << 14)
def _kept(find: Any, *args: Any) -> Any:
  """The result of a function of sympy's expressions, which the next export asks for again."""
  return find(*args)
