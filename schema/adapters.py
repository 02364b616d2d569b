"""Writes the list of what adapters may have that cannot include adapters.def.

  python3 adapters.py [--check]

--check writes nothing, and fails if the file is not what would be written.
"""

import pathlib
import sys

import written

HEAD = '''"""What an adapter of PEFT may have that Husk refuses. Written by schema/adapters.py from
adapters.def.

SETTINGS are those of adapter_config.json, and TENSORS parts of the names of tensors, with what they
give an adapter. INITIAL are beginnings of init_lora_weights by which the weights of the model have
changed.
"""

'''


def python(lists: written.Rows) -> str:
  pairs = {
    name: "".join(f'  "{key}": "{what}",\n' for key, what in lists[row])
    for name, row in (("SETTINGS", "PEFT_SETTING"), ("TENSORS", "PEFT_TENSOR"))
  }
  initial = ", ".join(f'"{name}"' for (name,) in lists["PEFT_INITIAL"])
  texts = [f"{name} = {{\n{rows}}}\n" for name, rows in pairs.items()]
  return HEAD + "".join(texts) + f"INITIAL = ({initial})\n"


FILES: written.Files = {"compiler/torch/husk/text/peft.py": python}


def differing() -> dict[pathlib.Path, str]:
  """The texts of the files that are not what adapters.def says, by their paths."""
  text = (pathlib.Path(__file__).resolve().parent / "adapters.def").read_text()
  return written.differing(written.rows(text), FILES)


if __name__ == "__main__":
  sys.exit(written.main("adapters.py", __doc__, differing()))
