"""The operators of the port of CUDA (ports/cuda/ops), which libraries of NVIDIA's compute. The
options of an export choose these libraries (inductor/libraries.py)."""

from __future__ import annotations

import dataclasses

from ..inductor import collectives
from ..inductor.libraries import Libraries

# The operators by the library that computes them.
OF_LIBRARY: dict[str, frozenset[str]] = {
  "cuBLASLt": frozenset({"husk::matmul"}),
  "cuDNN": frozenset({"husk::cudnn_convolution"}),
  "cuFFT": frozenset({"husk::fft"}),
  "cuSOLVER": frozenset(
    {
      "aten::_linalg_check_errors",
      "aten::_linalg_eigh",
      "aten::_linalg_solve_ex",
      "aten::_linalg_svd",
      "aten::geqrf",
      "aten::linalg_cholesky_ex",
      "aten::linalg_householder_product",
      "aten::linalg_inv_ex",
      "aten::linalg_lu_factor_ex",
      "aten::linalg_lu_solve",
      "aten::linalg_qr",
      "aten::ormqr",
    }
  ),
  # Programs of several ranks need it, and no others. There is no option to choose it.
  "NCCL": collectives.NAMES,
}
NAMES = frozenset().union(*OF_LIBRARY.values())
# The operators of cuSOLVER take no complex numbers.
OF_REALS = OF_LIBRARY["cuSOLVER"]

_TITLES = {
  "cublaslt": "cuBLASLt",
  "cudnn": "cuDNN",
  "cufft": "cuFFT",
  "cusolver": "cuSOLVER",
}


def of(libraries: Libraries) -> frozenset[str]:
  """The operators that a program may call. Products for which there is no template are calls of
  cuBLASLt with every choice."""
  titles = {_TITLES[choice] for choice in dataclasses.astuple(libraries) if choice in _TITLES}
  return frozenset().union(*(OF_LIBRARY[title] for title in {"cuBLASLt", "NCCL", *titles}))


def library_of(name: str) -> str:
  """The library that computes an operator of the port."""
  return next(title for title, names in OF_LIBRARY.items() if name in names)
