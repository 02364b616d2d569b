"""`load`: weights of a checkpoint into a model.

Everything that headers tell is checked before a weight is read. Weights become codes one by one,
and the model gets all of them at the end, so that it stays as it was if one cannot be read."""

from __future__ import annotations

import dataclasses
import logging
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .. import schemes, stacks
from ..codes import Codes
from ..layers import QuantizedEmbedding, QuantizedLinear, QuantizedWeight, Rounding, with_computed
from .errors import CheckpointError, listed
from .experts import stacked
from .layouts import Weight
from .scratch import Scratch
from .sources import Entry, Names, source_of

_ACTIVATIONS = ("exact", "quantized")
# A line of the log tells how far it is each so many seconds.
_SECONDS = 10.0


def load(
  path: str | pathlib.Path,
  model: torch.nn.Module | None = None,
  *,
  names: Names = None,
  activations: str = "exact",
  quantization: Mapping[str, Any] | None = None,
  dtype: torch.dtype | None = None,
  quantize: str | Mapping[str, Any] | None = None,
  scratch: str | pathlib.Path | None = None,
) -> torch.nn.Module:
  """Loads a checkpoint with weights of 8 and 4 bits into a model, and returns the model.

  Weights stay codes and scales: linear layers and embeddings become `QuantizedLinear` and
  `QuantizedEmbedding`, and other modules compute such a weight when they read it. All other tensors
  are parameters and buffers, in the types that the model has. `husk.export` takes the model as it
  is.

  path: a GGUF file, a file of safetensors, or a folder with such files and config.json.
  model: an nn.Module with the names of the checkpoint, as transformers' models have. Its parameters
    may be without memory: see `without_weights`. By default transformers makes the model that the
    metadata or config.json describes.
  names: a dict or a function from the names of the checkpoint, such as "layers.0.up.weight" also if
    there is a "layers.0.up.qweight", to those of the model; None is for a tensor that is left out.
    Those of a GGUF file whose architecture is known are transformers' names.
  activations: "exact" multiplies with the input as it is; "quantized" first rounds it to 8 bits if
    the configuration of the checkpoint says so.
  quantization: the quantization_config, if no file beside the tensors has one.
  dtype: in which type a model that transformers makes computes; by default that of config.json, and
    f32 for a GGUF file.
  quantize: the option of husk.export, "int4" for instance: floats of linear layers and embeddings
    become codes one by one, so that they are never all in memory.
  scratch: a folder on a disk, where the codes of a large model lie in files without a name as long
    as the model is there. By default they are in memory.

  The logger "husk" reports what was loaded. Raises CheckpointError, and leaves the model as it is,
  if a file is damaged or is of a kind that does not load, if a tensor of the checkpoint is for no
  parameter, or if one is for none."""
  path = pathlib.Path(path)
  if activations not in _ACTIVATIONS:
    raise ValueError(
      f"activations={activations!r}: give one of {', '.join(map(repr, _ACTIVATIONS))}"
    )
  quantize = {"*": quantize} if isinstance(quantize, str) else quantize or {}
  schemes.check(quantize)
  source = source_of(path, names, quantization)
  if model is None:
    model = source.build(dtype)
  elif dtype is not None:
    raise ValueError("dtype= is for a model that transformers makes: this one has its own")
  plan = _Plan(model, path, activations == "quantized", quantize, Scratch(scratch))
  entries = plan.checked(list(source.entries(plan.classes_of)))
  plan.read(entries)
  return plan.commit()


@dataclasses.dataclass
class _Place:
  """Where a tensor is in a model: the attribute of a module."""

  module: torch.nn.Module
  attribute: str


