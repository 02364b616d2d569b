"""The precompiled headers of host kernels. Each image includes the same headers of PyTorch, which a
compiler reads for longer than it compiles the kernels of a small model.

A precompiled header has 140 MB and takes as long as three images, so that it is made when a machine
compiles with the same headers for the second time. Inductor's cache folder keeps it
(TORCHINDUCTOR_CACHE_DIR). An image has the same bytes with and without it."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Sequence

from ..inductor import host_toolchain, torch_compat

NAME = "husk_headers.h"  # what a translation unit includes


def folder(command: Sequence[str], headers: str) -> pathlib.Path | None:
  """The folder that has NAME and its precompiled form for a compiler with its options, or None if
  this machine has none. A failure of any kind gives None: then the compiler reads the headers."""
  try:
    path = _cache() / key(command, headers)
    if (path / f"{NAME}.gch").is_file():
      return path
    if not path.is_dir():  # The first time: the folder tells the next call that this one was made.
      path.mkdir(parents=True)
      return None
    return path if _make(path, command, headers) else None
  except (OSError, subprocess.SubprocessError):
    return None


def _cache() -> pathlib.Path:
  return pathlib.Path(torch_compat.cache_folder()) / "husk_headers"


def key(command: Sequence[str], *texts: str) -> str:
  """A name for what a compiler makes of texts: a hash of all that it depends on. The compiler
  itself refuses a precompiled header that another build of it has made."""
  text = json.dumps([*command, _version(command[0]), torch_compat.version(), *texts])
  return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@functools.cache
def _version(compiler: str) -> str:
  return host_toolchain.tool_output([compiler, "--version"])


def _make(path: pathlib.Path, command: Sequence[str], headers: str) -> bool:
  """Writes the files aside and renames them, since other processes may do the same."""
  with tempfile.TemporaryDirectory(dir=path) as name:
    aside = pathlib.Path(name)
    (aside / NAME).write_text(headers)
    done = subprocess.run(
      [*command, "-x", "c++-header", NAME, "-o", f"{NAME}.gch"], cwd=aside, capture_output=True
    )
    if done.returncode:
      return False
    os.replace(aside / NAME, path / NAME)
    os.replace(aside / f"{NAME}.gch", path / f"{NAME}.gch")
  return True
