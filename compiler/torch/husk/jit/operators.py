"""The functions by which a compiled graph calls operators through torch's dispatcher."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .. import hir
from ..lower.extern import overload
from . import waits

if TYPE_CHECKING:
  import torch


def function(name: str, device: str, begun: waits.Begun) -> Callable[..., Any]:
  """What libhusk calls for the operator `name`: a function of all arguments of the schema, which
  are followed by the tensors that get the results. `device` is where the program runs, `begun` are
  the collectives for which a later step waits."""
  import torch

  if waits.is_wait(name):
    # Behind the argument of the schema are those of `waits.pair`, for the memory alone. What has
    # begun outside of the program was waited for before it ran (`module.wait`).
    return lambda value, *memory: begun.wait(*_flat([value]))
  op = overload(name)
  arguments = op._schema.arguments
  converters = [_converter(name, argument, torch.device(device)) for argument in arguments]
  writes_results = any(argument.is_out for argument in arguments)
  is_collective = waits.is_collective(name)

  def call(*values: Any) -> tuple[int | float, ...] | None:
    args, kwargs = [], {}
    for argument, convert, value in zip(arguments, converters, values):
      value = convert(value)
      if argument.kwarg_only:
        kwargs[argument.name] = value
      else:
        args.append(value)
    rest = values[len(arguments) :]
    with torch.no_grad():
      if is_collective:
        *outputs, is_waited_later = rest
        for one in _begin(op, args, kwargs, outputs):
          begun.add(one) if is_waited_later else one.wait()
        return None
      returned = op(*args, **kwargs)
      if not writes_results:
        return _store(op, returned, iter(rest))
    return None

  return call


# Collectives whose results another operator writes where they belong.
_INTO = {
  "_c10d_functional::all_gather_into_tensor": "_c10d_functional::all_gather_into_tensor_out",
  "_c10d_functional::reduce_scatter_tensor": "_c10d_functional::reduce_scatter_tensor_out",
}


def _begin(
  op: Any, args: list[Any], kwargs: dict[str, Any], outputs: Sequence[Any]
) -> list[waits.Result]:
  """Begins a collective, which writes an argument, or has results that go to `outputs`."""
  into = _INTO.get(op._schema.name)
  if into is not None and outputs[0].is_contiguous():
    op, kwargs, outputs = overload(into), {**kwargs, "out": outputs[0]}, []
  returned = _flat([op(*args, **kwargs)])
  targets = _flat(outputs) or returned
  return [waits.Result(one, target) for one, target in zip(returned, targets, strict=True)]


def _flat(values: Iterable[Any]) -> list[Any]:
  """Values, and those in lists among them."""
  return [
    one for value in values for one in (value if isinstance(value, (list, tuple)) else [value])
  ]


def _store(op: Any, returned: Any, outputs: Iterator[Any]) -> tuple[int | float, ...] | None:
  """Copies results to `outputs`; returns those that are numbers."""
  import torch

  results = op._schema.returns
  if len(results) < 2:
    returned = (returned,)[: len(results)]
  numbers = []
  for value, result in zip(returned, results, strict=True):
    if result.alias_info is not None and result.alias_info.is_write:
      continue  # an argument, which the operator has written
    if isinstance(value, (torch.Tensor, list, tuple)) or value is None:
      _copy(next(outputs), value)
    else:
      numbers.append(value)
  return tuple(numbers) or None


def _copy(output: Any, value: Any) -> None:
  if isinstance(output, list):
    for one, other in zip(output, value, strict=True):
      _copy(one, other)
  elif output is not None and value is not None:
    output.copy_(value)


# Arguments that operators of attention with dropout read on the host.
_ON_HOST = {
  "aten::_scaled_dot_product_efficient_attention_backward": ("philox_seed", "philox_offset")
}


def _converter(name: str, argument: Any, device: torch.device) -> Callable[[Any], Any]:
  """Makes a value of libhusk, which has no bools, complex numbers, dtypes and devices, what the
  operator `name` expects."""
  if argument.name in _ON_HOST.get(name, ()):
    return lambda value: value.cpu()
  kind = str(argument.type).replace("Optional[", "").rstrip("]")
  return {
    "bool": lambda value: None if value is None else bool(value),
    "List[bool": lambda value: None if value is None else [bool(one) for one in value],
    "number": _number,
    "Tensor": _number,  # torch makes a tensor of a number
    "Device": lambda value: device,
  }.get(kind, lambda value: _dtypes().get(value, value) if type(value) is str else value)


def _number(value: Any) -> Any:
  return complex(*value) if isinstance(value, tuple) else value


@functools.cache
def _dtypes() -> dict[str, torch.dtype]:
  """The dtypes of torch by the names of libhusk."""
  import torch

  found = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
  return {name: dtype for dtype in found if (name := hir.dtype(dtype)) is not None}
