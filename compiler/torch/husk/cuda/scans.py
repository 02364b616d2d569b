"""Scans in kernels of Inductor over more elements than a block has.

Between blocks, Inductor selects the last element of a block as a sum in which all others are zero.
A sum of ints of 8 or 16 bits has 32 in Triton, and Inductor reads its bits as those of an element,
which Triton refuses. `rewrite` converts the sum first."""

from __future__ import annotations

import re

_FUNCTION = "husk_selected"
_INDUCTOR = re.compile(r"\btriton_helpers\.select_one\(")
_SOURCE = f'''

@triton.jit
def {_FUNCTION}(x, mask, dim: tl.constexpr, keep_dims: tl.constexpr):
    """The element of `x` at which `mask` is true."""
    bits = x.to(tl.core.get_int_dtype(x.dtype.primitive_bitwidth, signed=False), bitcast=True)
    selected = tl.sum(bits * mask, dim, keep_dims=keep_dims)
    return selected.to(bits.dtype).to(x.dtype, bitcast=True)
'''


def rewrite(source: str) -> str:
  """The module `source` with this selection. Lines keep their numbers."""
  if not _INDUCTOR.search(source):
    return source
  return _INDUCTOR.sub(f"{_FUNCTION}(", source).rstrip("\n") + _SOURCE
