"""The operators on complex tensors in terms of the real and imaginary parts.

An entry of `table` is called with the overload and its arguments, in which a complex tensor is a
`Parts`. It returns the results, or NotImplemented if it does not cover the arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from . import cufft, fourier, functions
from .parts import Parts, component, stacked, unstacked

if TYPE_CHECKING:
  import torch

Entry = Callable[..., Any]

# Parts of the names of operators that have complex results, or compute with complex numbers, though
# no argument is complex.
MAKING_COMPLEX = (
  "fft",
  "stft",
  "aten::complex",
  "aten::polar",
  "aten::view_as_complex",
)

# Operators that move elements, or that are linear with real factors: they are called for each part.
# The numbers are the positions of the arguments that are data.
_OF_EACH_PART: dict[tuple[int, ...], str] = {
  (0,): """view _unsafe_view reshape _reshape_alias expand permute transpose t unsqueeze squeeze
    slice select split split_with_sizes unbind chunk diagonal unfold flatten movedim narrow
    view_copy expand_copy permute_copy transpose_copy t_copy unsqueeze_copy squeeze_copy slice_copy
    select_copy split_copy split_with_sizes_copy unbind_copy diagonal_copy unfold_copy alias_copy
    neg clone contiguous detach alias lift_fresh lift_fresh_copy flip roll rot90 repeat
    index_select gather index tril triu diag_embed trace sum nansum mean cumsum
    zeros_like empty_like new_zeros new_empty new_empty_strided uniform take take_along_dim diff
    masked_select _neg_view""",
  (0, 1): "slice_scatter select_scatter diagonal_scatter copy",
  (0, 2): """index_put _unsafe_index_put masked_scatter masked_fill put
    constant_pad_nd""",
  (0, 3): "scatter scatter_add scatter_reduce index_add index_copy index_fill",
  (1, 2): "where",
}

_SIZES = "sym_size sym_stride sym_numel sym_storage_offset size stride numel"
_LISTS = "cat stack hstack vstack concat"

# Real functions of a complex tensor, and complex functions of complex tensors and numbers.
_FUNCTIONS = """add sub rsub mul div true_divide reciprocal square pow abs angle sgn exp exp2
  expm1 log log2 log10 log1p sqrt rsqrt sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh
  sigmoid eq ne isnan isinf isfinite isreal logical_not logical_and logical_or logical_xor
  _conj _conj_physical conj conj_physical resolve_conj resolve_neg real imag""".split()


def table(constant: fourier.Constant, library: bool = False) -> dict[str, Entry]:
  """The entries by the names of operators, without those of overloads."""
  entries: dict[str, Entry] = {}
  for places, names in _OF_EACH_PART.items():
    for name in names.split():
      entries[name] = functools.partial(_of_each_part, places)
  for name in _SIZES.split():
    entries[name] = lambda op, x, *args: op(x.re, *args)
  for name in _LISTS.split():
    entries[name] = _of_lists
  for name in _FUNCTIONS:
    entries[name] = functools.partial(_elementwise, getattr(functions, name.lstrip("_") + "_"))
  transforms = (cufft.LibraryFourier if library else fourier.Fourier)(constant)
  entries |= {
    "_fft_c2c": lambda op, *args: fourier.transform(transforms, *args),
    "_fft_r2c": lambda op, *args: fourier.transform_real(transforms, *args),
    "_fft_c2r": lambda op, *args: fourier.transform_to_real(transforms, *args),
    "view_as_real": lambda op, x: stacked(x),
    "view_as_complex": lambda op, x: unstacked(x),
    "complex": _complex,
    "polar": _polar,
    "_to_copy": _to_copy,
    "mm": _product,
    "bmm": _product,
    "dot": lambda op, x, y: functions.sum_(functions.mul_(*_promoted(x, y))),
    "vdot": lambda op, x, y: functions.sum_(functions.mul_(*_promoted(functions.conj_(x), y))),
    "any": lambda op, x, *args, **kwargs: op(functions.is_nonzero(x), *args, **kwargs),
    "all": lambda op, x, *args, **kwargs: op(functions.is_nonzero(x), *args, **kwargs),
    "nonzero": lambda op, x: op(functions.is_nonzero(x)),
    "prod": _prod,
    "var_mean": _var_mean,
    "addbmm": _addbmm,
    "rand": _rand,
    "rand_like": _rand_like,
    "randn": _randn,
    "randn_like": _randn_like,
    "normal_functional": _normal,
    "var": lambda op, x, *args, **kwargs: op(x.re, *args, **kwargs) + op(x.im, *args, **kwargs),
    "linalg_vector_norm": _norm,
    "full": _full,
    "full_like": _full_like,
    "ones_like": lambda op, x, **kwargs: _full_like(op, x, 1.0, **kwargs),
    "scalar_tensor": lambda op, value, **kwargs: _full(op, [], value, **kwargs),
    "zeros": lambda op, size, **kwargs: _full(op, size, 0.0, **kwargs),
    "ones": lambda op, size, **kwargs: _full(op, size, 1.0, **kwargs),
    "empty": lambda op, size, **kwargs: _full(op, size, 0.0, **kwargs),
  }
  return {f"aten::{name}": entry for name, entry in entries.items()}


def _real_dtype(value: Any) -> Any:
  """A dtype that is an argument, as that of a part."""
  import torch

  return component(value) if isinstance(value, torch.dtype) else value


def _part(value: Any, imaginary: bool) -> Any:
  """One part of an argument that is data. That of a real tensor or number is zero."""
  import torch

  if isinstance(value, Parts):
    return value.im if imaginary else value.re
  if isinstance(value, complex):
    return value.imag if imaginary else value.real
  if not imaginary:
    return value
  return torch.zeros_like(value) if isinstance(value, torch.Tensor) else 0.0


def _with_dtype(value: Any, dtype: torch.dtype) -> Any:
  """A value that is data, with a dtype of its parts."""
  import torch

  if isinstance(value, Parts):
    return Parts(value.re.to(dtype), value.im.to(dtype))
  return value.to(dtype) if isinstance(value, torch.Tensor) else value


def _widest(values: Sequence[Any]) -> Any:
  """The dtype of the parts of a complex result of these values."""
  import torch

  dtypes = [value.re.dtype if isinstance(value, Parts) else value.dtype for value in values]
  return functools.reduce(torch.promote_types, dtypes)


def _of_each_part(places: Sequence[int], op: Any, *args: Any, **kwargs: Any) -> Any:
  import torch

  for argument in op._schema.arguments[len(args) :]:
    if argument.kwarg_only or argument.name not in kwargs:
      break
    args = (*args, kwargs.pop(argument.name))
  kept = kwargs.get("dtype")
  kwargs = {name: _real_dtype(value) for name, value in kwargs.items()}
  data = [args[place] for place in places if place < len(args)]
  tensors = [one for one in data if isinstance(one, (Parts, torch.Tensor))]
  if not any(isinstance(one, (Parts, complex)) for one in data) and kept is None:
    return NotImplemented
  if isinstance(kwargs.get("alpha"), complex) or _is_product(op, args, kwargs):
    return NotImplemented
  wide = None
  if len(tensors) > 1:  # what is put into a tensor gets the dtype of that
    is_put = places[0] == 0 and isinstance(data[0], Parts)
    wide = data[0].re.dtype if is_put else _widest(tensors)
  if _is_copy(op) and isinstance(data[0], torch.Tensor):  # into real numbers
    return op(data[0], _part(data[1], False), *args[2:], **kwargs)

  def call(imaginary: bool) -> Any:
    part_args = list(args)
    for place in places:
      if place < len(part_args):
        value = part_args[place] if wide is None else _with_dtype(part_args[place], wide)
        part_args[place] = _part(value, imaginary)
    return op(*part_args, **kwargs)

  re = call(False)
  if kept is not None and not kept.is_complex:
    return re
  return _zipped(re, call(True))


def _is_product(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
  """Whether elements are multiplied with others. The parts of a product are no products of
  parts."""
  names = [argument.name for argument in op._schema.arguments]
  values = {**dict(zip(names, args, strict=False)), **kwargs}
  return values.get("reduce") in ("multiply", "prod")


def _is_copy(op: Any) -> bool:
  return bool(op.name() == "aten::copy")


def _zipped(re: Any, im: Any) -> Any:
  if isinstance(re, (list, tuple)):
    return type(re)(Parts(*pair) for pair in zip(re, im, strict=True))
  return Parts(re, im)


def _of_lists(op: Any, values: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
  wide = _widest(values)
  values = [_with_dtype(value, wide) for value in values]
  return Parts(
    *(op([_part(one, imaginary) for one in values], *args, **kwargs) for imaginary in (False, True))
  )


def _promoted(*values: Any) -> list[Any]:
  """Values with the dtype that torch computes a function of them in. A number stays one."""
  dtype = _dtype_of_function(values)
  return [
    _number(value) if isinstance(value, complex) else _with_dtype(value, dtype) for value in values
  ]


def _number(value: Any) -> Any:
  """A number as `functions` gets it."""
  if not isinstance(value, complex):
    return value
  return Parts(value.real, value.imag) if value.imag else value.real


def _dtype_of_function(values: Sequence[Any]) -> torch.dtype:
  """The dtype of the parts in which torch computes a function of values. Tensors without dimensions
  count if no other tensor has floating point."""
  import torch

  found: list[torch.dtype] = []
  parts = [value.re if isinstance(value, Parts) else value for value in values]
  tensors = [part for part in parts if isinstance(part, torch.Tensor)]
  for group in ([one for one in tensors if one.dim()], [one for one in tensors if not one.dim()]):
    if not any(dtype.is_floating_point for dtype in found):
      found += [one.dtype for one in group]
  dtype = functools.reduce(torch.promote_types, found)
  return dtype if dtype.is_floating_point else torch.get_default_dtype()


def _elementwise(function: Entry, op: Any, *values: Any, alpha: Any = 1, **kwargs: Any) -> Any:
  if kwargs.get("rounding_mode") is not None:
    return NotImplemented
  names = [argument.name for argument in op._schema.arguments]
  if "alpha" in names[: len(values)]:
    values, alpha = values[:-1], values[-1]
  args = _promoted(*values)
  if alpha != 1:
    # `rsub` takes the first argument away from the second.
    scaled = 0 if "rsub" in op.name() else 1
    args[scaled] = functions.mul_(args[scaled], _number(alpha))
  return function(*args)


def _complex(op: Any, re: torch.Tensor, im: torch.Tensor) -> Parts:
  import torch

  return Parts(*torch.broadcast_tensors(re, im))


def _polar(op: Any, size: torch.Tensor, angle: torch.Tensor) -> Parts:
  return Parts(size * angle.cos(), size * angle.sin())


def _to_copy(op: Any, x: Any, dtype: Any = None, **kwargs: Any) -> Any:
  import torch

  if dtype is not None and not dtype.is_complex:
    if dtype is torch.bool:
      return functions.is_nonzero(x)
    return op(_part(x, False), dtype=dtype, **kwargs)
  kind = _real_dtype(dtype)
  re = op(_part(x, False), dtype=kind, **kwargs)
  return Parts(re, op(x.im, dtype=kind, **kwargs) if isinstance(x, Parts) else torch.zeros_like(re))


def _product(op: Any, x: Parts, y: Parts) -> Parts:
  """A product of matrices as one of real matrices."""
  import torch

  rows = torch.cat([x.re, x.im], -1)
  columns = torch.cat([torch.cat([y.re, y.im], -1), torch.cat([-y.im, y.re], -1)], -2)
  return Parts(*op(rows, columns).chunk(2, -1))


def _addbmm(op: Any, bias: Any, x: Parts, y: Parts, *, beta: Any = 1, alpha: Any = 1) -> Any:
  """The sum of products, as one product."""
  import torch

  def joined(part: torch.Tensor) -> torch.Tensor:
    return part.transpose(0, 1).flatten(1)

  rows = Parts(joined(x.re), joined(x.im))
  columns = Parts(y.re.flatten(0, 1), y.im.flatten(0, 1))
  product = functions.mul_(_product(torch.ops.aten.mm.default, rows, columns), _number(alpha))
  return product if beta == 0 else functions.add_(product, functions.mul_(bias, _number(beta)))


def _var_mean(op: Any, x: Parts, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, Parts]:
  (re, re_mean), (im, im_mean) = op(x.re, *args, **kwargs), op(x.im, *args, **kwargs)
  return re + im, Parts(re_mean, im_mean)


def _rand(op: Any, size: Sequence[Any], dtype: Any = None, **kwargs: Any) -> Parts:
  """Numbers whose parts are uniform."""
  import torch

  return Parts(*(torch.rand(size, dtype=_real_dtype(dtype), **kwargs) for _ in range(2)))


def _rand_like(op: Any, x: Any, dtype: Any = None, **kwargs: Any) -> Any:
  if dtype is not None and not dtype.is_complex:
    return op(_part(x, False), dtype=dtype, **kwargs)
  return Parts(*(op(_part(x, False), dtype=_real_dtype(dtype), **kwargs) for _ in range(2)))


def _normal(op: Any, x: Parts, mean: float = 0, std: float = 1, *, generator: Any = None) -> Parts:
  """Normal numbers, whose parts each have the mean and half of the variance, as in eager mode."""
  return Parts(op(x.re, mean, std * 0.5**0.5), op(x.im, mean, std * 0.5**0.5))


def _randn(op: Any, size: Sequence[Any], dtype: Any = None, **kwargs: Any) -> Parts:
  """Normal numbers, whose parts have half of the variance."""
  import torch

  kind = _real_dtype(dtype)
  re, im = (torch.randn(size, dtype=kind, **kwargs) * 0.5**0.5 for _ in range(2))
  return Parts(re, im)


def _randn_like(op: Any, x: Any, dtype: Any = None, **kwargs: Any) -> Any:
  if dtype is not None and not dtype.is_complex:
    return op(x.re, dtype=dtype, **kwargs)
  re, im = (op(x.re, dtype=_real_dtype(dtype), **kwargs) * 0.5**0.5 for _ in range(2))
  return Parts(re, im)


def _prod(op: Any, x: Any, dim: int | None = None, keepdim: bool = False, dtype: Any = None) -> Any:
  """A product of elements, by halves."""
  import torch

  if not isinstance(x, Parts) or dtype not in (None, x.re.dtype.to_complex()):
    return NotImplemented
  if x.re.dim() == 0:  # one number, of which dimension 0 may be asked for
    return x
  if dim is None:
    x, dim, keepdim = Parts(x.re.flatten(), x.im.flatten()), 0, False
  x = Parts(x.re.movedim(dim, -1), x.im.movedim(dim, -1))
  size = x.re.shape[-1]
  if not isinstance(size, int):
    return NotImplemented
  while size > 1:
    half = size // 2
    product = Parts(x.re[..., :half], x.im[..., :half]) * Parts(
      x.re[..., half : 2 * half], x.im[..., half : 2 * half]
    )
    if size % 2:
      rest = Parts(x.re[..., -1:], x.im[..., -1:])
      product = Parts(torch.cat([product.re, rest.re], -1), torch.cat([product.im, rest.im], -1))
    x, size = product, half + size % 2
  if size == 0:
    shape = (*x.re.shape[:-1], 1)
    x = Parts(x.re.new_ones(shape), x.im.new_zeros(shape))
  if keepdim:
    return Parts(x.re.movedim(-1, dim), x.im.movedim(-1, dim))
  return Parts(x.re.squeeze(-1), x.im.squeeze(-1))


def _norm(op: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
  kwargs = {name: _real_dtype(value) for name, value in kwargs.items()}
  return op(functions.abs_(x), *args, **kwargs)


def _full(op: Any, size: Sequence[Any], value: Any, dtype: Any = None, **kwargs: Any) -> Any:
  import torch

  kwargs.pop("memory_format", None)
  if dtype is not None and not dtype.is_complex:
    return NotImplemented
  dtype = component(dtype or torch.get_default_dtype())
  return Parts(
    *(
      torch.full(size, _part(value, imaginary), dtype=dtype, **kwargs)
      for imaginary in (False, True)
    )
  )


def _full_like(op: Any, x: Any, value: Any, dtype: Any = None, **kwargs: Any) -> Any:
  import torch

  kwargs = {name: kept for name, kept in kwargs.items() if kept is not None}
  like = _part(x, False)
  if dtype is not None and not dtype.is_complex:
    return torch.full_like(like, value, dtype=dtype, **kwargs)
  kind = _real_dtype(dtype)
  return Parts(
    *(
      torch.full_like(like, _part(value, imaginary), dtype=kind, **kwargs)
      for imaginary in (False, True)
    )
  )
