"""Which computations an export leaves to libraries of NVIDIA's."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Libraries:
  """What computes products, convolutions, Fourier transforms and linear algebra: see
  husk.Options."""

  gemm: str = "triton"
  conv: str = "triton"
  fft: str = "triton"
  linalg: str = "host"


NO_LIBRARIES = Libraries()
FIELDS = tuple(field.name for field in dataclasses.fields(Libraries))
