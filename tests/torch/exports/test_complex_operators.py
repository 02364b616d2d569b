"""Operators on complex tensors of which hosts have only those on real numbers, or none."""

import husk
import pytest
import torch
from cuda_numerics import computed
from export_and_compare import ISAS
from function_module import FunctionModule

C64, C128 = torch.complex64, torch.complex128


def numbers(*sizes, dtype=C64):
  return torch.randn(sizes, dtype=dtype, generator=torch.Generator().manual_seed(3))


def ints(*values):
  return torch.tensor(values)


def _written(self, x, y):
  x = x.clone()
  x.diagonal().copy_(y)
  return x


def _resized(self, x, y):
  return x.clone().resize_as_(y), x.clone().resize_(2, 2)


def _constants(self, x):
  return x + torch.tensor([1 + 2j, 3, -4j], dtype=C128), x * self.weight


def _empty(self, x):
  """Tensors whose elements nobody has written."""
  sizes = (2, 3, 4, 5)
  return (
    torch.empty(sizes, dtype=C128),
    torch.empty(sizes, dtype=C64, memory_format=torch.channels_last),
    torch.empty_like(x),
    torch.empty_like(x.real, dtype=C64),
    torch.empty_permuted(sizes, (3, 1, 2, 0), dtype=C64),
    torch.empty_strided((2, 3), (1, 2), dtype=C64),
    x.new_empty(0, 2),
    x.new_empty_strided((2, 3), (1, 2)),
    x.new_empty_strided((2, 3), (1, 2), dtype=torch.float32),
    torch.empty_like(x, dtype=torch.float64),
  )


def _filled(self, x):
  return (
    torch.scalar_tensor(2 - 1j, dtype=C64),
    torch.scalar_tensor(2, dtype=C128),
    torch.diag_embed(x),
    torch.diagflat(x),
    x.tril(),
    x.masked_fill(x.real > 0, 3j),
  )


def _logical(self, x, y):
  return torch.logical_and(x, y), torch.logical_or(x, y.real), torch.logical_xor(x.imag > 0, y)


def _decided(self, x, n):
  n = n.item()
  torch._check(0 <= n)
  torch._check(n < x.shape[0])
  return x[n:], x[:n], x[n], x.narrow(0, n, 1)


