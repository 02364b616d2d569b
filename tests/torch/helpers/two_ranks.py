"""Programs of two processes that communicate."""

import os
import pathlib
import subprocess
import sys

HELPERS = pathlib.Path(__file__).resolve().parent
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "GLOO_SOCKET_IFNAME": "lo"}


def end(text):
  """Prints a text and ends the process at once. Threads of PyTorch's for a group may still run, and
  once ended a process that had done all of its work ("terminate called without an active
  exception": a std::thread that nobody had joined; Husk has none)."""
  print(text, flush=True)
  os._exit(0)


def outputs(program, folder):
  """What both ranks of `program`, a file of this folder, print. Each must end with status 0."""
  processes = [
    subprocess.Popen(
      [sys.executable, HELPERS / program, str(rank), folder / "store"],
      env=ENVIRONMENT,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
    for rank in range(2)
  ]
  found = []
  try:
    for process in processes:
      output, errors = process.communicate(timeout=300)
      assert process.returncode == 0, errors
      found.append(output)
  finally:
    for process in processes:
      process.kill()
  return found
