"""Linear algebra of the host, against PyTorch."""

import pytest
import torch
from host_ops import (
  INVALID_ARGUMENT,
  INVALID_INPUT,
  UNSUPPORTED,
  close,
  layouts,
  like,
  refused,
)

ATEN = torch.ops.aten
DTYPES = {torch.float32: 3e-4, torch.float64: 1e-10}


def random(shape, dtype, seed=0):
  return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(
    dtype
  )


def check(pack, name, expected, *args, tolerance, results=9):
  """Compares the first results. PyTorch factors the transpose of a contiguous matrix, so its LU
  differs."""
  expected = [expected] if isinstance(expected, torch.Tensor) else list(expected)
  got = [like(result) for result in expected]
  pack("aten::" + name, *args, *got)
  for result, right in list(zip(got, expected))[:results]:
    close(
      result,
      right,
      tolerance if right.is_floating_point() else 0,
      tolerance if right.is_floating_point() else 0,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (3, 5, 5), (2, 2, 12, 12), (0, 0), (0, 3, 3)])
def test_square(pack, dtype, shape):
  tolerance = DTYPES[dtype]
  for a in layouts(random(shape, dtype)):
    n = shape[-1]
    check(pack, "_linalg_det", ATEN._linalg_det(a.contiguous()), a, tolerance=tolerance, results=1)
    check(
      pack,
      "_linalg_slogdet",
      ATEN._linalg_slogdet(a.contiguous()),
      a,
      tolerance=tolerance,
      results=2,
    )
    check(pack, "linalg_inv_ex", ATEN.linalg_inv_ex(a), a, False, tolerance=tolerance * 10)
    check(
      pack, "linalg_lu_factor_ex", ATEN.linalg_lu_factor_ex(a), a, True, False, tolerance=tolerance
    )
    for left in (True, False):
      b = random((*shape[:-2], n, 3) if left else (*shape[:-2], 3, n), dtype, 1)
      check(
        pack,
        "_linalg_solve_ex",
        ATEN._linalg_solve_ex(a.contiguous(), b, left=left),
        a,
        b,
        left,
        False,
        tolerance=tolerance * 10,
        results=1,
      )
      for upper in (True, False):
        for unit in (True, False):
          triangle = a / 4 + 3 * torch.eye(n, dtype=dtype)
          expected = ATEN.linalg_solve_triangular(
            triangle.triu() if upper else triangle.tril(),
            b,
            upper=upper,
            left=left,
            unitriangular=unit,
          )
          check(
            pack,
            "linalg_solve_triangular",
            expected,
            triangle,
            b,
            upper,
            left,
            unit,
            tolerance=tolerance,
          )
    if len(shape) > 2:
      b = random(shape[:-1], dtype, 1)
      check(
        pack,
        "_linalg_solve_ex",
        ATEN._linalg_solve_ex(a.contiguous(), b),
        a,
        b,
        True,
        False,
        tolerance=tolerance * 10,
        results=1,
      )
    for upper in (True, False):
      definite = a @ a.mT + torch.eye(n, dtype=dtype)
      check(
        pack,
        "linalg_cholesky_ex",
        ATEN.linalg_cholesky_ex(definite, upper=upper),
        definite,
        upper,
        False,
        tolerance=tolerance,
      )


@pytest.mark.parametrize("dtype", DTYPES)
def test_factors(pack, dtype):
  for shape in ((3, 5), (5, 3), (2, 6, 4)):
    for a in layouts(random(shape, dtype)):
      check(
        pack,
        "linalg_lu_factor_ex",
        ATEN.linalg_lu_factor_ex(a),
        a,
        True,
        False,
        tolerance=DTYPES[dtype],
      )


def test_refuses(pack):
  singular = torch.ones(3, 3)
  info, pivots = torch.zeros((), dtype=torch.int32), torch.zeros(3, dtype=torch.int32)
  pack("aten::linalg_inv_ex", singular, False, singular.clone(), info)
  assert info.item() > 0
  pack("aten::linalg_cholesky_ex", -singular, False, False, singular.clone(), info)
  assert info.item() == 1
  refused(
    pack, INVALID_INPUT, "singular", "aten::linalg_inv_ex", singular, True, singular.clone(), info
  )
  refused(
    pack,
    INVALID_INPUT,
    "not positive definite",
    "aten::linalg_cholesky_ex",
    -singular,
    False,
    True,
    singular.clone(),
    info,
  )
  refused(
    pack,
    INVALID_INPUT,
    "torch.linalg.inv failed",
    "aten::_linalg_check_errors",
    info,
    "torch.linalg.inv",
    True,
  )
  pack("aten::_linalg_check_errors", torch.zeros((), dtype=torch.int32), "torch.linalg.inv", True)
  refused(
    pack,
    INVALID_ARGUMENT,
    "square",
    "aten::_linalg_det",
    torch.ones(3, 4),
    torch.zeros(()),
    torch.ones(3, 4),
    pivots,
  )
  refused(
    pack,
    UNSUPPORTED,
    "dtype bf16",
    "aten::_linalg_det",
    torch.ones(3, 3).bfloat16(),
    torch.zeros(()).bfloat16(),
    torch.ones(3, 3).bfloat16(),
    pivots,
  )
