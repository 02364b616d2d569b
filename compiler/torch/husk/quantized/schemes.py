"""What `quantize=` asks for: weights of floats as codes and scales.

A scheme is a row: its name and the function that makes codes of a matrix of n x k floats. Others
are configurations of torchao, which torchao itself applies to the model before it is traced."""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .codes import Codes, pairs
from .unwrapped import restored

if TYPE_CHECKING:
  import torch

# A smaller weight of floats stays as it is.
LEAST_ELEMENTS = 1024
# The elements that share a scale in codes of 4 bits, if they divide a row.
_GROUP = 32


def _int8(matrix: torch.Tensor) -> Codes:
  """Ints with a scale for each row, which has the largest element at 127."""
  import torch

  scales = _or_one(matrix.abs().amax(1, keepdim=True) / 127)
  codes = (matrix / scales).round().clamp(-128, 127).to(torch.int8)
  return Codes(8, matrix.shape[1], codes, scales)


def _int4(matrix: torch.Tensor) -> Codes:
  """Ints of 4 bits with a scale in f16 for each 32 elements. The element of the largest absolute
  value is -8, so that all 16 codes are used."""
  import torch

  n, k = matrix.shape
  group = _GROUP if k % _GROUP == 0 else k
  groups = matrix.reshape(n, -1, group)
  largest = groups.gather(2, groups.abs().argmax(2, keepdim=True))
  scales = (largest / -8).to(torch.float16)
  if not bool(torch.isfinite(scales).all()) or bool((scales.abs() < 2**-14)[largest != 0].any()):
    scales = (largest / -8).to(torch.float32)
  scales = _or_one(scales)
  codes = (groups / scales.float()).round().clamp(-8, 7) + 8
  return Codes(4, group, pairs(codes.reshape(n, k)), scales[:, :, 0])


def _fp8(matrix: torch.Tensor) -> Codes:
  """Floats of 8 bits, e4m3, with a scale for each row."""
  import torch

  dtype = torch.float8_e4m3fn
  scales = _or_one(matrix.abs().amax(1, keepdim=True) / torch.finfo(dtype).max)
  return Codes(8, matrix.shape[1], (matrix / scales).to(dtype), scales)


# A scheme makes codes of so many elements at a time, since it takes several times their memory.
_AT_ONCE = 1 << 21


def _check_finite(name: str, weight: torch.Tensor) -> None:
  """Raises ValueError if a weight has numbers for which there are no codes."""
  import torch

  if not bool(torch.isfinite(weight).all()):
    raise ValueError(
      f"quantize=: the weight {name!r} has numbers that are NaN or infinite, of which no codes are "
      f'made; quantize={{{name!r}: "none", ...}} leaves it as it is'
    )


def by_rows(scheme: Callable[[torch.Tensor], Codes], name: str, matrix: torch.Tensor) -> Codes:
  """The codes that a scheme makes of a weight in any type of floats, some rows at a time. A row has
  scales of its own in each scheme. Raises ValueError if a number is NaN or infinite."""
  import torch

  n, k = matrix.shape
  codes = scales = torch.empty(0)
  first: Codes | None = None
  begin = 0
  for part in matrix.split(max(1, _AT_ONCE // max(k, 1))):
    _check_finite(name, part)
    found = scheme(part.float())
    if first is None:
      # Parts that were kept until the last one is there would leave holes in the heap.
      first = found
      codes = found.codes.new_empty(n, found.codes.shape[1])
      scales = found.scales.new_empty(n, found.scales.shape[1])
    if found.scales.dtype.itemsize > scales.dtype.itemsize:  # f16 has not those of all rows
      scales = scales.to(found.scales.dtype)
    codes[begin : begin + len(part)] = found.codes
    scales[begin : begin + len(part)] = found.scales
    begin += len(part)
  assert first is not None
  return Codes(first.bits, first.group, codes, scales)


def _or_one(scales: torch.Tensor) -> torch.Tensor:
  return scales.where(scales != 0, 1)


SCHEMES: dict[str, Callable[[torch.Tensor], Codes] | None] = {
  "int8": _int8,
  "int4": _int4,
  "fp8": _fp8,
  "none": None,
}


def check(quantize: Mapping[str, Any]) -> None:
  """Raises ValueError if a scheme is unknown."""
  for pattern, scheme in quantize.items():
    if isinstance(scheme, str) and scheme in SCHEMES:
      continue
    if _is_torchao(scheme):
      continue
    place = "" if pattern == "*" else f" of {pattern!r}"
    known = ", ".join(map(repr, SCHEMES))
    raise ValueError(
      f"quantize={scheme!r}{place}: give one of {known}, or a configuration of torchao"
    )


def check_program(quantize: Mapping[str, Any]) -> None:
  """Raises ValueError if a scheme needs the module of a program that was traced already."""
  for scheme in quantize.values():
    if _is_torchao(scheme):
      raise ValueError(
        f"quantize={type(scheme).__name__}: torchao changes modules, and this model is a "
        'torch.export.ExportedProgram; give the nn.Module, or "int8", "int4" or "fp8"'
      )


def _is_torchao(scheme: Any) -> bool:
  return type(scheme).__module__.split(".")[0] == "torchao"


def scheme_of(quantize: Mapping[str, Any], name: str) -> Callable[[torch.Tensor], Codes] | None:
  """The function for a weight, by the first pattern that its name, or that of its module, matches;
  None if it stays as it is."""
  for pattern, scheme in quantize.items():
    if _matches(pattern, name):
      return SCHEMES[scheme] if isinstance(scheme, str) else None
  return None


def _matches(pattern: str, name: str) -> bool:
  module = name.rpartition(".")[0]
  return any(fnmatch.fnmatchcase(one, pattern) for one in (name, module) if one)


@contextlib.contextmanager
def applied(model: torch.nn.Module, quantize: Mapping[str, Any]) -> Iterator[None]:
  """While open, the linear layers for which torchao has a configuration have its weights. After
  that the model has its own again."""
  configurations = [one for one in quantize.values() if _is_torchao(one)]
  if not configurations:
    yield
    return
  import torch
  from torchao.quantization import quantize_  # pyright: ignore[reportMissingImports]

  with restored(model):
    for configuration in configurations:

      def is_meant(module: torch.nn.Module, name: str, wanted: Any = configuration) -> bool:
        scheme = next(
          (one for pattern, one in quantize.items() if _matches(pattern, f"{name}.weight")), None
        )
        return isinstance(module, torch.nn.Linear) and scheme is wanted

      quantize_(model, configuration, filter_fn=is_meant)
    yield
