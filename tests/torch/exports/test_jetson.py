"""examples/jetson: an archive for a board, whose programs qemu runs."""

import os
import shutil
import subprocess
import sys

import built_tools
import pytest

QEMU = "qemu-aarch64 -L /usr/aarch64-linux-gnu"
BUILD = built_tools.ROOT / "build" / "aarch64"


@pytest.fixture(scope="module")
def board(tmp_path_factory):
  """The unpacked archive."""
  if not (BUILD / "bin" / "husk-bench").is_file() or not shutil.which("qemu-aarch64"):
    pytest.skip("no build of husk-bench for 64-bit Arm, or no qemu-aarch64")
  folder = tmp_path_factory.mktemp("board")
  archive = folder / "jetson.tar.gz"
  command = ["bash", built_tools.ROOT / "examples" / "jetson" / "pack.sh", "orin", archive]
  environment = os.environ | {"HUSK_BUILD": str(BUILD), "PYTHON": sys.executable}
  done = subprocess.run(command, env=environment, capture_output=True, text=True)
  assert done.returncode == 0, done.stdout + done.stderr
  assert "will run on orin" in done.stdout and "will run on host:aarch64" in done.stdout
  subprocess.run(["tar", "-xzf", archive], cwd=folder, check=True)
  return folder / "husk"


def run(board):
  environment = os.environ | {"HUSK_EMULATE": QEMU, "HUSK_SECONDS": "0.1"}
  return subprocess.run(
    [board / "board.sh", "host"], env=environment, capture_output=True, text=True
  )


def test_the_report(board):
  done = run(board)
  report = (board / "report.txt").read_text()
  assert done.returncode == 0 and done.stdout == report, done.stdout + done.stderr
  assert "all as they were packed" in report and "== time" in report
  assert report.endswith("board.sh: passed\n")


def test_a_damaged_file_and_a_wrong_result(board):
  expected = board / "expected.safetensors"
  content = expected.read_bytes()
  sums = (board / "SHA256SUMS").read_text()
  try:
    expected.write_bytes(content[:-1] + bytes([content[-1] ^ 0x40]))
    done = run(board)
    assert done.returncode == 1 and done.stdout.endswith("board.sh: FAILED\n"), done.stdout
    assert "expected.safetensors" in done.stdout and "== result" not in done.stdout
    # If the sum is that of the wrong file, the result differs.
    new = subprocess.run(["sha256sum", expected.name], cwd=board, capture_output=True, text=True)
    lines = [line for line in sums.splitlines() if expected.name not in line]
    (board / "SHA256SUMS").write_text("\n".join([*lines, new.stdout.strip(), ""]))
    done = run(board)
    assert done.returncode == 1 and "== result" in done.stdout and "== time" not in done.stdout
  finally:
    expected.write_bytes(content)
    (board / "SHA256SUMS").write_text(sums)
