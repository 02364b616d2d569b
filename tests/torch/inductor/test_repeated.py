"""What Inductor would compute again for each operation of a kernel, without other results."""

import husk
import pytest
import sympy
import torch
import torch._inductor.lowering  # which adds rules of dtypes
from husk.host import kernels as host_kernels
from husk.inductor import repeated
from husk.inductor.replace import replaced
from torch._inductor import utils
from torch._inductor.dtype_propagation import DtypePropagationOpsHandler
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
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


def test_shapes_of_a_graph_are_not_computed_again(tmp_path, monkeypatch):
  """AOTAutograd has traced the graph of an export, so that each node has its value."""

  def compute(*args):
    raise AssertionError("the shapes are computed")

  monkeypatch.setattr(FakeTensorProp, "propagate_dont_convert_inputs", compute)
  model, isa = torch.nn.Linear(4, 4), host_kernels.isas()[0]
  husk.write(model, (torch.randn(2, 4),), tmp_path, targets=(f"host:{isa}",))
