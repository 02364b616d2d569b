"""Mantissas and exponents on CUDA targets, of subnormal numbers, too."""

import decomposed
import pytest
import torch
from cuda_numerics import computed
from function_module import FunctionModule

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def numbers(dtype):
  torch.manual_seed(0)
  limits = torch.finfo(dtype)
  tiny = limits.smallest_normal
  ends = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, limits.max, tiny, -tiny / 2, tiny * limits.eps, tiny / 3]
  others = torch.randn(50, dtype=torch.float64) * 2.0 ** torch.randint(-14, 15, (50,))
  return torch.cat((torch.tensor(ends, dtype=torch.float64), others)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers(dtype):
  x = numbers(dtype)
  traced = decomposed.graph(torch.frexp, (x,))
  assert "aten::frexp" not in {name.partition(".")[0] for name in decomposed.operators(traced)}
  found, right = traced(x), torch.frexp(x)
  assert found[0].dtype == dtype and found[1].dtype == torch.int32
  torch.testing.assert_close(tuple(found), tuple(right), rtol=0, atol=0)


def test_what_is_not_finite():
  x = torch.tensor([float("inf"), -float("inf"), float("nan")])
  traced = decomposed.graph(lambda x: torch.frexp(x)[0], (x,))
  torch.testing.assert_close(traced(x), x, equal_nan=True)


def test_a_kernel(tmp_path):
  x = numbers(torch.float32)
  model = FunctionModule(lambda self, x: tuple(torch.frexp(x)))
  (results,) = computed(model, (x,), None, [{"x": x}], tmp_path)
  for found, right in zip(results.values(), torch.frexp(x)):
    torch.testing.assert_close(found, right, rtol=0, atol=0)
