"""Training with torch.compile in two processes on the CPU, under DDP and FSDP2."""

import pathlib
import subprocess
import sys

import two_ranks

ROOT = pathlib.Path(__file__).resolve().parents[3]


def test_losses_of_gpt2_are_those_of_eager_mode():
  """tests/gpu/training.py, which measures on two GPUs. A block has more parameters than a bucket
  of DDP, so the model is compiled in parts."""
  sizes = {"layers": 1, "width": 192, "heads": 2, "words": 96, "tokens": 16, "rows": 2, "steps": 1}
  options = [text for name, size in sizes.items() for text in (f"--{name}", str(size))]
  command = [sys.executable, ROOT / "tests/gpu/training.py", "--device", "cpu", "--side", "husk"]
  done = subprocess.run(
    [*command, "--bucket", "1", *options],
    env=two_ranks.ENVIRONMENT,
    capture_output=True,
    text=True,
    timeout=600,
  )
  assert done.returncode == 0, done.stdout + done.stderr
  assert "ddp: a step: eager" in done.stdout and "fsdp: a step: eager" in done.stdout


def test_ddp_reduces_while_programs_run(tmp_path):
  """The backward is a program for each bucket, and a bucket is reduced when its program is done, so
  reductions begin before the last program."""
  for output in two_ranks.outputs("training_program.py", tmp_path):
    forward, backward = output.split("backward")
    assert forward.split() == ["program"] * 4
    assert backward.split()[:7] == [*["program", "reduction"] * 3, "program"]
