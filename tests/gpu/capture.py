"""A model of several segments with products by cuBLASLt, for the stage `capture` of run.sh.

  python tests/gpu/capture.py pack DIR
  python tests/gpu/capture.py check DIR HUSK_RUN

`pack` exports the model for an H200 and needs no GPU. `check` runs it on the GPU as a launch list
and as graphs, and compares with eager PyTorch."""

import pathlib
import sys

import attention
import torch
from torch import nn
from torch.export import Dim


class Segments(nn.Module):
  """The host reads a number between two parts, each of some kernels and products."""

  def __init__(self):
    super().__init__()
    torch.manual_seed(7)
    self.up, self.down = nn.Linear(64, 128), nn.Linear(128, 64)

  def forward(self, x):
    hidden = torch.softmax(torch.relu(self.up(x)), -1)
    hits = (hidden > 0.01).sum().item()
    return torch.softmax(self.down(hidden * hits), -1) * x


def inputs(rows):
  torch.manual_seed(rows)
  return [torch.randn(rows, 64)]


def model():
  return Segments().eval().requires_grad_(False)


def pack(folder):
  import husk

  husk.export(
    model(),
    tuple(inputs(8)),
    pathlib.Path(folder) / "capture_segments.husk",
    dynamic_shapes=({0: Dim("rows", min=1, max=1024)},),
    targets=("cuda:h200",),
    gemm="cublaslt",
  )


def check(folder, husk_run):
  torch.backends.cuda.matmul.fp32_precision = "ieee"
  wrong = 0
  for rows in (1, 17, 1000):
    with torch.no_grad():
      right = model().cuda()(inputs(rows)[0].cuda()).cpu()
    for mode in ("list", "auto"):
      (ours,), _ = attention.run(
        husk_run, pathlib.Path(folder) / "capture_segments.husk", inputs(rows), f"--mode={mode}"
      )
      off = (ours - right).abs().max().item()
      bad = not off <= 1e-4
      wrong += bad
      print(f"{'WRONG  ' if bad else 'ok     '} {rows} rows, {mode}: off by {off:.1e}")
  return wrong != 0


if __name__ == "__main__":
  sys.exit(pack(sys.argv[2]) if sys.argv[1] == "pack" else check(*sys.argv[2:]))