# By name a function and its arguments. They are functions of one artifact.
CALLS = {
  "diagonal_scatter": (
    lambda self, x, y: (torch.diagonal_scatter(x, y), torch.diagonal_scatter(x, y[:4], -1)),
    (numbers(5, 5), numbers(5)),
  ),
  "a copy into a diagonal": (_written, (numbers(5, 5), numbers(5))),
  "a sum without elements": (
    lambda self, x, y: (x + y, torch.logaddexp(x, y)),
    (numbers(0, 1, 3), numbers(0, 10, 3)),
  ),
  "filled": (_filled, (numbers(3, 3),)),
  "linspace": (
    lambda self, x, y: (torch.linspace(x, y, 4), torch.logspace(x, 2, 3), torch.linspace(1, y, 3)),
    (numbers(), numbers()),
  ),
  "index_fill": (
    lambda self, x, index, y: (x.index_fill(0, index, 2j), x.index_fill(1, index, y)),
    (numbers(3, 3), ints(0, 2), numbers()),
  ),
  "var_mean": (
    lambda self, x: (
      torch.var_mean(x),
      torch.std_mean(x, 1, keepdim=True),
      torch.var_mean(x, (0, 1), correction=0),
      torch.std_mean(x, unbiased=False),
    ),
    (numbers(3, 4),),
  ),
  "logical": (_logical, (ints(0, 1, 0, 2).to(C64) * 1j, numbers(4) * ints(0, 0, 1, 1))),
  "ldexp": (
    lambda self, x, n: (torch.ldexp(x, n), torch.ldexp(x, x)),
    (numbers(3), ints(1, -2, 3)),
  ),
  "scatter with a reduction": (
    lambda self, x, index, y: (
      x.scatter(0, index, y, reduce="add"),
      x.scatter(0, index, y, reduce="multiply"),
      x.scatter(0, index, 2j, reduce="multiply"),
      x.scatter(0, index, 2j, reduce="add"),
    ),
    (numbers(4), ints(1, 1, 3), numbers(3)),
  ),
  "any and all": (
    lambda self, x: (torch.any(x, (0, 1)), torch.any(x, (1,), True), torch.all(x, (0, -1))),
    (numbers(2, 3) * ints(0, 1, 0),),
  ),
  "as_strided_copy": (
    lambda self, x: (
      torch.as_strided_copy(x, (2, 2), (1, 3), 1),
      (x * 2).as_strided((2,), (3,)),
      (x.t() * 2).as_strided((2, 2), (1, 3), 2),
      (x * 2)[1:].as_strided((2,), (2,)),
    ),
    (numbers(3, 3),),
  ),
  "as_strided_scatter": (
    lambda self, x, y: (
      torch.as_strided_scatter(x, y, (2, 2), (1, 3), 1),
      torch.as_strided_scatter(x.t() + 1, y.real, (2, 2), (2, 3)),
    ),
    (numbers(3, 3), numbers(2, 2)),
  ),
  "resize": (_resized, (numbers(3, 2), numbers(2, 3))),
  "constants": (_constants, (numbers(3, dtype=C128),)),
  "tensor_split": (
    lambda self, x, cuts: torch.tensor_split(x, cuts, 1),
    (numbers(2, 5), ints(1, 3)),
  ),
  "sizes that the data decides": (_decided, (numbers(5, 2), torch.tensor(2))),
  "quotients": (
    lambda self, x, y: (x / y, x / 0, torch.reciprocal(y)),
    (
      torch.tensor([0, 1, 1j, float("inf"), 1 + 2j], dtype=C64),
      torch.tensor([0, 0, 0, 2, 3 - 1j], dtype=C64),
    ),
  ),
  "gather": (
    lambda self, x, y, empty, index: (
      torch.gather(x, 0, empty),
      torch.gather(y, 0, index),
      torch.gather(y, 0, index[0]),
      torch.gather(x, 0, index[0]),
    ),
    (numbers(5), numbers(), torch.empty(0, dtype=torch.uint8), ints(0)),
  ),
  "logcumsumexp": (lambda self, x: torch.logcumsumexp(x, 1), (numbers(2, 6),)),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
  path = tmp_path_factory.mktemp("complex") / "model.husk"
  functions = {
    f"f{n}": husk.Function(FunctionModule(function, weight=torch.ones(3, dtype=C128) * 2j), args)
    for n, (function, args) in enumerate(CALLS.values())
  }
  husk.export(functions, path, targets=(f"host:{ISAS[0]}",), progress=False)
  return husk.load(path)


@pytest.mark.parametrize("name", CALLS)
def test_results_are_those_of_eager_mode(name, program):
  function, args = CALLS[name]
  model = FunctionModule(function, weight=torch.ones(3, dtype=C128) * 2j)
  expected = torch.utils._pytree.tree_leaves(model(*args))
  results = torch.utils._pytree.tree_leaves(
    getattr(program, f"f{[*CALLS].index(name)}")(*(x.clone() for x in args))
  )
  for one, other in zip(map(torch.from_dlpack, results), expected, strict=True):
    torch.testing.assert_close(one, other, equal_nan=True)


def test_tensors_that_nobody_has_written(tmp_path):
  path, x = tmp_path / "model.husk", numbers(2, 3).t()
  model = FunctionModule(_empty)
  husk.export(model, (x,), path, targets=(f"host:{ISAS[0]}",), progress=False)
  results = map(torch.from_dlpack, husk.load(path)(x))
  for one, other in zip(results, model(x), strict=True):
    assert (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)


def test_on_cuda(tmp_path):
  """The calls of which Inductor makes kernels only with Husk's help."""
  names = ["diagonal_scatter", "a copy into a diagonal", "as_strided_copy", "as_strided_scatter"]
  names += ["scatter with a reduction"]
  args = tuple(x for name in names for x in CALLS[name][1])

  def function(self, *tensors):
    remaining, results = iter(tensors), []
    for name in names:
      results.append(CALLS[name][0](self, *(next(remaining) for _ in CALLS[name][1])))
    return results

  model = FunctionModule(function)
  named = {f"tensors_{n}": x for n, x in enumerate(args)}
  (results,) = computed(model, args, None, [named], tmp_path)
  expected = torch.utils._pytree.tree_leaves(model(*args))
  for one, other in zip(results.values(), expected, strict=True):
    torch.testing.assert_close(one, other)
