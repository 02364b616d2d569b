"""Runs `huskc`, the compiler of `.hir` files."""

import os
import pathlib
import shutil
import subprocess
import sys

from ..errors import CompileError


def huskc() -> str | None:
  """The path of the compiler: the environment variable HUSKC, or `huskc` on PATH, or the newest
  build in the source tree that contains this package. None if there is none of them."""
  if path := os.environ.get("HUSKC"):
    return path
  if path := shutil.which("huskc"):
    return path
  root = pathlib.Path(__file__).resolve().parents[4]
  programs = [path for path in root.glob("build/*/bin/huskc") if runs_here(path)]
  newest = max(programs, key=lambda path: path.stat().st_mtime, default=None)
  return None if newest is None else str(newest)


def runs_here(path: pathlib.Path) -> bool:
  """Whether a program is for this kind of machine, as Python itself is. A source tree may
  contain cross builds too."""
  return _machine(path) == _machine(pathlib.Path(sys.executable))


def _machine(path: pathlib.Path) -> bytes:
  """The class, the byte order and the machine in the ELF header of a program."""
  with path.open("rb") as file:
    head = file.read(20)
  return head[4:6] + head[18:20]


def compile(text: pathlib.Path, artifact: pathlib.Path) -> str:
  """Compiles the file `text` to the file `artifact`; returns the output of huskc."""
  program = huskc()
  if program is None:
    raise CompileError("huskc was not found: put it on PATH, or name it in HUSKC")
  process = subprocess.run(
    [program, str(text), "-o", str(artifact)], capture_output=True, text=True
  )
  if process.returncode:
    output = (process.stderr or process.stdout).strip()
    raise CompileError(f"huskc refused {text}:\n{output}")
  return process.stdout
