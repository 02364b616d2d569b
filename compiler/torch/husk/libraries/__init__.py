"""Libraries of NVIDIA's that compute where the program runs, in place of kernels of the artifact.
They are called by operators of the CUDA port, and must be installed there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .. import hir
from ..inductor.libraries import Libraries
from . import cublaslt, cudnn, cusolver


@contextlib.contextmanager
def called(chosen: Libraries) -> Iterator[None]:
  """While open, Inductor calls the chosen libraries, and has no kernels for what they compute."""
  with (
    cublaslt.called(chosen.gemm == "cublaslt"),
    cudnn.called(chosen.conv == "cudnn"),
    cusolver.called(chosen.linalg == "cusolver"),
  ):
    yield


def of(chosen: Libraries, major: int) -> list[hir.Library]:
  """The libraries that calls of operators of PyTorch's can go to, on a GPU whose compute capability
  begins with `major`."""
  # Products for which Inductor has no template are cuBLASLt's, whatever was chosen.
  products = cublaslt.Products(cublaslt.workspace(major))
  return [products, cudnn.Convolutions()] if chosen.conv == "cudnn" else [products]
