"""The example of a model repository, as its page runs it."""

import os
import subprocess

from conftest import HANG, HERE, free_ports


def test_triton_example():
  http, grpc, metrics = map(str, free_ports(3))
  result = subprocess.run(
    ["bash", HERE.parents[1] / "examples" / "triton" / "run.sh"],
    env=os.environ | {"HTTP_PORT": http, "GRPC_PORT": grpc, "METRICS_PORT": metrics},
    capture_output=True,
    text=True,
    timeout=HANG,
  )
  assert result.returncode == 0, result.stdout + result.stderr
  assert result.stdout.count("[4, 32] -> ") == 4
  # examples/generate prints the same tokens.
  build = HERE.parents[1] / "build"
  program = build / "release" / "bin" / "husk_example_generate"
  command = [program, build / "triton" / "gpt.husk", "8", "5", "17", "200"]
  tokens = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
  assert result.stdout.splitlines()[-1].split()[-8:] == tokens
