"""Models of transformers for checkpoints, without memory for their parameters."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import gguf_names
from .errors import CheckpointError
from .gguf_file import GgufFile
from .tensor_files import json_of

if TYPE_CHECKING:
  import torch


@contextlib.contextmanager
def without_weights() -> Iterator[None]:
  """While open, the parameters of modules that are made have no memory: they are on the device
  "meta". Buffers have some, since modules compute what is in them."""
  import torch
  from torch.nn.modules import module as modules

  def without_memory(
    _module: torch.nn.Module, _name: str, parameter: torch.nn.Parameter | None
  ) -> Any:
    if parameter is None or parameter.is_meta:  # one on meta may be tied: it stays itself
      return parameter
    return torch.nn.Parameter(parameter.data.to("meta"), requires_grad=parameter.requires_grad)

  hook = modules.register_module_parameter_registration_hook(without_memory)
  try:
    yield
  finally:
    hook.remove()


def _transformers(path: pathlib.Path) -> Any:
  try:
    import transformers  # pyright: ignore[reportMissingImports]
  except ModuleNotFoundError as error:
    raise CheckpointError(
      f"{path}: to make the model, too, needs transformers ({error}): install it, or give the model"
    ) from error
  return transformers


def of_gguf(file: GgufFile, dtype: torch.dtype | None) -> torch.nn.Module:
  """The model that the metadata of a GGUF file describes; by default it computes in f32."""
  import torch

  model_type, fields = gguf_names.configuration(file)
  transformers = _transformers(file.path)
  config = transformers.AutoConfig.for_model(model_type, **fields)
  model = _empty(transformers.AutoModelForCausalLM, config, dtype or torch.float32)
  factors = file.tensors.get("rope_freqs.weight")
  if factors is not None:
    _divide_frequencies(file, model, factors.type.decode(file.blocks(factors.name)))
  return model


def _divide_frequencies(file: GgufFile, model: torch.nn.Module, factors: torch.Tensor) -> None:
  """Sets the frequencies of rotary embeddings, which a file has as factors for long contexts."""
  for module in model.modules():
    for name, buffer in module.named_buffers(recurse=False):
      if name.endswith("inv_freq"):
        if buffer.shape != factors.shape:
          raise CheckpointError(
            f"{file.path}: 'rope_freqs.weight' has the shape {list(factors.shape)}, not "
            f"{list(buffer.shape)}"
          )
        buffer.copy_(buffer / factors)


def of_folder(folder: pathlib.Path, dtype: torch.dtype | None) -> torch.nn.Module:
  """The model that config.json describes."""
  if not (folder / "config.json").is_file():
    raise CheckpointError(f"{folder} has no config.json to make a model of: give the model")
  described = json_of(folder / "config.json")
  transformers = _transformers(folder)
  config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
  for one in (config, getattr(config, "text_config", None)):
    if one is not None and hasattr(one, "quantization_config"):
      del one.quantization_config
  name = next(iter(described.get("architectures") or ()), "")
  own_class = getattr(transformers, str(name), None)
  return _empty(own_class or transformers.AutoModelForCausalLM, config, dtype)


def _empty(own_class: Any, config: Any, dtype: torch.dtype | None) -> torch.nn.Module:
  import torch

  wanted: torch.dtype = dtype or getattr(config, "dtype", None) or torch.float32
  create = getattr(own_class, "from_config", own_class)  # of the classes that choose another one
  before = torch.get_default_dtype()
  torch.set_default_dtype(wanted)
  try:
    with without_weights():
      model = create(config)
  finally:
    torch.set_default_dtype(before)
  return model.eval()
