"""Programs whose indices depend on data, for husk_gpu_asserts: functions of x f32 [rows, 16] and i
i64 [n].

  python tests/gpu/asserts.py DIR

writes asserts_status.husk (for hosts too), asserts_trap.husk and asserts_off.husk.

No GPU is needed.
"""

import pathlib
import sys

import husk
import torch
from torch.export import Dim

ROWS = 50


class Embed(torch.nn.Module):
  def forward(self, x, i):
    return torch.nn.functional.embedding(i, x)


class Gather(torch.nn.Module):
  def forward(self, x, i):
    return torch.gather(x, 0, i[:, None].expand(-1, 16))


class Index(torch.nn.Module):
  def forward(self, x, i):
    return x[i]


class Put(torch.nn.Module):
  """Replaces the named rows by -1."""

  def forward(self, x, i):
    return torch.index_put(x, (i,), torch.full((), -1.0, device=x.device))


class Sum(torch.nn.Module):
  """A reduction over looked-up rows, and a second use of the indices as numbers. Indices that are
  not looked up count in the second use."""

  def forward(self, x, i):
    looked_up = torch.where(i < 1000, x[torch.where(i < 1000, i, 0)].sum(-1), 0.0)
    return looked_up + i


def main():
  out = pathlib.Path(sys.argv[1])
  x, i = torch.randn(ROWS, 16), torch.randint(0, ROWS, (37,))
  n, rows = Dim("n", min=1, max=4096), Dim("rows", min=1, max=4096)
  functions = {}
  for model in (Embed, Gather, Index, Put, Sum):
    name = model.__name__.lower()
    functions[name] = husk.Function(model(), (x, i), None, {"x": None, "i": {0: n}})
    functions[name + "_rows"] = husk.Function(model(), (x, i), None, {"x": {0: rows}, "i": {0: n}})
  for mode in ("status", "trap", "off"):
    targets = ("host:avx2", "cuda:h200") if mode == "status" else ("cuda:h200",)
    husk.export(functions, out / f"asserts_{mode}.husk", targets=targets, asserts=mode)


if __name__ == "__main__":
  main()
