"""Operators that are functions of Python."""

import conftest
import husk
import numpy as np
import pytest
import torch


def scale(x, k, half, text, sizes, y):
  assert half == 0.5 and text == "text" and sizes == (len(x), 7)
  y[:] = x * k


@pytest.mark.parametrize("library", [torch, np])
def test_an_operator_gets_tensors_of_the_runs_library(load, library):
  seen = []

  def spy(*args):
    seen.append(type(args[0]))
    scale(*args)

  x = library.arange(5, dtype=library.float32)
  y = load(conftest.CUSTOM, ops={"my::scale": spy})(x, 3)
  assert isinstance(y, type(x)) and seen == [type(x)] and bool((y == 3 * x).all())


def test_a_missing_operator_is_named(load):
  with pytest.raises(husk.Error, match="my::scale"):
    load(conftest.CUSTOM)


def test_an_exception_of_an_operator_is_raised(load):
  def fail(*_):
    raise ArithmeticError("in the operator")

  program = load(conftest.CUSTOM, ops={"my::scale": fail})
  with pytest.raises(ArithmeticError, match="in the operator"):
    program(torch.ones(3), 1)


def test_an_operator_must_not_return_a_value(load):
  program = load(conftest.CUSTOM, ops={"my::scale": lambda *_: 3})
  with pytest.raises(TypeError, match="writes its outputs, which are its last arguments"):
    program(torch.ones(3), 1)


def test_inputs_of_numpy_are_read_only_for_an_operator(load):
  def write(x, *_):
    x[:] = 0

  with pytest.raises(ValueError, match="read-only"):
    load(conftest.CUSTOM, ops={"my::scale": write})(np.ones(3, np.float32), 1)


def test_an_operator_that_returns_a_size(load):
  def sizes(x):
    return int((x != 0).sum())

  def nonzero(x, y):
    y[:] = np.argwhere(np.asarray(x))

  text = conftest.NONZERO.replace("aten::", "my::")
  program = load(text, ops={"my::nonzero:sizes": sizes, "my::nonzero": nonzero})
  assert program(np.float32([0, 1, 1])).tolist() == [[1], [2]]


def test_an_operator_may_call_the_program(load):
  program = load(conftest.COPY)

  def through(x, k, half, text, sizes, y):
    y[:] = program(torch.stack([x] * 2))[0][0]

  x = torch.arange(4.0)
  assert torch.equal(load(conftest.CUSTOM, ops={"my::scale": through})(x, 1), x)
