"""Files in the format GGUF, versions 2 and 3, as llama.cpp writes them: metadata and tensors. A
file is mapped into memory; nothing in it is trusted before it is checked against the size of the
file."""

from __future__ import annotations

import dataclasses
import math
import mmap
import pathlib
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import gguf_blocks
from .errors import CheckpointError

if TYPE_CHECKING:
  import torch

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_ALIGNMENT = 32  # unless the metadata says another one
_MOST_DIMENSIONS = 4
_MOST_DEPTH = 4  # of arrays of arrays in the metadata

# Types of metadata by number: what struct calls them.
_SCALARS = {
  0: "B",
  1: "b",
  2: "H",
  3: "h",
  4: "I",
  5: "i",
  6: "f",
  7: "?",
  10: "Q",
  11: "q",
  12: "d",
}
_STRING, _ARRAY = 8, 9
# The fewest bytes of an entry: the length of a name, the type and one byte; the length of a name,
# the number of dimensions, the type and the offset.
_LEAST_METADATA, _LEAST_TENSOR = 8 + 4 + 1, 8 + 4 + 4 + 8


@dataclasses.dataclass(frozen=True)
class GgufTensor:
  """A tensor of a file: its shape in torch's order, the type of its blocks, and where its bytes
  are."""

  name: str
  shape: tuple[int, ...]
  type: gguf_blocks.BlockType
  begin: int
  bytes: int


