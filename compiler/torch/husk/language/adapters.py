"""Adapters (LoRA) of a language model: constants that an application fills in while a program runs.

Each linear layer that is chosen has a stack of matrices `lora_A` (adapters x rank x inputs) and one
of matrices `lora_B` (adapters x outputs x rank). The result of the layer becomes y + B A x, with
the matrices of the adapter that the slot has. Adapter 0 is none, and its matrices stay zeros. The
constants are named `model.LAYER.lora_A` and `model.LAYER.lora_B`, where LAYER is the name of the
layer in the model, as PEFT has it after `base_model.model.`"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from ..errors import Unsupported
from ..exporter import Function
from . import decoder

MOST = 1024  # adapters, and the largest rank
# The option `quantize` for the matrices, which are zeros in an export.
UNQUANTIZED = {"*.lora_A": "none", "*.lora_B": "none"}


@dataclasses.dataclass(frozen=True)
class Chosen:
  """How many adapters a file has room for, their largest rank, and the layers that they may change:
  the ends of their names; none stands for all linear layers but the head."""

  count: int
  rank: int
  targets: tuple[str, ...] = ()


def chosen(count: int, rank: int, targets: Iterable[str] | None) -> Chosen | None:
  """The arguments of `export`; None if there are no adapters."""
  names = (targets,) if isinstance(targets, str) else tuple(targets or ())
  if not 0 <= count <= MOST:
    raise ValueError(f"adapters={count}: give a number from 0 to {MOST}")
  if count == 0:
    if names:
      raise ValueError("adapter_targets: give adapters=N too, the number of adapters")
    return None
  if not 1 <= rank <= MOST:
    raise ValueError(f"rank={rank}: give a number from 1 to {MOST}")
  return Chosen(count, rank, names)


@dataclasses.dataclass
class Attached:
  """The layers with adapters, and those of the call: a number for all rows, a number for each row
  (int64[rows]), or None. `called` has the layers that have run."""

  layers: dict[str, Any]
  numbers: int | torch.Tensor | None = None
  called: set[str] = dataclasses.field(default_factory=set)

  @property
  def nbytes(self) -> int:
    return sum(layer.get_buffer(name).nbytes for layer in self.layers.values() for name in _NAMES)


_NAMES = ("lora_A", "lora_B")


@contextlib.contextmanager
def attached(model: torch.nn.Module, wanted: Chosen) -> Iterator[Attached]:
  """While open, the layers of the model have adapters of zeros."""
  result = Attached(_layers(model, wanted.targets))
  hooks = []
  try:
    for name, layer in result.layers.items():
      sizes, weight = _sizes(layer), layer.weight
      assert sizes is not None
      shapes = (wanted.rank, sizes[0]), (sizes[1], wanted.rank)
      for stack, shape in zip(_NAMES, shapes, strict=True):
        zeros = torch.zeros(wanted.count + 1, *shape, dtype=weight.dtype, device=weight.device)
        layer.register_buffer(stack, zeros, persistent=False)
      hooks.append(layer.register_forward_hook(_hook(name, result)))
    yield result
  finally:
    for hook in hooks:
      hook.remove()
    for layer in result.layers.values():
      for stack in _NAMES:
        if hasattr(layer, stack):
          delattr(layer, stack)


def _hook(name: str, adapters: Attached) -> Any:
  def add(layer: torch.nn.Module, inputs: tuple[torch.Tensor, ...], result: Any) -> Any:
    adapters.called.add(name)
    if not isinstance(result, torch.Tensor):
      raise Unsupported(
        f"adapters: the result of the layer {name} is a {type(result).__name__} and no tensor",
        remedy="choose other layers by adapter_targets (--adapter-targets)",
      )
    if adapters.numbers is None:
      return None
    a, b = layer.get_buffer("lora_A"), layer.get_buffer("lora_B")
    added = _product(inputs[0].to(a.dtype), a, b, adapters.numbers)
    return result + added.to(result.dtype)

  return add


def _product(
  x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, numbers: int | torch.Tensor
) -> torch.Tensor:
  if not isinstance(numbers, torch.Tensor):
    return torch.nn.functional.linear(torch.nn.functional.linear(x, a[numbers]), b[numbers])
  rows = x if x.dim() == 3 else x.reshape(numbers.shape[0], -1, x.shape[-1])
  torch._check(rows.shape[0] == numbers.shape[0])
  added = torch.bmm(torch.bmm(rows, a[numbers].mT), b[numbers].mT)
  return added if x.dim() == 3 else added.reshape(*x.shape[:-1], added.shape[-1])


def _sizes(layer: Any) -> tuple[int, int] | None:
  """The numbers of inputs and outputs of a linear layer; None for other modules."""
  if hasattr(layer, "in_features") and hasattr(layer, "out_features"):
    return int(layer.in_features), int(layer.out_features)
  if hasattr(layer, "nf") and hasattr(layer, "weight"):  # transformers.Conv1D, of GPT-2
    return int(layer.weight.shape[0]), int(layer.nf)
  return None


def _layers(model: Any, targets: tuple[str, ...]) -> dict[str, Any]:
  """The layers with adapters by their names."""
  linear = {name: one for name, one in model.named_modules() if _sizes(one) is not None}
  if not targets:
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    found = {name: one for name, one in linear.items() if one is not head and name != "lm_head"}
    if not found:
      raise _no_layers(model, "has no linear layers")
    return found
  for target in targets:
    if not any(_ends_with(name, target) for name in linear):
      ends = sorted({name.rsplit(".", 1)[-1] for name in linear})
      raise ValueError(
        f"adapter_targets: no linear layer is named {target!r}: this {model.config.model_type} has "
        f"{', '.join(ends)}"
      )
  return {name: one for name, one in linear.items() if any(_ends_with(name, t) for t in targets)}


def _ends_with(name: str, target: str) -> bool:
  return name == target or name.endswith("." + target)


class AdaptedDecoder(decoder.Decoder):
  """A decoder whose functions take the adapters of the slots."""

  def __init__(
    self,
    model: Any,
    slots: int,
    max_tokens: int,
    dtype: torch.dtype | None,
    wanted: Chosen,
    adapters: Attached,
    pages: int | None = None,
  ) -> None:
    super().__init__(model, slots, max_tokens, dtype, pages)
    self.wanted, self._adapters = wanted, adapters

  def prefill(
    self, tokens: torch.Tensor, slot: int, position: int, span: int, adapter: int = 0
  ) -> tuple[torch.Tensor, torch.Tensor]:
    """Decoder.prefill with the adapter of the slot."""
    torch._check(adapter >= 0)
    torch._check(adapter <= self.wanted.count)
    self._adapters.numbers = adapter
    return super().prefill(tokens, slot, position, span)

  def decode(
    self,
    tokens: torch.Tensor,
    positions: torch.Tensor,
    span: int,
    adapters: torch.Tensor | None = None,
  ) -> tuple[torch.Tensor, torch.Tensor]:
    """Decoder.decode with the adapters (int64[n]) of the slots."""
    self._give(adapters, tokens)
    return super().decode(tokens, positions, span)

  def verify(
    self,
    tokens: torch.Tensor,
    positions: torch.Tensor,
    span: int,
    adapters: torch.Tensor | None = None,
  ) -> tuple[torch.Tensor, torch.Tensor]:
    """Decoder.verify with the adapters (int64[n]) of the slots."""
    self._give(adapters, tokens)
    return super().verify(tokens, positions, span)

  def _give(self, adapters: torch.Tensor | None, tokens: torch.Tensor) -> None:
    """Gives the rows of `tokens` their adapters."""
    if adapters is not None:
      torch._check(adapters.shape[0] == tokens.shape[0])
    self._adapters.numbers = adapters

  def embed(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Decoder.embed, which uses no adapter."""
    self._adapters.numbers = None
    return super().embed(tokens)

  def with_adapters(self, functions: Mapping[str, Function]) -> dict[str, Function]:
    """The functions with examples of adapters."""
    result = dict(functions)
    several = min(2, self.wanted.count)
    for name in ("prefill", "decode", "verify"):
      if name not in functions:
        continue
      one = functions[name]
      key, example, size = "adapter", several, torch.export.Dim.AUTO
      if name != "prefill":
        key, example = "adapters", torch.zeros_like(one.args[1]) + several
        size = one.dynamic_shapes["positions"]
      result[name] = dataclasses.replace(
        one, args=(*one.args, example), dynamic_shapes={**one.dynamic_shapes, key: size}
      )
    return result


