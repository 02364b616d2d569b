"""Exports a small model for a board to mlp.husk, and writes the tensors of one run: two linear
layers, for 1 to 64 rows of 32 numbers.

python export_mlp.py [GPU]    GPU: orin (the default), thor"""

import sys

import husk
import torch
from safetensors.torch import save_file
from torch.export import Dim

torch.manual_seed(1)
mlp = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 10))
rows = Dim("rows", min=1, max=64)
gpu = sys.argv[1] if len(sys.argv) > 1 else "orin"
x = torch.randn(4, 32)
husk.export(
  mlp, (x,), "mlp.husk", dynamic_shapes=({0: rows},), targets=(f"cuda:{gpu}", "host:aarch64")
)
with torch.no_grad():
  save_file({"0": x}, "inputs.safetensors")
  save_file({"0": mlp(x)}, "expected.safetensors")
