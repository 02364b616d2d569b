"""soak.py for a short time; it is run for longer before a release."""

import subprocess
import sys

from conftest import HERE


def test_soak():
  command = [sys.executable, HERE / "soak.py", "8", "--no-cancel"]
  result = subprocess.run(command, capture_output=True, text=True, timeout=120)
  assert result.returncode == 0, result.stdout + result.stderr
