"""Training with torch.compile in two processes on the CPU, under DDP and FSDP2."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "GLOO_SOCKET_IFNAME": "lo"}


def test_losses_of_gpt2_are_those_of_eager_mode():
  """tests/gpu/training.py, which measures on two GPUs. A block has more parameters than a bucket
  of DDP, so the model is compiled in parts."""
  sizes = {"layers": 2, "width": 192, "heads": 2, "words": 96, "tokens": 16, "rows": 2, "steps": 1}
  options = [text for name, size in sizes.items() for text in (f"--{name}", str(size))]
  command = [sys.executable, ROOT / "tests/gpu/training.py", "--device", "cpu", "--side", "husk"]
  done = subprocess.run(
    [*command, "--bucket", "1", *options],
    env=ENVIRONMENT,
    capture_output=True,
    text=True,
    timeout=600,
  )
  assert done.returncode == 0, done.stdout + done.stderr
  assert "ddp: a step: eager" in done.stdout and "fsdp: a step: eager" in done.stdout


def test_ddp_reduces_while_programs_run(tmp_path):
  """The backward is a program for each bucket, and a bucket is reduced when its program is done, so
  reductions begin before the last program."""
  program = ROOT / "tests/torch/helpers/training_program.py"
  processes = [
    subprocess.Popen(
      [sys.executable, program, str(rank), tmp_path / "store"],
      env=ENVIRONMENT,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
    for rank in range(2)
  ]
  try:
    for process in processes:
      output, errors = process.communicate(timeout=300)
      assert process.returncode == 0, errors
      forward, backward = output.split("backward")
      assert forward.split() == ["program"] * 4
      assert backward.split()[:7] == [*["program", "reduction"] * 3, "program"]
  finally:
    for process in processes:
      process.kill()
