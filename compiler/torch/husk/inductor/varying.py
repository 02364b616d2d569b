"""Lowerings and decompositions of operators for sizes that vary.

Inductor's own ask for the number that such a size has in the example, and are right for that number
alone. Where all sizes are numbers, Inductor's own stay."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sympy

from . import empty, shape_functions, torch_compat
from .lines import InductorObject
from .replace import replaced, replaced_entries

Lowering = Callable[..., Any]


def lowerings(others: dict[Any, Lowering]) -> dict[Any, Lowering]:
  """The lowerings by operator, and `others`, which stay where all sizes are numbers."""
  import torch
  from torch._inductor import lowering

  aten, table = torch.ops.aten, {**lowering.lowerings, **others}
  called = {
    op: lowering.fallback_handler(op, add_to_fallback_set=False)
    for op in (
      aten._adaptive_avg_pool2d.default,
      aten.adaptive_max_pool2d.default,
      aten.convolution.default,
    )
  }
  own: dict[Any, tuple[Callable[..., bool], Lowering]] = {
    **{op: (_varies_inside(2), function) for op, function in list(called.items())[:2]},
    aten.convolution.default: (_varies_as_convolution, called[aten.convolution.default]),
    aten.diagonal.default: (_varies, _diagonal),
    aten.glu.default: (_varies, _glu),
    aten.var_mean.correction: (_varies, _var_mean(table[aten.var_mean.correction])),
  }
  for rank in (1, 2, 3):
    for name, exact in (("upsample_nearest", False), ("_upsample_nearest_exact", True)):
      op = getattr(aten, f"{name}{rank}d").default
      own[op] = (_varies_inside(rank), _nearest(exact))
  return {**others, **{op: _unless_static(table[op], *each) for op, each in own.items()}}


def _unless_static(
  otherwise: Lowering, varies: Callable[..., bool], function: Lowering
) -> Lowering:
  def lowered(*args: Any, **kwargs: Any) -> Any:
    return (function if varies(*args, **kwargs) else otherwise)(*args, **kwargs)

  return lowered


def _is_number(size: Any) -> bool:
  return isinstance(size, (int, sympy.Integer))


def _varies(x: InductorObject, *_: Any, **__: Any) -> bool:
  return not all(map(_is_number, x.get_size()))


def _varies_inside(rank: int) -> Callable[..., bool]:
  """Whether one of the last `rank` sizes of a tensor varies, or one of those of the result."""

  def varies(x: InductorObject, output_size: Sequence[Any], *_: Any, **__: Any) -> bool:
    return not all(map(_is_number, (*x.get_size()[-rank:], *output_size)))

  return varies


def _varies_as_convolution(
  x: InductorObject,
  weight: InductorObject,
  bias: InductorObject | None,
  stride: Sequence[Any],
  padding: Sequence[Any],
  dilation: Sequence[Any],
  transposed: bool,
  output_padding: Sequence[Any],
  groups: Any,
) -> bool:
  return not all(
    map(_is_number, (*weight.get_size(), *stride, *padding, *dilation, *output_padding, groups))
  )


def _diagonal(x: InductorObject, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
  """A diagonal of matrices that may have more rows than columns or fewer."""
  from torch._inductor import ir
  from torch.utils._sympy.functions import Max, Min

  sizes = list(x.get_size())
  rows, columns = dim1 % len(sizes), dim2 % len(sizes)
  below, right = max(-offset, 0), max(offset, 0)
  length = Max(0, Min(sizes[rows] - below, sizes[columns] - right))
  others = [dim for dim in range(len(sizes)) if dim not in (rows, columns)]

  def place(index: Sequence[Any]) -> list[Any]:
    found = dict(zip(others, index))
    found[rows], found[columns] = index[-1] + below, index[-1] + right
    return [found[dim] for dim in range(len(sizes))]

  view: Any = ir
  return view.TensorBox(
    view.GenericView.create(x, [*(sizes[dim] for dim in others), length], place)
  )


def _glu(x: InductorObject, dim: int = -1) -> Any:
  from torch._inductor import lowering
  from torch.utils._sympy.functions import FloorDiv

  inductor: Any = lowering
  dim = dim % len(x.get_size())
  half: Any = FloorDiv(x.get_size()[dim], 2)
  values = inductor.slice_(x, dim, 0, half, clamp=False)
  gates = inductor.slice_(x, dim, half, 2 * half, clamp=False)
  return inductor.mul(values, inductor.sigmoid(gates))


def _var_mean(otherwise: Lowering) -> Lowering:
  """A variance and a mean, which is NaN if the data decides or the export allows that there is no
  element. Welford's method, which torch uses, would give 0."""

  def lowered(x: InductorObject, axis: Any = None, **named: Any) -> Any:
    import torch
    from torch._inductor import ir
    from torch._inductor.virtualized import V, ops

    sizes = x.get_size()
    dims = range(len(sizes)) if not axis else [dim % len(sizes) for dim in axis]
    shapes = V.graph.sizevars.shape_env
    left = [sizes[dim] for dim in dims if empty.may_be_zero(shapes, sympy.sympify(sizes[dim]))]
    variance, mean = otherwise(x, axis, **named)
    if not left:
      return variance, mean
    load = mean.make_loader()

    def value(index: Sequence[Any]) -> Any:
      count = ops.index_expr(sympy.Mul(*left), torch.int64)
      is_empty = ops.eq(count, ops.constant(0, torch.int64))
      return ops.where(is_empty, ops.constant(float("nan"), mean.get_dtype()), load(index))

    inductor: Any = ir
    return variance, inductor.Pointwise.create(
      device=mean.get_device(),
      dtype=mean.get_dtype(),
      inner_fn=value,
      ranges=list(mean.get_size()),
    )

  return lowered


