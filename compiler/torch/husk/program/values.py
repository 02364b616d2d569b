"""The inputs and outputs of a function, one by one."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class Input:
  """An input. `kind` is tensor, int, float, bool or none. `value` is the only allowed value of an
  input that the program treats as a constant, else None."""

  name: str
  kind: str
  dtype: str = ""
  ranges: tuple[str | None, ...] = ()
  value: bool | int | float | None = None

  def line(self) -> str:
    """The input as a `.hir` writes it."""
    ranges = [str(limits) for limits in self.ranges]
    if self.kind == "tensor":
      return f"{self.name} tensor {self.dtype} [{', '.join(ranges)}]"
    return " ".join([self.name, self.kind, *ranges])


@dataclasses.dataclass
class Output:
  """An output. `kind` is as for Input; `value` is the value of a number that is always the same,
  else None. `on_host` tells whether a tensor lies on the CPU although the program has tensors on
  another device."""

  name: str
  kind: str
  dtype: str = ""
  rank: int = 0
  value: bool | int | float | None = None
  on_host: bool = False

  def line(self) -> str:
    """The output as a `.hir` writes it."""
    if self.kind != "tensor":
      return f"{self.name} {self.kind}"
    return f"{self.name} tensor {self.dtype} rank {self.rank}"
