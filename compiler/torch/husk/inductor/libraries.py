"""The options of an export that leave computations to libraries of NVIDIA's."""

from __future__ import annotations

import dataclasses

# The values of each option: what is used without libraries, and the library.
CHOICES = {
  "gemm": ("triton", "cublaslt"),
  "conv": ("triton", "cudnn"),
  "fft": ("triton", "cufft"),
  "linalg": ("host", "cusolver"),
}


@dataclasses.dataclass(frozen=True)
class Libraries:
  """Which computations an export leaves to libraries, as in the options of `husk.export`."""

  gemm: str = "triton"
  conv: str = "triton"
  fft: str = "triton"
  linalg: str = "host"


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
