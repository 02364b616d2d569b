"""Runs mlp.husk on the CPU, as examples/hello does in C. Neither PyTorch nor a compiler is needed.

python run_mlp.py [FILE.husk] [DEVICE]    DEVICE: cpu (the default) or cuda:0"""

import sys

import husk
import numpy as np

file = sys.argv[1] if len(sys.argv) > 1 else "mlp.husk"
# The file holds native code: load only files that you trust.
program = husk.load(file, device=sys.argv[2] if len(sys.argv) > 2 else "cpu")
x = 0.01 * np.arange(4 * 32, dtype=np.float32).reshape(4, 32)
y = program(x)
for row in y:
  print("", *(f"{number:7.4f}" for number in row))
