"""The tensors of a checkpoint of safetensors: one file, or a folder with one or several."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .errors import CheckpointError, listed

if TYPE_CHECKING:
  import torch

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"


@dataclasses.dataclass(frozen=True)
class StoredTensor:
  """A tensor of a file: its name, shape, and dtype as safetensors calls it, such as "F16"."""

  name: str
  dtype: str
  shape: tuple[int, ...]
  path: pathlib.Path


class TensorFiles:
  """The tensors by name. A file is mapped into memory when a tensor of it is read, and none stays
  mapped but the last one."""

  tensors: Mapping[str, StoredTensor]

  def __init__(self, path: pathlib.Path) -> None:
    self.folder = path if path.is_dir() else path.parent
    self.tensors = {}
    self._open: tuple[pathlib.Path, Any] | None = None
    for file, names in _files(path).items():
      opened = self._opened(file)
      stored = set(opened.keys())
      if names is not None and (missing := names - stored):
        raise CheckpointError(
          f"{file} lacks {listed(missing)}, which {_INDEX} says are there: download it again"
        )
      for name in stored if names is None else names:
        if name in self.tensors:
          raise CheckpointError(f"{name!r} is in {self.tensors[name].path} and in {file}")
        part = opened.get_slice(name)
        self.tensors[name] = StoredTensor(name, part.get_dtype(), tuple(part.get_shape()), file)

  def read(self, name: str) -> torch.Tensor:
    """A tensor, in memory of its own."""
    return self.mapped(name).clone()

  def mapped(self, name: str) -> torch.Tensor:
    """A tensor in the memory of its file, which stays mapped as long as there is the tensor."""
    return self._opened(self.tensors[name].path).get_tensor(name)

  def settings(self, *names: str) -> dict[str, Any]:
    """The first of some files of JSON that lies beside the tensors; empty if there is none."""
    for name in names:
      if (self.folder / name).is_file():
        return json_of(self.folder / name)
    return {}

  def _opened(self, path: pathlib.Path) -> Any:
    from safetensors import SafetensorError, safe_open

    if self._open is None or self._open[0] != path:
      try:
        self._open = path, safe_open(path, framework="pt")
      except (SafetensorError, OSError) as error:
        raise CheckpointError(
          f"{path} does not open as safetensors ({error}): download it again"
        ) from error
    return self._open[1]


def _files(path: pathlib.Path) -> dict[pathlib.Path, set[str] | None]:
  """The files of a checkpoint, with the names of their tensors if an index has them."""
  if path.is_dir() and (path / _INDEX).is_file():
    path = path / _INDEX
  if path.name.endswith(".json"):
    places = json_of(path).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(one, str) for one in places.values()):
      raise CheckpointError(f"{path} has no weight_map of names to files")
    found: dict[pathlib.Path, set[str] | None] = {}
    for name, file in places.items():
      if pathlib.PurePath(file).name != file:
        raise CheckpointError(f"{path}: {name!r} is in {file!r}, which is no file of the folder")
      names = found.setdefault(path.parent / file, set())
      assert names is not None
      names.add(name)
    if lost := [str(file.name) for file in found if not file.is_file()]:
      raise CheckpointError(
        f"{path.parent} lacks {listed(lost)}, which {path.name} names: download the rest"
      )
    return found
  if not path.is_dir():
    return {path: None}
  files = [path / _SINGLE] if (path / _SINGLE).is_file() else sorted(path.glob("*.safetensors"))
  if not files:
    raise CheckpointError(
      f"{path} has neither {_INDEX} nor a file *.safetensors: give the folder of a checkpoint"
    )
  return dict.fromkeys(files)


def json_of(path: pathlib.Path) -> dict[str, Any]:
  """A file that holds an object of JSON."""
  try:
    value = json.loads(path.read_text(encoding="utf-8"))
  except (OSError, ValueError) as error:
    raise CheckpointError(f"{path} is no JSON ({error}): download it again") from error
  if not isinstance(value, dict):
    raise CheckpointError(f"{path} holds no object of JSON")
  return value
