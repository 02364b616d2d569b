"""Remainders and rounded quotients of floats: those of eager mode, also near ints, of large numbers
and of zeros."""

import decomposed
import export_and_compare
import pytest
import torch
from cuda_numerics import computed
from function_module import FunctionModule
from torch.export import Dim

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def operands(dtype):
  torch.manual_seed(0)
  large = torch.randn(40) * 10.0 ** torch.randint(-3, 6, (40,))
  ends = [1.0, 0.3, 6.0, -0.0, 0.0, float("inf"), float("nan"), 1e20, -1e20, -1.0, -0.3, 0.7, 1.4]
  small = torch.randn(40) * 10.0 ** torch.randint(-2, 2, (40,))
  by = [0.1, 0.1, 0.1, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7, 0.1, 0.1, -0.7, 0.0]
  return torch.cat((large, torch.tensor(ends))).to(dtype), torch.cat((small, torch.tensor(by))).to(
    dtype
  )


def function(self, x, y):
  rests = x % y, x % 0.1, x % -3, torch.remainder(5.5, y), torch.fmod(x, 0.1), x % 0.0
  return *rests, x // 0.1, x // -3, torch.div(x, 0.7, rounding_mode="floor"), x // 0.0


def quotients(self, x, y):
  return x // y, torch.div(x, y, rounding_mode="floor"), torch.div(x, y, rounding_mode="trunc")


def signs(tensors):
  return [one.signbit() & ~one.isnan() for one in tensors]


@pytest.mark.parametrize("dtype", DTYPES)
def test_graphs(dtype):
  x, y = operands(dtype)
  # Eager mode rounds the parts of a quotient of two tensors of 16 bits.
  functions = (function, quotients) if dtype.itemsize > 2 else (function,)
  for one in functions:
    traced = decomposed.graph(lambda *args, one=one: one(None, *args), (x, y))
    results, expected = traced(x, y), one(None, x, y)
    decomposed.equal(results, expected, rtol=0, atol=0)
    assert all(map(torch.equal, signs(results), signs(expected)))


def test_of_ints_is_left():
  x = torch.tensor([7, -7])
  traced = decomposed.graph(lambda x: (x % 3, x // 2, x % x, torch.div(x, 2)), (x,))
  assert not {"aten::fmod.Scalar", "aten::fmod.Tensor"} & decomposed.operators(traced)


@pytest.mark.parametrize("dtype", DTYPES[:2])
def test_on_hosts(dtype, tmp_path):
  def both(self, x, y):
    rests = x % y, x % 0.1, x % -3, torch.remainder(5.5, y), torch.fmod(x, 0.1), x % x.shape[0]
    return *rests, x // 0.1, *quotients(self, x, y), x // -x.shape[0]

  size = Dim("n", min=2, max=64)
  x, y = operands(dtype)
  args = x[x.isfinite() & (y != 0)], y[x.isfinite() & (y != 0)]
  export_and_compare.run(tmp_path, both, args, shapes=({0: size}, {0: size}))


def test_on_cuda(tmp_path):
  def both(self, x, y):
    return *function(self, x, y), *quotients(self, x, y)

  model, (x, y) = FunctionModule(both), operands(torch.float32)
  (results,) = computed(model, (x, y), None, [{"x": x, "y": y}], tmp_path)
  decomposed.equal([*results.values()], model(x, y))
