"""Checkpoints with weights of 8 and 4 bits, as they are published: GGUF files, and safetensors of
compressed-tensors, GPTQ, AWQ, FP8 with blocks and MXFP4."""

from .errors import CheckpointError
from .gguf_file import GgufFile
from .loading import load
from .models import without_weights

__all__ = ["CheckpointError", "GgufFile", "load", "without_weights"]
