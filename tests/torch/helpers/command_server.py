"""Runs the command `python -m husk` in processes that have imported PyTorch and Inductor already.

    python command_server.py

reads lines with [ARGUMENTS, ENVIRONMENT, FOLDER], runs the command in a forked process, whose
output goes to the files `out` and `err` of FOLDER, and answers with a line that has its status."""

import json
import os
import runpy
import sys
import traceback

import husk  # noqa: F401
import torch._inductor.compile_fx  # noqa: F401


def run(arguments, environment):
  """The status of the command."""
  os.environ.clear()
  os.environ.update(environment)
  sys.argv = ["husk", *arguments]
  try:
    runpy.run_module("husk", run_name="__main__", alter_sys=True)
  except SystemExit as end:
    return end.code or 0
  except BaseException:
    traceback.print_exc()
    return 1
  return 0


def serve():
  for line in sys.stdin:
    arguments, environment, folder = json.loads(line)
    child = os.fork()
    if child == 0:
      for descriptor, name in ((1, "out"), (2, "err")):
        with open(os.path.join(folder, name), "w") as file:
          os.dup2(file.fileno(), descriptor)
      status = run(arguments, environment)
      sys.stdout.flush()
      sys.stderr.flush()
      os._exit(status)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
  serve()
