"""The safetensors file of a program's weights, which is written tensor by tensor: no more than one
is copied at a time, be it from a device or out of a larger storage."""

from __future__ import annotations

import ctypes
import json
import math
import pathlib
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING

from .. import dtypes, hir
from ..errors import Unsupported

if TYPE_CHECKING:
  import torch

# The name of the file in a `.hir`.
FILE = "weights.safetensors"


def storable(tensor: torch.Tensor) -> torch.Tensor:
  """The tensor as the file has it. The format has no complex numbers of two doubles: they are pairs
  of doubles there, in one dimension more, which are the same bytes."""
  import torch

  if tensor.dtype is not torch.complex128:
    return tensor
  return torch.view_as_real(tensor.detach().resolve_conj())


def save(tensors: Mapping[str, torch.Tensor], sink: IO[bytes]) -> None:
  """Writes the file to `sink`, in the order of the tensors."""
  header = {}
  end = 0
  for name, tensor in tensors.items():
    dtype = hir.dtype(tensor.dtype)
    if dtype not in dtypes.SAFETENSORS:
      raise Unsupported(f"the constant {name} has dtype {tensor.dtype}, which safetensors lacks")
    begin, end = end, end + math.prod(tensor.shape) * tensor.element_size()
    header[name] = {
      "dtype": dtypes.SAFETENSORS[dtype],
      "shape": list(tensor.shape),
      "data_offsets": [begin, end],
    }
  text = json.dumps(header, separators=(",", ":")).encode()
  text += b" " * (-len(text) % 8)
  sink.write(len(text).to_bytes(8, "little") + text)
  for tensor in tensors.values():
    _write(tensor, sink)


def save_file(tensors: Mapping[str, torch.Tensor], folder: pathlib.Path) -> None:
  """Writes the file to a folder."""
  with open(folder / FILE, "wb") as sink:
    save(tensors, sink)


def _write(tensor: torch.Tensor, sink: IO[bytes]) -> None:
  stored = tensor.detach().cpu().contiguous().resolve_conj().resolve_neg()
  size = stored.numel() * stored.element_size()
  if size:
    sink.write(memoryview((ctypes.c_char * size).from_address(stored.data_ptr())))
