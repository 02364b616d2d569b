"""The list of PyTorch's own tests (upstream.py): for each of them, an existing test shows the same
behaviour, or the list has a reason."""

import re

import artifact_runner
import built_tools
import husk
import pytest
import row_table
import torch
import upstream

FILES = {path.name: path for path in (built_tools.ROOT / "tests" / "torch").rglob("test_*.py")}


def test_every_name_is_listed_once():
  names = [
    name
    for name, _ in upstream.shown()
    + upstream.others(upstream.REFUSED)
    + upstream.others(upstream.APART)
  ]
  assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)
  print(upstream.summary())


@pytest.mark.parametrize(
  "name, ours",
  upstream.shown(),
  ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_listed_tests_exist(name, ours):
  if "::" in ours:
    file, test = ours.split("::")
    assert re.search(rf"^def {test}\(", FILES[file].read_text(), re.M)
  else:
    file, row = ours.split("-")
    assert row in row_table.rows_of(file) and not row_table.rows_of(file)[row].refused


def test_a_missing_operator(tmp_path):
  """An op that only Python implements is refused. If the export says that the application registers
  it, the artifact is written, and opening it without the op names it."""

  @torch.library.custom_op("husk_test::nobody_has", mutates_args=())
  def nobody_has(x: torch.Tensor) -> torch.Tensor:
    return x + 1

  nobody_has.register_fake(torch.empty_like)

  class Model(torch.nn.Module):
    def forward(self, x):
      return torch.ops.husk_test.nobody_has(x) * 2

  call = Model(), (torch.randn(3),), tmp_path / "model.husk"
  with pytest.raises(husk.Unsupported, match=r"export with ops=\['husk_test::nobody_has'\]"):
    husk.export(*call, targets=(row_table.TARGET,))
  husk.export(*call, targets=(row_table.TARGET,), ops=["husk_test::nobody_has"])
  with pytest.raises(artifact_runner.Failed, match="husk_test::nobody_has") as failed:
    artifact_runner.Runner(tmp_path / "model.husk")
  assert failed.value.status in (3, 8)
