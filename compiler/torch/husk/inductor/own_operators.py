"""Operators of Husk's as torch and Inductor know them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .lines import InductorObject


def define(
  name: str,
  arguments: str,
  fake: Callable[..., Any],
  result: str = "Tensor",
  tag: str = "flexible_layout",
  decomposed: Callable[..., Any] | None = None,
  eager: Callable[..., Any] | None = None,
) -> Any:
  """Defines the operator `husk::name`, whose results have the shapes and dtypes of those of `fake`.
  A process defines an operator once. `tag` is torch's name for the strides that the operator takes;
  by default, these are any. Programs of all targets have what `decomposed` computes in its place,
  if it is given. `eager` computes the operator in eager mode, on any device; without it eager mode
  has none."""
  import torch

  torch.library.define(
    f"husk::{name}",
    f"({arguments}) -> {result}",
    tags=(getattr(torch.Tag, tag),),
  )
  torch.library.register_fake(f"husk::{name}", fake)
  if eager is not None:
    torch.library.impl(f"husk::{name}", "CompositeExplicitAutograd", eager)
  operator = getattr(torch.ops.husk, name).default
  if decomposed is not None:
    _decomposed[operator] = decomposed
  return operator


# By operator: what computes it on all targets.
_decomposed: dict[Any, Callable[..., Any]] = {}


def decompositions() -> dict[Any, Callable[..., Any]]:
  """The decompositions of the operators that no target has."""
  return _decomposed


def realized(tensor: InductorObject) -> InductorObject:
  """A tensor in memory, in any format."""
  from torch._inductor import ir

  tensor = ir.ExternKernel.realize_input(tensor)
  ir.as_storage_and_layout(tensor, freeze=True)
  return tensor
