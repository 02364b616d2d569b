"""The weights of a checkpoint, whatever its format is: `Entry` is one of them."""

from __future__ import annotations

import dataclasses
import logging
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..codes import Codes
from . import configs, gguf_names, models
from .errors import CheckpointError, listed
from .gguf_file import GgufFile
from .layouts import FLOATS, FLOATS8, LAYOUTS, Fields, Layout, Scheme, Shape, Weight
from .tensor_files import StoredTensor, TensorFiles

if TYPE_CHECKING:
  import torch

# The names of the classes of the module that a parameter of a model is in, by the parameter's name.
ClassesOf = Callable[[str], Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Entry:
  """A weight: the parameter that it is for, the tensors of the checkpoint that it is made from; a
  function that raises CheckpointError if it is no weight of a shape; and one that reads it, as
  numbers or as codes. `activations`: how the input is rounded, and `input_scale` the tensor that
  says so, if there is one. `is_mapped`: what is read lies in the memory of a file. A stack of
  weights that the checkpoint has one by one has `read_each` too, which makes codes of the numbers
  of each by a function."""

  target: str
  names: Sequence[str]
  check: Callable[[Shape], None]
  read: Callable[[Shape], torch.Tensor | Weight]
  has_codes: bool
  activations: Mapping[str, Any] | None = None
  input_scale: Callable[[], torch.Tensor] | None = None
  is_mapped: bool = False
  read_each: Callable[[Shape, Callable[[torch.Tensor], Codes]], Weight] | None = None


class Source(Protocol):
  """A checkpoint."""

  path: pathlib.Path

  def entries(self, classes_of: ClassesOf) -> Iterator[Entry]:
    """Its weights. Tensors without a part in a model are left out."""
    ...

  def build(self, dtype: torch.dtype | None) -> torch.nn.Module:
    """A model of transformers for them, whose parameters have no memory."""
    ...


# Maps names of a checkpoint to those of a model; None: the tensor is left out.
Names = Mapping[str, str] | Callable[[str], "str | None"] | None


def renamed(names: Names, name: str) -> str | None:
  if names is None:
    return name
  if isinstance(names, Mapping):
    return names.get(name, name)
  return names(name)


class GgufSource:
  """A GGUF file."""

  def __init__(self, path: pathlib.Path, names: Names) -> None:
    self.path, self.names, self.file = path, names, GgufFile(path)
    parts = self.file.metadata.get("split.count", 1)
    if isinstance(parts, int) and parts > 1:
      raise CheckpointError(
        f"{path} is one of {parts} parts of a model: join them with `llama-gguf-split --merge`"
      )

  def entries(self, classes_of: ClassesOf) -> Iterator[Entry]:
    file = self.file
    row = gguf_names.ARCHITECTURES.get(file.metadata.get("general.architecture", ""))
    if row is None and self.names is None:
      row = gguf_names.architecture_of(file)
    unknown = []
    for name in file.tensors:
      if name in gguf_names.ROPE_FACTORS:
        continue
      known = name if row is None else gguf_names.name_of(row, name)
      if known is None:
        unknown.append(name)
      elif (target := renamed(self.names, known)) is not None:
        yield self._entry(row, name, target)
    if unknown:
      raise CheckpointError(
        f"{self.path}: {listed(unknown)} are no names of the architecture {file.architecture()!r}"
      )

  def _entry(self, row: gguf_names.Architecture | None, name: str, target: str) -> Entry:
    tensor = self.file.tensors[name]
    reordered = gguf_names.order_of_rows(self.file, row, name) if row else None
    is_one_more = row is not None and row.norms_add_one and name.endswith("norm.weight")

    def check(shape: Shape) -> None:
      if shape != tensor.shape:
        raise CheckpointError(
          f"{name!r} of {self.path} has the shape {list(tensor.shape)}, but {target!r} of the "
          f"model has {list(shape)}"
        )

    def read(_shape: Shape) -> torch.Tensor | Weight:
      blocks = self.file.blocks(name)
      if reordered is not None:
        blocks = reordered(blocks)
      found = tensor.type.decode(blocks)
      if not isinstance(found, Codes):
        return found - 1 if is_one_more else found
      _check_finite(f"{name!r} of {self.path}", found)
      return Weight(found)

    # Types of one element a block are numbers.
    return Entry(target, (name,), check, read, tensor.type.elements > 1)

  def build(self, dtype: torch.dtype | None) -> torch.nn.Module:
    return models.of_gguf(self.file, dtype)


def _check_finite(what: str, codes: Codes) -> None:
  import torch

  for one in (codes.scales, codes.zeros):
    if one is not None and not bool(torch.isfinite(one).all()):
      raise CheckpointError(f"{what} has scales that are NaN or infinite")


class SafetensorsSource:
  """A folder or a file of safetensors, and its configuration."""

  def __init__(
    self, path: pathlib.Path, names: Names, quantization: Mapping[str, Any] | None
  ) -> None:
    self.path, self.names, self.files = path, names, TensorFiles(path)
    self.config = quantization if quantization is not None else self._configuration()
    try:
      self.schemes_of = configs.schemes_of(self.config) if self.config else None
    except CheckpointError as error:
      raise CheckpointError(f"{self.path}: {error}") from None

  def _configuration(self) -> Mapping[str, Any]:
    whole = self.files.settings("config.json")
    found = whole.get("quantization_config") or whole.get("compression_config")
    if not found:  # models of images and text
      found = (whole.get("text_config") or {}).get("quantization_config")
    if not found:
      found = self.files.settings("quantize_config.json", "quant_config.json")
      if found and "quant_method" not in found:
        found["quant_method"] = "awq" if "w_bit" in found else "gptq"
    if not found:
      found = self.files.settings("hf_quant_config.json")
      if found:
        found["quant_method"] = "modelopt"
    return found

  def entries(self, classes_of: ClassesOf) -> Iterator[Entry]:
    taken: set[str] = set()
    for name in sorted(self.files.tensors):
      found = [
        self._entry(name[: -len(layout.marker)].removesuffix(layout.mark), layout, classes_of)
        for layout in _layouts_of(self.files.tensors[name])
      ]
      entries = [entry for entry in found if entry is not None]
      if found and not entries and renamed(self.names, name) is not None:
        raise CheckpointError(
          f"{name!r} of {self.path} are codes, but the configuration has no scheme for them"
        )
      for entry in entries[:1]:
        taken.update(entry.names)
        if entry.target:
          yield entry
    for name, tensor in self.files.tensors.items():
      if name not in taken and not configs.is_dropped(name):
        if (target := renamed(self.names, name)) is not None:
          yield self._plain(tensor, target)

  def _entry(self, base: str, layout: Layout, classes_of: ClassesOf) -> Entry | None:
    """The weight of a marker, if the configuration has a scheme of its layout for it."""
    if self.schemes_of is None:
      raise CheckpointError(
        f"{layout.name_of(base, layout.marker)} of {self.path} are codes, but no config.json "
        "beside it has a quantization_config: give quantization=, a dict such as that"
      )
    target = renamed(self.names, layout.name_of(base, "weight") if layout.mark == "." else base)
    classes = classes_of(target) if target else ()
    schemes = [
      scheme
      for scheme in self.schemes_of(base, classes)
      if LAYOUTS[scheme.layout].mark == layout.mark
    ]
    stored = {scheme.layout: self._stored(base, LAYOUTS[scheme.layout]) for scheme in schemes}
    complete = [
      scheme
      for scheme in schemes
      if set(LAYOUTS[scheme.layout].needed) < set(stored[scheme.layout])
    ]
    if not complete:
      for scheme in schemes:
        row, found = LAYOUTS[scheme.layout], stored[scheme.layout]
        if row.marker in found and (lost := set(row.needed) - set(found)):
          raise CheckpointError(
            f"{row.name_of(base, row.marker)} of {self.path} has no "
            f"{' and no '.join(row.name_of(base, one) for one in sorted(lost))}"
          )
      return None
    scheme = complete[0]
    return self._codes(Fields(base, stored[scheme.layout], self.files), scheme, target or "")

  def _stored(self, base: str, layout: Layout) -> dict[str, StoredTensor]:
    tensors = self.files.tensors
    names = {
      field: layout.name_of(base, field)
      for field in (layout.marker, *layout.needed, *layout.optional)
    }
    return {field: tensors[name] for field, name in names.items() if name in tensors}

  def _codes(self, fields: Fields, scheme: Scheme, target: str) -> Entry:
    row = LAYOUTS[scheme.layout]
    name = row.name_of(fields.base, "input_scale")
    return Entry(
      target,
      [one.name for one in fields.stored.values()],
      lambda shape: row.check(fields, scheme, shape),
      lambda shape: row.read(fields, scheme, shape),
      True,
      scheme.activations,
      (lambda: self.files.read(name)) if name in self.files.tensors else None,
    )

  def _plain(self, tensor: StoredTensor, target: str) -> Entry:
    def check(shape: Shape) -> None:
      if tensor.shape != shape:
        raise CheckpointError(
          f"{tensor.name!r} of {tensor.path} has the shape {list(tensor.shape)}, but {target!r} of "
          f"the model has {list(shape)}"
        )
      if tensor.dtype not in (*FLOATS, "F64", "I64", "I32", "BOOL"):
        raise CheckpointError(
          f"{tensor.name!r} of {tensor.path} has the dtype {tensor.dtype}, which no parameter has"
        )

    def read(_shape: Shape) -> torch.Tensor:
      return self.files.mapped(tensor.name)

    return Entry(target, [tensor.name], check, read, False, is_mapped=True)

  def build(self, dtype: torch.dtype | None) -> torch.nn.Module:
    return models.of_folder(self.files.folder, dtype)


def _layouts_of(tensor: StoredTensor) -> Iterator[Layout]:
  """The layouts of which a tensor may be the codes, by its name and dtype."""
  seen = set()
  for layout in LAYOUTS.values():
    if tensor.name != layout.marker and not tensor.name.endswith(layout.mark + layout.marker):
      continue
    if layout.is_known_by_dtype and tensor.dtype not in ("I8", "U8", *FLOATS8):
      continue
    if (layout.mark, layout.marker) not in seen:
      seen.add((layout.mark, layout.marker))
      yield layout


def source_of(path: pathlib.Path, names: Names, quantization: Mapping[str, Any] | None) -> Source:
  """The checkpoint at a path."""
  if not path.exists():
    raise CheckpointError(
      f"{path} is not there: give a GGUF file, a file of safetensors, or a folder with such files"
    )
  if path.is_file() and path.suffix == ".gguf":
    if quantization is not None:
      raise CheckpointError(
        f"{path}: a GGUF file says itself how it is quantized: no quantization="
      )
    return GgufSource(path, names)
  if path.is_dir() and not list(path.glob("*.safetensors*")):
    files = sorted(path.glob("*.gguf"))
    if len(files) == 1:
      return source_of(files[0], names, quantization)
    if files:
      raise CheckpointError(f"{path} has several GGUF files: give one of {listed(map(str, files))}")
  found = SafetensorsSource(path, names, quantization)
  logging.getLogger("husk").debug("%s: %d tensors", path, len(found.files.tensors))
  return found
