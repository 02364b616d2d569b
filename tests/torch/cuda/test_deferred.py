"""Templates that are written only if they are chosen."""

import tempfile

import husk
import pytest
import torch
from husk.cuda import deferred, records, tuning
from torch import nn


class Images(nn.Module):
  """Convolutions with Inductor's template and with Husk's, a depthwise one, one of one tap, linear
  layers and a sum of two products."""

  def __init__(self):
    super().__init__()
    self.layers = nn.Sequential(
      nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.Conv2d(32, 32, 1)
    )
    self.depthwise = nn.Conv2d(32, 32, 3, groups=32)
    self.volume = nn.Conv3d(1, 4, 3)
    self.left, self.right = nn.Linear(32, 8, bias=False), nn.Linear(32, 8, bias=False)

  def forward(self, x):
    y = self.depthwise(self.layers(x)).mean((2, 3))
    return self.left(y) + self.right(y.relu()), self.volume(x[:, None])


@pytest.mark.parametrize("tune", ["heuristic", "none"])
def test_the_program_is_the_same(tune, tmp_path, monkeypatch):
  model, x = Images().eval(), torch.randn(2, 3, 20, 20)
  texts, counts, deferring = [], [], deferred.appending
  for name in ("deferred", "at once"):
    written = []

    def appending(original, written=written, is_deferred=name == "deferred"):
      def counted(*args, **kwargs):
        written.append(args[0].name)
        return original(*args, **kwargs)

      return deferring(counted) if is_deferred else counted

    with monkeypatch.context() as patched:
      patched.setattr(deferred, "appending", appending)
      husk.write(model, (x,), tmp_path / name, targets=("cuda:h200",), tune=tune, progress=False)
    counts.append(len(written))
    texts.append((tmp_path / name / "model.hir").read_text())
    images = {one.name: one.read_bytes() for one in (tmp_path / name).glob("*.cubin")}
    texts.append(images)
  assert texts[0] == texts[2] and texts[1] == texts[3] and texts[1]
  assert counts[0] * 4 < counts[1], counts


def test_a_template_that_cannot_be_written_is_left_out():
  class Named:
    def __init__(self, name):
      self.name = name

  class Chosen(deferred._class()):
    def __init__(self, name, found):
      self.name, self.found = name, found

    def written(self):
      return self.found

  choices = [Chosen("first", None), Chosen("second", Named("written")), Chosen("third", None)]
  pick = deferred.choosing(lambda left: left[0])
  assert pick(None, choices).name == "second"
  assert pick(None, choices[:1]).name == "first"


def test_a_template_knows_what_its_problem_is(monkeypatch):
  """Records are found by what a template tells before it is written, and it is measured as it is
  afterwards."""
  before, after = [], []
  pick = tuning.Tuning.pick_template

  def picked(self, target, choices):
    for choice in choices:
      written = deferred.written(choice)
      for one, found in ((choice, before), (written, after)):
        found.append((records.problem_of(one), records.config_of(one)))
    return pick(self, target, choices)

  monkeypatch.setattr(tuning.Tuning, "pick_template", picked)
  with tempfile.TemporaryDirectory() as folder:
    model, x = Images().half().eval(), torch.randn(2, 3, 20, 20).half()
    husk.write(model, (x,), folder, targets=("cuda:h200",), progress=False)
  assert before == after and len({str(problem) for problem, _ in before}) > 4
