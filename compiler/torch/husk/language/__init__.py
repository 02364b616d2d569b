"""Language models: from a checkpoint to one file that `husk.text` generates text with. `export`
writes the file."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  from .exporting import export

__all__ = ["export"]


def __getattr__(name: str) -> Any:
  # The module needs PyTorch, which `import husk` does not load.
  if name not in __all__:
    raise AttributeError(f"module 'husk.language' has no attribute {name!r}")
  return getattr(importlib.import_module("husk.language.exporting"), name)
