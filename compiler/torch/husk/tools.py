"""Finds the command-line tools of Husk."""

import os
import pathlib
import shutil
import sys

PACKAGE = pathlib.Path(__file__).resolve().parent


def find(name: str) -> str | None:
  """The path of a tool such as `huskc` or `husk-dump`: what the environment names (HUSKC,
  HUSK_DUMP), or the tool of the installed package, or that on PATH, or the newest build in the
  source tree that contains the package. None if there is none of them."""
  if path := os.environ.get(name.upper().replace("-", "_")):
    return path
  if (installed := PACKAGE / "bin" / name).is_file():
    return str(installed)
  if path := shutil.which(name):
    return path
  if len(PACKAGE.parents) < 3:
    return None
  programs = [path for path in PACKAGE.parents[2].glob(f"build/*/bin/{name}") if runs_here(path)]
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
