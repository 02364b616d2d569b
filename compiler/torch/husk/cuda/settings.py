"""Settings of Inductor and Triton for programs of a GPU, whether the GPU is in this machine
(here.py) or not (fake_cuda.py)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

# Inductor's options without which its kernels could not be taken over, or would wait for their
# predecessors twice.
OPTIONS = {
  "use_static_cuda_launcher": False,  # needs a driver
  "combo_kernels": False,
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


def convolutions_in_tf32() -> bool:
  """Whether torch allows convolutions of f32 to multiply in tf32, which is its default. Inductor's
  template reads the setting of all operators of cuDNN, which by default decides nothing."""
  import torch

  cudnn: Any = torch.backends.cudnn  # its stubs lack `conv`
  return bool(cudnn.conv.fp32_precision == "tf32")
