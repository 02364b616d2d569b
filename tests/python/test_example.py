"""The program of examples/python."""

import os
import pathlib
import subprocess
import sys

import husk
from programs import ARCH

ROOT = pathlib.Path(husk.__file__).parents[3]


def test_the_example_prints_the_rows(tmp_path):
  # A model with constants instead of mlp.husk, of the same inputs and outputs.
  text = (ROOT / "tests/install/embedded.hir").read_text().replace("@ARCH@", ARCH)
  (tmp_path / "mlp.hir").write_text(text)
  command = [husk.tools.find("huskc"), "mlp.hir", "-o", "mlp.husk"]
  subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
  environment = os.environ | {"PYTHONPATH": str(ROOT / "compiler/torch")}
  done = subprocess.run(
    [sys.executable, ROOT / "examples/python/run_mlp.py"],
    cwd=tmp_path,
    env=environment,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  rows = [[float(number) for number in line.split()] for line in done.stdout.splitlines()]
  assert rows == [[value] * 10 for value in (3.48, 8.6, 13.72, 18.84)]
