"""What a backend answers to a kernel call (host_kernels.py, triton_kernels.py)."""

import dataclasses


@dataclasses.dataclass
class Launch:
  """`kernel` is the name of a row, `grid` three sympy expressions or ints. `arguments` has an entry for each parameter:
  ("view", access, what the call gave), ("value", what the call gave) ("asserts",), ("scratch", bytes, alignment)
  or ("null",)."""

  kernel: str
  grid: tuple
  arguments: list
