"""Writes the list of CPUs that cannot include cpus.def.

  python3 cpus.py [--check]

--check writes nothing, and fails if the file is not what would be written.
"""

import pathlib
import sys

import written

HEAD = '''"""What code of hosts is compiled for. Written by schema/cpus.py from cpus.def.

FEATURES are the names of all features in /proc/cpuinfo, in the order of their numbers. SETS has the
named sets: the machine in GNU triples, all features, and all options of compilers. TARGETS are the
sets of the targets of images by their names in files. INDUCTOR has the targets for which there are
kernels, those of one machine from the best to the worst: the width of vectors in bits, the class of
Inductor for this width, and the macro that selects it in PyTorch's headers.
"""

'''


def python(lists: written.Rows) -> str:
  machines = {row[0]: row[1] for row in lists["MACHINE"]}
  features = {
    row[0]: row[2] if kind == "MACHINE" else row[1]
    for kind in ("MACHINE", "X86_FEATURE", "ARM_FEATURE")
    for row in lists[kind]
  }
  added = dict(lists["CPU_OPTIONS"])
  names: dict[str, list[str]] = {"None": []}
  options: dict[str, list[str]] = {"None": []}
  text = HEAD + "FEATURES: tuple[str, ...] = (\n"
  text += "".join(f'  "{name}",\n' for name in features.values()) + ")\n\n"
  text += "SETS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {\n"
  for name, machine, base, new in lists["CPU_SET"]:
    names[name] = names[base] + [features[one] for one in new.split(" | ")]
    options[name] = options[base] + added[name].split()
    text += f'  "{name}": (\n    "{machines[machine]}",\n'
    text += f"    {_tuple(names[name])},\n    {_tuple(options[name])},\n  ),\n"
  text += "}\n\nTARGETS: dict[str, str] = {\n"
  text += "".join(f'  "{arch}": "{name}",\n' for arch, name in lists["CPU_TARGET"])
  text += "}\n\nINDUCTOR: dict[str, tuple[int, str, str]] = {\n"
  text += "".join(
    f'  "{arch}": ({bits}, "{vectors}", "{macro}"),\n'
    for arch, bits, vectors, macro in lists["INDUCTOR_TARGET"]
  )
  return text + "}\n"


def _tuple(words: list[str]) -> str:
  """A tuple of texts, with more than one of them on lines of their own."""
  if len(words) < 2:
    return "(" + "".join(f'"{word}",' for word in words) + ")"
  return "(\n" + "".join(f'      "{word}",\n' for word in words) + "    )"


FILES: written.Files = {"compiler/torch/husk/host/cpus.py": python}


def differing() -> dict[pathlib.Path, str]:
  """The texts of the files that are not what cpus.def says, by their paths."""
  text = (pathlib.Path(__file__).resolve().parent / "cpus.def").read_text()
  return written.differing(written.rows(text), FILES)


if __name__ == "__main__":
  sys.exit(written.main("cpus.py", __doc__, differing()))
