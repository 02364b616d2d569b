"""Sorts in kernels of Inductor, whose own text takes Triton seconds to compile.

Inductor sorts keys and their places as two tensors, and reads both neighbours of a comparison by
two sums each. A kernel that sorts rows of 512 elements, eight at a time, became 2 MB of PTX.
`rewrite` packs a key of up to 32 bits and its place into one number of 64 bits. All such numbers
differ, so that `tl.sort`, which is not stable, keeps equal elements in their order. Keys of 64 bits
are sorted as Inductor does.

A thread sorts few elements (`configs`), since its instructions grow with them."""

from __future__ import annotations

import copy
import re

from ..inductor.lines import InductorObject
from .gemm_configs import Config

_FUNCTION = "husk_sorted"
_INDUCTOR = re.compile(r"\btriton_helpers\.sort_with_index\(")
_SOURCE = f'''

@triton.jit
def {_FUNCTION}(
    x, places, size, dim: tl.constexpr, stable: tl.constexpr, descending: tl.constexpr
):
    """The elements of `x` in order and their `places`, as triton_helpers.sort_with_index: equal
    elements keep their order, NaN is larger than all numbers, and places from `size` on come
    last."""
    x, places = tl.broadcast(x, places)
    if x.dtype.primitive_bitwidth == 64:
        return triton_helpers.sort_with_index(
            x, places, size, dim, stable=stable, descending=descending
        )
    else:
        if x.dtype.is_floating():
            number = x.to(tl.float32)
            key = number.to(tl.int32, bitcast=True)
            # The bits of a negative number grow with its absolute value.
            key = tl.where(key < 0, key ^ 0x7FFFFFFF, key)
            key = tl.where(number == 0, 0, key)
            key = tl.where(number != number, 0x7FFFFFFF, key).to(tl.int64)
        else:
            key = x.to(tl.int64)
        if descending:
            key = ~key
        if size is not None:
            key = tl.where(places < size, key, 1 << 40)
        place = tl.sort((key << 16) | places.to(tl.int64), dim) & 0xFFFF
        return tl.gather(x, place.to(tl.int32), dim), place.to(places.dtype)
'''
# The elements of a block of short rows, and those of a thread.
_BLOCK = 256
_THREAD = 2


def rewrite(source: str) -> str:
  """The module `source` with these sorts. Lines keep their numbers."""
  if not _INDUCTOR.search(source):
    return source
  return _INDUCTOR.sub(f"{_FUNCTION}(", source).rstrip("\n") + _SOURCE


def configs(tuner: InductorObject) -> list[Config]:
  """The configurations of a kernel's autotuner, those of a sort with one of few elements first."""
  offered = list(tuner.configs or ())
  hints = tuner.size_hints or {}
  is_sort = f"{_FUNCTION}(" in getattr(tuner.fn, "src", "")
  if not is_sort or "r0_" not in hints or not offered or set(offered[0].kwargs) != {"XBLOCK"}:
    return offered
  length = int(hints["r0_"])
  config = copy.deepcopy(offered[0])
  config.kwargs["XBLOCK"] = max(1, _BLOCK // length)
  config.num_warps = max(1, config.kwargs["XBLOCK"] * length // (32 * _THREAD))
  return [config, *offered]
