"""Operators that need scratch memory: they do not allocate, so a call gives a workspace as its last
argument, a vector of f64. Each operator compares the length with what it needs.

The formulas are those of the operators in ports/host/ops/linalg and ports/host/ops/spectral, which
compute in f64: a complex number has a `width` of two values. That of `_unique2` is in
ports/host/ops/reduce."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy

# The arguments of a call by name. A tensor is a node of Inductor's, or a tensor of torch's.
Values = Mapping[str, Any]


def length(name: str, values: Values) -> Any:
  """The length of the workspace of a call, an expression; None if it takes none."""
  formula = _FORMULAS.get(name)
  return None if formula is None else formula(values)


def _sizes(tensor: Any) -> list[Any]:
  sizes = tensor.get_size() if hasattr(tensor, "get_size") else tensor.shape
  return [sympy.sympify(size) for size in sizes]


def _matrix(values: Values, name: str) -> tuple[Any, Any, int]:
  """The rows and columns of a batch of matrices, and the width of its elements."""
  tensor = values[name]
  dtype = tensor.get_dtype() if hasattr(tensor, "get_dtype") else tensor.dtype
  rows, columns = _sizes(tensor)[-2:]
  return rows, columns, 2 if dtype.is_complex else 1


def _svd(values: Values) -> Any:
  rows, columns, width = _matrix(values, "A")
  tall, few = sympy.Max(rows, columns), sympy.Min(rows, columns)
  left = tall if values.get("full_matrices", False) else few
  return width * (tall * left + few * few + 3 * few + tall) + 2 * few


def _eigh(values: Values) -> Any:
  rows, _, width = _matrix(values, "A")
  return width * (rows * rows + 2 * rows) + 2 * rows


def _eig(values: Values) -> Any:
  rows, _, width = _matrix(values, "self")
  return width * (2 * rows * rows + 3 * rows) + 8 * rows


def _geqrf(values: Values) -> Any:
  rows, columns, width = _matrix(values, "self")
  return width * (rows * columns + sympy.Min(rows, columns))


def _qr(values: Values) -> Any:
  rows, columns, width = _matrix(values, "A")
  widest = sympy.Max(rows, columns) if values.get("mode") == "complete" else columns
  return width * (rows * widest + sympy.Min(rows, columns))


def _householder_product(values: Values) -> Any:
  rows, columns, width = _matrix(values, "input")
  return width * (rows * columns + columns)


def _ormqr(values: Values) -> Any:
  length, columns, width = _matrix(values, "self")
  rows, others, _ = _matrix(values, "input3")
  return width * (length * columns + rows * others + columns)


def _lu(values: Values) -> Any:
  rows, columns, _ = _matrix(values, "A")
  return sympy.Min(rows, columns)


def _ldl_factor(values: Values) -> Any:
  rows, _, width = _matrix(values, "self")
  return width * rows * rows


def _ldl_solve(values: Values) -> Any:
  rows, _, width = _matrix(values, "LD")
  return width * rows * (rows + _sizes(values["B"])[-1])


def _matrix_exp(values: Values) -> Any:
  rows, _, width = _matrix(values, "self")
  return 3 * width * rows * rows


def _unique(values: Values) -> Any:
  """Two keys for each element, unless elements are so small that few of them are distinct."""
  tensor = values["self"]
  dtype = tensor.get_dtype() if hasattr(tensor, "get_dtype") else tensor.dtype
  return 2 * sympy.Mul(*_sizes(tensor)) if dtype.itemsize >= 4 else None


# Facts of ports/host/ops/spectral/line.h.
_LARGEST_FACTOR, _STACK_POINTS = 64, 1024


def _fourier(values: Values) -> Any:
  """The memory of the line that needs most. Short lines with small factors lie on the stack. A
  transform of several dimensions to real numbers also has a copy of the spectrum."""
  sizes = _sizes(values["self"])
  lines = [sizes[dim] for dim in values["dim"]]
  last = values.get("last_dim_size")
  if last is not None:
    lines[-1] = sympy.sympify(last)
  copies = last is not None and len(lines) > 1
  if not copies and all(_fits_stack(points) for points in lines):
    return None
  longest = sympy.Max(*(_line(points) for points in lines))
  return longest + 2 * sympy.Mul(*sizes) if copies else longest


def _fits_stack(points: Any) -> bool:
  return points.is_Integer and points <= _STACK_POINTS and _has_small_factors(int(points))


def _line(points: Any) -> Any:
  """The memory of a line of points."""
  if not points.is_Integer:
    return 2 * (points + 4 * 3 * points)  # the convolution of a line is shorter than three lines
  n = int(points)
  if _has_small_factors(n):
    return 2 * 3 * n
  length = 1
  while length < 2 * n - 1:
    length *= 2
  if length % 4 == 0 and length // 4 * 3 >= 2 * n - 1:
    length = length // 4 * 3
  return 2 * (n + 4 * length)


def _has_small_factors(n: int) -> bool:
  for p in range(2, _LARGEST_FACTOR + 1):
    while n and n % p == 0:
      n //= p
  return n == 1


_FORMULAS: dict[str, Callable[[Values], Any]] = {
  "aten::_linalg_svd": _svd,
  "aten::_linalg_eigh": _eigh,
  "aten::linalg_eig": _eig,
  "aten::_linalg_eigvals": _eig,
  "aten::geqrf": _geqrf,
  "aten::linalg_qr": _qr,
  "aten::linalg_householder_product": _householder_product,
  "aten::ormqr": _ormqr,
  "aten::linalg_lu": _lu,
  "aten::linalg_ldl_factor_ex": _ldl_factor,
  "aten::linalg_ldl_solve": _ldl_solve,
  "aten::linalg_matrix_exp": _matrix_exp,
  "aten::_fft_c2c": _fourier,
  "aten::_fft_r2c": _fourier,
  "aten::_fft_c2r": _fourier,
  "aten::_unique2": _unique,
  "aten::_unique2:sizes": _unique,
}
