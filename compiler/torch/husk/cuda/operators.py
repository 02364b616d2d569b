"""The operators of the port of CUDA (ports/cuda/ops), which libraries of NVIDIA's compute, and the
options of an export that choose these libraries."""

from __future__ import annotations

import dataclasses

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
}
NAMES = frozenset().union(*OF_LIBRARY.values())
# Those that take no complex numbers.
OF_REALS = OF_LIBRARY["cuSOLVER"]

# The values of each option: what is used without libraries, and the library.
CHOICES = {
  "gemm": ("triton", "cublaslt"),
  "conv": ("triton", "cudnn"),
  "fft": ("triton", "cufft"),
  "linalg": ("host", "cusolver"),
}
_TITLES = {
  "cublaslt": "cuBLASLt",
  "cudnn": "cuDNN",
  "cufft": "cuFFT",
  "cusolver": "cuSOLVER",
}


@dataclasses.dataclass(frozen=True)
class Libraries:
  """Which computations an export leaves to libraries, as in the options of `husk.export`."""

  gemm: str = "triton"
  conv: str = "triton"
  fft: str = "triton"
  linalg: str = "host"

  @property
  def operators(self) -> frozenset[str]:
    """The operators that a program may call. Products for which there is no template are calls of
    cuBLASLt with every choice."""
    titles = {_TITLES[choice] for choice in dataclasses.astuple(self) if choice in _TITLES}
    return frozenset().union(*(OF_LIBRARY[title] for title in {"cuBLASLt", *titles}))


NO_LIBRARIES = Libraries()


def chosen(libraries: bool = False, **options: str | None) -> Libraries:
  """The libraries that options of an export choose. `libraries` chooses those for which there is
  no other option."""
  choices = {}
  for name, values in CHOICES.items():
    value = options.get(name)
    if value is None:
      value = values[1] if libraries else values[0]
    if value not in values:
      raise ValueError(f"{name}={value!r}: give {' or '.join(values)}")
    choices[name] = value
  return Libraries(**choices)


def library_of(name: str) -> str:
  """The library that computes an operator of the port."""
  return next(title for title, names in OF_LIBRARY.items() if name in names)
