"""Programs that leave linear algebra to cuSOLVER. Programs without kernels run on the fake driver
with its fake cuSOLVER, others by Triton's interpreter."""

import re

import husk
import on_fake_driver
import pytest
import torch
from cuda_numerics import close
from grids import alternating
from husk.cuda import operators
from husk.libraries import cusolver
from torch.export import Dim

LIBRARY = "libcusolver.so.12"
BATCH = Dim("batch", min=1, max=8)
DTYPES = [(torch.float32, 2e-4), (torch.float64, 1e-10)]


def square(*sizes, dtype=torch.float64, seed=0):
  """Well-conditioned matrices."""
  generator = torch.Generator().manual_seed(seed)
  n = sizes[-1]
  matrix = torch.randn(*sizes, generator=generator, dtype=torch.float64) + 3 * torch.eye(n)
  return matrix.to(dtype)


def positive(*sizes, dtype=torch.float64):
  matrix = square(*sizes)
  return (matrix @ matrix.mT + sizes[-1] * torch.eye(sizes[-1])).to(dtype)


def run(function, inputs, folder, monkeypatch, shapes=None, **options):
  outputs = []
  for code, results, text in on_fake_driver.run(
    function, inputs, folder, LIBRARY, monkeypatch, shapes, linalg="cusolver", **options
  ):
    assert code == 0, text
    outputs.append(results)
  return outputs


def written(function, args, folder, shapes=None, **options):
  return on_fake_driver.written(function, args, folder, shapes, **{"linalg": "cusolver", **options})


# The tests of this part compare what the library computes. The arguments are transposed, so that
# they lie by columns and no kernel copies them.


@pytest.mark.parametrize("dtype, tolerance", DTYPES)
def test_eigenvalues(dtype, tolerance, tmp_path, monkeypatch):
  def function(self, x):
    return torch.linalg.eigh(x.mT, UPLO="U"), torch.linalg.eigvalsh(x.mT, UPLO="U")

  x = square(3, 6, 6, dtype=dtype)
  x = (x + x.mT) / 2
  x.tril_()  # the other triangle is not read
  ((values, vectors, only),) = run(function, [(x,)], tmp_path, monkeypatch)
  whole = x + x.tril(-1).mT
  close(values, torch.linalg.eigvalsh(whole), tolerance)
  close(only, values, tolerance)
  close(vectors @ torch.diag_embed(values) @ vectors.mT, whole, tolerance)


@pytest.mark.parametrize(
  "kind, full, sizes",
  alternating(DTYPES, [False, True], [(5, 5), (2, 4, 7), (7, 3), (1, 4), (4, 1), (1, 1)]),
)
def test_singular_values(kind, full, sizes, tmp_path, monkeypatch):
  dtype, tolerance = kind

  def function(self, x):
    return *torch.linalg.svd(x.mT, full_matrices=full), torch.linalg.svdvals(x.mT)

  x = torch.randn(*sizes, dtype=dtype, generator=torch.Generator().manual_seed(1))
  ((u, s, vh, only),) = run(function, [(x,)], tmp_path, monkeypatch)
  right = torch.linalg.svd(x.mT, full_matrices=full)
  assert [one.shape for one in (u, s, vh)] == [one.shape for one in right]
  close(s, right[1], tolerance)
  close(only, s, tolerance)
  few = s.shape[-1]
  close(u[..., :few] @ torch.diag_embed(s) @ vh[..., :few, :], x.mT, tolerance)
  for one in (u.mT, vh):
    close(one @ one.mT, torch.eye(one.shape[-2], dtype=dtype).expand_as(one @ one.mT), tolerance)


# An example with more rows than columns says nothing about other sizes.
def test_matrices_of_varying_shapes(tmp_path, monkeypatch):
  def function(self, x):
    u, s, vh = torch.linalg.svd(x.mT, full_matrices=False)
    return u, s, vh, torch.linalg.qr(x.mT, mode="reduced").R

  generator = torch.Generator().manual_seed(3)
  inputs = [
    (torch.randn(2, *sizes, generator=generator),) for sizes in ((4, 7), (7, 4), (5, 5), (3, 9))
  ]
  shapes = {0: BATCH, 1: Dim("columns", min=2, max=16), 2: Dim("rows", min=2, max=16)}
  for (x,), (u, s, vh, r) in zip(
    inputs, run(function, inputs, tmp_path, monkeypatch, (shapes,)), strict=True
  ):
    close((u * s.unsqueeze(-2)) @ vh, x.mT, 2e-4)
    close(r.abs(), torch.linalg.qr(x.mT).R.abs(), 2e-4)


