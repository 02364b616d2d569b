"""Runs `huskc`, the compiler of `.hir` files."""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
from collections.abc import Callable
from typing import IO

from .. import tools
from ..errors import CompileError


def huskc() -> str | None:
  """The path of the compiler, None if it is not there."""
  return tools.find("huskc")


def require() -> str:
  """The path of the compiler. An export asks for it before it begins to compile."""
  program = huskc()
  if program is None:
    raise CompileError(
      "huskc was not found: run `pip install ./compiler/torch`, put it on PATH, or name it in HUSKC"
    )
  return program


def compile(
  text: pathlib.Path,
  artifact: pathlib.Path,
  piped: str | None = None,
  send: Callable[[IO[bytes]], None] | None = None,
  place: str = "inside",
) -> str:
  """Compiles the file `text` to the file `artifact`; returns the output of huskc. `send` writes the
  safetensors file that `text` calls `piped`, so that its bytes go from the memory of this process
  into the artifact. `place` says whether weights lie inside of the artifact or beside it. An
  exception ends huskc, which removes what it has written."""
  command = [require(), str(text), "-o", str(artifact), "--weights", place]
  if piped is not None:
    command += ["--stdin", piped]
  process = subprocess.Popen(
    command,
    stdin=subprocess.DEVNULL if send is None else subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
  )
  try:
    if send is not None and process.stdin is not None:
      with contextlib.suppress(BrokenPipeError), process.stdin:  # huskc says why it ended
        send(process.stdin)
      process.stdin = None  # communicate() would flush it
    printed, complaint = (part.decode(errors="replace") for part in process.communicate())
  except BaseException:
    process.terminate()
    process.wait()
    raise
  if process.returncode:
    raise CompileError(f"huskc refused {text}:\n{(complaint or printed).strip()}")
  return printed
