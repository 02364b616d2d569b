"""The ways in which torch.export traces a model, and the ranges that sizes get."""

import functools
import logging
import re

import husk
import pytest
import torch
import torch.nn.functional as F
from export_and_compare import ISAS
from husk.program import tracing
from torch.export import Dim


class Grouped(torch.nn.Module):
  """Attention with two key heads for four query heads."""

  def __init__(self):
    super().__init__()
    self.queries, self.keys = torch.nn.Linear(32, 32), torch.nn.Linear(32, 16)

  def forward(self, x):
    batch, length, _ = x.shape
    queries = self.queries(x).view(batch, length, 4, 8).transpose(1, 2)
    keys = self.keys(x).view(batch, length, 2, 8).transpose(1, 2)
    keys = keys[:, :, None].expand(batch, 2, 2, length, 8).reshape(batch, 4, length, 8)
    return F.scaled_dot_product_attention(queries, keys, keys, is_causal=True)


class Branch(torch.nn.Module):
  def forward(self, x):
    return x * 2 if x.shape[1] > 1 else x * 3


class Masked(torch.nn.Module):
  def forward(self, x, mask):
    factor = 2 if mask.shape[1] != 1 else 3
    return x * factor + mask if x.shape[1] <= mask.shape[1] else x


class Pairs(torch.nn.Module):
  def forward(self, x):
    return x.view(x.shape[0], -1, 2).sum(2)


class Powers(torch.nn.Module):
  def forward(self, x, n):
    return x ** n.item()


@functools.lru_cache
def ones(length):
  return torch.ones(length)


class Kept(torch.nn.Module):
  """What a model keeps by a size is found only if its bytecode is read."""

  def forward(self, x):
    return x + ones(x.shape[1])


class Counted(torch.nn.Module):
  def forward(self, x):
    return x * 2 if x.sum() > 0 else x


def traced(model, dim, shape=(2, 6), **ways):
  return tracing.traced(model, (torch.randn(shape),), None, {"x": {1: dim}}, **ways)


def said(caplog):
  return [one.getMessage() for one in caplog.records if one.name == "husk"]


def range_of(program):
  (known,) = program.range_constraints.values()
  return int(known.lower), known.upper


@pytest.mark.parametrize("dim", (Dim("l", min=1, max=64), Dim.DYNAMIC(min=1, max=64)))
def test_sizes_begin_where_their_dim_begins(caplog, dim):
  assert range_of(traced(Grouped(), dim, (2, 6, 32))) == (1, 64)
  assert not said(caplog)


