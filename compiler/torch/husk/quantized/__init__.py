"""Weights of 8 and 4 bits: products whose second operand is made from codes and scales become one
operator, `husk::linear_quantized`, whatever operators a model spells them with. `load` reads
checkpoints that have such weights."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .operator import as_arithmetic
from .rewriting import Recognised

if TYPE_CHECKING:
  from .checkpoints import CheckpointError, GgufFile, load, without_weights
  from .layers import QuantizedEmbedding, QuantizedLinear, QuantizedWeight

__all__ = [
  "CheckpointError",
  "GgufFile",
  "QuantizedEmbedding",
  "QuantizedLinear",
  "QuantizedWeight",
  "Recognised",
  "as_arithmetic",
  "load",
  "without_weights",
]

# Names whose modules are imported when one of them is first used: they define classes of PyTorch's.
_MODULES = {
  "CheckpointError": "checkpoints",
  "GgufFile": "checkpoints",
  "load": "checkpoints",
  "without_weights": "checkpoints",
  "QuantizedEmbedding": "layers",
  "QuantizedLinear": "layers",
  "QuantizedWeight": "layers",
}


def __getattr__(name: str) -> Any:
  if name not in _MODULES:
    raise AttributeError(f"module 'husk.quantized' has no attribute {name!r}")
  return getattr(importlib.import_module(f"husk.quantized.{_MODULES[name]}"), name)
