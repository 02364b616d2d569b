"""Gradients inside a model, by `torch.autograd.grad`, as torch.export traces them.

Autograd keeps results of operators, such as that of exp, and gives them to their gradients as new
tensors. torch's tracer knows tensors as objects alone, so it took these for constants, which have
no values, and torch.export refused the model. Here the tracer finds them by their memory, and takes
apart operators that consist of others, such as `linear`, where autograd keeps what is within."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .replace import replaced


@contextlib.contextmanager
def traced() -> Iterator[None]:
  """While open, torch.export traces gradients."""
  from torch._subclasses.fake_tensor import FakeTensor
  from torch.fx.experimental import proxy_tensor

  fetch, call = proxy_tensor.fetch_object_proxy, proxy_tensor.proxy_call
  # By tracer, memory and layout. The values are kept, since the tracer forgets what nobody has.
  known: dict[Any, Any] = {}

  def fetch_object_proxy(tracer: Any, value: Any) -> Any:
    found = fetch(tracer, value)
    if not isinstance(value, FakeTensor):
      return found
    if found is not value:
      if value.requires_grad:
        known.setdefault((id(tracer), *_layout(value)), value)
      return found
    same = known.get((id(tracer), *_layout(value)))
    return value if same is None else fetch(tracer, same)

  def proxy_call(mode: Any, func: Any, pre_dispatch: bool, args: Any, kwargs: Any) -> Any:
    if pre_dispatch and _has_gradient((args, kwargs)):
      with mode:
        result = func.decompose(*args, **kwargs)
      if result is not NotImplemented:
        return result
    return call(mode, func, pre_dispatch, args, kwargs)

  with replaced(
    (proxy_tensor, "fetch_object_proxy", fetch_object_proxy),
    (proxy_tensor, "proxy_call", proxy_call),
  ):
    yield


def _layout(value: Any) -> tuple[Any, ...]:
  """What tensors have in common that are the same elements."""
  sizes = (value.storage_offset(), *value.shape, *value.stride())
  numbers = (size if isinstance(size, int) else size.node.expr for size in sizes)
  return value.untyped_storage()._cdata, value.dtype, *numbers


def _has_gradient(values: Any) -> bool:
  import torch
  from torch.utils import _pytree as pytree

  return torch.is_grad_enabled() and any(
    isinstance(value, torch.Tensor) and value.requires_grad for value in pytree.tree_leaves(values)
  )
