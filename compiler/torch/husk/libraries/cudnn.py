"""Convolutions that cuDNN computes where the program runs (`conv="cudnn"`), as calls of the CUDA
port's `husk::cudnn_convolution`. Biases and what follows a convolution stay kernels of the program.

A convolution of kernels of one element is a matrix product, which `gemm` decides."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy

from .. import hir
from ..errors import Unsupported
from ..inductor import torch_compat
from ..lower.body import Body
from ..lower.nodes import IrNode, layout_of

# Bytes of scratch memory with which cuDNN has fast engines for tensors whose channels come last.
WORKSPACE = 32 << 20


@contextlib.contextmanager
def called(wanted: bool) -> Iterator[None]:
  """While open, and if `wanted`, Inductor calls the operator for convolutions, and has no
  templates for them."""
  from torch._inductor import config

  with config.patch(max_autotune_conv_backends="ATEN") if wanted else contextlib.nullcontext():
    yield


class Convolutions(hir.Library):
  """Calls of convolutions."""

  def takes(self, op: Any) -> bool:
    import torch

    return op is torch.ops.aten.convolution.default

  def call(self, body: Body, node: IrNode, values: Mapping[str, Any], result: hir.Argument) -> None:
    x, weight = values["input"], values["weight"]
    if values.get("bias") is not None or not isinstance(result, hir.Tensor):
      raise Unsupported("cuDNN adds no bias to a convolution: export with conv='triton'")
    size = body.exprs.int(_workspace((x, weight, node)))
    workspace = body.declare("workspace", size, align=256)
    arguments: list[hir.Argument] = [
      body.tensor("read", x),
      body.tensor("read", weight),
      *(_ints(values[name]) for name in ("stride", "padding", "dilation")),
      hir.Literal(bool(values["transposed"])),
      hir.Literal(int(values["groups"])),
      hir.Literal(torch_compat.convolutions_in_tf32()),
    ]
    results: list[hir.Argument] = [
      result,
      hir.Tensor("write", workspace, "u8", [size], [hir.Literal(1)]),
    ]
    origin = body.origin(node)
    body.call_operator(hir.OperatorCall("husk::cudnn_convolution", arguments, results, origin))


def _ints(values: Sequence[Any]) -> hir.Ints:
  return hir.Ints(tuple(hir.Literal(int(value)) for value in values))


def _workspace(tensors: Sequence[IrNode]) -> Any:
  """The bytes of scratch memory. For tensors whose channels do not come last cuDNN may copy all of
  them to another layout."""
  layouts = [layout_of(tensor) for tensor in tensors]
  size = sympy.Integer(WORKSPACE)
  if all(layout.strides[1] == 1 for layout in layouts):
    return size
  return size + sum(
    sympy.prod(map(sympy.sympify, layout.sizes)) * layout.dtype.itemsize for layout in layouts
  )
