"""Operators that a compiled graph calls through torch's dispatcher: those that libhusk_ops does not
have, and those that draw random numbers, which come from torch's generators."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .. import hir
from ..errors import Unsupported
from ..host import operators
from ..host.kernels import HostKernels
from ..lower import extern

if TYPE_CHECKING:
  import torch


# Most operators of libhusk_ops take these. Which others an operator takes is not known here.
_DTYPES = frozenset(("f32", "f64", "f16", "bf16", "i64", "i32", "bool"))


class Kernels(HostKernels):
  """The kernels of a graph. `called` are the names of the operators that torch provides."""

  def __init__(self, isa: str) -> None:
    super().__init__(isa)
    self.called: list[str] = []

  def call_operator(self, call: hir.OperatorCall) -> list[hir.Statement]:
    plain = call.name.removesuffix(":sizes")
    op = overload(plain)
    if op is not None and extern.is_random(op) or not _has(call):
      if op is None:
        raise Unsupported(f"no implementation of {plain} on this CPU, and torch has none")
      if plain != call.name:
        raise Unsupported(f"{plain}, the sizes of whose results only the data decides")
      if plain not in self.called:
        self.called.append(plain)
    return super().call_operator(call)


def _has(call: hir.OperatorCall) -> bool:
  """Whether libhusk_ops has the operator of a call, for the dtypes of its tensors."""
  values = [*call.arguments, *call.results]
  return call.name in operators.names() and (
    call.name.endswith(":sizes")
    or all(one.dtype in _DTYPES for one in values if isinstance(one, hir.Tensor))
  )


def overload(name: str) -> Any:
  """The torch operator of a name such as "aten::mm.out", None if there is none."""
  import torch

  namespace, _, rest = name.partition("::")
  operator, _, variant = rest.partition(".")
  packet = getattr(getattr(torch.ops, namespace), operator, None)
  return getattr(packet, variant or "default", None)


def function(name: str) -> Callable[..., Any]:
  """What libhusk calls for the operator `name`: a function of all arguments of the schema, which
  are followed by the tensors that get the results."""
  import torch

  op = overload(name)
  arguments = op._schema.arguments
  converters = [_converter(argument) for argument in arguments]
  writes_results = any(argument.is_out for argument in arguments)

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
      if not writes_results:
        return _store(op, returned, iter(values[len(arguments) :]))
    return None

  return call


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
  elif output is not None:
    output.copy_(value)


def _converter(argument: Any) -> Callable[[Any], Any]:
  """Makes a value of libhusk, which has no bools, complex numbers and dtypes, what the operator
  expects."""
  kind = str(argument.type).replace("Optional[", "").rstrip("]")
  return {
    "bool": lambda value: None if value is None else bool(value),
    "List[bool": lambda value: None if value is None else [bool(one) for one in value],
    "number": _number,
    "Tensor": _number,  # torch makes a tensor of a number
  }.get(kind, lambda value: _dtypes().get(value, value) if type(value) is str else value)


def _number(value: Any) -> Any:
  return complex(*value) if isinstance(value, tuple) else value


@functools.cache
def _dtypes() -> dict[str, torch.dtype]:
  """The dtypes of torch by the names of libhusk."""
  import torch

  found = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
  return {name: dtype for dtype in found if (name := hir.dtype(dtype)) is not None}
