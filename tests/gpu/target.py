"""Describes the GPU of this machine as a target of the exporter, or checks a description.

python tests/gpu/target.py                 prints the description, a JSON object
python tests/gpu/target.py FILE.json       compares FILE.json with the GPU
"""

import json
import pathlib
import sys

import torch

KNOWN = pathlib.Path(__file__).parents[2] / "compiler/torch/husk/cuda/targets/h200.json"


def description(properties):
  """The fields of a known description, with the values of this GPU."""
  arch = f"sm_{properties.major}{properties.minor}" + ("a" if properties.major >= 9 else "")
  fields = json.loads(KNOWN.read_text())
  return {key: arch if key == "arch" else getattr(properties, key) for key in fields}


def differences(described, properties):
  """Prints each field next to the GPU's value, and returns how many differ. Names may differ."""
  wrong = 0
  for key, value in described.items():
    if not hasattr(properties, key):
      continue
    real = getattr(properties, key)
    same = real == value
    wrong += not same and key != "name"
    print(f"{'same  ' if same else 'DIFFERS'} {key}: described {value}, real {real}")
  print(f"{wrong} differ")
  return wrong


def main(arguments):
  properties = torch.cuda.get_device_properties(0)
  if not arguments:
    print(json.dumps(description(properties), indent=2))
    return 0
  return differences(json.loads(pathlib.Path(arguments[0]).read_text()), properties) != 0


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
