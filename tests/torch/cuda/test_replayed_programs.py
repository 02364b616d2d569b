"""What replays the programs of a grid (helpers/replayed_programs.py) computes what each program
would compute by itself."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch

HERE = pathlib.Path(__file__).resolve().parents[1] / "helpers"
ENDS = [1, 2, 2, 5, 1, 2]


@pytest.fixture(scope="module")
def results():
  done = subprocess.run(
    [sys.executable, HERE / "replay_cases.py"],
    env={**os.environ, "TRITON_INTERPRET": "1"},
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  return json.loads(done.stdout)


@pytest.fixture
def x():
  torch.manual_seed(0)
  return torch.randn(6, 8)


# Programs that were recorded, and whether others were replayed.
@pytest.mark.parametrize(
  "name, recorded, replayed, expected",
  [
    ("moved", 1, True, lambda x: x.cumsum(1) + 2 * x.amax(1, keepdim=True) + 6),
    ("looped", 3, True, lambda x: torch.stack([x[:end].sum(0) for end in ENDS])),
    ("branched", 2, True, lambda x: torch.where(x.sum(1, keepdim=True) > 0, -x, x * 3)),
    ("stored_before", 1, False, lambda x: (1 + x) * torch.tensor([1, 2, 2, 2, 1, 2])[:, None]),
    ("added", 1, True, lambda x: torch.cat([x.sum(0, keepdim=True) + 1, torch.ones(5, 8)])),
    ("read_by_others", 1, True, lambda x: 1 + x.cumsum(0)),
    ("printed", 1, False, lambda x: x),
  ],
)
def test_programs_that_differ(results, x, name, recorded, replayed, expected):
  values, *found = results[name]
  torch.testing.assert_close(torch.tensor(values), expected(x))
  assert found == [recorded, replayed]
