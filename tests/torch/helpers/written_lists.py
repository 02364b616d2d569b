"""The scripts of schema/ that write lists from rows."""

import importlib.util
import pathlib
import sys
from unittest import mock

SCHEMA = pathlib.Path(__file__).resolve().parents[3] / "schema"


def script(name):
  """The module of a script, which imports its neighbour written.py."""
  spec = importlib.util.spec_from_file_location(f"husk_schema_{name}", SCHEMA / name)
  module = importlib.util.module_from_spec(spec)
  with mock.patch.object(sys, "path", [str(SCHEMA), *sys.path]):
    spec.loader.exec_module(module)
  return module
