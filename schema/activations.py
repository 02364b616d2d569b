"""Writes the list of activations that cannot include activations.def.

  python3 activations.py [--check]

--check writes nothing, and fails if the file is not what would be written.
"""

import pathlib
import sys

import written

HEAD = '''"""The activations of the operators of the host. Written by schema/activations.py from
activations.def.

Each row has an operator of the namespace aten, the values of its arguments besides the tensor, and
the name in files of the activation that the operator is then.
"""

'''


def python(lists: written.Rows) -> str:
  names = {row[0]: row[1] for row in lists["ACTIVATION"]}
  calls = "".join(
    f'  ("{operator}", {_values(arguments)}, "{names[name]}"),\n'
    for name, operator, arguments in lists["TORCH_ACTIVATION"]
  )
  return f"{HEAD}CALLS: tuple[tuple[str, dict[str, int | str], str], ...] = (\n{calls})\n"


def _values(arguments: str) -> str:
  """Arguments such as "min_val=0 max_val=6" as a dict of Python."""
  pairs = [argument.split("=") for argument in arguments.split()]
  texts = [value if value.isdigit() else f'"{value}"' for _, value in pairs]
  return "{" + ", ".join(f'"{name}": {text}' for (name, _), text in zip(pairs, texts)) + "}"


FILES: written.Files = {"compiler/torch/husk/fusion/activations.py": python}


def differing() -> dict[pathlib.Path, str]:
  """The texts of the files that are not what activations.def says, by their paths."""
  text = (pathlib.Path(__file__).resolve().parent / "activations.def").read_text()
  return written.differing(written.rows(text), FILES)


if __name__ == "__main__":
  sys.exit(written.main("activations.py", __doc__, differing()))
