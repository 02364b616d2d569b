"""Operators that get scratch memory from the file: its length is a formula of sizes."""

import pytest
import torch
from export_and_compare import exported, run
from husk.lower import workspaces

X = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(0))
DIM = torch.export.Dim("rows", min=4, max=30)


def values_and_exponentials(self, x):
  product = x @ x.mT / 50
  return torch.linalg.eigvalsh(product), torch.linalg.matrix_exp(product)


def test_the_length_follows_the_sizes_of_a_run(tmp_path):
  others = [(torch.randn(3, rows, 4),) for rows in (4, 30)]
  shapes = ({1: DIM},)
  text = run(tmp_path, values_and_exponentials, (X,), shapes=shapes, others=others, strides=False)
  assert text.count("buffer workspace") == 2 and "write tensor workspace" in text


@pytest.mark.parametrize(
  "function",
  [
    lambda self, x: torch.linalg.eigvalsh(x @ x.mT),
    lambda self, x: torch.linalg.qr(x, "complete").R,
    lambda self, x: torch.linalg.matrix_exp(x @ x.mT / 50),
    lambda self, x: torch.linalg.pinv(x, rtol=1e-3),
    lambda self, x: torch.linalg.pinv(x @ x.mT, atol=0.1, hermitian=True),
    lambda self, x: torch.linalg.matrix_rank(x),
    lambda self, x: torch.linalg.cond(x),
    lambda self, x: torch.linalg.lu(x)[2],
    lambda self, x: torch.geqrf(x)[1],
  ],
)
def test_operators_with_a_workspace(tmp_path, function):
  run(tmp_path, function, (X,), strides=False)


def test_a_pseudoinverse_takes_tolerances_as_tensors(tmp_path):
  def function(self, x, tolerance):
    return torch.linalg.pinv(x, atol=tolerance), torch.linalg.pinv(x, rtol=tolerance)

  run(tmp_path, function, (X, torch.tensor([0.0, 0.5, 2.0])), strides=False)


def test_transforms_of_any_length(tmp_path):
  def function(self, x, y):
    return torch.fft.irfft2(torch.fft.rfft2(x) / 3, s=(14, 67)), torch.fft.fft(y)

  y = torch.randn(2, 10007, generator=torch.Generator().manual_seed(0))
  run(tmp_path, function, (X, y), strides=False)


def test_transforms_of_a_length_that_varies(tmp_path):
  def function(self, x):
    spectrum = torch.fft.rfft2(x)  # of rows that vary and of 4 columns
    return torch.fft.fft(x, dim=1), torch.fft.irfft2(spectrum / 3, s=(x.shape[1], 5))

  others = [(torch.randn(3, rows, 4),) for rows in (5, 29, 30)]
  run(tmp_path, function, (X,), shapes=({1: DIM},), others=others, strides=False)


def test_histograms(tmp_path):
  def function(self, x):
    hist, edges = torch.histogramdd(x.reshape(-1, 2), [3, 4], density=True)
    return hist, *edges, *torch.histogram(x, 5)

  run(tmp_path, function, (X,), strides=False)


def test_the_memory_is_reused_after_the_call(tmp_path):
  """Two calls have workspaces that do not live at the same time."""
  _, text, _ = exported(tmp_path, lambda self, x: torch.linalg.svdvals(torch.linalg.qr(x).R), (X,))
  assert text.count("buffer workspace") == 2


def test_operators_without_a_formula_take_none():
  assert workspaces.length("aten::mm", {}) is None


def test_matrices_of_complex_numbers(tmp_path):
  def function(self, x):
    hermitian = x + x.mH
    return (
      torch.linalg.eigvalsh(hermitian),
      torch.linalg.svdvals(x),
      torch.linalg.qr(x).R,
      torch.linalg.inv(x),
      torch.linalg.det(x),
      torch.linalg.solve(x, x[..., :1]),
    )

  x = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.complex64)
  run(tmp_path, function, (x,), strides=False)
