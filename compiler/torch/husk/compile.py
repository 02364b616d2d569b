"""Runs `huskc`, the compiler of `.hir` files."""

import os
import pathlib
import shutil
import subprocess
import sys

from .errors import CompileError


def huskc():
  """The compiler: HUSKC, or the one on PATH, or the one that was built last beside this package."""
  if path := os.environ.get("HUSKC"):
    return path
  if path := shutil.which("huskc"):
    return path
  root = pathlib.Path(__file__).resolve().parents[3]
  built = sorted(filter(runs_here, root.glob("build/*/bin/huskc")), key=lambda path: path.stat().st_mtime)
  return str(built[-1]) if built else None


def runs_here(path):
  """Whether a program is for this kind of machine: as Python itself is. A tree may hold cross builds too."""
  kinds = [_head(program) for program in (path, sys.executable)]
  return kinds[0][4:6] + kinds[0][18:20] == kinds[1][4:6] + kinds[1][18:20]     # ELF: class, order of bytes, machine


def _head(program):
  with open(program, "rb") as file:
    return file.read(20)


def compile(text, artifact):
  """Compiles the file `text` to `artifact`; returns what huskc said."""
  program = huskc()
  if program is None:
    raise CompileError("huskc was not found: put it on PATH, or name it in HUSKC")
  done = subprocess.run([program, str(text), "-o", str(artifact)], capture_output=True, text=True)
  if done.returncode:
    raise CompileError(f"huskc refused {text}:\n{(done.stderr or done.stdout).strip()}")
  return done.stdout
