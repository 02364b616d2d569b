"""Adapters (LoRA) of a language model: files of PEFT, written to constants of the program. The C
library reads them by the same rules (husk/generate.h)."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from . import peft

_PREFIX = "base_model.model."  # of the names in a file of PEFT
_MODEL = "model."  # of the names in a program
# Types of a file, and those of NumPy: it has none for bf16, the upper half of f32.
_TYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}


@dataclasses.dataclass
class Layer:
  """The constants of a layer: their numbers in the program, their type, and the layer's sizes."""

  a: int
  b: int
  dtype: str
  inputs: int
  outputs: int


class Adapters:
  """The adapters of a program by name. `count` and `rank` are what the file has room for."""

  def __init__(self, program: Any, path: str, count: int, rank: int) -> None:
    self._program, self._path, self.count, self.rank = program, path, count, rank
    self.numbers: dict[str, int] = {}
    self._layers = _layers_of(program) if count else {}

  def number(self, name: str | None) -> int:
    """The number of an adapter; 0 for none. Raises ValueError if there is none of that name."""
    if name is None:
      return 0
    self._check_room()
    if name not in self.numbers:
      known = ", ".join(map(repr, self.numbers)) or "none"
      raise ValueError(f"there is no adapter {name!r}: add it by add_adapter (there are {known})")
    return self.numbers[name]

  def add(self, name: str, folder: str | os.PathLike[str]) -> None:
    """Reads an adapter, which replaces one of the same name."""
    self._check_room()
    taken = set(self.numbers.values())
    free = [number for number in range(1, self.count + 1) if number not in taken]
    number = self.numbers.get(name) or (free[0] if free else 0)
    if not number:
      raise ValueError(
        f"{self._path} has room for {self.count} adapters, which are {', '.join(self.numbers)}: "
        "remove one, or export the model with a larger number of adapters"
      )
    parts = [*self._parts(number, _read(pathlib.Path(folder)))]
    self.numbers.pop(name, None)  # an update that fails may leave it undefined
    self._program.update_constants(parts)
    self.numbers[name] = number

  def _check_room(self) -> None:
    if not self.count:
      raise ValueError(
        f"{self._path} has no room for adapters: export it with adapters=N (--adapters N)"
      )

  def _parts(self, number: int, read: _Read) -> Iterator[tuple[int, int, Any]]:
    """The entries of native.Program.update_constants for one adapter. All is checked before the
    first one is written."""
    import numpy as np

    for name in read.matrices:
      if name not in self._layers:
        raise ValueError(
          f"{read.folder}: {self._path} has no room for an adapter of {name}: export the model "
          "with this layer among adapter_targets"
        )
      self._check(name, self._layers[name], read)
    for name, layer in self._layers.items():
      a = np.zeros((self.rank, layer.inputs), np.float32)
      b = np.zeros((layer.outputs, self.rank), np.float32)
      if (found := read.matrices.get(name)) is not None:
        rank = len(found["A"])
        a[:rank] = found["A"]
        b[:, :rank] = found["B"] * np.float32(read.scale(name, rank))
      for constant, matrix in ((layer.a, a), (layer.b, b)):
        stored = _stored(matrix, layer.dtype)
        yield constant, number * stored.nbytes, stored

  def _check(self, name: str, layer: Layer, read: _Read) -> None:
    found = read.matrices[name]
    for one in ("A", "B"):
      if one not in found:
        raise ValueError(f"{read.folder}: there is no lora_{one} of {name}")
    (rank, inputs), (outputs, columns) = found["A"].shape, found["B"].shape
    if (inputs, outputs, columns) != (layer.inputs, layer.outputs, rank):
      raise ValueError(
        f"{read.folder}: the adapter is of another shape: {name} has lora_A [{rank}, {inputs}] and "
        f"lora_B [{outputs}, {columns}], but the model needs [r, {layer.inputs}] and "
        f"[{layer.outputs}, r]"
      )
    if rank > self.rank:
      raise ValueError(
        f"{read.folder}: the adapter has rank {rank} for {name}, but {self._path} has room for "
        f"{self.rank}: export the model with rank={rank}"
      )
    if not read.config.get("rank_pattern") and read.config["r"] != rank:
      raise ValueError(
        f"{read.folder}: the adapter is of another shape: {name} has rank {rank}, but "
        f"adapter_config.json says r = {read.config['r']}"
      )


@dataclasses.dataclass
class _Read:
  """An adapter in a folder: its configuration, and the matrices A and B of layers by name."""

  folder: pathlib.Path
  config: dict[str, Any]
  matrices: dict[str, dict[str, Any]]

  def scale(self, name: str, rank: int) -> float:
    """The factor of the matrix B of a layer."""
    alphas: Mapping[str, float] = self.config.get("alpha_pattern") or {}
    found = (value for end, value in alphas.items() if name == end or name.endswith("." + end))
    alpha = next(found, self.config["lora_alpha"])
    return float(alpha / (math.sqrt(rank) if self.config.get("use_rslora") else rank))


def _layers_of(program: Any) -> dict[str, Layer]:
  by_name = {one["name"]: (number, one) for number, one in enumerate(program.constants())}
  result = {}
  for name, (number, a) in by_name.items():
    if not (name.startswith(_MODEL) and name.endswith(".lora_A")):
      continue
    b_number, b = by_name[name.removesuffix("A") + "B"]
    layer = name.removeprefix(_MODEL).removesuffix(".lora_A")
    result[layer] = Layer(number, b_number, a["dtype"], a["shape"][2], b["shape"][1])
  return result


