"""Exports PyTorch models to Husk artifacts."""

from .errors import CompileError, Unsupported
from .export import VERSION as __version__
from .export import Function, export, write

__all__ = ["CompileError", "Function", "Unsupported", "export", "write", "__version__"]
