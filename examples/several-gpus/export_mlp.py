"""Exports an MLP for two ranks to mlp.husk. Neither a GPU nor a second process is needed.

python export_mlp.py [TARGET]    TARGET: host (the default) or cuda:h100"""

import sys

import husk
import torch
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Mlp(nn.Module):
  def __init__(self):
    super().__init__()
    self.up = nn.Linear(32, 64)
    self.down = nn.Linear(64, 10)

  def forward(self, x):
    return self.down(nn.functional.gelu(self.up(x)))


def whole():
  torch.manual_seed(0)
  return Mlp().eval()


def of_rank(mesh):
  # Each rank has half of the hidden elements, and both add up their results.
  return parallelize_module(whole(), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})


def main():
  x = 0.01 * torch.arange(4.0 * 32).reshape(4, 32)
  target = sys.argv[1] if len(sys.argv) > 1 else "host"
  rows = torch.export.Dim("rows", min=1, max=1024)
  husk.parallel.export(
    of_rank, (x,), "mlp.husk", ranks=2, dynamic_shapes={"x": {0: rows}}, targets=(target,)
  )
  torch.set_printoptions(precision=4, sci_mode=False, linewidth=100)
  print(whole()(x).detach())


if __name__ == "__main__":
  main()
