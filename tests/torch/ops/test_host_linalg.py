"""Factorizations, eigenvalues and systems of the host: against what they mean (products of factors
give the matrix) and against PyTorch, where PyTorch's results are determined."""

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
from husk.lower import workspaces

ATEN = torch.ops.aten
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
SHAPES = [(1, 1), (2, 2), (3, 3), (5, 3), (3, 5), (20, 20), (17, 40), (40, 17), (30, 1), (1, 30)]
SQUARES = [1, 2, 3, 4, 5, 8, 20, 50]


def random(*shape, dtype=torch.float64, seed=0):
  wide = torch.complex128 if dtype.is_complex else torch.float64
  return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=wide).to(dtype)


def tolerance(dtype):
  return 1e-11 if dtype in (torch.float64, torch.complex128) else 1e-4


def near(got, expected, factor=1.0):
  """Compares with a tolerance for the dtype and the size of the values."""
  scale = max(1.0, expected.abs().max().item()) if expected.numel() else 1.0
  some = tolerance(expected.dtype) * factor
  close(got, expected, some, some * scale)


def called(pack, name, *args, outs=None):
  """Calls an operator with a workspace of the length that the exporter computes, and returns its
  outputs, which have the layouts of PyTorch's."""
  op = getattr(ATEN, name)
  outs = op(*args) if outs is None else outs
  outs = [like(out) for out in (outs if isinstance(outs, (tuple, list)) else (outs,))]
  schema = op.default._schema.arguments
  defaults = [argument.default_value for argument in schema[len(args) :]]
  values = {argument.name: value for argument, value in zip(schema, [*args, *defaults])}
  length = workspaces.length(f"aten::{name}", values)
  scratch = [] if length is None else [torch.full((int(length),), -7.0, dtype=torch.float64)]
  pack(f"aten::{name}", *args, *defaults, *outs, *scratch)
  return outs[0] if len(outs) == 1 else outs


def orthonormal(q):
  near(q.mH @ q, torch.eye(q.shape[-1], dtype=q.dtype).expand(*q.shape[:-2], -1, -1), 10)


@pytest.mark.parametrize("dtype", DTYPES)
def test_svd(pack, dtype):
  for shape in SHAPES:
    for full in (False, True):
      for a in layouts(random(2, *shape, dtype=dtype)):
        u, s, vh = called(pack, "_linalg_svd", a, full, True)
        k = min(shape)
        near(u[..., :k] * s[..., None, :] @ vh[..., :k, :], a, 10)
        orthonormal(u)
        orthonormal(vh.mH)
        near(s, torch.linalg.svdvals(a))
        near(called(pack, "_linalg_svd", a, full, False)[1], s)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_svd_has_the_signs_of_torch(pack, dtype):
  for shape in [(2, 2), (3, 3), (8, 8), (20, 20), (20, 16), (16, 20)]:
    for seed in range(4):
      a = random(*shape, dtype=dtype, seed=seed)
      for got, expected in zip(
        called(pack, "_linalg_svd", a, False, True), torch.linalg.svd(a, full_matrices=False)
      ):
        near(got, expected, 100)


