"""The places of the largest and the least elements of long rows on CUDA targets."""

import decomposed
import pytest
import torch

INFINITY, NAN = float("inf"), float("nan")
FORMS = {
  "argmax": lambda x: x.argmax(-1),
  "argmin, kept": lambda x: x.argmin(-1, keepdim=True),
  "max": lambda x: x.max(-1),
  "min, kept": lambda x: x.min(1, keepdim=True),
  "of all": lambda x: x.argmax(),
  "of all, kept": lambda x: x.argmin(keepdim=True),
}


def traced(function, *args):
  return decomposed.graph(function, args)


def rows(size, dtype=torch.float32):
  torch.manual_seed(size)
  return torch.randn(3, size).to(dtype)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [8192, 32000, 151936, 10007])
def test_values(form, size):
  x = rows(size)
  graph = traced(FORMS[form], x)
  assert "pad" in str(graph.code) or size != 10007
  assert len([node for node in graph.graph.nodes if "arg" in str(node.target)]) == 2
  decomposed.equal(graph(x), FORMS[form](x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_first_of_equal_elements(dtype):
  """Halves have many equal elements."""
  x = rows(32000, dtype).clamp(-1, 1)
  for form in FORMS.values():
    graph = traced(form, x)
    decomposed.equal(graph(x), form(x))


@pytest.mark.parametrize("element", [NAN, INFINITY, -INFINITY])
@pytest.mark.parametrize("places", [(5,), (9000, 3), (10006,), range(10007)])
def test_numbers_that_are_not_finite(element, places):
  x = rows(10007)
  graphs = {name: traced(form, x) for name, form in FORMS.items()}
  x[1, list(places)] = element
  for name, form in FORMS.items():
    decomposed.equal(graphs[name](x), form(x))


@pytest.mark.parametrize(
  "x, dim",
  [(rows(8191), 1), (rows(9000).t(), 0), (rows(9000).int(), 1), (torch.randn(65, 8192), 1)],
)
def test_others_stay(x, dim):
  graph = traced(lambda x: x.argmax(dim), x)
  assert "amax" not in str(graph.code)
