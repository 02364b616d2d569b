"""What Inductor would compute again for each operation of a kernel, without other results."""

import pytest
import sympy
import torch._inductor.lowering  # noqa: F401  (which adds rules of dtypes)
from husk.inductor import repeated
from husk.inductor.replace import replaced
from torch._inductor import utils
from torch._inductor.dtype_propagation import DtypePropagationOpsHandler
from torch.utils._sympy.value_ranges import ValueRanges


@pytest.fixture(autouse=True)
def compiling():
  with replaced(*repeated.replacements()):
    yield


def test_rules_of_dtypes_are_set_again_if_there_are_others(monkeypatch):
  """A rule that is set anew is another object."""
  name = next(iter(utils.op_dtype_propagation_rules))
  first = getattr(DtypePropagationOpsHandler(), name)
  assert getattr(DtypePropagationOpsHandler(), name) is first
  monkeypatch.setitem(
    utils.op_dtype_propagation_rules, "other", utils.op_dtype_propagation_rules[name]
  )
  try:
    assert hasattr(DtypePropagationOpsHandler(), "other")
    assert getattr(DtypePropagationOpsHandler(), name) is not first
  finally:
    del DtypePropagationOpsHandler().other


def test_equal_ranges_are_not_compared(monkeypatch):
  whole = ValueRanges(0, 7)
  part, mixed = whole.tighten(ValueRanges(2, 9)), ValueRanges(0.0, 7.0)
  assert part == ValueRanges(2, 7) and whole != mixed
  monkeypatch.delattr(sympy, "Max")
  assert whole.tighten(ValueRanges(0, 7)) is whole
