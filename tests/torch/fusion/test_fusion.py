"""Which operations become parts of the call before them: the list of activations, and what ends a
chain. test_linear.py and test_fused_convolution.py compare values."""

import pytest
import torch
import written_lists
from activation_functions import ACTIVATIONS
from husk.fusion.activations import CALLS
from husk.host import convolution, linear
from torch.nn import functional as F


def test_the_written_list_is_that_of_the_rows():
  assert not written_lists.script("activations.py").differing(), (
    "run: python3 schema/activations.py"
  )


def test_the_rows_name_each_activation_once():
  script = written_lists.script("activations.py")
  lists = script.written.rows((written_lists.SCHEMA / "activations.def").read_text())
  names = [name for _, name in lists["ACTIVATION"]]
  assert ["none", *names] == list(ACTIVATIONS)
  assert set(names) == {name for *_, name in CALLS}
  assert {row[0] for row in lists["TORCH_ACTIVATION"]} == {row[0] for row in lists["ACTIVATION"]}


def parts(function, kind):
  """The activation, and whether there is a residual, of each call that a linear layer or a
  convolution becomes. The program computes `function` of the result, the operand and the model."""

  class Model(torch.nn.Module):
    def __init__(self):
      super().__init__()
      shape = (4, 4) if kind == "linear" else (4, 4, 1, 1)
      self.register_buffer("weight", torch.ones(shape))
      self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
      call = F.linear if kind == "linear" else F.conv2d
      x = x + 1
      return function(call(x, self.weight, self.mean), x, self)

  shape = (2, 4) if kind == "linear" else (2, 4, 3, 3)
  exported = torch.export.export(Model(), (torch.ones(shape),), strict=False)
  module = {"linear": linear, "convolution": convolution}[kind]
  rewritten = module.rewrite(exported)
  rewritten.graph_module.graph.lint()
  names = [argument.name for argument in module.operator()._schema.arguments]
  calls = [
    dict(zip(names, node.args))
    for node in rewritten.graph.find_nodes(op="call_function", target=module.operator())
  ]
  return [(call["activation"], call["residual"] is not None) for call in calls]


KINDS = pytest.mark.parametrize("kind", ["linear", "convolution"])


@KINDS
@pytest.mark.parametrize("in_place", ["", "_"])
def test_each_operator_that_is_an_activation(kind, in_place):
  aten = torch.ops.aten
  x = torch.linspace(-8, 8, 99)
  for operator, arguments, name in CALLS:
    op = getattr(aten, operator + in_place)
    torch.testing.assert_close(op(x.clone(), **arguments), ACTIVATIONS[name](x))
    assert parts(lambda y, *_, op=op, more=arguments: op(y, **more), kind) == [(name, False)]


@KINDS
def test_other_limits_are_no_activation(kind):
  assert parts(lambda y, *_: F.hardtanh(y, -1, 6), kind) == [("none", False)]


@KINDS
def test_the_order_of_the_parts_is_that_of_the_computation(kind):
  first = parts(lambda y, x, _: F.silu(y) + x, kind)
  second = parts(lambda y, x, _: F.silu(y + x), kind)
  assert first == [("silu", kind == "linear")]
  assert second == [("none" if kind == "linear" else "silu", True)]


@KINDS
def test_a_residual_that_is_added_in_place(kind):
  assert parts(lambda y, x, _: y.add_(x), kind) == [("none", True)]
  assert parts(lambda y, x, _: x.add_(y), kind) == [("none", False)]


WRITES = {
  "operand": lambda x, _: x.mul_(2),
  "view of an operand": lambda x, _: x[0].mul_(2),
  "branch": lambda x, model: torch.cond(x.sum() > 0, lambda: x + 1, lambda: x - 1),
  # The schema of a norm does not tell that it writes its statistics.
  "norm that trains": lambda x, model: F.batch_norm(x, model.mean, torch.ones(4), training=True),
}


@KINDS
@pytest.mark.parametrize("name", WRITES)
def test_a_write_ends_a_chain(kind, name):
  def function(y, x, model):
    written = WRITES[name](x, model)
    return F.relu(y), written

  assert parts(function, kind) == [("none", False)]


@KINDS
def test_a_write_ends_a_chain_before_it(kind):
  def function(y, x, _):
    y = F.relu(y) if kind == "linear" else y + x
    x.mul_(2)
    return y + x if kind == "linear" else F.relu(y)

  assert parts(function, kind) == [("relu", False) if kind == "linear" else ("none", True)]


@KINDS
def test_what_writes_nothing_ends_no_chain(kind):
  def function(y, x, model):
    first, second = x.split(2, dim=1)
    z = F.batch_norm(x, model.mean, torch.ones(4), training=False)
    return F.relu(y), first * second, z

  assert parts(function, kind) == [("relu", False)]
