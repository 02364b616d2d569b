"""Random numbers on CUDA targets. Programs run by Triton's interpreter."""

import husk
import pytest
import torch
from cuda_numerics import computed, interpreted
from function_module import FunctionModule

STATE = "state husk.generator u8 [2536] fill "


def drawn(self, x):
  return {
    "uniform": torch.rand_like(x),
    "normal": torch.randn(4000),
    "whole": torch.randint(-3, 9, (4000,)),
    "coins": torch.bernoulli(torch.full((4000,), 0.3)),
    "tosses": torch.bernoulli(torch.empty(4000), 0.3),
    "dropped": torch.nn.functional.dropout(torch.ones(4000), 0.4, True),
    "moved": torch.normal(2.0, 3.0, (4000,)),
    "between": torch.empty(4000).uniform_(2, 5),
    "chosen": torch.multinomial(torch.tensor([0.0, 1, 3, 0]), 4000, True),
  }


def equal(one, other):
  return [torch.equal(one[name], other[name]) for name in one]


def test_draws(tmp_path):
  runs = [{"x": torch.zeros(4000)}] * 2
  first, second = computed(FunctionModule(drawn), (torch.zeros(4000),), None, runs, tmp_path)
  assert not any(equal(first, second))
  assert all(equal(first, interpreted(tmp_path, runs)[0]))  # the same seed

  # The state begins with the seed, and has the number of seeds that were taken.
  text = (tmp_path / "model.hir").read_text()
  assert STATE + "0" in text
  (tmp_path / "model.hir").write_text(text.replace(STATE + "0", STATE + "1"))
  assert not any(equal(first, interpreted(tmp_path, runs)[0]))

  both = {name: torch.stack([first[name], second[name]]).double() for name in first}
  moments = {
    "uniform": (0.5, 12**-0.5),
    "normal": (0, 1),
    "whole": (2.5, (143 / 12) ** 0.5),
    "coins": (0.3, 0.21**0.5),
    "tosses": (0.3, 0.21**0.5),
    "dropped": (1, (0.4 / 0.6) ** 0.5),
    "moved": (2, 3),
    "between": (3.5, 3 * 12**-0.5),
    "chosen": (1.75, 0.75**0.5 / 2),
  }
  for name, (mean, deviation) in moments.items():
    torch.testing.assert_close(both[name].mean().item(), float(mean), atol=deviation * 0.05, rtol=0)
    torch.testing.assert_close(both[name].std().item(), float(deviation), rtol=0.04, atol=0)
  assert both["uniform"].min() >= 0 and both["uniform"].max() < 1
  assert both["whole"].unique().tolist() == list(range(-3, 9))
  assert both["chosen"].unique().tolist() == [1, 2]
  # Draws of one run are independent of each other, and so are those of two.
  pairs = [(first["normal"], first["moved"]), (first["normal"], second["normal"])]
  for pair in pairs:
    assert abs(torch.corrcoef(torch.stack(pair))[0, 1]) < 0.06


@pytest.mark.parametrize("count", [1, 2])
def test_as_many_elements_as_draws(tmp_path, count):
  """The kernel of the seeds has the size of the draws, but is not fused with them."""

  def draws(self, x):
    return {str(draw): torch.rand_like(x) for draw in range(count)}

  runs = [{"x": torch.zeros(count)}] * 2
  first, second = computed(FunctionModule(draws), (torch.zeros(count),), None, runs, tmp_path)
  values = torch.cat([*first.values(), *second.values()])
  assert values.unique().numel() == 2 * count * count
  assert values.min() >= 0 and values.max() < 1


def test_draws_inside_of_a_branch_are_refused(tmp_path):
  class Branch(torch.nn.Module):
    def forward(self, chosen, x):
      return torch.cond(chosen, lambda x: x + torch.rand_like(x), lambda x: x * 2, (x,))

  with pytest.raises(husk.Unsupported, match="random numbers inside of a branch or a loop"):
    husk.write(Branch(), (torch.tensor(True), torch.ones(3)), tmp_path, targets=["cuda:h200"])
