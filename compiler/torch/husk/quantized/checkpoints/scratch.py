"""Codes in files without a name: the system can take their memory back while nothing reads them."""

from __future__ import annotations

import dataclasses
import mmap
import os
import pathlib
import shutil
import tempfile
from typing import TYPE_CHECKING

from ..codes import Codes

if TYPE_CHECKING:
  import torch

# So many bytes of a model stay in memory, and so do small tensors.
_IN_MEMORY = 1 << 28
_SMALL = 1 << 20
# The disk keeps room for so many times the bytes that lie there, since an artifact may follow.
_ROOM = 2


class Scratch:
  """The codes of one model. Without a folder, and where it has no room, they stay in memory."""

  def __init__(self, folder: str | os.PathLike[str] | None) -> None:
    self._folder = None if folder is None else pathlib.Path(folder)
    self._in_memory = self._on_disk = 0

  def moved(self, codes: Codes) -> Codes:
    """The same codes, which may lie in files."""
    fields = ("codes", "scales", "zeros")
    tensors = {name: getattr(codes, name) for name in fields}
    return dataclasses.replace(
      codes, **{name: None if one is None else self._moved(one) for name, one in tensors.items()}
    )

  def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
    import torch

    size = tensor.numel() * tensor.element_size()
    if self._folder is None or size < _SMALL or self._in_memory + size <= _IN_MEMORY:
      self._in_memory += size
      return tensor
    try:
      if shutil.disk_usage(self._folder).free < size + _ROOM * (self._on_disk + size):
        return tensor
      with tempfile.TemporaryFile(prefix="husk-", dir=self._folder) as file:
        # A disk that is full is an error here, and would end the process where it is written to.
        os.posix_fallocate(file.fileno(), 0, size)
        memory = mmap.mmap(file.fileno(), size)
    except OSError:
      return tensor
    self._on_disk += size
    result = torch.frombuffer(memory, dtype=tensor.dtype).reshape(tensor.shape)
    return result.copy_(tensor)
