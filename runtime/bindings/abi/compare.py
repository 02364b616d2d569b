"""Compares two descriptions of the C interface, which describe.py writes.

  python3 compare.py OLD.json NEW.json

A program that was compiled against OLD must work with the libraries of NEW. Each line of the output
names a change that breaks this promise or, after "new: ", an addition, which the promise allows.

Exit codes: 0 the promise holds; 1 a change breaks it; 2 the command line or a file is wrong.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

Entry = Any  # of abi.json; describe.py says how entries and types are written


def text(kind: Entry) -> str:
  """A type as C writes it, or nearly so."""
  if isinstance(kind, str):
    return kind
  if "struct" in kind:
    return kind["struct"]
  if "pointer" in kind:
    return f"{'const ' if kind['const'] else ''}{text(kind['pointer'])}*"
  if "array" in kind:
    return f"{text(kind['array'])}[{kind['count']}]"
  if "union" in kind:
    members = [f"{text(member['type'])} {name}" for name, member in kind["union"].items()]
    return f"union {{{'; '.join(members)}}}"
  return f"{text(kind['function']['result'])} (*){listed(kind['function']['parameters'])}"


def listed(parameters: list[Entry]) -> str:
  return f"({', '.join(text(one) for one in parameters)})"


def changed(what: str, before: Any, after: Any) -> Iterator[str]:
  if before != after:
    yield f"{what} changed from {before} to {after}"


def constant(what: str, old: int, new: int) -> Iterator[str]:
  yield from changed(what, old, new)


def opaque(what: str, old: None, new: None) -> Iterator[str]:
  yield from ()


def function(what: str, old: Entry, new: Entry) -> Iterator[str]:
  yield from changed(f"{what}: its library", old["library"], new["library"])
  # A caller does not see the names of parameters.
  before, after = (listed(list(one["parameters"].values())) for one in (old, new))
  yield from changed(f"{what}: its parameters", before, after)
  yield from changed(f"{what}: its result", text(old["result"]), text(new["result"]))


def struct(what: str, old: Entry, new: Entry) -> Iterator[str]:
  for name, field in old["fields"].items():
    if name not in new["fields"]:
      yield f"{what}: the field {name} is gone"
      continue
    now = new["fields"][name]
    yield from changed(f"{what}: the offset of {name}", field["offset"], now["offset"])
    yield from changed(f"{what}: the type of {name}", text(field["type"]), text(now["type"]))
  grows = next(iter(old["fields"]), None) == "struct_size"
  for name, field in new["fields"].items():
    if name in old["fields"]:
      continue
    if not grows:
      yield f"{what}: it has no struct_size, and the field {name} is new"
    elif field["offset"] < old["size"]:
      # struct_size of an old program covers these bytes, which may be padding that it never set.
      yield f"{what}: the new field {name} lies in the first {old['size']} bytes: append it"
    else:
      yield f"new: {what}: the field {name}"
  yield from changed(f"{what}: its alignment", old["alignment"], new["alignment"])
  if not grows or new["size"] < old["size"]:
    yield from changed(f"{what}: its size", old["size"], new["size"])


SECTIONS: dict[str, tuple[str, Callable[[str, Any, Any], Iterator[str]]]] = {
  "constants": ("constant", constant),
  "opaque": ("opaque struct", opaque),
  "structs": ("struct", struct),
  "functions": ("function", function),
}


def compare(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
  """The lines that `main` prints."""
  for section, (noun, differences) in SECTIONS.items():
    # The section `opaque` is a list of names.
    before, after = (
      one if isinstance(one, dict) else dict.fromkeys(one) for one in (old[section], new[section])
    )
    for name, entry in before.items():
      if name in after:
        yield from differences(f"{noun} {name}", entry, after[name])
      else:
        yield f"{noun} {name} is gone"
    yield from (f"new: {noun} {name}" for name in after if name not in before)


def description(path: str) -> dict[str, Any]:
  try:
    abi = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
  except (OSError, ValueError) as error:
    raise argparse.ArgumentTypeError(f"{path}: {error}") from error
  if not isinstance(abi, dict) or not abi.keys() >= SECTIONS.keys():
    raise argparse.ArgumentTypeError(f"{path} is no description: describe.py writes abi.json")
  return abi


def main() -> int:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("old", metavar="OLD.json", type=description)
  parser.add_argument("new", metavar="NEW.json", type=description)
  arguments = parser.parse_args()
  lines = list(compare(arguments.old, arguments.new))
  print("".join(f"{line}\n" for line in lines), end="")
  return 0 if all(line.startswith("new: ") for line in lines) else 1


if __name__ == "__main__":
  sys.exit(main())
