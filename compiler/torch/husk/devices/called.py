"""The operators that a graph of torch.compile calls through torch's dispatcher: those that
libhusk_ops does not have, and those that draw random numbers, which come from torch's
generators."""

from __future__ import annotations

from .. import hir
from ..errors import OTHER_OPERATORS, Unsupported
from ..lower import extern
from ..lower.extern import overload


class Called:
  """The operators that a graph calls through torch's dispatcher, by `names`."""

  def __init__(self) -> None:
    self.names: list[str] = []

  def see(self, call: hir.OperatorCall, is_here: bool) -> None:
    """Notes a call. `is_here`: whether libhusk has the operator for the tensors of the call."""
    plain = call.name.removesuffix(":sizes")
    op = overload(plain)
    if is_here and (op is None or not extern.is_random(op)):
      return
    if op is None:
      raise Unsupported(
        f"no implementation of {plain} on this device, and torch has none", remedy=OTHER_OPERATORS
      )
    if plain != call.name:
      raise Unsupported(
        f"{plain}, the sizes of whose results only the data decides",
        remedy="call it outside of the compiled function",
      )
    if plain not in self.names:
      self.names.append(plain)
