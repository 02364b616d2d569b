"""Children of the nets leave no temporary files, however they end. A child is a fork, which may
hang if its parent has threads: nets of their own start them here, not the process of the tests."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest
import random_models
from patience import HANG, eventually

NETS = pathlib.Path(random_models.__file__).parent

ENDS = f"""
import os, pathlib, signal, sys, tempfile, time
sys.path.insert(0, sys.argv[1])
from random_models import in_a_child

def returns():
  (pathlib.Path(tempfile.mkdtemp()) / "model.husk").touch()
  return "equal"

def raises():
  tempfile.mkdtemp()
  raise ValueError

def dies():
  tempfile.mkdtemp()
  os.kill(os.getpid(), signal.SIGKILL)

def waits():
  tempfile.mkdtemp()
  time.sleep({HANG})

folder = pathlib.Path(os.environ["TMPDIR"])
before = set(folder.iterdir())
for function, seconds in ((returns, {HANG}), (raises, {HANG}), (dies, {HANG}), (waits, 1)):
  found = in_a_child(function, seconds)
  left = set(folder.iterdir()) - before
  print(found if isinstance(found, str) else found[0], *left)
"""

WAITS = """
import os, pathlib, sys, tempfile, time
sys.path.insert(0, sys.argv[1])
from random_models import in_a_child

def waits():
  (pathlib.Path(tempfile.mkdtemp()) / "child").write_text(str(os.getpid()))
  time.sleep(600)

in_a_child(waits, 600)
"""


@pytest.fixture
def environment(tmp_path):
  """That of a net whose temporary files are in a folder of their own, beside Inductor's caches."""
  folder, caches = tmp_path / "files", tmp_path / "caches"
  folder.mkdir()
  return {**os.environ, "TMPDIR": str(folder), "TORCHINDUCTOR_CACHE_DIR": str(caches)}


def test_a_child_leaves_no_files(environment):
  command = [sys.executable, "-c", ENDS, str(NETS)]
  found = subprocess.run(
    command, env=environment, timeout=4 * HANG, check=True, capture_output=True, text=True
  )
  assert found.stdout.split("\n") == ["equal", "died", "died", "late", ""]


def test_a_net_that_is_terminated_leaves_no_files_and_no_child(environment):
  folder = pathlib.Path(environment["TMPDIR"])
  net = subprocess.Popen([sys.executable, "-c", WAITS, str(NETS)], env=environment)
  try:
    eventually(lambda: list(folder.rglob("child")) or net.poll() is not None)
    (file,) = folder.rglob("child")
    eventually(file.read_text)
    child = int(file.read_text())
    net.terminate()
    assert net.wait(HANG) == 128 + signal.SIGTERM
  finally:
    net.kill()
  with pytest.raises(ProcessLookupError):
    os.kill(child, 0)
  assert not list(folder.iterdir())