def _nearest(exact: bool) -> Lowering:
  """The nearest elements. As in eager mode, steps are computed in float32, and an index that was
  rounded up to the size is the last one."""

  def lowered(
    x: InductorObject, output_size: Sequence[Any], *scales: float | None, **named: float | None
  ) -> Any:
    import torch
    from torch._inductor import ir
    from torch._inductor.virtualized import ops

    rank = len(output_size)
    factors = [*scales, *named.values()] or [None] * rank
    x.realize_hint()
    load = x.make_loader()
    (*batch,) = x.get_size()[:-rank]
    inputs = x.get_size()[-rank:]

    def step(size: Any, result: Any, factor: float | None) -> Any:
      if factor is not None:
        return ops.constant(1.0 / factor, torch.float32)
      return ops.truediv(ops.index_expr(size, torch.float32), ops.index_expr(result, torch.float32))

    def place(index: Any, size: Any, result: Any, factor: float | None) -> Any:
      at = ops.index_expr(index, torch.float32)
      if exact:
        at = ops.add(at, ops.constant(0.5, torch.float32))
      at = ops.to_dtype(ops.mul(at, step(size, result, factor)), torch.int64)
      at = ops.minimum(at, ops.index_expr(size - 1, torch.int64))
      return ops.indirect_indexing(at, size, check=False, wrap_neg=False)

    def value(index: Sequence[Any]) -> Any:
      places = map(place, index[-rank:], inputs, output_size, factors)
      return load([*index[:-rank], *places])

    inductor: Any = ir
    return inductor.Pointwise.create(
      device=x.get_device(),
      dtype=x.get_dtype(),
      inner_fn=value,
      ranges=[*batch, *output_size],
    )

  return lowered


