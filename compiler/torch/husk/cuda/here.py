"""The GPUs of this machine as targets, for programs that run in the process that compiles them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

from ..inductor.replace import replaced
from . import products, settings
from .target import Target
from .tuning import Tuning

# Inductor's options for these programs, besides those of settings.py.
_OPTIONS = {
  **settings.OPTIONS,
  "benchmark_fusion": False,
  "triton.multi_kernel": 0,
  "triton.num_decompose_k_splits": 0,
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


@contextlib.contextmanager
def products_as_kernels(target: Target, tuned: Tuning, convolutions: bool) -> Iterator[None]:
  """While open, Inductor makes products of matrices kernels, and calls no library for them.
  `convolutions`: whether that holds for convolutions too; else PyTorch's may be called, and they
  are called if there is no template."""
  from torch._inductor import config

  options = dict(products.OPTIONS)
  if tuned.measures:
    del options["deterministic"]
  if not convolutions:
    options["max_autotune_conv_backends"] = "ATEN,TRITON"
  with replaced(*products.replacements(target, tuned)), config.patch(options):
    yield