def check(module: AdaptedDecoder, tokens: torch.Tensor, verifies: bool) -> None:
  """Compares the decoder, in a slot that has an adapter of random numbers, with the model, all of
  whose rows have it. The adapters and the caches are zeros afterwards."""
  adapters, number = module._adapters, module.wanted.count
  random = torch.Generator().manual_seed(0)
  for layer in adapters.layers.values():
    for name in _NAMES:
      matrix = layer.get_buffer(name)[number]
      matrix.copy_(torch.randn(matrix.shape, generator=random) * matrix.shape[-1] ** -0.5)
  try:
    with torch.no_grad():
      adapters.called.clear()
      adapters.numbers = number
      right = module.model(input_ids=tokens[None], use_cache=False).logits[0].float()
      if missing := sorted(set(adapters.layers) - adapters.called):
        raise _no_layers(module.model, f"computes {missing[0]} in another way than as a layer")
      found = _logits(module, tokens, number, verifies)
  except (Unsupported, MemoryError):
    raise
  except Exception as error:
    raise _no_layers(
      module.model, f"has layers that do not take a row for each slot ({error})"
    ) from error
  finally:
    adapters.numbers = None
    for layer in adapters.layers.values():
      for name in _NAMES:
        layer.get_buffer(name).zero_()
    for buffer in module.buffers(recurse=False):
      buffer.zero_()
  limit = decoder.tolerance(module, exact_cache=True) * float(right.abs().max())
  errors = [float((one - right[at]).abs().max()) for at, one in found]
  if not max(errors) <= limit:
    raise _no_layers(module.model, f"gives logits that differ by {max(errors):.2g} with adapters")


