"""The files of a program for several ranks, if each rank has one of its own."""

from __future__ import annotations

import os
import pathlib


def file_of_rank(path: str | os.PathLike[str], rank: int) -> pathlib.Path:
  """The file of a rank: model.rank0.husk for model.husk."""
  path = pathlib.Path(path)
  return path.with_name(f"{path.name.removesuffix('.husk')}.rank{rank}.husk")
