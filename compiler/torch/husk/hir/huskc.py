"""Runs `huskc`, the compiler of `.hir` files."""

import pathlib
import subprocess

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


def compile(text: pathlib.Path, artifact: pathlib.Path) -> str:
  """Compiles the file `text` to the file `artifact`; returns the output of huskc."""
  process = subprocess.run(
    [require(), str(text), "-o", str(artifact)], capture_output=True, text=True
  )
  if process.returncode:
    output = (process.stderr or process.stdout).strip()
    raise CompileError(f"huskc refused {text}:\n{output}")
  return process.stdout
