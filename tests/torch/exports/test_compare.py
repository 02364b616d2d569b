"""tests/bench/compare.py, with the peers that need nothing but torch, and the memory of a process
that runs a small model."""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import built_tools
import pytest

sys.path.append(str(built_tools.ROOT / "tests" / "bench"))

import compare


@pytest.fixture
def options(monkeypatch):
  built_tools.built("husk-bench")
  monkeypatch.setenv("HUSKC", built_tools.built("huskc"))
  monkeypatch.setattr(compare, "python_of", lambda peer: sys.executable)
  return argparse.Namespace(peers=("eager",), rounds=2, seconds=0.01, noisy=True)


def test_husk_is_compared_with_eager(options, tmp_path):
  options.peers = ("eager", "executorch")  # which is not installed
  result = compare.compare("mlp@3", 1, options, tmp_path)
  assert set(result["errors"]) == {"executorch"}
  assert "No module named 'executorch" in result["errors"]["executorch"]
  assert set(result["us"]) == {"eager", "husk"}
  assert result["best"] == "eager"
  ratio = result["ratio"]
  assert 0 < ratio["least"] <= ratio["median"] <= ratio["most"]
  row = compare.table([result], options.peers).splitlines()[2]
  assert row.startswith("| mlp@3 | 1 | ")
  assert row.endswith("| eager |")
  assert "| failed |" in row
  assert compare.making_table([result]) == ""
  result["cpu_s"]["aoti"] = 2 * result["cpu_s"]["husk"]
  assert compare.making_table([result, result]).splitlines()[2].endswith("| 0.50 |")


def test_outputs_are_compared(options, tmp_path):
  import torch

  for name, value in (("eager", 1.0), ("same", 1.0), ("other", 1.5)):
    torch.save([torch.full((2,), value)], tmp_path / f"{name}.1.pt")
  torch.save([torch.ones(3)], tmp_path / "shape.1.pt")
  names = ["same", "other", "shape", "absent"]
  same, other, shape, absent = compare.differences(tmp_path, names, 1)
  assert (same, other) == (0.0, 0.5)
  assert "(3,), (2,) was expected" in shape
  assert "absent.1.pt" in absent


def test_an_unknown_model_is_an_error():
  peers = built_tools.ROOT / "tests" / "bench" / "compare" / "peers.py"
  done = subprocess.run(
    [sys.executable, peers, "eager", "alexnet@1", "1", "build"], capture_output=True, text=True
  )
  assert "there is no model 'alexnet'" in json.loads(done.stdout)["error"]


def test_a_busy_machine_is_refused(monkeypatch):
  monkeypatch.setattr(compare, "busy_share", lambda threads: 0.5)
  assert compare.require_quiet(2, noisy=True) == 0.5
  with pytest.raises(SystemExit, match="not quiet: 2 busy"):
    compare.require_quiet(2, noisy=False)


def read_from_the_disk(program, folder):
  """Copies a program and the libraries beside it, and removes the copies from the page cache.

  Linux has what was just written in large folios, and since 6.18 maps a whole folio where a program
  touches one page of it. The same program then has up to 2 MiB more in memory than after it was
  read from the disk. Pages that another process has mapped stay in the cache, so the libraries
  themselves, which other tests use at the same time, cannot be removed from it.
  Returns the copy of the program and the environment in which it finds the copied libraries."""
  copies = [shutil.copy(program, folder)]
  copies += [
    shutil.copy(path, folder) for path in (program.parent.parent / "lib").glob("lib*.so.*")
  ]
  for path in copies:
    with open(path, "rb") as file:
      os.fsync(file)
      os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
  return copies[0], os.environ | {"LD_LIBRARY_PATH": str(folder)}


def test_a_small_model_needs_little_memory(tmp_path):
  """ExecuTorch needs 6 MB for this model, IREE 5 MB. Times are printed, but not compared."""
  program = pathlib.Path(built_tools.built("husk_first_result"))
  code = "import sys, cases, husk; husk.export(*cases.make('mlp@1'), sys.argv[1])"
  folders = [built_tools.ROOT / "compiler" / "torch", built_tools.ROOT / "tests/bench/compare"]
  path = tmp_path / "mlp.husk"
  subprocess.run(
    [sys.executable, "-c", code, path],
    check=True,
    env=os.environ | {"PYTHONPATH": ":".join(map(str, folders))},
  )
  program, environment = read_from_the_disk(program, tmp_path)
  done = subprocess.run([program, path], capture_output=True, text=True, env=environment)
  assert done.returncode == 0, done.stderr
  print(done.stdout)
  assert int(re.search(r"at most (\d+) KiB", done.stdout)[1]) <= 4096