@contextlib.contextmanager
def smaller_and_larger() -> Iterator[None]:
  """While open, the smaller and the larger one of two sizes are expressions, where torch takes the
  one that is smaller or larger in the example: the bounds of a slice, the rank of a matrix."""
  from torch._inductor.sizevars import SizeVarAllocator
  from torch.utils._sympy.functions import Max, Min

  def choosing(function: Any, is_first: Callable[[Any, Any, Any], bool]) -> Callable[..., Any]:
    def choose(self: Any, left: Any, right: Any) -> Any:
      left, right = (
        sympy.sympify(self.remove_precomputed_replacements(sympy.sympify(each)))
        for each in (left, right)
      )
      if left == right or is_first(self, left, right):
        return left
      return right if is_first(self, right, left) else function(left, right)

    return choose

  allocator: Any = SizeVarAllocator
  smaller = choosing(Min, lambda self, left, right: self.statically_known_leq(left, right))
  larger = choosing(Max, lambda self, left, right: self.statically_known_leq(right, left))
  with replaced(
    shape_functions.smaller_sizes(),
    (allocator, "evaluate_min", smaller),
    (allocator, "evaluate_max", larger),
  ):
    yield


@contextlib.contextmanager
def pools() -> Iterator[None]:
  """While open, the number of windows of a pool that rounds up is that of all sizes. Inductor's own
  function takes a pool for one that rounds down if that makes no difference for the example, and
  asks whether the last window begins inside."""
  from torch._inductor import lowering
  from torch.utils._sympy.functions import FloorDiv, Min

  inductor: Any = lowering
  before = inductor.pooling_size

  def pooling_size(
    x: Any,
    i: int,
    kernel_size: Sequence[Any],
    stride: Sequence[Any],
    padding: Sequence[Any],
    ceil_mode: bool,
    *,
    dilation: Sequence[Any] | None = None,
  ) -> tuple[Any, bool]:
    if not ceil_mode or _is_number(x):
      return before(x, i, kernel_size, stride, padding, ceil_mode, dilation=dilation)
    span = x + 2 * padding[i] - (dilation[i] if dilation else 1) * (kernel_size[i] - 1)
    before_last: Any = FloorDiv(x + padding[i] - 1, stride[i])
    return Min(FloorDiv(span + 2 * (stride[i] - 1), stride[i]), before_last + 1), True

  with replaced((inductor, "pooling_size", pooling_size)):
    yield


@contextlib.contextmanager
def views() -> Iterator[None]:
  """While open, a view has the sizes that it is given. torch's own function builds them of the
  tensor's, and asks on its way which of these divide which in the example."""
  import torch
  from torch._subclasses import fake_impls

  module: Any = fake_impls
  table: dict[Any, Any] = module.op_implementations_dict
  before = {
    op: table[op] for op in (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)
  }

  def view(mode: Any, op: Any, x: torch.Tensor, *shape: Any) -> Any:
    (sizes,) = shape if isinstance(shape[0], (tuple, list)) else (shape,)
    if any(isinstance(size, torch.SymInt) for size in (*x.shape, *sizes)):
      try:
        return module._view_unbacked_meta(x, sizes)
      except ValueError:  # the strides of the tensor leave it open whether it can be viewed so
        pass
    return before[op](mode, op, x, *shape)

  views = dict.fromkeys(before, view)
  with replaced_entries("torch._subclasses.fake_impls.op_implementations_dict", views):
    yield


@contextlib.contextmanager
def decompositions() -> Iterator[None]:
  """While open, no decomposition for hosts depends on the number that a size has in the example.
  CUDA targets have decompositions of Husk's (decompositions/pool.py)."""
  import torch
  from torch._inductor import decomposition

  op = torch.ops.aten.adaptive_max_pool2d.default
  before = decomposition.decompositions[op]

  def adaptive_max_pool(x: torch.Tensor, output_size: Sequence[int]) -> Any:
    varies = any(isinstance(size, torch.SymInt) for size in (*x.shape[-2:], *output_size))
    if varies and x.device.type == "cpu":
      return NotImplemented
    return before(x, output_size)

  with torch_compat.decomposed({op: adaptive_max_pool}):
    yield
