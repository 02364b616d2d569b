"""How Inductor's lowering of convolutions gets kernels of a template for those of images."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from ..inductor.lines import InductorObject

Lowering = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Convolution:
  """The arguments of aten.convolution in a lowering."""

  x: InductorObject
  weight: InductorObject
  bias: InductorObject | None
  stride: Sequence[int]
  padding: Sequence[int]
  dilation: Sequence[int]
  transposed: bool
  output_padding: Sequence[int]
  groups: int

  @property
  def is_of_images(self) -> bool:
    return len(self.weight.get_size()) == len(self.x.get_size()) == 4 and not self.transposed


def lowering(templated: Callable[[Convolution], Any], otherwise: Lowering) -> Lowering:
  """A lowering of convolutions. `templated` returns the result of a convolution without the bias,
  or None if it has no kernel for it, which is then lowered by `otherwise`."""

  def lowered(*args: Any, **named: Any) -> Any:
    import torch
    from torch._inductor.lowering import lowerings as table

    call = Convolution(*args, **named)
    result = templated(call)
    if result is None:
      return otherwise(*args, **named)
    if call.bias is None:
      return result
    aten = torch.ops.aten
    return table[aten.add.Tensor](result, table[aten.view.default](call.bias, [-1, 1, 1]))

  return lowered


def pair(values: Sequence[int]) -> tuple[int, int]:
  """The values for rows and columns, of which one may stand for both."""
  return (int(values[0]), int(values[-1]))
