"""Files that a script writes, most of them from lists of rows, which are C macros. A row is a
line."""

import argparse
import pathlib
import re
import sys
from collections.abc import Callable, Mapping

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROW = re.compile(r"^HUSK_([A-Z0-9_]+)\((.*)\)$", re.MULTILINE)

Rows = dict[str, list[list[str]]]  # of each list, by its macro without HUSK_
Files = Mapping[str, Callable[[Rows], str]]  # the texts by the paths of the files


def rows(text: str) -> Rows:
  found: Rows = {}
  for macro, row in ROW.findall(text):
    found.setdefault(macro, []).append([cell.strip() for cell in row.split(",")])
  return found


def differing(lists: Rows, files: Files) -> dict[pathlib.Path, str]:
  """The texts of the files that are not what the rows say, by their paths."""
  return out_of_date({ROOT / name: text(lists) for name, text in files.items()})


def out_of_date(texts: Mapping[pathlib.Path, str]) -> dict[pathlib.Path, str]:
  """The texts that the files with these paths do not have."""
  return {
    path: text
    for path, text in texts.items()
    if not path.exists() or path.read_text(encoding="utf-8") != text
  }


def main(
  script: str, description: str | None, wrong: dict[pathlib.Path, str], folder: str = "schema"
) -> int:
  """The command of the script in `folder` whose files `wrong` are out of date."""
  parser = argparse.ArgumentParser(
    description=description, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--check", action="store_true")
  check = parser.parse_args().check
  for path, text in wrong.items():
    print(f"{'differs' if check else 'written'}: {path.relative_to(ROOT)}")
    if not check:
      path.write_text(text, encoding="utf-8")
  if check and wrong:
    print(f"run: python3 {folder}/{script}", file=sys.stderr)
  return 1 if check and wrong else 0