def _logits(
  module: AdaptedDecoder, tokens: torch.Tensor, number: int, verifies: bool
) -> list[tuple[int, torch.Tensor]]:
  """The logits after some tokens, by their positions."""
  count, slot = len(tokens), module.slots - 1
  begin = count - 3
  numbers = torch.zeros(module.slots, dtype=torch.int64, device=tokens.device)
  positions = torch.full_like(numbers, module.max_tokens)
  row = torch.zeros(module.slots, 3, dtype=torch.int64, device=tokens.device)
  numbers[slot], positions[slot], row[slot] = number, begin, tokens[begin:]
  functions = module.by_slots()
  found = [(begin - 1, functions.prefill(tokens[:begin], slot, 0, begin, number)[1][0])]
  if verifies:
    found.append(
      (
        count - 1,
        functions.verify(row, positions, count, numbers)[1].unflatten(0, row.shape)[slot, 2],
      )
    )
  for k in range(3):
    at = (positions + k).clamp(max=module.max_tokens)
    found.append((begin + k, functions.decode(row[:, k], at, count, numbers)[1][slot]))
  return found


def _no_layers(model: Any, reason: str) -> Unsupported:
  return Unsupported(
    f"adapters: the architecture {model.config.model_type!r} {reason}",
    remedy="choose other layers by adapter_targets (--adapter-targets), such as those of attention",
  )


def describe(module: AdaptedDecoder) -> dict[str, int]:
  """What the file says of its adapters. Logs what they cost."""
  wanted, found = module.wanted, module._adapters
  logging.getLogger("husk").info(
    "adapters: %d of rank %d for %d layers take %.1f MB of memory (%d bytes) when they are set; "
    "the file has zeros of each size once",
    wanted.count,
    wanted.rank,
    len(found.layers),
    found.nbytes / 1e6,
    found.nbytes,
  )
  return {"adapters": wanted.count, "adapter_rank": wanted.rank}