def test_grouped_attention_runs_at_all_sizes_of_its_dim(tmp_path):
  model = Grouped().eval()
  path = husk.export(
    model,
    (torch.randn(2, 6, 32),),
    tmp_path / "made.husk",
    dynamic_shapes={"x": {1: Dim("l", min=1, max=64)}},
  )
  program = husk.load(path)
  for length in (1, 2, 64):
    x = torch.randn(2, length, 32)
    torch.testing.assert_close(program(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dim", (Dim("l", min=1, max=64), Dim.DYNAMIC(min=1, max=64)))
def test_a_range_that_the_code_of_the_model_narrows_is_said(caplog, dim):
  assert range_of(traced(Branch(), dim)) == (2, 64)
  assert said(caplog) == [
    "x.size()[1] takes 2..64, not 1..64 as its Dim asks, since the model's code decides by "
    "x.size()[1] > 1"
  ]


class BranchOfTwo(torch.nn.Module):
  def forward(self, x, y):
    z = x + y
    return z * 2 if x.shape[1] > 1 and y.shape[1] > 1 else z * 3


def test_sizes_that_are_equal_have_one_range(caplog):
  dim = Dim("l", min=1, max=64)
  inputs = (torch.randn(2, 6), torch.randn(2, 6))
  program = tracing.traced(BranchOfTwo(), inputs, None, {"x": {1: dim}, "y": {1: dim}})
  assert {int(one.lower) for one in program.range_constraints.values()} == {2}
  assert len(said(caplog)) == 1


def test_sizes_without_a_range_begin_with_two(caplog):
  assert range_of(traced(Grouped(), Dim.AUTO, (2, 6, 32)))[0] == 2
  assert not said(caplog)


class Even(torch.nn.Module):
  def forward(self, x, y):
    return ones(x.shape[1]) + x.view(x.shape[0], -1, 2).sum(2).sum() + y


def test_guards_of_the_bytecode_have_names_of_flat_inputs(tmp_path):
  inputs = (torch.randn(2, 6), torch.randn(6))
  shapes = {"x": {1: Dim.AUTO}, "y": {0: Dim.AUTO}}
  path = husk.export(
    Even(), inputs, tmp_path / "made.husk", dynamic_shapes=shapes, strict=True, targets=("host",)
  )
  torch.testing.assert_close(husk.load(path)(*inputs), Even()(*inputs))


class Copied(torch.nn.Module):
  def forward(self, x):
    return x.view(2, x.shape[1], 4, 2).permute(0, 2, 1, 3).contiguous().view(-1, x.shape[1], 2)


def test_a_copy_asks_nothing(caplog):
  assert range_of(traced(Copied(), Dim("l", min=1, max=64), (2, 6, 8))) == (1, 64)
  assert not said(caplog)


def test_the_bytecode_is_read_if_the_model_cannot_be_run(caplog):
  program = traced(Kept(), Dim("l", min=1, max=64))
  assert range_of(program) == (1, 64)
  (text,) = said(caplog)
  assert text.startswith(
    "traced with strict=True, since torch.export refuses the model with strict=False: unhashable"
  )
  with pytest.raises(TypeError, match="unhashable"):
    traced(Kept(), Dim("l", min=1, max=64), strict=False)


def test_a_condition_on_a_dim_of_two_inputs_is_checked_in_each_run(caplog, tmp_path):
  """While they are traced the inputs have a symbol each, and one of both afterwards."""
  length = Dim("l", min=1, max=64)
  path = husk.export(
    Masked(),
    (torch.randn(2, 6), torch.randn(2, 6)),
    tmp_path / "made.husk",
    dynamic_shapes={"x": {1: length}, "mask": {1: length}},
    prefer_deferred_runtime_asserts_over_guards=True,
    targets=("host",),
  )
  program = husk.load(path)
  x, mask = torch.randn(2, 9), torch.randn(2, 9)
  torch.testing.assert_close(program(x, mask), Masked()(x, mask))
  with pytest.raises(husk.InvalidInputError, match=r"size\(\)\[1\], 1\)"):
    program(torch.randn(2, 1), torch.randn(2, 1))
  assert not [text for text in said(caplog) if "<=" in text]  # the Dim says that they are equal


def test_a_condition_that_cannot_be_proved_is_checked_in_each_run(caplog, tmp_path):
  dim = {"x": {1: Dim("l", min=1, max=64)}}
  path = husk.export(Pairs(), (torch.randn(2, 6),), tmp_path / "made.husk", dynamic_shapes=dim)
  text = next(text for text in said(caplog) if text.startswith("traced"))
  assert "prefer_deferred_runtime_asserts_over_guards=True, since" in text
  assert "x.size()[1] in the specified range l <= 64 satisfy the generated guard" in text
  program = husk.load(path)
  x = torch.randn(2, 8)
  torch.testing.assert_close(program(x), Pairs()(x))
  with pytest.raises(husk.Error, match=r"the model assumes Eq\(Mod\(2\*x.size\(\)\[1\], 4\), 0\)"):
    program(torch.randn(2, 7))
  with pytest.raises(torch._dynamo.exc.UserError, match="Constraints violated"):
    traced(Pairs(), Dim("l", min=1, max=64), deferred=False)


@pytest.mark.parametrize("strict", (None, True))
def test_the_error_of_the_first_way_is_raised(caplog, strict):
  caplog.set_level(logging.WARNING)
  with pytest.raises(Exception, match="data-dependent" if strict is None else "Data-dependent"):
    traced(Counted(), Dim("l", min=1, max=64), strict=strict)
  assert not said(caplog)


class Table(torch.nn.Module):
  """Sizes of a constant, and a condition before that concerns another size."""

  def forward(self, x):
    y = x.relu() if x.shape[0] < 5 else x
    return y + torch.ones(6)


def test_a_constraint_that_is_violated_names_the_line_of_the_model():
  with pytest.raises(torch._dynamo.exc.UserError) as found:
    traced(Table(), Dim("l", min=2, max=64))
  line = r"  - Eq\(x.size\(\)\[1\], 6\): test_tracing.py:\d+ return y \+ torch.ones\(6\)$"
  text = str(found.value)
  assert re.search(rf"Lines of the model that decide by sizes:\n{line}", text), text


def test_a_tensor_that_torch_loses_is_told_in_words():
  def refused(*args, **kwargs):
    raise RuntimeError(
      "We found a fake tensor in the exported program constant's list. Please file"
    )

  with pytest.raises(husk.CompileError, match="a gradient inside the model reads") as found:
    traced(Table(), Dim("l", min=2, max=64), export=refused)
  assert "write the gradient as a formula" in str(found.value)


def test_no_line_is_named_if_no_line_of_the_model_decides():
  def refused(*args, **kwargs):
    raise RuntimeError("Constraints violated (l)")

  with pytest.raises(RuntimeError) as found:
    traced(Table(), Dim("l", min=2, max=64), export=refused)
  assert str(found.value) == "Constraints violated (l)"


def test_shapes_that_torch_refuses_are_left_to_it():
  with pytest.raises(Exception, match="(?i)dynamic_shapes|key|inputs"):
    tracing.traced(Branch(), (torch.randn(2, 6),), None, {"y": {1: Dim("l", min=1)}})


class Rounded(torch.nn.Module):
  """A size that Python's int() makes of a float, for which torch.export would take a constant."""

  def forward(self, x):
    return F.pad(x, (0, int(x.shape[1] * 1.5)))


class Half(torch.nn.Module):
  def forward(self, x):
    return F.interpolate(x[None], scale_factor=0.5)


def test_an_int_of_a_float_is_no_constant(caplog):
  dim = Dim("l", min=2, max=64)
  program = traced(Rounded(), dim)
  assert said(caplog)[0].startswith("traced with strict=True, since")
  assert program.module()(torch.ones(2, 10)).shape == (2, 25)
  with pytest.raises(torch._dynamo.exc.UserError, match="Constraints violated"):
    traced(Rounded(), dim, strict=False)


@pytest.mark.parametrize("size", [Dim.AUTO, Dim.DYNAMIC], ids=["auto", "dynamic"])
def test_an_int_of_a_float_is_no_constant_without_bounds(caplog, size):
  """torch.export then takes the constant without an error, and the program has a guard."""

  class Resized(torch.nn.Module):
    def forward(self, x):
      return F.interpolate(x[None], size=int(x.shape[1] * 1.5))

  program = traced(Resized(), size)
  assert said(caplog)[0].startswith("traced with strict=True, since with strict=False the program")
  assert program.module()(torch.ones(2, 10)).shape == (1, 2, 15)
  with pytest.raises(AssertionError, match="Guard failed"):
    traced(Resized(), size, strict=False).module()(torch.ones(2, 10))


def test_a_half_of_a_size_may_be_one(caplog):
  program = traced(Half(), Dim("l", min=2, max=64))
  assert range_of(program) == (2, 64) and not said(caplog)
  assert program.module()(torch.ones(2, 2)).shape == (1, 2, 1)


class OfSeveral(torch.nn.Module):
  def forward(self, *several):
    return several[0] + several[1]


class ChannelsLast(torch.nn.Module):
  def __init__(self):
    super().__init__()
    self.layer = torch.nn.Conv2d(4, 6, 3, padding=1)

  def forward(self, x):
    return self.layer(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class First(torch.nn.Module):
  def forward(self, x):
    return torch.matmul(x[:1].expand(x.shape[0], -1, -1), x.mT)


@pytest.mark.parametrize(
  "model, shape",
  [(OfSeveral(), (2, 6)), (ChannelsLast(), (2, 5, 7, 4)), (First(), (3, 4, 5))],
  ids=["several", "channels_last", "first"],
)
def test_one_is_a_size_if_only_operators_ask_about_it(tmp_path, caplog, model, shape):
  count = 2 if isinstance(model, OfSeveral) else 1
  dims = ({0: Dim("batch", min=1, max=16)},) * count
  args = (torch.randn(shape),) * count
  path = tmp_path / "a.husk"
  husk.export(
    model,
    args,
    path,
    dynamic_shapes=(dims,) if count == 2 else dims,
    targets=(f"host:{ISAS[0]}",),
    progress=False,
  )
  one = [x[:1] for x in args]
  torch.testing.assert_close(torch.as_tensor(husk.load(path)(*one)), model(*one))
  assert not [text for text in said(caplog) if "takes" in text]


class Gradient(torch.nn.Module):
  def forward(self, x):
    return torch.func.grad(lambda x: (x.sin() * x).sum())(x)


def test_what_torch_export_fails_at_is_explained(tmp_path):
  with pytest.raises(husk.CompileError, match="cannot trace the model: .*\n.*torch.autograd.grad"):
    husk.write(Gradient(), (torch.ones(3),), tmp_path)


def test_a_way_is_tried_for_what_any_way_before_it_was_refused_for():
  """The first way fails for something else than the second one, for which the third may help."""
  ways = []

  def export(model, args, kwargs=None, *, strict, prefer_deferred_runtime_asserts_over_guards, **_):
    ways.append((strict, prefer_deferred_runtime_asserts_over_guards))
    if prefer_deferred_runtime_asserts_over_guards:
      return torch.export.export(model, args, kwargs, strict=strict)
    raise RuntimeError("Constraints violated (n)" if strict else "something else")

  program = tracing.traced(torch.nn.Linear(2, 2), (torch.ones(1, 2),), None, None, export=export)
  assert program is not None and ways == [(False, False), (True, False), (False, True)]


def test_a_way_with_deferred_asserts_is_not_tried_for_other_errors():
  ways = []

  def export(model, args, kwargs=None, *, strict, prefer_deferred_runtime_asserts_over_guards, **_):
    ways.append((strict, prefer_deferred_runtime_asserts_over_guards))
    raise RuntimeError("something else")

  with pytest.raises(RuntimeError, match="something else"):
    tracing.traced(torch.nn.Linear(2, 2), (torch.ones(1, 2),), None, None, export=export)
  assert ways == [(False, False), (True, False)]


class Place:
  """A number that a model counts up, in an object that is no module, as in a cache."""

  def __init__(self):
    self.layers = [{"taken": torch.tensor(0)}]


class Counting(torch.nn.Module):
  def __init__(self):
    super().__init__()
    self.place = Place()

  def forward(self, x):
    taken = self.place.layers[0]["taken"]
    taken.add_(x.shape[0])
    return x * taken


def test_a_number_of_an_object_begins_with_its_value(tmp_path):
  """torch.export writes to the tensor of a number while it traces."""
  model, eager, x = Counting(), Counting(), torch.ones(3)
  husk.export(model, (x,), tmp_path / "model.husk", progress=False)
  assert model.place.layers[0]["taken"] == 0
  program = husk.load(tmp_path / "model.husk")
  for _ in range(2):
    torch.testing.assert_close(torch.as_tensor(program(x)), eager(x))


def test_an_error_of_torch_names_no_file_of_husk(tmp_path):
  with pytest.raises(Exception, match="data-dependent") as raised:
    husk.write(Powers(), (torch.rand(3), torch.tensor(4)), tmp_path, targets=("host:avx2",))
  assert "Caused by" in str(raised.value)
  assert "husk/program" not in str(raised.value)


class Turns(torch.nn.Module):
  """A loop of Python, and layers that are alike."""

  def __init__(self, turns, layers):
    super().__init__()
    self.turns = turns
    self.layers = torch.nn.Sequential(*(Branch() for _ in range(layers)))

  def forward(self, x):
    for _ in range(self.turns):
      x = x * 1.5
    return self.layers(x)


@pytest.mark.parametrize("turns, layers, is_said", [(120, 1, True), (20, 120, False)])
def test_a_long_loop_that_is_unrolled_is_said(caplog, turns, layers, is_said):
  with caplog.at_level(logging.WARNING, "husk"):
    tracing.traced(Turns(turns, layers), (torch.ones(2, 3),), None, None)
  said = "is unrolled, with about 120 turns: test_tracing.py" in caplog.text
  assert said == is_said
  assert ("unrolled" in caplog.text) == is_said
