"""Upstream's own list (upstream.py): every test of it is shown by one of ours that exists, or there is a reason."""

import re

import pytest
import torch

import tools
import husk
import runner
import table
import upstream


def test_every_name_stands_once():
  names = [name for name, _ in upstream.shown() + upstream.others(upstream.REFUSED) + upstream.others(upstream.APART)]
  assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)
  print(upstream.summary())


@pytest.mark.parametrize("name, ours", upstream.shown(), ids=lambda value: value if isinstance(value, str) else "-".join(value))
def test_what_shows_it_exists(name, ours):
  if "::" in ours:
    file, test = ours.split("::")
    assert re.search(rf"^def {test}\(", (tools.ROOT / "tests" / "torch" / file).read_text(), re.M)
  else:
    file, row = ours.split("-")
    assert row in table.rows_of(file) and not table.rows_of(file)[row].refused


def test_an_operator_that_nobody_has_is_named(tmp_path):
  """One that only Python knows: the artifact is made, and opening it says what is missing."""

  @torch.library.custom_op("husk_test::nobody_has", mutates_args=())
  def nobody_has(x: torch.Tensor) -> torch.Tensor:
    return x + 1

  nobody_has.register_fake(torch.empty_like)

  class Model(torch.nn.Module):
    def forward(self, x):
      return torch.ops.husk_test.nobody_has(x) * 2

  husk.export(Model(), (torch.randn(3),), tmp_path / "model.husk", targets=(table.TARGET,))
  with pytest.raises(runner.Failed, match="husk_test::nobody_has") as failed:
    runner.Runner(tmp_path / "model.husk")
  assert failed.value.status in (3, 8)
