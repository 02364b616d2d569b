"""Operators whose results are views or copies depending on strides, as `flatten`, of tensors that
Inductor's decompositions compute with other strides than eager mode: a write reaches what it
reaches in eager mode."""

import export_and_compare
import pytest
import torch
from cuda_numerics import close, computed

ON_HOST = pytest.mark.skipif(
  not export_and_compare.ISAS, reason="this machine has neither AVX2 nor AVX-512"
)


def of_one(x):
  """A sequence of one tensor, which a decomposition copies with its strides."""
  return torch.stack([x.t()], 0)


def of_an_upsample(x):
  return torch.nn.functional.interpolate(x.t().unsqueeze(0), scale_factor=2.0)


def of_places(x):
  return torch.put(x.t(), torch.tensor([1, 5]), torch.tensor([7.0, 8.0]))


def of_a_selection(x):
  """On CUDA targets a decomposition of Husk's has the strides of the largest elements."""
  return torch.topk(x.t(), 3, 0)[1].float()


def written_through_a_view(x):
  y = x.clone()
  y.flatten()[::2].add_(1)
  return y


def read_through_a_view(x):
  y = x * 2
  z = y.reshape(-1)
  y.mul_(3)
  return z, y


class LinearAndTransposed(torch.nn.Module):
  """The sum has the strides of its first operand, which is transposed."""

  def __init__(self):
    super().__init__()
    self.linear = torch.nn.Linear(8, 8)

  def forward(self, x):
    y = x.t() + self.linear(x)
    y.flatten()[::2].add_(1)
    return y


MADE = (of_one, of_an_upsample, of_places, of_a_selection)
USES = (written_through_a_view, read_through_a_view)


def model(x):
  return [use(make(x)) for make in MADE for use in USES]


class Model(torch.nn.Module):
  def forward(self, x):
    return model(x)


ROWS = torch.export.Dim("n", min=3, max=64)


@ON_HOST
def test_writes_on_hosts(tmp_path):
  others = [(torch.randn(n, 8),) for n in (5, 17)]
  export_and_compare.run(
    tmp_path, lambda self, x: model(x), (torch.randn(8, 8),), ({0: ROWS},), others, strides=False
  )


@ON_HOST
def test_a_residual_decides_the_strides(tmp_path):
  model = LinearAndTransposed().eval()
  export_and_compare.run(tmp_path, model, (torch.randn(8, 8),), strides=True)


def test_writes_on_cuda(tmp_path):
  runs = [{"x": torch.randn(n, 8)} for n in (8, 5)]
  results = computed(Model(), (runs[0]["x"],), ({0: ROWS},), runs, tmp_path)
  for inputs, result in zip(runs, results):
    for one, other in zip(
      result.values(), torch.utils._pytree.tree_leaves(model(inputs["x"])), strict=True
    ):
      close(one, other)