class _Plan:
  """What is to become of a model."""

  def __init__(
    self,
    model: torch.nn.Module,
    path: pathlib.Path,
    rounds: bool,
    quantize: Mapping[str, Any],
    scratch: Scratch,
  ) -> None:
    self.model, self.path, self.rounds, self.quantize = model, path, rounds, quantize
    self.scratch = scratch
    self.tensors: dict[str, torch.Tensor] = {
      name: one for name, one in model.state_dict(keep_vars=True).items() if _is_tensor(one)
    }
    self.places = {name: self._place(name) for name in self.tensors}
    # For each name of the model, the entry that fills it: one may fill several that are tied.
    self.filled_by: dict[str, Entry] = {}
    # By module and attribute: what it becomes.
    self.values: dict[tuple[torch.nn.Module, str], Any] = {}
    self.weights: dict[torch.nn.Module, dict[str, QuantizedWeight]] = {}
    self.replacements: dict[torch.nn.Module, torch.nn.Module] = {}
    self.counts: dict[str, list[int]] = {}

  def _place(self, name: str) -> _Place:
    parent, _, attribute = name.rpartition(".")
    return _Place(self.model.get_submodule(parent), attribute)

  def classes_of(self, name: str) -> Sequence[str]:
    """The names of the classes of the module that has a parameter. A module that only the
    checkpoint has, such as one of several experts, is taken for a linear layer."""
    place = self.places.get(name)
    return ["Linear"] if place is None else [one.__name__ for one in type(place.module).__mro__]

  def checked(self, entries: Sequence[Entry]) -> list[Entry]:
    """The entries that the model takes. Raises if they are not those of the model."""
    entries = stacked([entry for entry in entries if not self._is_empty_bias(entry)], self.tensors)
    self.filled_by = self._filled(entries)
    for entry in entries:
      entry.check(tuple(self.tensors[entry.target].shape))
    self._check_memory()
    if self.rounds:
      for entry in entries:
        _rounding_of(entry)
    return entries

  def _is_empty_bias(self, entry: Entry) -> bool:
    """Whether an entry is a bias of zeros for a layer without a bias, as some packages write it."""
    parent, _, attribute = entry.target.rpartition(".")
    place = self.places.get(f"{parent}.weight" if parent else "weight")
    if attribute != "bias" or entry.target in self.tensors or place is None or entry.has_codes:
      return False
    return "bias" in place.module._parameters and not bool(_numbers(entry.read(())).any())

  def _filled(self, entries: Sequence[Entry]) -> dict[str, Entry]:
    by_name: dict[str, Entry] = {}
    for entry in entries:
      if entry.target in by_name:
        others = listed([*entry.names, *by_name[entry.target].names])
        raise CheckpointError(f"{self.path}: several tensors are for {entry.target!r}: {others}")
      by_name[entry.target] = entry
    tied: dict[int, Entry] = {}
    for name, tensor in self.tensors.items():
      if name in by_name:
        tied.setdefault(id(tensor), by_name[name])
    filled = {}
    for name, tensor in self.tensors.items():
      entry = by_name.get(name) or tied.get(id(tensor))
      if entry is not None:
        filled[name] = entry
    self._check_names(entries, filled)
    return filled

  def _check_names(self, entries: Sequence[Entry], filled: Mapping[str, Entry]) -> None:
    known = {*self.tensors, *filled}
    unknown = [entry.names[0] for entry in entries if entry.target not in known]
    empty = [name for name in self.tensors if name not in filled]
    if unknown or empty:
      reasons = []
      if unknown:
        reasons.append(f"no module of the model takes {listed(unknown)}")
      if empty:
        reasons.append(f"no tensor fills {listed(empty)} of the model")
      raise CheckpointError(
        f"{self.path}: {'; '.join(reasons)}. names= maps names of the checkpoint to those of the "
        "model"
      )

  def _check_memory(self) -> None:
    """Raises if a tensor without memory stays without."""
    filled = {id(self.tensors[name]) for name in self.filled_by}
    empty = [
      name
      for name, tensor in (*self.model.named_parameters(), *self.model.named_buffers())
      if tensor.is_meta and id(tensor) not in filled
    ]
    if empty:
      raise CheckpointError(
        f"{listed(empty)} of the model are on the device meta and in no checkpoint: make the model "
        'in `with husk.quantized.without_weights()` instead of `with torch.device("meta")`'
      )

  def read(self, entries: Sequence[Entry]) -> None:
    """Reads all weights and makes the modules that take them."""
    logger = logging.getLogger("husk")
    next_line = time.monotonic() + _SECONDS
    names_of: dict[int, list[str]] = {}
    for name, entry in self.filled_by.items():
      names_of.setdefault(id(entry), []).append(name)
    codes: list[tuple[Entry, Weight]] = []
    for number, entry in enumerate(entries):
      if time.monotonic() > next_line:
        next_line = time.monotonic() + _SECONDS
        logger.info("%s: %d of %d weights, %s", self.path, number, len(entries), entry.target)
      found = self._read(entry, names_of[id(entry)])
      if isinstance(found, torch.Tensor):
        self._take_numbers(entry, names_of[id(entry)], found)
      else:
        found = dataclasses.replace(found, codes=self.scratch.moved(found.codes))
        codes.append((entry, found))
    for entry, found in codes:
      self._take_codes(entry, names_of[id(entry)], found, codes)

  def _read(self, entry: Entry, names: Sequence[str]) -> torch.Tensor | Weight:
    """A weight: codes if it has some, or gets some because `quantize` asks for them. An export
    looks at the others."""
    shape = tuple(self.tensors[entry.target].shape)
    scheme = self._scheme(entry, names)
    if scheme is None:
      return entry.read(shape)

    def codes_of(matrix: torch.Tensor) -> Codes:
      return schemes.by_rows(scheme, entry.target, matrix)

    try:
      if entry.read_each is not None:
        return entry.read_each(shape, codes_of)
      found = entry.read(shape)
      if not isinstance(found, torch.Tensor) or not found.is_floating_point():
        return found
      if found.dim() == 2:
        return Weight(codes_of(found))
      matrices = found.mT if _has_transposed_stacks(self.places[entry.target].module) else found
      codes = stacks.by_rows(scheme, entry.target, matrices)
      return Weight(codes, is_transposed=matrices is not found)
    except ValueError as error:
      raise CheckpointError(f"{self.path}: {error}") from None

  def _scheme(self, entry: Entry, names: Sequence[str]) -> Callable[[torch.Tensor], Codes] | None:
    """What makes codes of the floats of a linear layer, of an embedding or of a mixture's experts;
    None if they stay floats."""
    first = self.tensors[entry.target]
    if not self.quantize or first.dim() not in (2, 3) or not first.is_floating_point():
      return None
    if entry.has_codes or first.numel() < schemes.LEAST_ELEMENTS or min(first.shape[-2:]) <= 1:
      return None
    places = [self.places[name] for name in names]
    if first.dim() == 3:
      is_meant = all(_has_transposed_stacks(one.module) is not None for one in places)
    else:
      is_meant = all(one.attribute == "weight" and _is_plain_layer(one.module) for one in places)
    return schemes.scheme_of(self.quantize, names[0]) if is_meant else None

  def _take_numbers(self, entry: Entry, names: Sequence[str], found: torch.Tensor) -> None:
    first = self.tensors[entry.target]
    if found.is_floating_point() != first.is_floating_point():
      raise CheckpointError(
        f"{entry.names[0]!r} of {self.path} has the dtype {found.dtype}, but {entry.target!r} of "
        f"the model has {first.dtype}"
      )
    value = found.to(device=_device(first), dtype=first.dtype)
    if value is found and entry.is_mapped:
      value = found.clone()
    if isinstance(first, torch.nn.Parameter):
      value = torch.nn.Parameter(value, requires_grad=first.requires_grad)
    self._count(str(first.dtype)[6:], value.numel() * value.element_size())
    for name in names:
      place = self.places[name]
      self.values[place.module, place.attribute] = value

  def _take_codes(
    self,
    entry: Entry,
    names: Sequence[str],
    found: Weight,
    others: Sequence[tuple[Entry, Weight]],
  ) -> None:
    first = self.tensors[entry.target]
    if not first.is_floating_point():
      raise CheckpointError(
        f"{entry.names[0]!r} of {self.path} are codes, but {entry.target!r} of the model has the "
        f"dtype {first.dtype}"
      )
    is_transposed = found.is_transposed or (
      found.may_be_transposed and self._is_transposed(entry, found, others)
    )
    weight = QuantizedWeight(found.codes, first.dtype, is_transposed).to(_device(first))
    self._count(_kind(found), found.codes.bytes)
    for name in names:
      place = self.places[name]
      if place.module in self.replacements:  # a module that has several names
        continue
      if place.attribute == "weight" and _is_plain_layer(place.module):
        self._replace(place.module, entry, weight, found)
        continue
      if found.order is not None:
        raise CheckpointError(
          f"{entry.names[0]!r} of {self.path} has columns in the order of groups, which only "
          f"torch.nn.Linear takes, and {name!r} is of {type(place.module).__name__}"
        )
      self.weights.setdefault(place.module, {})[place.attribute] = weight

  def _is_transposed(
    self, entry: Entry, found: Weight, others: Sequence[tuple[Entry, Weight]]
  ) -> bool:
    """Whether the model has the matrices of a stack transposed. Other stacks of the same module
    tell it of square ones; without others they are, as in transformers."""
    module = self.places[entry.target].module
    for one, weight in ((entry, found), *others):
      rows, columns = self.tensors[one.target].shape[-2:]
      if rows != columns and weight.may_be_transposed and self.places[one.target].module is module:
        return weight.codes.scales.shape[-2] != rows
    return True

  def _replace(
    self, module: torch.nn.Module, entry: Entry, weight: QuantizedWeight, found: Weight
  ) -> None:
    if isinstance(module, torch.nn.Embedding):
      new: torch.nn.Module = QuantizedEmbedding(weight, module.padding_idx)
    else:
      bias: Any = self.values.pop((module, "bias"), module._parameters.get("bias"))
      order = None if found.order is None else found.order.to(weight.device)
      rounding = _rounding_of(entry) if self.rounds else None
      new = QuantizedLinear(weight, bias, order, rounding)
    self.replacements[module] = new.train(module.training)

  def _count(self, kind: str, size: int) -> None:
    count = self.counts.setdefault(kind, [0, 0])
    count[0] += 1
    count[1] += size

  def commit(self) -> torch.nn.Module:
    """Changes the model, and returns it, or what takes its place."""
    for (module, attribute), value in self.values.items():
      setattr(module, attribute, value)
    for module, weights in self.weights.items():
      with_computed(module, weights)
    for parent in list(self.model.modules()):
      for name, child in parent._modules.items():
        if child in self.replacements:
          parent._modules[name] = self.replacements[child]
    for kind, (count, size) in sorted(self.counts.items()):
      logging.getLogger("husk").info(
        "%s: %d weights of %s, %s bytes", self.path, count, kind, f"{size:,}"
      )
    return self.replacements.get(self.model, self.model)