@pytest.mark.parametrize(
  "kind, mode, sizes",
  alternating(DTYPES, ["reduced", "complete", "r"], [(5, 5), (2, 3, 7), (7, 3), (1, 1), (19, 23)]),
)
def test_qr(kind, mode, sizes, tmp_path, monkeypatch):
  dtype, tolerance = kind
  x = torch.randn(*sizes, dtype=dtype, generator=torch.Generator().manual_seed(2))

  def function(self, x):
    q, r = torch.linalg.qr(x.mT, mode=mode)
    return r if mode == "r" else (q, r)

  ((*q, r),) = run(function, [(x,)], tmp_path, monkeypatch)
  right = torch.linalg.qr(x.mT, mode=mode)
  close(r, right.R, tolerance)
  if q:
    close(q[0], right.Q, tolerance)


@pytest.mark.parametrize("dtype, tolerance", DTYPES)
def test_reflectors(dtype, tolerance, tmp_path, monkeypatch):
  def function(self, x, y):
    a, tau = torch.geqrf(x.mT)
    return (
      a,
      tau,
      torch.linalg.householder_product(a, tau),
      torch.ormqr(a, tau, y.mT),
      torch.ormqr(a, tau, y.mT, transpose=True),
      torch.ormqr(a, tau, y.mT, left=False),
      torch.ormqr(a, tau, y.mT, left=False, transpose=True),
    )

  generator = torch.Generator().manual_seed(3)
  x, y = (torch.randn(2, n, 6, dtype=dtype, generator=generator) for n in (4, 6))
  (results,) = run(function, [(x, y)], tmp_path, monkeypatch)
  for one, other in zip(results, function(None, x, y), strict=True):
    close(one, other, tolerance)


@pytest.mark.parametrize("dtype, tolerance", DTYPES)
@pytest.mark.parametrize("batch", [(), (3,)])
def test_systems_of_equations(dtype, tolerance, batch, tmp_path, monkeypatch):
  def function(self, x, y, z):
    a = x.mT
    lu, pivots = torch.linalg.lu_factor(a)
    return (
      torch.linalg.solve(a, y.mT),
      torch.linalg.solve(a, y, left=False),
      torch.linalg.solve(a, z),
      torch.linalg.inv(a),
      lu,
      pivots,
      torch.linalg.lu_solve(lu, pivots, y.mT),
      torch.linalg.lu_solve(lu, pivots, y.mT, adjoint=True),
      torch.linalg.lu_solve(lu, pivots, y, left=False),
      torch.linalg.lu_solve(lu, pivots, y, left=False, adjoint=True),
    )

  x = square(*batch, 7, 7, dtype=dtype)
  y = torch.randn(*batch, 4, 7, generator=torch.Generator().manual_seed(4)).to(dtype)
  z = torch.randn(*batch, 7, generator=torch.Generator().manual_seed(5)).to(dtype)
  (results,) = run(function, [(x, y, z)], tmp_path, monkeypatch)
  for one, other in zip(results, function(None, x, y, z), strict=True):
    close(one, other, tolerance)


@pytest.mark.parametrize("kind, upper, n", alternating(DTYPES, [False, True], [1, 2, 7, 33]))
def test_cholesky(kind, upper, n, tmp_path, monkeypatch):
  dtype, tolerance = kind

  def function(self, x):
    return torch.linalg.cholesky_ex(x.mT, upper=upper)

  x = positive(2, n, n, dtype=dtype)
  ((factor, info),) = run(function, [(x,)], tmp_path, monkeypatch)
  close(factor, torch.linalg.cholesky(x, upper=upper), tolerance)
  assert info.tolist() == [0, 0]


def test_what_fails_is_in_the_results(tmp_path, monkeypatch):
  def function(self, x):
    return (
      torch.linalg.inv_ex(x.mT).info,
      torch.linalg.lu_factor_ex(x.mT).info,
      torch.linalg.cholesky_ex(x.mT).info,
      torch.linalg.solve_ex(x.mT, x.mT).info,
    )

  x = torch.stack([torch.eye(3), torch.diag(torch.tensor([1.0, 0, 1]))])
  (results,) = run(function, [(x,)], tmp_path, monkeypatch)
  assert [one.tolist() for one in results] == [[0, 2]] * 4


def test_checked_errors_fail_the_run(tmp_path, monkeypatch):
  singular = torch.ones(3, 3)
  for function, words in (
    (lambda self, x: torch.linalg.inv_ex(x.mT, check_errors=True)[0], "singular"),
    (lambda self, x: torch.linalg.lu_factor_ex(x.mT, check_errors=True)[0], "singular"),
    (lambda self, x: torch.linalg.solve_ex(x.mT, x.mT, check_errors=True)[0], "singular"),
    (
      lambda self, x: torch.linalg.cholesky_ex(x.mT, check_errors=True)[0],
      "not positive definite",
    ),
    (lambda self, x: torch.linalg.eigh(x.mT)[0], ""),
    (lambda self, x: torch.linalg.svd(x.mT)[0], ""),
  ):
    inputs = [(singular if words else singular * float("nan"),)]
    ((code, _, text),) = on_fake_driver.run(
      function, inputs, tmp_path, LIBRARY, monkeypatch, linalg="cusolver"
    )
    assert code and (words or "did not converge") in text, text


