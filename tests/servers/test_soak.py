"""soak.py for a short time; it is run for ten minutes before a release."""

import subprocess
import sys

from conftest import HANG, HERE


def test_soak():
  command = [sys.executable, HERE / "soak.py", "8"]
  result = subprocess.run(command, capture_output=True, text=True, timeout=HANG)
  assert result.returncode == 0, result.stdout + result.stderr
