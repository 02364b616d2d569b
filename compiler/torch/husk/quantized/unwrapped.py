"""Parameters that are tensor subclasses, such as those of torchao, as plain tensors.

torch.export does not trace a parameter that is a subclass made of other tensors. While a model is
traced, its parts are parameters of the module instead, and the subclass is made of them where the
model reads it: the program then contains what the subclass does.

A subclass says what a function does with it in `__torch_function__`, which works while torch.export
traces, or in `__torch_dispatch__` alone, which does not: PyTorch asks the other tensors first,
which are tensors of the trace by then. `Dispatched` asks these subclasses itself."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import exponents

if TYPE_CHECKING:
  import torch


@contextlib.contextmanager
def unwrapped(model: torch.nn.Module) -> Iterator[None]:
  """While open, no parameter or buffer of the model is a subclass that is made of other tensors.
  After that the model has its own again."""
  from torch.nn.utils import parametrize

  with restored(model):
    has_subclasses = False
    for module in list(model.modules()):
      own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
      for name, tensor in own:
        if _has_parts(tensor):
          parts = _parts_class()(tensor)
          parametrize.register_parametrization(module, name, parts, unsafe=True)
          has_subclasses = True
    # A mode sees each call of the trace, so other models have none.
    with _dispatched_class()() if has_subclasses else contextlib.nullcontext():
      yield


@contextlib.contextmanager
def restored(model: torch.nn.Module) -> Iterator[None]:
  """When it is left, the modules of a model have the classes, parameters, buffers and modules that
  they had before."""
  kept = [
    (module, type(module), {name: dict(vars(module)[name]) for name in _TABLES})
    for module in model.modules()
  ]
  try:
    yield
  finally:
    for module, own_class, tables in kept:
      module.__class__ = own_class
      for name, table in tables.items():
        vars(module)[name].clear()
        vars(module)[name].update(table)


# The attributes in which a module keeps its parameters, buffers and parts.
_TABLES = ("_parameters", "_buffers", "_modules")


def _has_parts(tensor: torch.Tensor) -> bool:
  from torch.utils._python_dispatch import is_traceable_wrapper_subclass

  return bool(is_traceable_wrapper_subclass(tensor))


@functools.cache
def _dispatched_class() -> Any:
  import torch
  from torch.overrides import TorchFunctionMode
  from torch.utils import _pytree as pytree

  class Dispatched(TorchFunctionMode):
    """Calls of functions with subclasses that have only `__torch_dispatch__`, by that."""

    def __torch_function__(
      self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
      kwargs = kwargs or {}
      overloads = getattr(torch.ops.aten, getattr(func, "__name__", ""), None)
      operator = getattr(overloads, "default", None) or getattr(overloads, "int", None)
      tensors = filter(_only_dispatched, pytree.tree_leaves((args, kwargs)))
      tensor = next(tensors, None) if operator is not None else None
      if tensor is not None:
        call_arguments = _as_dispatched(operator, args, kwargs)
        # The mode is open for the calls that the subclass makes, too.
        with contextlib.suppress(NotImplementedError), self:
          found = type(tensor).__torch_dispatch__(operator, (type(tensor),), *call_arguments)
          if found is not NotImplemented:
            return found
      return func(*args, **kwargs)

  return Dispatched


def _only_dispatched(value: Any) -> bool:
  import torch

  disabled = torch._C._disabled_torch_function_impl
  return (
    isinstance(value, torch.Tensor)
    and type(value).__torch_function__ is disabled
    and _has_parts(value)
  )


def _as_dispatched(
  operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
  """Arguments as PyTorch's dispatcher gives them: by place if they can be, and none at the end that
  equals its default."""
  rest = dict(kwargs)
  places = [argument for argument in operator._schema.arguments if not argument.kwarg_only]
  values = list(args)
  for argument in places[len(values) :]:
    if argument.name not in rest:
      break
    values.append(rest.pop(argument.name))
  while values and len(values) <= len(places):
    last = places[len(values) - 1]
    if not last.has_default_value() or values[-1] is not last.default_value:
      break
    values.pop()
  return tuple(values), rest


@functools.cache
def _parts_class() -> Any:
  import torch

  class Parts(torch.nn.Module):
    """Takes a tensor apart, into tensors that have no parts, and makes it of them again."""

    def __init__(self, tensor: Any) -> None:
      super().__init__()
      self.made_of = _description(tensor)

    # torch evaluates annotations, in a module that has no name `torch`.
    def right_inverse(self, tensor: Any) -> Any:
      return list(_leaves(tensor))

    def forward(self, *parts: Any) -> Any:
      return _made(self.made_of, iter(parts))

  return Parts


# The class of a tensor, what its class needs to make it, its size and strides, and its parts by
# name. A plain tensor has a dtype instead.
_Description = tuple[type, Any, tuple[int, ...], tuple[int, ...], dict[str, Any]]


def _description(tensor: torch.Tensor) -> _Description | torch.dtype:
  if not _has_parts(tensor):
    return tensor.dtype
  whole: Any = tensor
  names, context = whole.__tensor_flatten__()
  parts = {name: _description(getattr(tensor, name)) for name in names}
  return type(tensor), context, tensor.size(), tensor.stride(), parts


def _leaves(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
  if not _has_parts(tensor):
    yield exponents.as_bytes(tensor.detach())
    return
  whole: Any = tensor
  names, _ = whole.__tensor_flatten__()
  for name in names:
    yield from _leaves(getattr(tensor, name))


def _made(description: _Description | torch.dtype, parts: Iterator[torch.Tensor]) -> torch.Tensor:
  if not isinstance(description, tuple):
    part = next(parts)
    return part if part.dtype == description else part.view(description)
  kind, context, size, strides, inner = description
  tensors = {name: _made(one, parts) for name, one in inner.items()}
  subclass: Any = kind
  return subclass.__tensor_unflatten__(tensors, context, size, strides)
