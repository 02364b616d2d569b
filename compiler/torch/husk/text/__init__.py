"""Text from the language models that `husk.language.export` has made. `load` returns a model, which
generates texts for one request or for several at once."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  from .model import Model, load
  from .requests import Request
  from .sounds import Segment
  from .tokenizer import Decoder, Tokenizer

__all__ = ["Decoder", "Model", "Request", "Segment", "Tokenizer", "load"]

_MODULES = {
  "Decoder": "tokenizer",
  "Model": "model",
  "Request": "requests",
  "Segment": "sounds",
  "Tokenizer": "tokenizer",
  "load": "model",
}


def __getattr__(name: str) -> Any:
  # The modules need the libraries of Husk, which `import husk` does not load.
  if name not in _MODULES:
    raise AttributeError(f"module 'husk.text' has no attribute {name!r}")
  return getattr(importlib.import_module(f"husk.text.{_MODULES[name]}"), name)
