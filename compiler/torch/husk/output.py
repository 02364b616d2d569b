"""Puts an artifact in its place."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator


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


# Errors of a disk, with what helps.
_REMEDIES = {
  errno.ENOSPC: "the disk is full",
  errno.EDQUOT: "the disk quota of this user is used up",
  errno.EFBIG: "the file is larger than the disk or the limits of the process allow",
  errno.EROFS: "the disk is read-only",
  errno.EACCES: "this user may not write there",
  errno.EPERM: "this user may not write there",
}


@contextlib.contextmanager
def disk_explained(path: pathlib.Path) -> Iterator[None]:
  """Explains the errors of a disk while the artifact `path` is written. Temporary files lie in
  another folder, which may be the one that is full."""
  try:
    yield
  except OSError as error:
    why = _REMEDIES.get(error.errno or 0)
    if why is None or error.filename == str(path):
      raise
    folder = tempfile.gettempdir()
    place = str(error.filename or "")
    if place and not place.startswith(folder):
      text = f"{path} cannot be written: {why} ({place}); free some space, or give another path"
    else:
      text = (
        f"{path} was not written: {why}; an export needs room for its temporary files in {folder} "
        f"and for the artifact in {path.resolve().parent}: free some, or name another folder for "
        "temporary files in TMPDIR"
      )
    raise type(error)(error.errno, text) from error


@contextlib.contextmanager
def replaced(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """The name of a file, which whoever enters the context writes; when the context ends, the file
  becomes `path`. It lies beside `path`, so its bytes are written once. A failure or an interrupt
  leaves an old file as it was, and a program that has the old file open keeps its content. If
  `path` is a FIFO or a device, the bytes are copied to it."""
  path.parent.mkdir(parents=True, exist_ok=True)
  if path.exists() and not path.is_file():
    with tempfile.TemporaryDirectory(prefix="husk-") as folder:
      yield pathlib.Path(folder) / "artifact"
      with open(pathlib.Path(folder) / "artifact", "rb") as source, open(path, "wb") as sink:
        shutil.copyfileobj(source, sink)
    return
  target = path.resolve()  # so that a symbolic link stays a link
  part = target.with_name(f"{target.name}.{os.getpid()}.part")
  try:
    yield part
    if target.exists():
      shutil.copymode(target, part)
    os.replace(part, target)
  except BaseException:
    part.unlink(missing_ok=True)
    raise
