"""Puts an artifact in its place."""

from __future__ import annotations

import os
import pathlib
import shutil


def require(path: pathlib.Path) -> None:
  """Raises OSError if no file can be written at `path`. An export asks before it compiles."""
  if path.is_dir():
    raise IsADirectoryError(f"{path} is a folder: give the name of a file")
  parent = path.resolve().parent
  while not parent.exists():
    parent = parent.parent
  if not parent.is_dir():
    raise NotADirectoryError(f"{path} cannot be written: {parent} is no folder")
  if not (path.exists() and not path.is_file()) and not os.access(parent, os.W_OK):
    raise PermissionError(f"{path} cannot be written: {parent} is read-only for this user")


def place(artifact: pathlib.Path, path: pathlib.Path, move: bool = False) -> None:
  """Copies the file `artifact` beside `path` and renames the copy to `path`. A failure or an
  interrupt therefore leaves an old file as it was, and a program that has the old file open keeps
  its content. If `path` is a FIFO or a device, the bytes are written to it. With `move`, nobody
  needs `artifact` any more, so that a file on the same file system is moved and not copied."""
  path.parent.mkdir(parents=True, exist_ok=True)
  if path.exists() and not path.is_file():
    with open(artifact, "rb") as source, open(path, "wb") as sink:
      shutil.copyfileobj(source, sink)
    return
  target = path.resolve()  # so that a symbolic link stays a link
  part = target.with_name(f"{target.name}.{os.getpid()}.part")
  try:
    if not (move and _moved(artifact, part)):
      shutil.copyfile(artifact, part)
    if target.exists():
      shutil.copymode(target, part)
    os.replace(part, target)
  except BaseException:
    part.unlink(missing_ok=True)
    raise


def _moved(artifact: pathlib.Path, part: pathlib.Path) -> bool:
  """Moves a file if it lies on the file system of `part`. Returns whether it did."""
  try:
    os.replace(artifact, part)
  except OSError:
    return False
  return True
