"""The extension module: in the installed package, or in a build of the source tree."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import pathlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from . import errors

NAME = "husk.runtime._native"


def find(package: pathlib.Path) -> pathlib.Path | None:
  """The file of the extension for this Python: `_native` in `package`, or the newest build in the
  source tree that contains it. None if there is none."""
  suffixes = importlib.machinery.EXTENSION_SUFFIXES
  for suffix in suffixes:
    if (path := package / f"_native{suffix}").is_file():
      return path
  if len(package.parents) < 4:
    return None
  builds = package.parents[3] / "build"
  found = [path for suffix in suffixes for path in builds.glob(f"*/python/_native{suffix}")]
  return max(found, key=lambda path: path.stat().st_mtime, default=None)


def load() -> ModuleType:
  """The extension. Raises ImportError with the remedy if it was not built."""
  if NAME in sys.modules:
    return sys.modules[NAME]
  path = find(pathlib.Path(__file__).resolve().parent)
  if path is None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    raise ImportError(
      f"the runtime of Husk is not built for Python {version}: run `pip install ./compiler/torch`, "
      "or configure a build of the source tree with -DHUSK_PYTHON=ON"
    )
  spec = importlib.util.spec_from_file_location(NAME, path)
  assert spec is not None and spec.loader is not None
  module = importlib.util.module_from_spec(spec)
  sys.modules[NAME] = module
  try:
    spec.loader.exec_module(module)
  except BaseException:
    del sys.modules[NAME]
    raise
  module.set_error_classes(errors.BY_STATUS)
  return module


if TYPE_CHECKING:
  from . import _native as native
else:
  native = load()
