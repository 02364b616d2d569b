"""Exports a small classifier to mlp.husk, with kernels that can be linked into a program.

python export_mlp.py [TARGET]    TARGET: host:aarch64 (the default) or host:avx2"""

import sys

import husk
import torch
from torch import nn

torch.manual_seed(1)
mlp = nn.Sequential(
  nn.Linear(32, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 10), nn.Softmax(-1)
)
target = sys.argv[1] if len(sys.argv) > 1 else "host:aarch64"
husk.export(mlp, (torch.randn(4, 32),), "mlp.husk", targets=(target,), linkable=True)

with torch.no_grad():  # what main.c prints, computed by PyTorch
  print(mlp(0.01 * torch.arange(4 * 32).reshape(4, 32)))