class GgufFile:
  """A file: `metadata` by key, and `tensors` by name. Raises CheckpointError if it is damaged."""

  metadata: Mapping[str, Any]
  tensors: Mapping[str, GgufTensor]

  def __init__(self, path: str | pathlib.Path) -> None:
    self.path = pathlib.Path(path)
    with self.path.open("rb") as file:
      beginning = file.read(len(_MAGIC))
      if beginning != _MAGIC:
        raise CheckpointError(
          f"{self.path} is no GGUF file: it begins with {beginning!r}, not {_MAGIC!r}; "
          "download it again"
        )
      # The mapping is private: torch wants memory that could be written.
      self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    reader = _Reader(self._map, self.path)
    reader.at = len(_MAGIC)
    (self.version,) = reader.numbers("I", 1, "the version")
    if self.version not in _VERSIONS:
      swapped = int.from_bytes(self.version.to_bytes(4, "little"), "big")
      reason = "it is big-endian" if swapped in _VERSIONS else f"its version is {self.version}"
      raise CheckpointError(f"{self.path}: {reason}; little-endian files of versions 2 and 3 load")
    tensor_count, metadata_count = reader.numbers("Q", 2, "the counts")
    reader.fits(metadata_count, _LEAST_METADATA, "entries of metadata")
    self.metadata = {}
    for _ in range(metadata_count):
      key = reader.string("a key of the metadata")
      if key in self.metadata:
        reader.fail(f"the metadata has {key!r} twice")
      (kind,) = reader.numbers("I", 1, f"the type of {key!r}")
      self.metadata[key] = reader.value(kind, repr(key))
    reader.fits(tensor_count, _LEAST_TENSOR, "tensors")
    described = [_description(reader) for _ in range(tensor_count)]
    alignment = self.metadata.get("general.alignment", _ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
      reader.fail(f"general.alignment is {alignment!r}, which is no power of two")
    begin = -(-reader.at // alignment) * alignment
    self.tensors = {}
    for name, shape, kind, offset in described:
      if name in self.tensors:
        reader.fail(f"it has two tensors {name!r}")
      self.tensors[name] = _placed(reader, name, shape, kind, offset, begin, alignment)

  def architecture(self) -> str:
    """Which kind of model it is."""
    name = self.metadata.get("general.architecture")
    if not isinstance(name, str):
      raise CheckpointError(f"{self.path}: the metadata has no text general.architecture")
    return name

  def blocks(self, name: str) -> torch.Tensor:
    """The bytes of a tensor, as views of the file: rows x blocks of a row x bytes of a block."""
    import torch

    tensor = self.tensors[name]
    data = torch.frombuffer(self._map, dtype=torch.uint8, count=tensor.bytes, offset=tensor.begin)
    return data.reshape(*tensor.shape[:-1], -1, tensor.type.bytes)


class _Reader:
  """Reads numbers and texts of a file one after the other."""

  def __init__(self, data: mmap.mmap, path: pathlib.Path) -> None:
    self.data, self.path, self.at = data, path, 0

  def fail(self, reason: str) -> None:
    raise CheckpointError(f"{self.path}: {reason}")

  def fits(self, count: int, least: int, what: str) -> None:
    left = len(self.data) - self.at
    if count * least > left:
      self.fail(
        f"it says that {count} {what} follow, but {left} bytes are left: it is cut short, download "
        "it again"
      )

  def numbers(self, kind: str, count: int, what: str) -> tuple[Any, ...]:
    size = struct.calcsize("<" + kind)
    self.fits(count, size, f"numbers of {size} bytes for {what}")
    result = struct.unpack_from(f"<{count}{kind}", self.data, self.at)
    self.at += size * count
    return result

  def string(self, what: str) -> str:
    (length,) = self.numbers("Q", 1, what)
    self.fits(length, 1, f"bytes of {what}")
    text = self.data[self.at : self.at + length]
    self.at += length
    # Tokens of a vocabulary may be parts of a character.
    return text.decode("utf-8", "surrogateescape")

  def value(self, kind: int, key: str, depth: int = 0) -> Any:
    if kind in _SCALARS:
      return self.numbers(_SCALARS[kind], 1, key)[0]
    if kind == _STRING:
      return self.string(key)
    if kind != _ARRAY:
      self.fail(f"the type of {key} is {kind}, which no version of the format has")
    if depth == _MOST_DEPTH:
      self.fail(f"{key} has arrays in more than {_MOST_DEPTH} others")
    (inner,) = self.numbers("I", 1, key)
    (count,) = self.numbers("Q", 1, key)
    if inner in _SCALARS:
      return list(self.numbers(_SCALARS[inner], count, key))
    self.fits(count, 8, f"elements of {key}")
    return [self.value(inner, key, depth + 1) for _ in range(count)]


def _description(reader: _Reader) -> tuple[str, tuple[int, ...], int, int]:
  """The name, the shape, the number of the type and the offset of a tensor."""
  name = reader.string("the name of a tensor")
  (count,) = reader.numbers("I", 1, f"the dimensions of {name!r}")
  if not 0 < count <= _MOST_DIMENSIONS:
    reader.fail(f"{name!r} has {count} dimensions, not 1 to {_MOST_DIMENSIONS}")
  sizes = reader.numbers("Q", count, f"the sizes of {name!r}")
  (kind,) = reader.numbers("I", 1, f"the type of {name!r}")
  (offset,) = reader.numbers("Q", 1, f"the offset of {name!r}")
  return name, tuple(reversed(sizes)), kind, offset


def _placed(
  reader: _Reader,
  name: str,
  shape: tuple[int, ...],
  kind: int,
  offset: int,
  begin: int,
  alignment: int,
) -> GgufTensor:
  block = gguf_blocks.TYPES.get(kind)
  if block is None:
    raise CheckpointError(
      f"{reader.path}: {name!r} has the type {gguf_blocks.name_of(kind)}, which does not load; "
      f"these do: {', '.join(one.name for one in gguf_blocks.TYPES.values())}"
    )
  if shape[-1] % block.elements:
    reader.fail(
      f"{name!r} has rows of {shape[-1]} elements, which blocks of {block.elements} "
      f"({block.name}) do not divide"
    )
  size = math.prod(shape) // block.elements * block.bytes
  if size == 0:
    reader.fail(f"{name!r} has no elements: its shape is {list(shape)}")
  if offset % alignment:
    reader.fail(f"{name!r} begins at {offset}, which is no multiple of {alignment}")
  if begin + offset + size > len(reader.data):
    reader.fail(
      f"{name!r} ends at byte {begin + offset + size:,}, but the file has {len(reader.data):,}: "
      "it is cut short, download it again"
    )
  return GgufTensor(name, shape, block, begin + offset, size)
