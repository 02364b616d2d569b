"""Parameters that are tensor subclasses, such as those of torchao, as plain tensors.

torch.export does not trace a parameter that is a subclass made of other tensors. While a model is
traced, its parts are parameters of the module instead, and the subclass is made of them where the
model reads it: the program then contains what the subclass does."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import torch


@contextlib.contextmanager
def unwrapped(model: torch.nn.Module) -> Iterator[None]:
  """While open, no parameter or buffer of the model is a subclass that is made of other tensors.
  After that the model has its own again."""
  from torch.nn.utils import parametrize

  with restored(model):
    for module in list(model.modules()):
      own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
      for name, tensor in own:
        if _has_parts(tensor):
          parts = _parts_class()(tensor)
          parametrize.register_parametrization(module, name, parts, unsafe=True)
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
# name; None for a plain tensor.
_Description = tuple[type, Any, tuple[int, ...], tuple[int, ...], dict[str, Any]]


def _description(tensor: torch.Tensor) -> _Description | None:
  if not _has_parts(tensor):
    return None
  whole: Any = tensor
  names, context = whole.__tensor_flatten__()
  parts = {name: _description(getattr(tensor, name)) for name in names}
  return type(tensor), context, tensor.size(), tensor.stride(), parts


def _leaves(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
  if not _has_parts(tensor):
    yield tensor.detach()
    return
  whole: Any = tensor
  names, _ = whole.__tensor_flatten__()
  for name in names:
    yield from _leaves(getattr(tensor, name))


def _made(description: _Description | None, parts: Iterator[torch.Tensor]) -> torch.Tensor:
  if description is None:
    return next(parts)
  kind, context, size, strides, inner = description
  tensors = {name: _made(one, parts) for name, one in inner.items()}
  made: Any = kind
  return made.__tensor_unflatten__(tensors, context, size, strides)
