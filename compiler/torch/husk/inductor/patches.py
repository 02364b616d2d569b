"""Changes to Inductor while it compiles.

Some nodes of Inductor's IR print themselves as strings, or vanish. While `husk_lines` is open, they
become lines that `lower/lines.py` knows. Some lowerings compute other numbers than eager mode, and
are replaced.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from . import collectives, loop_sizes, patterns, repeated, shape_functions, torch_compat
from .lines import InductorObject, NodeLine
from .replace import Replacement, replaced, replaced_entries

# Classes of torch._inductor.ir whose `codegen` writes text.
_PRINTED = (
  "InplaceBernoulliFallback",
  "InplaceCopyFallback",
  "DeviceCopy",
  "ResizeStorageBytes",
  "MemoryCheckKernel",
)


@contextlib.contextmanager
def husk_lines(
  lowerings: dict[Any, Callable[..., Any]] | None = None,
  sdpa: Callable[..., Any] | None = None,
) -> Iterator[None]:
  """Patches Inductor while open.

  lowerings: the lowerings of further operators, by operator.
  sdpa: if not None, Inductor calls this function in place of scaled_dot_product_attention where it
    recognises the attention that a model writes out as products and a softmax.
  """
  import torch
  from torch._inductor import bounds, decomposition, ir, lowering, scheduler, tiling_utils
  from torch._inductor.analyze_preserves_zero_mask import PreservesZeros
  from torch._inductor.codegen import triton
  from torch._inductor.fx_passes import fuse_attention
  from torch.utils._sympy.value_ranges import SymPyValueRangeAnalysis

  def codegen(self: InductorObject, wrapper: InductorObject) -> None:
    wrapper.writeline(NodeLine(self))

  replacements: list[Replacement] = [
    (getattr(ir, name), "codegen", codegen) for name in _PRINTED if hasattr(ir, name)
  ]
  if sdpa is not None:
    replacements.append((fuse_attention, "_scaled_dot_product_attention", sdpa))
  for name in ("maybe_free_symbols", "maybe_free_unbacked_symbols"):
    with_conditions = _with_conditions(getattr(ir, name), unbacked="unbacked" in name)
    replacements.append((ir, name, with_conditions))
  create = classmethod(_one_reduced_dimension(ir.Reduction.create.__func__))
  offsets = _samples_in_order(lowering._fractional_pooling_offsets)
  fusable = _reads_where_it_writes(scheduler.Scheduler.fusable_weak_dep)
  is_number = "should_unwrap_unspec_arg"
  recomputed = _in_the_same_order(scheduler.SchedulerNode.recompute_size_and_body)
  splits = _of_equal_numbers(tiling_utils.get_pw_red_splits)
  reshaped = staticmethod(_of_any_sizes(ir.View._dynamic_reshape_indexer))
  process = classmethod(_with_sizes_of_its_own(ir.ExternKernel.process_kernel.__func__))
  quotient = bounds.ValueRangeAnalysis.truncdiv.__func__
  shape = classmethod(_of_blocks_alone(triton.TritonSymbols.get_block_shape.__func__))
  replacements += [
    (ir.Reduction, "create", create),
    (lowering, "_fractional_pooling_offsets", offsets),
    (scheduler.Scheduler, "fusable_weak_dep", fusable),
    (triton, is_number, _in_register(getattr(triton, is_number))),
    (scheduler.SchedulerNode, "recompute_size_and_body", recomputed),
    (tiling_utils, "get_pw_red_splits", splits),
    (ir.ExternKernel, "process_kernel", process),
    (ir.View, "_dynamic_reshape_indexer", reshaped),
    (triton.TritonSymbols, "get_block_shape", shape),
    (triton.TritonKernel, "load", _of_numbers(triton.TritonKernel.load)),
    (SymPyValueRangeAnalysis, "eq", staticmethod(_of_booleans_too(SymPyValueRangeAnalysis.eq))),
    (bounds.ValueRangeAnalysis, "truncdiv", classmethod(_of_ints(quotient))),
    *(
      (PreservesZeros, name, _or_unknown(getattr(PreservesZeros, name)))
      for name in ("floordiv", "mod", "remainder")
    ),
    *(
      (getattr(ir, name), "get_free_symbol_uses", _symbols_of(fields))
      for name, fields in _NUMBERS_OF_PARTS.items()
      if hasattr(ir, name)
    ),
    *patterns.replacements(),
    *repeated.replacements(),
    *loop_sizes.replacements(),
  ]
  asserts = {
    getattr(packet, overload): _assert_lowering(codegen)
    for packet in (torch.ops.aten._assert_async, torch.ops.aten._functional_assert_async)
    for overload in packet.overloads()
  }
  strided = torch.ops.aten.as_strided.default
  views = {strided: _from_the_own_first_element(lowering.lowerings[strided])}
  searches = {
    op: _among_keys_in_a_row(lowering.lowerings[op], keys)
    for op, keys in ((torch.ops.aten.searchsorted.Tensor, 0), (torch.ops.aten.bucketize.Tensor, 1))
  }
  norm = torch.ops.aten.linalg_vector_norm.default
  norm_before = decomposition.decompositions[norm]
  with (
    replaced(*replacements),
    replaced_entries(
      "torch._inductor.lowering.lowerings",
      {**asserts, **views, **searches, **collectives.lowerings(), **(lowerings or {})},
    ),
    torch_compat.decomposed({norm: shape_functions.with_dims_from_the_first(norm_before)}),
  ):
    yield


# Nodes that define the size or the place of a part of a tensor, if the ends of the part are numbers
# of the data, and the fields that they are computed from.
_NUMBERS_OF_PARTS = {
  "DynamicSelectStorageOffset": ("index", "base_offset", "base_dim_stride", "size"),
  "DynamicSliceSize": ("start", "end", "step", "size"),
}


def _symbols_of(fields: tuple[str, ...]) -> Callable[..., Any]:
  """Inductor sees the symbols of the ends alone. So such a node may come before the one that
  defines the size of the whole tensor, if that is a number of the data."""
  from torch._inductor.utils import get_free_symbols

  def get_free_symbol_uses(self: InductorObject, unbacked_only: bool = False) -> Any:
    found = get_free_symbols(getattr(self, fields[0]), unbacked_only)
    for name in fields[1:]:
      found = found.union(get_free_symbols(getattr(self, name), unbacked_only))
    return found

  return get_free_symbol_uses


def _from_the_own_first_element(as_strided: Callable[..., Any]) -> Callable[..., Any]:
  """Makes a view by strides for which the model states no offset begin where its tensor does. If
  the tensor is a view itself, Inductor takes the first element of the whole."""
  from torch._inductor import ir, lowering

  def lowered(x: Any, size: Any, stride: Any, storage_offset: Any = None) -> Any:
    if storage_offset is None and isinstance(x.data, ir.BaseView):
      if not ir.is_storage_and_layout(x):
        x = lowering.clone(x)
      else:
        storage_offset = ir.as_storage_and_layout(x, freeze=False)[1].offset
    return as_strided(x, size, stride, storage_offset)

  return lowered


def _among_keys_in_a_row(search: Callable[..., Any], keys: int) -> Callable[..., Any]:
  """Makes a search read keys that lie side by side in a tensor of their own. `keys` is the place
  of that argument. Inductor's kernel begins to read where the whole tensor begins of which they are
  a view, and reads behind the last of them if they have gaps."""
  from torch._inductor import ir, lowering

  def lowered(*args: Any, **options: Any) -> Any:
    key_tensor = args[keys]
    own = lowering.clone(key_tensor) if isinstance(key_tensor.data, ir.BaseView) else key_tensor
    own.realize()
    own = ir.ExternKernel.require_contiguous(own)
    return search(*args[:keys], own, *args[keys + 1 :], **options)

  return lowered


def _one_reduced_dimension(create: Callable[..., Any]) -> Callable[..., Any]:
  """Makes `ir.Reduction.create` give an argmax or argmin one reduced dimension in place of several.

  The result counts the elements in the order of the loops, which Inductor sorts by the strides of
  what is read: the result for a transposed tensor would be a place in memory. One loop has no other
  order than that of the model."""
  import inspect

  signature = inspect.signature(create)

  def created(*args: Any, **kwargs: Any) -> Any:
    call = signature.bind(*args, **kwargs)
    values = call.arguments
    sizes = values["reduction_ranges"]
    if values["reduction_type"] in ("argmax", "argmin") and len(sizes) > 1:
      values["reduction_ranges"] = [_product(sizes)]
      values["inner_fn"] = _flattened(values["inner_fn"], sizes)
    return create(*call.args, **call.kwargs)

  return created


def _product(sizes: Any) -> Any:
  from torch._inductor.utils import sympy_product

  return sympy_product(sizes)


def _flattened(load: Callable[..., Any], sizes: Any) -> Callable[..., Any]:
  """The function `load` of an index and several reduced indices, as one of their flat index."""

  def flat(index: Any, reduced: Any) -> Any:
    (number,) = reduced
    return load(index, _place(number, sizes))

  return flat


def _samples_in_order(offsets: Callable[..., Any]) -> Callable[..., Any]:
  """Makes `lowering._fractional_pooling_offsets` read the random numbers of a volume in the order
  of the dimensions, as eager mode does. For images, whose order is the reverse, it is right."""

  def in_order(samples: Any, in_sz: Any, out_sz: Any, kernel_sz: Any, dim: int, ndims: int) -> Any:
    if ndims != 3:
      return offsets(samples, in_sz, out_sz, kernel_sz, dim=dim, ndims=ndims)
    reverse = [list(sizes)[::-1] for sizes in (in_sz, out_sz, kernel_sz)]
    return offsets(samples, *reverse, dim=ndims - 1 - dim, ndims=ndims)

  return in_order


def _reads_where_it_writes(fusable_weak_dep: Callable[..., bool]) -> Callable[..., bool]:
  """Makes `Scheduler.fusable_weak_dep` see every read of a buffer that is written more than once.

  It tells whether a kernel may read a buffer and write it: only if the kernel reads each element
  where it writes it. A read that follows a write has another name than the buffer, and torch 2.11
  compares only the name of the buffer, so that a kernel could read what it has written."""
  from torch._inductor.dependencies import MemoryDep
  from torch._inductor.scheduler import ForeachKernelSchedulerNode

  def fusable(self: InductorObject, dep: Any, reader: InductorObject, writer: Any) -> bool:
    if not fusable_weak_dep(self, dep, reader, writer):
      return False
    real = self.mutation_real_name
    (write,) = (each for each in writer.read_writes.writes if each.name == dep.mutating_buf)
    readers = 0
    # Kernels of a list of tensors run at the same time: one of them alone may read the buffer.
    for node in reader.snodes if isinstance(reader, ForeachKernelSchedulerNode) else [reader]:
      reads = [
        read
        for read in node.read_writes.reads
        if real.get(read.name, read.name) == real[dep.mutating_buf]
      ]
      if any(
        not isinstance(read, MemoryDep) or (read.index, read.size) != (write.index, write.size)
        for read in reads
      ):
        return False
      readers += bool(reads)
    return readers <= 1

  return fusable


def _in_register(is_number: Callable[[str], bool]) -> Callable[[str], bool]:
  """Makes Triton kernels mask a value that they read back after they have stored it.

  Such a read takes the register. `TritonKernelOverrides.masked` selects between the register and
  the value outside of the mask only if this function says that there is no load which the mask
  could guard; torch 2.11 asks for arguments that are numbers alone. A kernel that pads what it has
  computed would not see the padding, if it reads the same element for all places along the padded
  dimension, as of an expanded tensor."""
  from torch._inductor.virtualized import V

  def in_register(name: str) -> bool:
    kernel: Any = V.kernel
    return is_number(name) or name in kernel.cse.store_cache

  return in_register


def _or_unknown(divided: Callable[..., Any]) -> Callable[..., Any]:
  """Makes a quotient or remainder of ints one that is unknown, if nothing is known of it, or the
  divisor is zero. Inductor computes what the operators before a product make of zeros, to see
  whether they keep them, and fails at such a number."""
  import torch
  from torch._inductor.analyze_preserves_zero_mask import construct_symbol
  from torch._inductor.index_propagation import TypedExpr

  def computed(self: Any, x: Any, y: Any) -> Any:
    result = NotImplemented if y.is_constant() and y.expr == 0 else divided(x, y)
    if result is not NotImplemented:
      return result
    dtype = torch.promote_types(x.dtype, y.dtype)
    return TypedExpr(construct_symbol(next(self.count), dtype), dtype)

  return computed


def _of_blocks_alone(block_shape: Callable[..., Any]) -> Callable[..., Any]:
  """Makes `TritonSymbols.get_block_shape` take an index along a dimension without blocks for a
  number. A scan that several blocks share has such an index for its rows, and torch 2.11 fails if a
  kernel reads what has an element for each row."""
  import sympy
  from torch._inductor.virtualized import V

  def has_blocks(symbol: Any, kernel: InductorObject) -> bool:
    node = kernel.range_tree_nodes.get(symbol)
    return node is None or node.root.tensor_dim is not None

  def of_blocks_alone(cls: InductorObject, expr: Any) -> Any:
    blocks = [symbol for symbol in expr.free_symbols if has_blocks(symbol, V.kernel)]
    return block_shape(cls, sum(blocks, start=sympy.Integer(0)))

  return of_blocks_alone


def _of_numbers(load: Callable[..., Any]) -> Callable[..., Any]:
  """Makes `TritonKernel.load` take an index without symbols for a number. Where a place of a row of
  few elements is given, torch 2.11 keeps quotients and remainders of it, and writes these as SymPy
  does, which no kernel has."""
  from torch.utils._sympy.functions import Identity

  def of_numbers(self: InductorObject, name: str, index: Any) -> Any:
    if not index.free_symbols:
      index = index.replace(Identity, lambda number: number)
    return load(self, name, index)

  return of_numbers


def _in_the_same_order(recompute: Callable[..., None]) -> Callable[..., None]:
  """Makes `SchedulerNode.recompute_size_and_body` keep what a node must run after.

  The C++ backend calls it to give two nodes the same loops. In torch 2.11 the node then no longer
  waits for the reads of a buffer that it writes, nor for the writes of a buffer that it reads."""
  from torch._inductor.dependencies import StarDep, WeakDep
  from torch.utils._ordered_set import OrderedSet

  def recomputed(self: InductorObject, *args: Any, **kwargs: Any) -> None:
    order = [each for each in self.read_writes.reads if isinstance(each, (WeakDep, StarDep))]
    recompute(self, *args, **kwargs)
    read_writes = self.read_writes.rename(self.mutation_renames)
    self.set_read_writes(read_writes.with_read(OrderedSet(order)))

  return recomputed


def _of_equal_numbers(splits: Callable[..., Any]) -> Callable[..., Any]:
  """Makes `tiling_utils.get_pw_red_splits` recognize a number of elements in any form. That of a
  node is a product, (a + 1) * b, and that of its kernel a sum, a * b + b, which torch 2.11 takes
  for another number; then an assertion fails."""
  from torch._inductor.utils import sympy_product
  from torch._inductor.virtualized import V

  def of_equal_numbers(n: InductorObject, elements: Any, reduced: Any, **options: Any) -> Any:
    product = sympy_product(n._body.sizes[0])
    if V.graph.sizevars.statically_known_equals(product, elements):
      elements = product
    return splits(n, elements, reduced, **options)

  return of_equal_numbers


def _of_booleans_too(equal: Callable[..., Any]) -> Callable[..., Any]:
  """Makes `SymPyValueRangeAnalysis.eq` compare booleans. Inductor asks for the ranges of values
  that are computed of places, as `(a < 3) != (a > 5)` of an `arange`, and SymPy orders no
  booleans."""
  from torch.utils._sympy.value_ranges import SymPyValueRangeAnalysis, ValueRanges

  def of_booleans_too(left: Any, right: Any) -> Any:
    ranges = (ValueRanges.wrap(left), ValueRanges.wrap(right))
    to_int = SymPyValueRangeAnalysis._bool_to_int
    return equal(*(to_int(each) if each.is_bool else each for each in ranges))

  return of_booleans_too


def _of_ints(quotient: Callable[..., Any]) -> Callable[..., Any]:
  """Makes the range of a quotient of ints that is rounded towards 0 one of ints. In torch its ends
  are floats, and it cannot be divided again: `torch.div(n, 2, rounding_mode="trunc") // 64`."""
  from torch.utils._sympy import functions, value_ranges

  ranges: Any = value_ranges.ValueRanges

  def of_ints(cls: Any, left: Any, right: Any) -> Any:
    found = quotient(cls, left, right)
    if found == ranges.unknown():
      return ranges.unknown_int()
    to_int: Any = functions.TruncToInt
    return ranges(to_int(found.lower), to_int(found.upper))

  return of_ints


class _UnknownEquality(Exception):
  """Two sizes are equal for the example, and perhaps not for others."""


def _of_any_sizes(indexer: Callable[..., Any]) -> Callable[..., Any]:
  """Makes `View._dynamic_reshape_indexer` right for all sizes of a view.

  It takes a dimension for one of the viewed tensor if both have the same size in the example: that
  of 8 in the view of 8 padded rows as (-1, 8, 5), which has more than one first row elsewhere.
  Where equal sizes are not known to be equal, the place of an element is computed from its number
  in the order of both shapes."""
  from torch._inductor.virtualized import V

  def equal(left: Any, right: Any) -> Any:
    if not V.graph.sizevars.statically_known_equals(left, right):
      raise _UnknownEquality
    return left

  def indexed(old_size: Any, new_size: Any, dense_dim: int | None = None) -> Any:
    if dense_dim is not None:  # the order of a reduction
      return indexer(old_size, new_size, dense_dim)
    try:
      with replaced((V.graph.sizevars, "check_equals", equal)):
        return indexer(old_size, new_size)
    except _UnknownEquality:
      return lambda index: _place(_number(index, new_size), old_size)

  return indexed


def _number(index: Any, sizes: Any) -> Any:
  """The number of an element of a shape, in the order of its dimensions."""
  return sum(one * _product(sizes[n + 1 :]) for n, one in enumerate(index))


def _place(number: Any, sizes: Any) -> list[Any]:
  """The indices of the element with a number in a shape."""
  from torch.utils._sympy.functions import FloorDiv, ModularIndexing

  places = []
  for n, size in enumerate(sizes):
    step = _product(sizes[n + 1 :])
    places.append(ModularIndexing(number, step, size) if n else FloorDiv(number, step))
  return places


def _with_sizes_of_its_own(process: Callable[..., Any]) -> Callable[..., Any]:
  """Makes `ExternKernel.process_kernel` give each call of an operator the sizes of its own node, if
  a constant decides them.

  It calls the operator with fake tensors, and names the sizes of the result after those of the
  node. A constant has one fake tensor for all calls and for the trace before them, which remembers
  the sizes that it decided. torch 2.11 fails to name these a second time: a mask that is a literal
  of the model's code could not choose from two tensors. Each call has an epoch of its own, in which
  nothing is remembered."""
  from torch._inductor.virtualized import V

  def processed(cls: Any, *args: Any, **kwargs: Any) -> Any:
    with replaced((V.fake_mode, "epoch", object())):
      return process(cls, *args, **kwargs)

  return processed


def _with_conditions(find: Callable[[Any], Any], unbacked: bool) -> Callable[[Any], Any]:
  """Makes a function that lists free symbols list those of a condition (the predicate of cond) too.

  torch 2.11 overlooks them, and drops the definitions of these symbols as unused.
  """
  import sympy.logic.boolalg
  from torch._inductor.utils import get_free_symbols

  def free_symbols(value: Any) -> Any:
    if isinstance(value, sympy.logic.boolalg.Boolean):
      return get_free_symbols(value, unbacked)
    return find(value)

  return free_symbols


def _assert_lowering(codegen: Callable[..., None]) -> Callable[..., Any]:
  """The lowering of aten._assert_async: the condition is read to the host and checked there.

  Inductor's own lowering is an assertion in a kernel, which a GPU program leaves out or is killed
  by."""
  from torch._inductor import ir
  from torch._inductor.virtualized import V

  class TensorAssert(ir.ExternKernel):
    def __init__(self, condition: InductorObject, text: str) -> None:
      super().__init__(
        None, ir.NoneLayout(device=condition.get_device()), self.unwrap_storage([condition])
      )
      self.text = text
      self.name = V.graph.register_buffer(self)
      V.graph.register_operation(self)

    def should_allocate(self) -> bool:
      return False

    def has_side_effects(self) -> bool:
      return True

    def get_unbacked_symbol_defs(self) -> Any:
      from torch.utils._ordered_set import OrderedSet

      return OrderedSet()

  TensorAssert.codegen = codegen

  def lowered(
    condition: InductorObject, text: str = "an assertion of a tensor", *token: Any, **_: Any
  ) -> Any:
    condition.realize()
    TensorAssert(condition, text)
    return token[0] if token else condition

  return lowered
