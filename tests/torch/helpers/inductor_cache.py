"""A cache folder of Inductor for another process."""

import pathlib

from torch._inductor.runtime.cache_dir_utils import cache_dir


def folder(path):
  """Makes an empty cache folder and returns its path. It has the precompiled headers of this
  process's cache folder, since a compiler works for seconds to make them."""
  headers = pathlib.Path(cache_dir()) / "husk_headers"
  headers.mkdir(parents=True, exist_ok=True)
  path.mkdir()
  (path / headers.name).symlink_to(headers)
  return str(path)
