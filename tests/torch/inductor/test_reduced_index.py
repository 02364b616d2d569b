"""Indices that a reduction over several dimensions gives, of tensors whose strides are not in the
order of their dimensions: the order of loops is Inductor's choice, and the result is not."""

import export_and_compare
import pytest
import torch
from cuda_numerics import close, computed
from function_module import FunctionModule

POOL = torch.nn.functional


def _pool(kind, size):
  pool = getattr(POOL, kind)
  if kind.startswith("fractional"):
    samples = torch.rand(2, 3, 3 if kind.endswith("3d") else 2, generator=torch.Generator())
    return lambda self, x: pool(
      x, size, output_size=3, return_indices=True, _random_samples=samples
    )
  return lambda self, x: pool(x, size, 2, 1, return_indices=True)


IMAGE, VOLUME = (2, 3, 9, 11), (2, 3, 6, 8, 10)
FUNCTIONS = {
  "argmax of a transposed tensor": (lambda self, x: x.argmax(), (6, 7, 5)),
  "argmin of what is computed": (lambda self, x: (x * 2 + 1).argmin(), (6, 7, 5)),
  "argmax of a flattened part": (lambda self, x: x.flatten(1).argmax(1), (4, 6, 7)),
  "pool of windows of 25": (_pool("max_pool2d", 5), IMAGE),
  "pool of volumes": (_pool("max_pool3d", 3), VOLUME),
  "fractional pool of windows of 25": (_pool("fractional_max_pool2d", 5), IMAGE),
  "fractional pool of volumes": (_pool("fractional_max_pool3d", 3), VOLUME),
  "adaptive pool": (
    lambda self, x: POOL.adaptive_max_pool2d(x, (1, 1), return_indices=True),
    IMAGE,
  ),
}


def _transposed(shape):
  """A tensor of this shape whose last two dimensions are swapped in memory, and whose values are
  different."""
  torch.manual_seed(3)
  swapped = [*shape[:-2], shape[-1], shape[-2]]
  return torch.randperm(torch.Size(shape).numel()).reshape(swapped).float().transpose(-1, -2)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_host(name, tmp_path):
  function, shape = FUNCTIONS[name]
  export_and_compare.run(tmp_path, function, (_transposed(shape),), artifact=False)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_cuda(name, tmp_path):
  function, shape = FUNCTIONS[name]
  x = _transposed(shape)
  (results,) = computed(FunctionModule(function), (x,), None, [{"x": x}], tmp_path)
  expected = torch.utils._pytree.tree_leaves(function(None, x))
  for one, other in zip(results.values(), expected, strict=True):
    close(one, other)


@pytest.mark.parametrize("kind", ["fractional_max_pool2d", "fractional_max_pool3d"])
def test_random_numbers_of_a_fractional_pool(kind, tmp_path):
  """Each dimension has its own number, and its own sizes."""
  shape = IMAGE if kind.endswith("2d") else VOLUME
  torch.manual_seed(3)
  export_and_compare.run(tmp_path, _pool(kind, 3), (torch.randn(shape),), artifact=False)