@pytest.mark.parametrize("dtype", DTYPES)
def test_svd_of_special_matrices(pack, dtype):
  ones = torch.ones(6, 4, dtype=dtype)
  graded = random(8, 8, dtype=dtype) * 10.0 ** -torch.arange(8).to(dtype)
  for a in (ones, torch.zeros(5, 3, dtype=dtype), torch.eye(7, dtype=dtype), graded, ones * 0):
    u, s, vh = called(pack, "_linalg_svd", a, True, True)
    k = min(a.shape)
    near(u[:, :k] * s @ vh[:k], a, 10)
    orthonormal(u)
    orthonormal(vh.mH)
    near(s, torch.linalg.svdvals(a))
  for scale in (1e-300, 1e300) if dtype.to_real() == torch.float64 else (1e-38, 1e37):
    s = called(pack, "_linalg_svd", random(4, 4, dtype=dtype) * scale, True, True)[1]
    near(s / scale, torch.linalg.svdvals(random(4, 4, dtype=dtype)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_eigh(pack, dtype):
  for n in SQUARES:
    whole = random(2, n, n, dtype=dtype)
    for uplo in ("L", "U"):
      half = whole.tril() if uplo == "L" else whole.triu()
      other = half.tril(-1) if uplo == "L" else half.triu(1)
      a = half + other.mH
      a.diagonal(dim1=-2, dim2=-1).imag.zero_() if dtype.is_complex else None
      for one in layouts(whole):  # the other triangle is not read
        values, vectors = called(pack, "_linalg_eigh", one, uplo, True)
        near(vectors * values[..., None, :].to(dtype) @ vectors.mH, a, 10)
        orthonormal(vectors)
        near(values, torch.linalg.eigvalsh(a))
        near(called(pack, "_linalg_eigh", one, uplo, False)[0], values)
  for a in (
    torch.ones(9, 9, dtype=dtype),
    torch.zeros(4, 4, dtype=dtype),
    torch.eye(6, dtype=dtype),
  ):
    values, vectors = called(pack, "_linalg_eigh", a, "L", True)
    near(vectors * values.to(dtype) @ vectors.mH, a, 10)
    orthonormal(vectors)


def paired(got, expected):
  """For each expected eigenvalue the index of the nearest one of `got` that is not taken yet."""
  left, order = list(range(len(got))), []
  for value in expected:
    order.append(min(left, key=lambda index: abs(got[index] - value)))
    left.remove(order[-1])
  return order


@pytest.mark.parametrize("dtype", DTYPES)
def test_eig(pack, dtype):
  for n in SQUARES:
    for a in layouts(random(2, n, n, dtype=dtype)):
      values, vectors = called(pack, "linalg_eig", a)
      wide = a.to(vectors.dtype)
      near(wide @ vectors, vectors * values[..., None, :], 100)
      near(torch.linalg.vector_norm(vectors, dim=-2), torch.ones(2, n, dtype=dtype.to_real()))
      expected = torch.linalg.eigvals(a)
      for got, one in zip(values, expected):
        near(got[paired(got.tolist(), one.tolist())], one, 100)
      for got, one in zip(called(pack, "_linalg_eigvals", a), expected):
        near(got[paired(got.tolist(), one.tolist())], one, 100)
      if not dtype.is_complex:  # pairs are exact, real eigenvalues have no imaginary part
        near(values.sum(-1).imag, torch.zeros(2, dtype=dtype))
        assert torch.equal(values.imag.sort().values, -values.imag.sort(descending=True).values)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_eigenvectors_have_the_phases_of_torch(pack, dtype):
  a = random(12, 12, dtype=dtype)
  values, vectors = called(pack, "linalg_eig", a)
  expected_values, expected = torch.linalg.eig(a)
  order = paired(values.tolist(), expected_values.tolist())
  near(vectors[:, order], expected, 100)


@pytest.mark.parametrize("dtype", DTYPES)
def test_eig_of_special_matrices(pack, dtype):
  jordan = torch.diag(torch.ones(4), 1).to(dtype)
  cycle = torch.eye(6).roll(1, 0).to(dtype)
  for a in (jordan, cycle, torch.zeros(3, 3, dtype=dtype), torch.eye(5, dtype=dtype)):
    values, vectors = called(pack, "linalg_eig", a)
    near(a.to(vectors.dtype) @ vectors, vectors * values, 100)
    near(torch.linalg.vector_norm(vectors, dim=-2), torch.ones(len(a), dtype=dtype.to_real()))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_what_is_left_of_a_low_rank_may_be_too_small_for_a_reciprocal(pack, dtype):
  a = random(6, 6, dtype=dtype) * 1e-309
  a[0, 0] = 1
  values = called(pack, "linalg_eig", a)[0]
  near(values.abs().sort().values, torch.tensor([0.0] * 5 + [1], dtype=torch.float64), 100)


@pytest.mark.parametrize("dtype", DTYPES)
def test_qr(pack, dtype):
  for shape in SHAPES:
    for a in layouts(random(2, *shape, dtype=dtype)):
      for mode in ("reduced", "complete", "r"):
        q, r = called(pack, "linalg_qr", a, mode)
        expected = torch.linalg.qr(a, mode)
        near(r, expected.R, 10)
        if mode != "r":
          near(q[..., : min(shape)], expected.Q[..., : min(shape)], 10)
          near(q @ r, a, 10)
          orthonormal(q)


@pytest.mark.parametrize("dtype", DTYPES)
def test_reflectors(pack, dtype):
  for shape in SHAPES:
    for a in layouts(random(2, *shape, dtype=dtype)):
      factors, tau = torch.geqrf(a)
      got, got_tau = called(pack, "geqrf", a)
      near(got, factors, 10)
      near(got_tau, tau, 10)
      if shape[0] >= shape[1]:
        product = called(pack, "linalg_householder_product", factors, tau)
        near(product, torch.linalg.householder_product(factors, tau), 10)
      for left in (True, False):
        for transpose in (True, False):
          other = random(2, *((shape[0], 4) if left else (4, shape[0])), dtype=dtype)
          got = called(pack, "ormqr", factors, tau, other, left, transpose)
          near(got, torch.ormqr(factors, tau, other, left, transpose), 10)


@pytest.mark.parametrize("dtype", DTYPES)
def test_lu(pack, dtype):
  for shape in SHAPES:
    for a in layouts(random(2, *shape, dtype=dtype)):
      for got, expected in zip(called(pack, "linalg_lu", a), torch.linalg.lu(a)):
        near(got, expected, 100)
      factors, pivots = torch.linalg.lu_factor(a)
      for data, exchanges in ((True, True), (True, False), (False, True)):
        for got, expected in zip(
          called(pack, "lu_unpack", factors, pivots, data, exchanges),
          torch.lu_unpack(factors, pivots, data, exchanges),
        ):
          close(got, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_solutions_with_factors(pack, dtype):
  for n in (1, 3, 6):
    a = random(2, n, n, dtype=dtype) + 3 * torch.eye(n, dtype=dtype)
    factors, pivots = torch.linalg.lu_factor(a)
    for one in layouts(factors):
      for left in (True, False):
        for adjoint in (True, False):
          for b in (random(2, n, n, dtype=dtype), random(4, 1, n, n, dtype=dtype)):
            row = b[..., :2] if left else b[..., :2, :]
            expected = torch.linalg.lu_solve(one, pivots, row, left=left, adjoint=adjoint)
            got = like(expected)
            pack("aten::linalg_lu_solve", one, pivots, row, left, adjoint, got)
            near(got, expected, 10)
    for upper in (True, False):
      for transpose in (True, False):
        for unit in (True, False):
          for b in (random(2, n, 3, dtype=dtype), random(4, 1, n, 3, dtype=dtype)):
            args = (b, a, upper, transpose, unit)
            for got, expected in zip(
              called(pack, "triangular_solve", *args), ATEN.triangular_solve(*args)
            ):
              near(got, expected, 10)
    positive = a @ a.mH
    for upper in (True, False):
      for one in layouts(positive):
        near(called(pack, "cholesky", one, upper), torch.linalg.cholesky(one, upper=upper), 10)
      factor = torch.linalg.cholesky(positive, upper=upper)
      for one in layouts(factor):
        near(called(pack, "cholesky_inverse", one, upper), torch.cholesky_inverse(one, upper), 10)
        for b in (random(2, n, 3, dtype=dtype), random(4, 1, n, 3, dtype=dtype)):
          got = called(pack, "cholesky_solve", b, one, upper)
          near(got, torch.cholesky_solve(b, one, upper), 10)


@pytest.mark.parametrize("dtype", DTYPES)
def test_factorizations_of_real_and_complex_matrices(pack, dtype):
  a, b = random(3, 5, 5, dtype=dtype), random(3, 5, 2, dtype=dtype)
  positive = a @ a.mH
  for name, args, expected in (
    ("linalg_cholesky_ex", (positive, False, False), torch.linalg.cholesky_ex(positive)),
    ("linalg_cholesky_ex", (positive, True, False), torch.linalg.cholesky_ex(positive, upper=True)),
    ("linalg_lu_factor_ex", (a, True, False), torch.linalg.lu_factor_ex(a)),
    ("_linalg_det", (a,), ATEN._linalg_det(a)),
    ("_linalg_slogdet", (a,), ATEN._linalg_slogdet(a)),
    ("linalg_inv_ex", (a, False), torch.linalg.inv_ex(a)),
    ("_linalg_solve_ex", (a, b, True, False), ATEN._linalg_solve_ex(a, b)),
    ("_linalg_solve_ex", (a, b.mT, False, False), ATEN._linalg_solve_ex(a, b.mT, left=False)),
    (
      "linalg_solve_triangular",
      (a, b, True, True, False),
      (torch.linalg.solve_triangular(a, b, upper=True),),
    ),
  ):
    outs = [like(out) for out in expected]
    pack(f"aten::{name}", *args, *outs)
    # PyTorch computes some determinants of the transposed matrix, so factors differ.
    compared = {"_linalg_det": 1, "_linalg_slogdet": 2}.get(name, len(outs))
    for got, one in list(zip(outs, expected))[:compared]:
      near(got, one, 100)


@pytest.mark.parametrize("dtype", DTYPES)
def test_ldl(pack, dtype):
  for n in SQUARES:
    whole = random(2, n, n, dtype=dtype)
    # Small diagonals make blocks of two rows.
    whole.diagonal(dim1=-2, dim2=-1).mul_(0.1)
    for hermitian in (False, True) if dtype.is_complex else (False,):
      for a in layouts(whole):
        expected = torch.linalg.ldl_factor_ex(a, hermitian=hermitian)
        got = [like(out) for out in expected]
        length = workspaces.length("aten::linalg_ldl_factor_ex", {"self": a})
        scratch = torch.zeros(int(length), dtype=torch.float64)
        pack("aten::linalg_ldl_factor_ex", a, hermitian, False, *got, scratch)
        close(got[1], expected.pivots)
        close(got[2], expected.info)
        near(got[0], expected.LD, 1000)
      for b in (random(2, n, 3, dtype=dtype), random(4, 1, n, 3, dtype=dtype)):
        args = dict(LD=expected.LD, pivots=expected.pivots, B=b)
        # PyTorch itself crashes if the batches of the factors and of b differ.
        factors = [
          args["LD"].expand(*b.shape[:-3], 2, n, n),
          args["pivots"].expand(*b.shape[:-3], 2, n),
        ]
        wide = b.expand(*b.shape[:-3], 2, n, 3)
        solution = torch.linalg.ldl_solve(*map(torch.clone, (*factors, wide)), hermitian=hermitian)
        out = like(solution)
        scratch = torch.zeros(int(workspaces.length("aten::linalg_ldl_solve", args)))
        pack("aten::linalg_ldl_solve", *args.values(), hermitian, out, scratch.double())
        near(out, solution, 1000)


@pytest.mark.parametrize("dtype", DTYPES)
def test_matrix_exp(pack, dtype):
  for n in (1, 2, 3, 7, 20):
    for size in (0.0, 0.01, 1.0, 5.0):
      for a in layouts(random(2, n, n, dtype=dtype) * (size / n)):
        near(called(pack, "linalg_matrix_exp", a), torch.linalg.matrix_exp(a), 10)
  a = torch.full((2, 2), float("nan"), dtype=dtype)
  assert called(pack, "linalg_matrix_exp", a).isnan().all()
  assert called(pack, "linalg_matrix_exp", a.nan_to_num(posinf=1) + 1).isfinite().all()


def test_empty(pack):
  for name, *args in (
    ("_linalg_svd", torch.zeros(0, 3), False, True),
    ("_linalg_svd", torch.zeros(2, 3, 0), True, True),
    ("_linalg_svd", torch.zeros(0, 3, 3), True, True),
    ("_linalg_eigh", torch.zeros(2, 0, 0), "L", True),
    ("linalg_eig", torch.zeros(0, 3, 3)),
    ("linalg_qr", torch.zeros(3, 0), "complete"),
    ("linalg_qr", torch.zeros(2, 0, 3), "reduced"),
    ("geqrf", torch.zeros(0, 3)),
    ("linalg_lu", torch.zeros(2, 3, 0)),
    ("linalg_lu", torch.zeros(0, 2)),
    ("linalg_matrix_exp", torch.zeros(2, 0, 0)),
    ("cholesky", torch.zeros(0, 0), False),
    ("cholesky_inverse", torch.zeros(0, 2, 2), False),
    ("cholesky_solve", torch.zeros(0, 2), torch.zeros(0, 0), False),
    ("triangular_solve", torch.zeros(3, 0), torch.eye(3), True, False, False),
  ):
    expected = getattr(ATEN, name)(*args)
    expected = expected if isinstance(expected, (tuple, list)) else (expected,)
    got = called(pack, name, *args)
    for one, other in zip(got if isinstance(got, (tuple, list)) else (got,), expected):
      close(one, other)


NOT_FINITE = [
  ("_linalg_svd", (False, True), lambda a: torch.svd(a)),
  ("_linalg_eigh", ("L", True), lambda a: torch.linalg.eigh(a)),
  ("linalg_eig", (), lambda a: torch.linalg.eig(a)),
]


@pytest.mark.parametrize("name, more, of", NOT_FINITE)
def test_refuses_what_is_not_finite(pack, name, more, of):
  a = torch.eye(4)
  outs = getattr(ATEN, name)(a, *more)
  for value in (float("nan"), float("inf")):
    a = torch.eye(4)
    a[2, 1] = value
    with pytest.raises(Exception, match="contains infinities or NaN") as failure:
      called(pack, name, a, *more, outs=outs)
    assert failure.value.code == INVALID_INPUT


def test_refuses(pack):
  a, scratch = torch.eye(3), torch.zeros(99, dtype=torch.float64)
  v, m = torch.zeros(3), torch.zeros(3, 3)
  qr = "aten::linalg_qr"
  refused(pack, INVALID_ARGUMENT, "argument mode", qr, a, "other", m, m.clone(), scratch)
  refused(pack, INVALID_ARGUMENT, "smaller than the op needs", qr, a, "reduced", m, a, scratch[:11])
  refused(pack, INVALID_ARGUMENT, "not contiguous", qr, a, "reduced", m, a, scratch[::2])
  refused(pack, INVALID_ARGUMENT, "workspace", qr, a, "reduced", m, a, scratch.float())
  refused(
    pack,
    UNSUPPORTED,
    "argument A has dtype i64",
    qr,
    *[a.long(), "r", v[:0].long()],
    m.long(),
    scratch,
  )
  refused(pack, INVALID_ARGUMENT, "UPLO", "aten::_linalg_eigh", a, "X", True, v, m, scratch)
  refused(pack, UNSUPPORTED, "pivot", "aten::linalg_lu", a, False, m, a.clone(), m.clone(), scratch)
  refused(
    pack,
    INVALID_INPUT,
    "not of a row",
    "aten::lu_unpack",
    a,
    torch.tensor([1, 4, 3], dtype=torch.int32),
    True,
    True,
    m,
    a.clone(),
    m.clone(),
  )
  refused(
    pack,
    INVALID_INPUT,
    "not of a row",
    "aten::linalg_lu_solve",
    a,
    torch.tensor([1, 0, 3], dtype=torch.int32),
    m,
    True,
    False,
    m.clone(),
  )
  refused(
    pack,
    INVALID_INPUT,
    "not of a row",
    "aten::linalg_ldl_solve",
    a,
    torch.tensor([1, -4, 3], dtype=torch.int32),
    m,
    False,
    m.clone(),
    scratch,
  )
  refused(pack, INVALID_INPUT, "not positive definite", "aten::cholesky", -a, False, m)
  refused(
    pack,
    INVALID_ARGUMENT,
    "more columns than rows",
    "aten::linalg_householder_product",
    m[:2],
    v[:2],
    m[:2].clone(),
    scratch,
  )
  refused(
    pack,
    INVALID_INPUT,
    "pivot 1 is zero",
    "aten::linalg_ldl_factor_ex",
    m,
    False,
    True,
    m.clone(),
    torch.zeros(3, dtype=torch.int32),
    torch.tensor(0).int(),
    scratch,
  )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [24, 25, 49, 97, 150])
def test_systems_that_are_solved_by_halves(pack, dtype, n):
  """Matrices of more than 24 rows are divided. Each layout has its own loops in what is left."""
  a = random(2, n, n, dtype=dtype) / n**0.5
  b = random(2, n, 7, dtype=dtype)
  symmetric = a @ a.mT + torch.eye(n, dtype=dtype)
  triangle = a + 3 * torch.eye(n, dtype=dtype)

  for one in layouts(a):
    lu, pivots, info = called(pack, "linalg_lu_factor_ex", one)
    p, lower, upper = torch.lu_unpack(lu, pivots)
    near(p @ lower @ upper, one, 10)
    assert torch.equal(pivots, torch.linalg.lu_factor(one)[1]) and not info.any()
    near(one @ called(pack, "linalg_inv_ex", one)[0], torch.eye(n, dtype=dtype).expand_as(one), 100)
    for other in layouts(b):
      near(one @ called(pack, "_linalg_solve_ex", one, other)[0], other, 100)
      solved = torch.full_like(other.mT, 7.0)
      pack("aten::linalg_lu_solve", lu, pivots, other.mT, False, False, solved)
      near(solved @ one, other.mT, 100)
  for one in layouts(symmetric):
    factor = called(pack, "linalg_cholesky_ex", one)[0]
    near(factor @ factor.mT, one, 10)
    assert torch.equal(factor, factor.tril())
    near(one @ called(pack, "cholesky_solve", b, factor), b, 100)
  for one in layouts(triangle):
    for upper in (False, True):
      half = one.triu() if upper else one.tril()
      for unit in (False, True):
        full = half - half.diagonal(dim1=-2, dim2=-1).diag_embed() if unit else half
        full = full + torch.eye(n, dtype=dtype) if unit else full
        full = full / 4 + torch.eye(n, dtype=dtype) * 0.75 if unit else full
        matrix = full if unit else one
        got = pack_triangle(pack, matrix, b, upper, True, unit)
        near(full @ got, b, 1000)
        got = pack_triangle(pack, matrix, b.mT, upper, False, unit)
        near(got @ full, b.mT, 1000)


def pack_triangle(pack, a, b, upper, left, unit):
  out = torch.full(b.shape, 7.0, dtype=b.dtype)
  pack("aten::linalg_solve_triangular", a, b, upper, left, unit, out)
  return out


@pytest.mark.parametrize("n", [40, 100])
def test_pivots_of_halves_that_are_zero(pack, n):
  """The number of the first zero pivot counts from the first row of the whole matrix."""
  a = random(n, n)
  a[:, 31] = 0
  assert called(pack, "linalg_lu_factor_ex", a)[2].item() == 32
  assert called(pack, "linalg_inv_ex", a)[1].item() == 32
  symmetric = a @ a.T + torch.eye(n)
  symmetric[33, 33] = -1
  factor, info = called(pack, "linalg_cholesky_ex", symmetric)
  assert info.item() == 34 and not factor.triu(1).any()
