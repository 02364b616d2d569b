"""Random draws on CUDA targets in terms of uniform numbers."""

import decomposed
import pytest
import torch


def drawn(weights, count, replacement):
  traced = decomposed.graph(
    lambda weights: torch.multinomial(weights, count, replacement), (weights,)
  )
  assert "aten::multinomial" not in decomposed.operators(traced)
  return traced(weights)


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_one_sample(replacement, dtype):
  torch.manual_seed(6)
  weights = torch.tensor([0.0, 1, 2, 5, 0]).to(dtype)
  samples = drawn(weights.expand(20000, 5), 1, replacement)
  assert samples.shape == (20000, 1) and samples.dtype == torch.int64
  shares = samples.flatten().bincount(minlength=5) / 20000
  torch.testing.assert_close(shares, weights.float() / 8, atol=0.015, rtol=0)


def test_samples_with_replacement():
  torch.manual_seed(6)
  shares = drawn(torch.tensor([0.0, 3, 0, 1, 0]), 20000, True).bincount(minlength=5) / 20000
  torch.testing.assert_close(shares, torch.tensor([0, 0.75, 0, 0.25, 0]), atol=0.015, rtol=0)


def test_samples_without_replacement():
  """The second sample is drawn from what the first one has left."""
  torch.manual_seed(6)
  weights = torch.tensor([1.0, 2, 0, 1])
  samples = drawn(weights.expand(20000, 4), 2, False)
  assert (samples[:, 0] != samples[:, 1]).all() and (samples != 2).all()
  after_one = samples[samples[:, 0] == 1, 1].bincount(minlength=4).double()
  shares = after_one / after_one.sum()
  expected = torch.tensor([0.5, 0, 0, 0.5], dtype=torch.float64)
  torch.testing.assert_close(shares, expected, atol=0.02, rtol=0)
  torch.testing.assert_close((samples[:, 0] == 1).double().mean().item(), 0.5, atol=0.02, rtol=0)


@pytest.mark.parametrize("dtype", [None, torch.int32, torch.float64])
def test_permutations(dtype):
  """Each of six permutations is as likely as the others."""
  torch.manual_seed(6)

  def function(x):
    return torch.randperm(x.shape[0], dtype=dtype, device=x.device)

  traced = decomposed.graph(function, (torch.zeros(3),))
  assert "aten::randperm" not in decomposed.operators(traced)
  drawn = torch.stack([traced(torch.zeros(3)) for _ in range(3000)])
  assert drawn.dtype is (torch.int64 if dtype is None else dtype)
  assert torch.equal(drawn.sort(1).values, torch.arange(3, dtype=drawn.dtype).expand(3000, 3))
  shares = (drawn[:, 0] * 2 + (drawn[:, 1] > drawn[:, 2])).long().bincount(minlength=6) / 3000
  torch.testing.assert_close(shares, torch.full((6,), 1 / 6), atol=0.03, rtol=0)