def test_a_batch_that_varies(tmp_path, monkeypatch):
  def function(self, x):
    return torch.linalg.inv(x.mT), torch.linalg.eigvalsh(x.mT)

  inputs = [(square(n, 5, 5),) for n in (3, 1, 8)]
  for (x,), results in zip(
    inputs, run(function, inputs, tmp_path, monkeypatch, ({0: BATCH},)), strict=True
  ):
    for one, other in zip(results, function(None, x), strict=True):
      close(one, other, 1e-9)


# The tests of this part look at the text that the exporter writes.


def test_arguments_by_rows_are_copied(tmp_path):
  text = written(lambda self, x: torch.linalg.inv(x), (square(4, 4),), tmp_path)
  assert "launch" in text
  assert re.search(r'extern "aten::linalg_inv_ex" \(read tensor \w+ f64 \[4, 4\] \[1, 4\]', text)


def test_shared_right_sides_are_copied_for_each_matrix(tmp_path):
  text = written(
    lambda self, x, y: torch.linalg.solve(x, y), (square(3, 4, 4), square(4, 4)), tmp_path
  )
  assert re.search(r"_solve_ex.*read tensor \w+ f64 \[3, 4, 4\] \[16, 1, 4\], true", text), text


def test_determinants_are_kernels_after_a_factorization(tmp_path):
  text = written(
    lambda self, x: (torch.linalg.det(x), *torch.linalg.slogdet(x)), (square(3, 4, 4),), tmp_path
  )
  assert "aten::linalg_lu_factor_ex" in text and "launch" in text
  assert "aten::_linalg_det" not in text and "aten::_linalg_slogdet" not in text
  assert "on host" not in text


def test_complex_matrices_are_left_to_the_host(tmp_path):
  def function(self, x):
    return torch.view_as_real(torch.linalg.inv(torch.complex(x, x + 1)))

  text = written(function, (square(4, 4),), tmp_path)
  assert re.search(r'extern "aten::linalg_inv_ex" \(read tensor \w+_on_host c128', text), text
  with pytest.raises(husk.Unsupported, match="aten::linalg_inv_ex"):
    written(function, (square(4, 4),), tmp_path, host_ops="forbid")


def test_nothing_is_called_by_default(tmp_path):
  def function(self, x):
    return torch.linalg.inv(x), torch.linalg.det(x)

  text = written(function, (square(4, 4),), tmp_path, linalg=None)
  assert "on host" in text
  default = written(function, (square(4, 4),), tmp_path, linalg="host")
  assert text == default


def test_the_option_is_one_of_the_libraries(tmp_path):
  text = written(
    lambda self, x: torch.linalg.inv(x), (square(4, 4),), tmp_path, linalg=None, libraries=True
  )
  assert "on host" not in text
  with pytest.raises(ValueError, match="linalg='magma': give one of 'host', 'cusolver'"):
    written(lambda self, x: x + 1, (square(4, 4),), tmp_path, linalg="magma")


def test_missing_cusolver_is_an_error(tmp_path):
  husk.export(
    on_fake_driver.FunctionModule(lambda self, x: torch.linalg.inv(x.mT)),
    (square(4, 4),),
    tmp_path / "model.husk",
    targets=("cuda:h200",),
    linalg="cusolver",
  )
  flags = "--input=4x4xf64=random", "--cusolver=/no/such/library"
  text = on_fake_driver.refusal(LIBRARY, tmp_path / "model.husk", *flags)
  assert (
    "no cuSOLVER (/no/such/library" in text
    and "LD_LIBRARY_PATH" in text
    and "linalg='host'" in text
  )


# The table of the port


def rows(path, macro):
  """(name, contract) of each row of a table of operators."""
  text = (on_fake_driver.ROOT / path).read_text()
  found = re.findall(rf'^{macro}\("([^"]*)",\s*\w+,\s*"([^"]*)"((?:\s*"[^"]*")*)\)', text, re.M)
  return {name: first + "".join(re.findall(r'"([^"]*)"', rest)) for name, first, rest in found}


def test_the_operators_are_those_of_the_port_and_called_as_those_of_the_host():
  device = rows("ports/cuda/ops/linalg.def", "HUSK_LINALG_OP")
  host = rows("ports/host/ops/library/pack.def", "HUSK_HOST_OP")
  assert set(device) == operators.OF_LIBRARY["cuSOLVER"]
  assert {name: host[name] for name in device} == device
  assert {f"aten::{name}" for name in cusolver._ARGUMENTS} == set(device)
