"""The example of a model repository, as its page runs it."""

import os
import subprocess

from conftest import HERE, free_ports


def test_triton_example():
  http, grpc, metrics = map(str, free_ports(3))
  result = subprocess.run(
    ["bash", HERE.parents[1] / "examples" / "triton" / "run.sh"],
    env=os.environ | {"HTTP_PORT": http, "GRPC_PORT": grpc, "METRICS_PORT": metrics},
    capture_output=True,
    text=True,
    timeout=300,
  )
  assert result.returncode == 0, result.stdout + result.stderr
  assert result.stdout.count("[4, 32] -> ") == 4
