"""The functions by which a compiled graph calls operators through torch's dispatcher."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .. import hir
from ..lower.extern import overload

if TYPE_CHECKING:
  import torch


def function(name: str, device: str) -> Callable[..., Any]:
  """What libhusk calls for the operator `name`: a function of all arguments of the schema, which
  are followed by the tensors that get the results. `device` is where the program runs."""
  import torch

  op = overload(name)
  arguments = op._schema.arguments
  converters = [_converter(name, argument, torch.device(device)) for argument in arguments]
  writes_results = any(argument.is_out for argument in arguments)
  is_collective = name.startswith("_c10d_functional::")
  if name in ("_c10d_functional::wait_tensor", "_c10d_functional::wait_tensors"):
    # The call that it waits for has waited, or `module.wait` did before the program ran.
    return lambda *values: None

  def call(*values: Any) -> tuple[int | float, ...] | None:
    args, kwargs = [], {}
    for argument, convert, value in zip(arguments, converters, values):
      value = convert(value)
      if argument.kwarg_only:
        kwargs[argument.name] = value
      else:
        args.append(value)
    with torch.no_grad():
      returned = op(*args, **kwargs)
      if is_collective:
        _wait(returned)
      if not writes_results:
        return _store(op, returned, iter(values[len(arguments) :]))
    return None

  return call


def _wait(returned: Any) -> None:
  """Waits for a collective operator: on a GPU its stream does. PyTorch finds what to wait for by
  the tensor that was returned, and a later step has another one of the same memory."""
  wait = overload("_c10d_functional::wait_tensor")
  for tensor in returned if isinstance(returned, (list, tuple)) else [returned]:
    wait(tensor)


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
