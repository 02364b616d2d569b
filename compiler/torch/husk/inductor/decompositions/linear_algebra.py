"""Linear algebra by the factorizations of a library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch


def table(library: bool) -> dict[Any, Any]:
  """The decompositions by operator. `library`: whether a library factors real matrices."""
  import torch

  aten = torch.ops.aten
  if not library:
    return exponentials()
  return {
    **exponentials(),
    aten._linalg_det.default: _det,
    aten._linalg_slogdet.default: _slogdet,
    aten._linalg_solve_ex.default: _solve_vectors,
  }


def exponentials() -> dict[Any, Any]:
  """The decomposition of exponentials of matrices, of all targets."""
  import torch

  return {torch.ops.aten.linalg_matrix_exp.default: _matrix_exp}


def _matrix_exp(x: torch.Tensor) -> Any:
  """Matrices of f16 and bf16 in f32, for which Husk's library has the operator."""
  import torch

  if x.dtype not in (torch.float16, torch.bfloat16):
    return NotImplemented
  return torch.ops.aten.linalg_matrix_exp.default(x.to(torch.float32)).to(x.dtype)


def _factored(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Any]:
  """The factors, the pivots, the diagonal of the factor U and the sign of the permutation."""
  import torch

  factors, pivots, _ = torch.ops.aten.linalg_lu_factor_ex.default(matrix)
  rows = torch.arange(1, matrix.shape[-1] + 1, dtype=torch.int32, device=matrix.device)
  swaps = (pivots != rows).sum(-1)
  sign = (1 - 2 * (swaps % 2)).to(matrix.dtype)
  return factors, pivots, factors.diagonal(0, -2, -1), sign


def _det(matrix: torch.Tensor) -> Any:
  if matrix.is_complex():
    return NotImplemented
  factors, pivots, diagonal, sign = _factored(matrix)
  return diagonal.prod(-1) * sign, factors, pivots


def _slogdet(matrix: torch.Tensor) -> Any:
  if matrix.is_complex():
    return NotImplemented
  factors, pivots, diagonal, sign = _factored(matrix)
  return diagonal.sign().prod(-1) * sign, diagonal.abs().log().sum(-1), factors, pivots


def _solve_vectors(
  matrix: torch.Tensor, sides: torch.Tensor, *, left: bool = True, check_errors: bool = False
) -> Any:
  """A vector for each matrix, as a matrix of one column."""
  import torch
  from torch._meta_registrations import linalg_solve_is_vector_rhs

  if not linalg_solve_is_vector_rhs(matrix, sides):
    return NotImplemented
  solve = torch.ops.aten._linalg_solve_ex.default
  solution, *others = solve(matrix, sides.unsqueeze(-1), left=left, check_errors=check_errors)
  return solution.squeeze(-1), *others