def _is_tensor(value: Any) -> bool:
  return isinstance(value, torch.Tensor)


def _device(tensor: torch.Tensor) -> torch.device:
  return torch.device("cpu") if tensor.is_meta else tensor.device


def _is_plain_layer(module: torch.nn.Module) -> bool:
  """Whether a layer computes what QuantizedLinear or QuantizedEmbedding does."""
  if isinstance(module, torch.nn.Embedding):
    return type(module).forward is torch.nn.Embedding.forward and module.max_norm is None
  return isinstance(module, torch.nn.Linear) and type(module).forward is torch.nn.Linear.forward


def _has_transposed_stacks(module: torch.nn.Module) -> bool | None:
  """Whether the stacks of a layer of experts have matrices of k x n. None if it is no such layer of
  transformers, which multiplies with stacks in ways that an export recognises."""
  found = getattr(module, "is_transposed", None)
  has_experts = isinstance(getattr(module, "num_experts", None), int)
  return found if has_experts and isinstance(found, bool) else None


def _numbers(found: torch.Tensor | Weight) -> torch.Tensor:
  assert not isinstance(found, Weight)
  return found


def _kind(found: Weight) -> str:
  codes = found.codes
  return f"{codes.bits} bits in groups of {codes.group}"


def _rounding_of(entry: Entry) -> Rounding | None:
  """How the input of a layer is rounded by the configuration of the checkpoint."""
  settings = entry.activations
  if not settings:
    return None
  dtypes = {("int", 8): torch.int8, ("float", 8): torch.float8_e4m3fn}
  dtype = dtypes.get((settings.get("type", "int"), settings.get("num_bits", 8)))
  strategy, is_dynamic = settings.get("strategy") or "tensor", settings.get("dynamic")
  if dtype is not None and settings.get("symmetric", True):
    if is_dynamic and strategy == "token":
      return Rounding(dtype)
    if is_dynamic and strategy == "group" and settings.get("group_size"):
      return Rounding(dtype, group=settings["group_size"])
    if not is_dynamic and strategy == "tensor" and entry.input_scale is not None:
      scale = entry.input_scale().float()
      if scale.numel() == 1 and float(scale) > 0 and bool(torch.isfinite(scale).all()):
        return Rounding(dtype, float(scale))
  raise CheckpointError(
    f'activations="quantized": the input of {entry.target!r} would be rounded by {dict(settings)}, '
    'which Husk does not do: take activations="exact"'
  )
