"""Modules whose weight is codes and scales: `QuantizedLinear` and `QuantizedEmbedding` call the
operators of `operator.py` themselves, so that an export needs no search for codes, and
`with_computed` gives any other module a weight that is computed when it is read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch

from .codes import Codes
from .operator import dequantized, embedding, operator

# The operators are defined here, once: torch's tracers do not follow how they are defined.
_LINEAR, _EMBEDDING, _DEQUANTIZED = operator(), embedding(), dequantized()


class QuantizedWeight(torch.nn.Module):
  """A matrix of n x k as buffers `codes` and `scales`, and `zeros` and `values` if it has them, as
  `codes.Codes` describes them; or a stack of such matrices. `dtype` is the type of its numbers
  where a module reads them. The buffers keep their types when a module is cast to another one.

  Modules that share a weight hold the same QuantizedWeight, so that it stays one when they move to
  another device."""

  codes: torch.Tensor
  scales: torch.Tensor
  zeros: torch.Tensor | None
  values: torch.Tensor | None

  def __init__(self, codes: Codes, dtype: torch.dtype, is_transposed: bool = False) -> None:
    super().__init__()
    self.bits, self.group, self.dtype = codes.bits, codes.group, dtype
    self.is_transposed = is_transposed
    for name in _PARTS:
      self.register_buffer(name, getattr(codes, name))

  @property
  def shape(self) -> torch.Size:
    *rows, groups = self.scales.shape
    sizes = [*rows, groups * self.group]
    if self.is_transposed:
      sizes[-2:] = reversed(sizes[-2:])
    return torch.Size(sizes)

  @property
  def device(self) -> torch.device:
    return self.codes.device

  def parts(
    self,
  ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """The arguments of the operators that are tensors."""
    return self.codes, self.scales, self.zeros, self.values

  def forward(self) -> torch.Tensor:
    """The numbers of the matrix."""
    matrix = _DEQUANTIZED(*self.parts(), self.bits, self.group, self.dtype)
    return matrix.mT if self.is_transposed else matrix

  def extra_repr(self) -> str:
    return f"{tuple(self.shape)}, bits={self.bits}, group={self.group}, dtype={self.dtype}"

  def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Any:
    before = {name: self._buffers[name] for name in _PARTS}
    # A cast changes the type of the numbers as it changes a parameter of floats.
    self.dtype = fn(torch.empty(0, dtype=self.dtype)).dtype
    super()._apply(fn, recurse)
    for name, tensor in before.items():
      after = self._buffers[name]
      if tensor is not None and after is not None and after.dtype != tensor.dtype:
        self._buffers[name] = tensor.to(after.device)
    return self


_PARTS = ("codes", "scales", "zeros", "values")


@dataclasses.dataclass(frozen=True)
class Rounding:
  """How a layer rounds its input before it multiplies: to ints or floats of 8 bits of the type
  `dtype`, with a scale for each row, of its largest element, or for each `group` elements of one if
  that is not 0, or with the one number `scale`."""

  dtype: torch.dtype
  scale: float | None = None
  group: int = 0

  def __call__(self, x: torch.Tensor) -> torch.Tensor:
    is_int = self.dtype == torch.int8
    most = 127.0 if is_int else torch.finfo(self.dtype).max
    plain = x.to(torch.float32)
    if self.group:
      plain = plain.unflatten(-1, (-1, self.group))
    scale: torch.Tensor | float | None = self.scale
    if scale is None:
      largest = plain.abs().amax(-1, keepdim=True)
      scale = torch.where(largest == 0, 1.0, largest / most)
    plain = (plain / scale).clamp(-128.0 if is_int else -most, most)
    rounded = plain.round() if is_int else plain.to(self.dtype).to(torch.float32)
    return (rounded * scale).reshape(x.shape).to(x.dtype)


class QuantizedLinear(torch.nn.Module):
  """torch.nn.Linear with a QuantizedWeight.

  order: if the columns of the weight are in another order than those of the input, the column of
  the input that each of them is for.
  rounding: how the input is rounded first, if it is."""

  order: torch.Tensor | None

  def __init__(
    self,
    weight: QuantizedWeight,
    bias: torch.nn.Parameter | None = None,
    order: torch.Tensor | None = None,
    rounding: Rounding | None = None,
  ) -> None:
    super().__init__()
    self.out_features, self.in_features = weight.shape
    self.weight, self.rounding = weight, rounding
    self.register_parameter("bias", bias)
    self.register_buffer("order", order)

  def forward(self, input: torch.Tensor) -> torch.Tensor:
    weight = self.weight
    if self.rounding is not None:
      input = self.rounding(input)
    if self.order is not None:
      input = input.index_select(-1, self.order)
    return _LINEAR(input, *weight.parts(), self.bias, None, "none", weight.bits, weight.group)

  def extra_repr(self) -> str:
    return (
      f"in_features={self.in_features}, out_features={self.out_features}, "
      f"bias={self.bias is not None}"
    )


class QuantizedEmbedding(torch.nn.Module):
  """torch.nn.Embedding with a QuantizedWeight. Its results have the type of the weight."""

  def __init__(self, weight: QuantizedWeight, padding_idx: int | None = None) -> None:
    super().__init__()
    self.num_embeddings, self.embedding_dim = weight.shape
    self.padding_idx = padding_idx
    self.weight = weight

  def forward(self, input: torch.Tensor) -> torch.Tensor:
    weight = self.weight
    return _EMBEDDING(input, *weight.parts(), weight.bits, weight.group, weight.dtype)

  def extra_repr(self) -> str:
    return f"{self.num_embeddings}, {self.embedding_dim}"


def with_computed(module: torch.nn.Module, weights: Mapping[str, QuantizedWeight]) -> None:
  """Replaces parameters of a module that is no layer of the kinds above, such as the experts of a
  mixture: the attribute is computed from codes each time that the module reads it. The codes of
  `up` are in the inner module `up_quantized`."""
  own_class = type(module)

  def read(name: str) -> property:
    return property(lambda self: self._modules[f"{name}_quantized"]())

  attributes: dict[str, Any] = {name: read(name) for name in weights}
  attributes["__module__"] = own_class.__module__
  for name, weight in weights.items():
    del module._parameters[name]
    module._modules[f"{name}_quantized"] = weight
  module.__class__ = type(own_class.__name__, (own_class,), attributes)
