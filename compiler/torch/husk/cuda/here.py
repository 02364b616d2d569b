"""The GPUs of this machine as targets, for programs that run in the process that compiles them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from .target import Target
from .tuning import Tuning

# Options of Inductor without which its kernels could not be taken over, or would wait for their
# predecessors twice (pdl.py places the wait).
_OPTIONS = {
  "use_static_cuda_launcher": False,
  "combo_kernels": False,
  "benchmark_epilogue_fusion": False,
  "benchmark_fusion": False,
  "triton.cooperative_reductions": False,
  "triton.enable_pdl": False,
  "triton.enable_persistent_tma_matmul": False,
  "triton.multi_kernel": 0,
  "triton.num_decompose_k_splits": 0,
  "triton.unique_user_kernel_names": True,
}


def options() -> dict[str, Any]:
  """Inductor's options."""
  return dict(_OPTIONS)


@functools.cache
def target(device: str) -> Target:
  """The target that the GPU `device` ("cuda:0") is."""
  import torch

  properties: Any = torch.cuda.get_device_properties(torch.device(device))
  capability = properties.major * 10 + properties.minor
  own = {"key": "gpu", "arch": f"sm_{capability}{'a' if capability >= 90 else ''}"}
  names = [field.name for field in dataclasses.fields(Target) if field.name not in own]
  return Target(**own, **{name: getattr(properties, name) for name in names})


def tuning(chosen: Mapping[str, Any]) -> Tuning:
  """How configurations of kernels are chosen, for the options `chosen` of Inductor: they are
  measured if Inductor would measure them."""
  measuring = ("max_autotune", "max_autotune_pointwise", "coordinate_descent_tuning")
  return Tuning("max" if any(chosen.get(name) for name in measuring) else "heuristic")
