"""What defines the size of a part of a tensor comes after what defines the size of the whole."""

import pytest
import sympy
from husk.inductor import patches
from torch._inductor import ir

WHOLE = sympy.Symbol("u0", integer=True)
NUMBERS = {"start": 0, "end": 5, "step": 1, "index": 3, "base_offset": 0, "base_dim_stride": 1}


@pytest.mark.parametrize("kind", [ir.DynamicSliceSize, ir.DynamicSelectStorageOffset])
def test_the_size_of_the_whole_is_a_symbol_that_a_part_uses(kind):
  node = kind.__new__(kind)  # without a graph, which __init__ asks
  for name, value in {**NUMBERS, "size": WHOLE}.items():
    object.__setattr__(node, name, value)
  with patches.husk_lines():
    assert node.get_free_symbol_uses(unbacked_only=True) == {WHOLE}
