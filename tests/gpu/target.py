"""Compares a target description with the GPU of this machine.

    python tests/gpu/target.py compiler/torch/husk/targets/h200.json
"""

import json
import sys

import torch


def main():
  described = json.load(open(sys.argv[1]))
  properties = torch.cuda.get_device_properties(0)
  wrong = 0
  for key, value in described.items():
    if not hasattr(properties, key):
      continue
    real = getattr(properties, key)
    same = real == value
    wrong += not same and key != "name"
    print(f"{'same  ' if same else 'DIFFERS'} {key}: described {value}, real {real}")
  print(f"{wrong} differ")
  sys.exit(wrong != 0)


if __name__ == "__main__":
  main()
