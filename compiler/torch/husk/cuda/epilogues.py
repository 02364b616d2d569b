"""What Inductor fuses behind the products of eight_bits.py.

A scale for each row and each column is a vector, but Inductor loads it for every element of a tile:
each thread loads, converts and keeps hundreds of numbers while it has its sums, and the kernel of
256 x 128 elements moved 1,240 bytes of a thread to memory and back. `rewrite` loads the vector.
Triton then needs 209 of 255 registers, no memory, and half as many instructions."""

from __future__ import annotations

import re

# Templates of eight_bits.py have these lines, and Inductor's loads follow.
_MASK = "mask = (idx_m < M) & (idx_n < N)\n"
_OWN = "    SCALED_COLUMNS : tl.constexpr = "
_LOAD = re.compile(r"tl\.load\((\w+) \+ \(tl\.broadcast_to\(idx_([mn]), \[\w+, \w+\]\)\), mask\b")


def rewrite(source: str) -> str:
  """The module `source` with loads of vectors. Lines keep their numbers."""
  if _OWN not in source or _MASK not in source:
    return source
  begin = source.index(_MASK)
  return source[:begin] + _LOAD.sub(_of_vector, source[begin:])


def _of_vector(load: re.Match[str]) -> str:
  pointer, axis = load.groups()
  return f"tl.load({pointer} + idx_{axis}, idx_{axis} < {axis.upper()}"
