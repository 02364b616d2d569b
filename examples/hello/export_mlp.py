"""Exports a small model to mlp.husk: two linear layers, for 1 to 64 rows of 32 numbers."""

import husk
import torch
from torch.export import Dim

torch.manual_seed(1)
mlp = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 10))
rows = Dim("rows", min=1, max=64)
husk.export(mlp, (torch.randn(4, 32),), "mlp.husk", dynamic_shapes=({0: rows},))

with torch.no_grad():  # what examples/hello/main.c prints, computed by PyTorch
  print(mlp(0.01 * torch.arange(4 * 32).reshape(4, 32)))
