"""Children of the nets leave no temporary files, however they end."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import pytest
import random_models
import torch
from patience import HANG, eventually

WAITS = """
import os, pathlib, sys, tempfile, time
sys.path.insert(0, sys.argv[1])
from random_models import in_a_child

def waits():
  (pathlib.Path(tempfile.mkdtemp()) / "child").write_text(str(os.getpid()))
  time.sleep(600)

in_a_child(waits, 600)
"""


def returns():
  (pathlib.Path(tempfile.mkdtemp()) / "model.husk").touch()
  return "equal"


def computes():
  torch.randn(1000, 1000).exp().amax(-1)
  return "equal"


def raises():
  tempfile.mkdtemp()
  raise ValueError


def dies():
  tempfile.mkdtemp()
  os.kill(os.getpid(), signal.SIGKILL)


def waits():
  tempfile.mkdtemp()
  time.sleep(HANG)


@pytest.mark.parametrize(
  "function, seconds, result",
  [
    (returns, HANG, "equal"),
    (computes, HANG, "equal"),
    (raises, HANG, "died"),
    (dies, HANG, "died"),
    (waits, 1, "late"),
  ],
)
def test_a_child_leaves_no_files(tmp_path, monkeypatch, function, seconds, result):
  monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
  threads = torch.get_num_threads()
  torch.set_num_threads(2)
  computes()  # this process has threads then
  torch.set_num_threads(threads)
  found = random_models.in_a_child(function, seconds)
  assert (found if isinstance(found, str) else found[0]) == result
  assert not list(tmp_path.iterdir())


def test_a_net_that_is_terminated_leaves_no_files_and_no_child(tmp_path):
  nets = pathlib.Path(random_models.__file__).parent
  caches = tmp_path / "caches"
  environment = {**os.environ, "TMPDIR": str(tmp_path), "TORCHINDUCTOR_CACHE_DIR": str(caches)}
  net = subprocess.Popen([sys.executable, "-c", WAITS, str(nets)], env=environment)
  try:
    eventually(lambda: list(tmp_path.rglob("child")) or net.poll() is not None)
    (file,) = tmp_path.rglob("child")
    eventually(file.read_text)
    child = int(file.read_text())
    net.terminate()
    assert net.wait(HANG) == 128 + signal.SIGTERM
  finally:
    net.kill()
  with pytest.raises(ProcessLookupError):
    os.kill(child, 0)
  assert not [path for path in tmp_path.iterdir() if path != caches]
