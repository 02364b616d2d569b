"""Settings of Inductor and Triton for programs of a GPU, whether the GPU is in this machine
(here.py) or not (fake_cuda.py)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

# Inductor's options without which its kernels could not be taken over, or would wait for their
# predecessors twice.
OPTIONS = {
  "use_static_cuda_launcher": False,  # needs a driver
  "combo_kernels": False,
  # A division is rounded as in eager mode. That of Triton errs towards larger numbers.
  "eager_numerics.division_rounding": True,
  "benchmark_epilogue_fusion": False,
  "triton.cooperative_reductions": False,
  "triton.enable_pdl": False,  # pdl.py places the wait itself
  "triton.enable_persistent_tma_matmul": False,
  "triton.unique_user_kernel_names": True,
}


@contextlib.contextmanager
def without_line_tables() -> Iterator[None]:
  """While open, images have no line tables, which would hold the paths of this machine."""
  from triton import knobs

  with knobs.compilation.scope():
    knobs.compilation.disable_line_info = True
    yield