def _read(folder: pathlib.Path) -> _Read:
  config, weights = folder / "adapter_config.json", folder / "adapter_model.safetensors"
  for path in (config, weights):
    if not path.is_file():
      raise FileNotFoundError(
        f"{path} is not there: give the folder that save_pretrained of PEFT has written"
      )
  return _Read(folder, _config(config), _matrices(weights))


def _config(path: pathlib.Path) -> dict[str, Any]:
  try:
    config = json.loads(path.read_text(encoding="utf-8"))
  except ValueError as error:
    raise ValueError(f"{path} is no JSON: {error}") from error
  if not isinstance(config, dict):
    raise ValueError(f"{path} is no JSON object")
  if config.get("peft_type", "LORA") != "LORA":
    raise ValueError(f"{path}: the adapter is of the kind {config['peft_type']}: Husk takes LORA")
  others = [f"{what} ({name})" for name, what in peft.SETTINGS.items() if config.get(name)]
  if config.get("bias") not in (None, "none"):
    others.append('biases of layers (bias is not "none")')
  if others:
    raise ValueError(f"{path}: the adapter has {others[0]}, which Husk does not compute")
  initial = config.get("init_lora_weights")
  if isinstance(initial, str) and initial.startswith(peft.INITIAL):
    raise ValueError(
      f"{path}: the adapter belongs to a model whose weights {initial} has changed "
      "(init_lora_weights): save it with path_initial_model_for_weight_conversion"
    )
  for name in ("r", "lora_alpha"):
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
      raise ValueError(f"{path} has no number {name}")
  for name, value in (config.get("alpha_pattern") or {}).items():
    if not re.fullmatch(r"[A-Za-z0-9_.]+", name) or not isinstance(value, (int, float)):
      raise ValueError(f"{path}: alpha_pattern has {name!r}: give names of layers, and numbers")
  return config


def _matrices(path: pathlib.Path) -> dict[str, dict[str, Any]]:
  content = path.read_bytes()
  size = int.from_bytes(content[:8], "little")
  if len(content) < 8 or size > len(content) - 8:
    raise _damaged(path, "it ends in its header")
  try:
    header = json.loads(content[8 : 8 + size])
    entries = [(name, entry) for name, entry in header.items() if name != "__metadata__"]
  except (ValueError, AttributeError) as error:
    raise _damaged(path, f"its header is no JSON object ({error})") from error
  result: dict[str, dict[str, Any]] = {}
  for name, entry in entries:
    for part, what in peft.TENSORS.items():
      if part in name:
        raise ValueError(f"{path}: the adapter has {what}, which Husk does not compute")
    found = re.fullmatch(re.escape(_PREFIX) + r"(.+)\.lora_([AB])\.weight", name)
    if found is None:
      raise ValueError(
        f"{path} has the tensor {name!r}: Husk takes base_model.model.LAYER.lora_A.weight and "
        "lora_B.weight of PEFT"
      )
    matrix = _matrix(path, name, entry, memoryview(content)[8 + size :])
    result.setdefault(found[1], {})[found[2]] = matrix
  if not result:
    raise ValueError(f"{path} has no matrices")
  return result


def _matrix(path: pathlib.Path, name: str, entry: Any, data: memoryview) -> Any:
  """The matrix of an entry, in f32."""
  import numpy as np

  try:
    kind, shape, (begin, end) = entry["dtype"], list(entry["shape"]), entry["data_offsets"]
  except (KeyError, TypeError, ValueError) as error:
    raise _damaged(path, f"{name} has no dtype, shape and data_offsets") from error
  if kind not in _TYPES:
    raise ValueError(f"{path}: {name} has the type {kind}: Husk takes F32, F16 and BF16")
  sizes = [*shape, begin, end]
  if len(shape) != 2 or not all(isinstance(one, int) and one >= 0 for one in sizes) or 0 in shape:
    raise ValueError(f"{path}: {name} is no matrix")
  if end > len(data):
    raise _damaged(path, "it ends before its last tensor")
  if end - begin != math.prod(shape) * np.dtype(_TYPES[kind]).itemsize:
    raise _damaged(path, f"{name} has more or fewer bytes than its shape says")
  numbers = np.frombuffer(data[begin:end], _TYPES[kind]).reshape(shape)
  if numbers.dtype != np.uint16:
    return numbers.astype(np.float32)
  return (numbers.astype(np.uint32) << 16).view(np.float32)


def _damaged(path: pathlib.Path, what: str) -> ValueError:
  return ValueError(f"{path} is damaged: {what}. Copy the file again")


def _stored(matrix: Any, dtype: str) -> Any:
  """The matrix in the type of a constant; bf16 as integers of 16 bits."""
  import numpy as np

  if dtype != "bf16":
    return np.ascontiguousarray(matrix, {"f32": np.float32, "f16": np.float16}[dtype])
  bits = np.ascontiguousarray(matrix).view(np.uint32)
  rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
  return np.where(np.isnan(matrix), 0x7FC0, rounded).astype(np.uint16)
