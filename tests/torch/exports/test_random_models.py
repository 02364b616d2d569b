"""A small part of the nets that run by name: random models of random_models.py, and some operators
of the database at sizes that the export did not see (database_sizes.py)."""

import database_sizes
import export_and_compare
import mpmath
import pytest
import random_models
import random_programs
import torch

pytestmark = pytest.mark.skipif(
  not export_and_compare.ISAS, reason="this machine has neither AVX2 nor AVX-512"
)
# A seed names the same program as long as the generator and torch are the same.
SEEDS = (2, 4, 8, 9, 10)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_model_on_the_host(seed, tmp_path):
  program = random_programs.program_of(seed)
  result, text = random_models.outcome(program, "host", tmp_path)
  assert result in ("equal", "torch.export", "rejected"), f"{text}\n{program.text()}"


def test_a_wrong_number_is_noticed():
  """The tolerance is a few units in the last place, and what two runs in eager mode could both give
  is not compared."""
  eager = torch.tensor([1.0, 2.0, float("nan"), float("inf")])
  expected = random_programs.Expected(eager, eager.double(), [eager] * 3)
  assert random_programs.difference([eager], [expected]) is None
  for place, value in enumerate((1.001, 2.001, 0.0, -float("inf"))):
    wrong = eager.clone()
    wrong[place] = value
    assert random_programs.difference([wrong], [expected])
  assert random_programs.difference([eager.double()], [expected])
  assert random_programs.difference([eager[:3]], [expected])
  places = torch.tensor([3, 4])
  unstable = random_programs.Expected(places, None, [torch.tensor([3, 5])])
  assert random_programs.difference([torch.tensor([3, 9])], [unstable]) is None
  assert random_programs.difference([torch.tensor([2, 4])], [unstable])


@pytest.mark.parametrize("name", sorted(random_programs.INEXACT))
def test_eager_mode_is_inexact(name):
  """What the net leaves out in float64. An operator that PyTorch has mended is compared again."""
  kind, order = name[-2], int(name[-1])
  x = torch.linspace(4, 7, 31, dtype=torch.float64)
  function = getattr(mpmath, f"bessel{kind}")
  exact = torch.tensor([float(function(order, one)) for one in x.tolist()], dtype=torch.float64)
  error = (getattr(torch.special, name.split(".")[1])(x) - exact).abs().max()
  assert 1e-8 < error < 1e-5


@pytest.mark.parametrize("name", ["roll", "std_mean", "gather", "nn.functional.pixel_shuffle"])
def test_operator_at_other_sizes(name, tmp_path):
  options = database_sizes.parsed([])
  (op,) = (op for op in database_sizes.database() if op.name == name and not op.variant_test_name)
  case = database_sizes.best_sample(op, torch.float32)
  found = database_sizes.attempt([case], options, tmp_path)
  assert found == {0: ("equal", "4 sizes")}
