"""The exporter has the version of the CMake project."""

import pathlib
import re

import husk

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_exporter_has_the_version_of_the_project():
  project = re.search(
    r"^project\(husk VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE
  )
  assert project
  assert husk.__version__ == project[1]
