"""torch.compile in two processes that communicate: tensor parallelism, and each functional
collective, on the CPU."""

import os
import pathlib
import subprocess
import sys

HELPERS = pathlib.Path(__file__).resolve().parents[1] / "helpers"


def test_two_processes(tmp_path):
  environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "GLOO_SOCKET_IFNAME": "lo"}
  processes = [
    subprocess.Popen(
      [sys.executable, HELPERS / "ranks_program.py", str(rank), tmp_path / "store"],
      env=environment,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
    for rank in range(2)
  ]
  try:
    for process in processes:
      output, errors = process.communicate(timeout=300)
      assert process.returncode == 0 and output == "equal\n", errors
  finally:
    for process in processes:
      process.kill()
