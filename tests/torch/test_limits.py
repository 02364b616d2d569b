"""The copies of schema/limits.def in FORMAT.md and in the exporter have the same values."""

import pathlib
import re

from husk.lower import scalars

SCHEMA = pathlib.Path(__file__).resolve().parents[2] / "schema"
LIMIT = re.compile(r"^HUSK_LIMIT\((\w+), (\d+)\)", re.MULTILINE)
ROW = re.compile(r"^\| `(k\w+)` \| (\d+) \|", re.MULTILINE)


def limits():
  return dict(LIMIT.findall((SCHEMA / "limits.def").read_text()))


def test_the_page_lists_the_limits():
  assert dict(ROW.findall((SCHEMA / "FORMAT.md").read_text())) == limits()


def test_the_exporter_knows_the_limit_of_results():
  assert str(scalars._MOST_READS) == limits()["kMaxSegmentResults"]
