"""The exporter has the version of the CMake project."""

import importlib
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_exporter_has_the_version_of_the_project():
  project = re.search(
    r"^project\(husk VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE
  )
  assert project
  # The name `husk.export` is the function; the module has to be asked for.
  assert importlib.import_module("husk.export").VERSION == project[1]
