"""Images that were compiled before. Inductor's cache folder keeps them (TORCHINDUCTOR_CACHE_DIR),
so that the same kernels are compiled once for all exports and processes. Whatever fails here gives
no image: then the compiler makes it."""

from __future__ import annotations

import functools
import hashlib
import os
import pathlib
import tempfile
from collections.abc import Sequence

from ..inductor import torch_compat
from . import precompiled

_DIGEST = 16  # bytes


def path(command: Sequence[str], headers: str, source: str, linkable: bool) -> pathlib.Path | None:
  """Where the image of a translation unit lies if there is one: its name is a hash of all that the
  image depends on."""
  try:
    name = precompiled.key(command, _own_code(), headers, source, str(linkable))
    return pathlib.Path(torch_compat.cache_folder()) / "husk_images" / name
  except OSError:
    return None


def read(kept: pathlib.Path | None) -> bytes | None:
  try:
    data = kept.read_bytes() if kept else b""
  except OSError:
    return None
  image = data[_DIGEST:]
  return image if image and _digest(image) == data[:_DIGEST] else None


def write(kept: pathlib.Path | None, image: bytes) -> None:
  """Writes the file aside and renames it, since other processes may do the same."""
  if not kept:
    return
  try:
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
      aside = pathlib.Path(folder) / kept.name
      aside.write_bytes(_digest(image) + image)
      os.replace(aside, kept)
  except OSError:
    pass


def _digest(image: bytes) -> bytes:
  """A file begins with it, so that a damaged one is noticed."""
  return hashlib.blake2b(image, digest_size=_DIGEST).digest()


@functools.cache
def _own_code() -> str:
  """A hash of the modules that compile and link an image."""
  folder = pathlib.Path(__file__).parent
  code = b"".join((folder / name).read_bytes() for name in ("image.py", "vector_math.py"))
  return hashlib.blake2b(code, digest_size=16).hexdigest()
