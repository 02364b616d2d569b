"""How an operator on complex tensors is computed while a graph is traced: by the table of
`operators`, or else in terms of other operators, as torch itself writes it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..decompositions import reduce
from . import operators
from .fourier import Constant
from .parts import Parts

if TYPE_CHECKING:
  import torch


@functools.cache
def _pair_class() -> Any:
  """The class of tensors that stand for complex ones. It is made here, since torch is imported
  only when it is needed."""
  import torch

  class Pair(torch.Tensor):
    """A tensor without memory of a complex dtype, which torch's code can ask for its shape."""

    parts: Parts

    @staticmethod
    def __new__(cls: Any, parts: Parts) -> Any:
      pair: Any = torch.Tensor._make_wrapper_subclass(
        cls,
        parts.re.size(),
        strides=parts.re.stride(),
        dtype=parts.re.dtype.to_complex(),
        device=parts.re.device,
      )
      pair.parts = parts
      return pair

    @classmethod
    def __torch_dispatch__(
      cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
      raise AssertionError(f"{func} on a complex tensor outside of the rewriting of a graph")

  return Pair


def tensor(parts: Parts) -> torch.Tensor:
  """A tensor that stands for a complex one."""
  return _pair_class()(parts)


def parts_of(value: Any) -> Any:
  """The parts of a tensor that stands for a complex one, else None."""
  return value.parts if isinstance(value, _pair_class()) else None


def computing(constant: Constant, library: bool) -> Any:
  """A context manager. While open, operators on tensors that `tensor` has made, and operators
  whose results are complex, are computed in real numbers; the results stand for complex tensors
  too. Its method `call(op, args, kwargs)` calls an operator so. `library`: whether Fourier
  transforms are calls of cuFFT."""
  return _mode_class()(constant, library)


@functools.cache
def _mode_class() -> Any:
  from torch.utils._python_dispatch import TorchDispatchMode

  class Mode(TorchDispatchMode):
    def __init__(self, constant: Constant, library: bool) -> None:
      super().__init__()
      self.table = operators.table(constant, library)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
      return self.call(func, args, kwargs or {})

    def call(self, op: Any, args: Any, kwargs: Any) -> Any:
      """Calls an operator. This mode is not active."""
      if not _is_complex(op, args, kwargs):
        return op(*args, **kwargs)
      function = self.table.get(_name(op))
      if function is not None:
        result = function(op, *_unwrapped(args), **_unwrapped(kwargs))
        if result is not NotImplemented:
          return _wrapped(result)
      decomposition = _decomposition(op)
      if decomposition is None:
        raise Missing(op.name())
      with self:
        result = decomposition(*args, **kwargs)
      if result is NotImplemented:
        raise Missing(op.name())
      return result

  return Mode


class Missing(Exception):
  """An operator on complex numbers that is not there."""


def _is_complex(op: Any, args: Any, kwargs: Any) -> bool:
  """Whether an operator has to do with complex numbers."""
  import torch
  from torch.utils import _pytree as pytree

  if any(word in op.name() for word in operators.MAKING_COMPLEX):
    return True
  return any(
    isinstance(leaf, (_pair_class(), complex))
    or (isinstance(leaf, torch.dtype) and leaf.is_complex)
    for leaf in pytree.tree_leaves((args, kwargs))
  )


def composite(op: Any) -> Callable[..., Any] | None:
  """What computes an operator that torch writes in terms of others for all devices, else None."""
  import torch

  key: Any = torch._C.DispatchKey.CompositeImplicitAutograd
  if key in op.py_kernels:
    return op.py_kernels[key]
  native: Any = torch._C
  # TorchScript has operators that the dispatcher does not know.
  name = op.name()
  if native._dispatch_has_kernel(name) and native._dispatch_has_kernel_for_dispatch_key(name, key):
    return functools.partial(op._op_dk, key)
  return None


def is_in_table(op: Any) -> bool:
  return _name(op) in _names()


@functools.cache
def _names() -> frozenset[str]:
  return frozenset(operators.table(_no_constant))


def _no_constant(name: str, make: Callable[[], torch.Tensor]) -> torch.Tensor:
  raise AssertionError("this table is not called")


def _name(op: Any) -> str:
  """The name of an operator without that of the overload."""
  return op.name().partition(".")[0]


def _decomposition(op: Any) -> Callable[..., Any] | None:
  """What torch knows an operator to be in terms of others, or else what Husk does for real
  numbers."""
  from torch._decomp import decomposition_table

  return composite(op) or decomposition_table.get(op) or reduce.table().get(op)


def _unwrapped(tree: Any) -> Any:
  from torch.utils import _pytree as pytree

  pair = _pair_class()
  return pytree.tree_map(lambda leaf: leaf.parts if isinstance(leaf, pair) else leaf, tree)


def _wrapped(result: Any) -> Any:
  if isinstance(result, Parts):
    return tensor(result)
  if isinstance(result, (list, tuple)):
    return type(result)(_wrapped(one) for one in result)
  return result
