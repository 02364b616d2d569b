"""Matrix products by cuBLASLt on a GPU against eager PyTorch: programs that were exported with
gemm="cublaslt".

  python tests/gpu/libraries.py pack DIR [NAME...]
  python tests/gpu/libraries.py check DIR HUSK_RUN [NAME...]
  python tests/gpu/libraries.py find

`pack` exports the programs for an H200 and needs no GPU. `check` runs them on the GPU with shapes
of all kinds and compares the results with eager PyTorch in f64; it also prints the error of eager
PyTorch in the program's dtype. HUSK_RUN may be a command of several words. `find` prints the folder
of a libcublasLt: PyTorch's, or CUDA's.

The name of a program is the form of its product and its dtype: `linear_f16`, `matrices_bf16`,
`batches_f32`. The programs consist of products alone, so they run on the fake driver too, where
there is no eager PyTorch on a GPU: `check` then compares with the CPU.
"""

import glob
import pathlib
import sys

import attention
import torch
from torch import nn
from torch.export import Dim

DTYPES = {
  "f16": torch.float16,
  "bf16": torch.bfloat16,
  "f32": torch.float32,
  "f64": torch.float64,
  "tf32": torch.float32,
}
TOLERANCES = {"f16": 4e-3, "bf16": 3e-2, "f32": 2e-5, "f64": 1e-12, "tf32": 1e-2}
KINDS = ("linear", "matrices", "batches")
NAMES = [f"{kind}_{dtype}" for kind in KINDS for dtype in ("f16", "bf16", "f32", "f64")] + [
  "matrices_tf32"
]
SHAPES = {
  "linear": [(1, 1), (3, 17), (16, 128), (1, 1000)],
  "matrices": [(1,), (7,), (128,), (1000,)],
  "batches": [(1, 1), (3, 17), (16, 128), (64, 5)],
}


class Matrices(nn.Module):
  def forward(self, x, y, z):
    return (
      x @ y,
      y.T @ x.T,
      x.T @ z,
      z @ y.T,
      torch.addmm(z, x, y),
      torch.addmm(z[0], x, y),
      torch.addmm(z[0], x, y, alpha=0.5),
      torch.addmm(z, x, y, beta=-0.5, alpha=2),
      x[:, 1:33] @ y[3:35],
      (x @ y) @ z.T,
    )


class Batches(nn.Module):
  def forward(self, x, y, z):
    shared = x[:1].expand(x.shape[0], -1, -1)
    return (
      torch.bmm(x, y),
      torch.bmm(y.transpose(1, 2), x.transpose(1, 2)),
      torch.bmm(x, x.transpose(1, 2)),
      torch.baddbmm(z, x, y, beta=0.5, alpha=2),
      torch.bmm(shared, y),
      torch.bmm(x[:, :, 8:], y[:, 8:]),
    )


def inputs(name, shape):
  """Random tensors with a seed, on the CPU. Products are about as large as their factors."""
  kind, _, dtype = name.rpartition("_")
  torch.manual_seed(5)
  if kind == "linear":
    made = [torch.randn(*shape, 96)]
  elif kind == "matrices":
    made = [torch.randn(shape[0], 64) / 4, torch.randn(64, 96) / 4, torch.randn(shape[0], 96) / 4]
  else:
    batch, rows = shape
    made = [
      torch.randn(batch, rows, 64) / 4,
      torch.randn(batch, 64, 48) / 4,
      torch.randn(batch, rows, 48),
    ]
  return [each.to(DTYPES[dtype]) for each in made]


def program(name):
  """(model, args, dynamic_shapes) of a program."""
  kind, _, dtype = name.rpartition("_")
  batch, rows = Dim("batch", min=1, max=64), Dim("rows", min=1, max=2048)
  torch.manual_seed(6)
  if kind == "linear":
    model = nn.Sequential(nn.Linear(96, 160), nn.Linear(160, 72, bias=False), nn.Linear(72, 1001))
    return (
      model.to(DTYPES[dtype]).eval().requires_grad_(False),
      tuple(inputs(name, (3, 5))),
      ({0: batch, 1: rows},),
    )
  if kind == "matrices":
    return Matrices(), tuple(inputs(name, (5,))), ({0: rows}, None, {0: rows})
  return (
    Batches(),
    tuple(inputs(name, (3, 5))),
    ({0: batch, 1: rows}, {0: batch}, {0: batch, 1: rows}),
  )


def pack(folder, names):
  import husk

  folder = pathlib.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  for name in names or NAMES:
    torch.backends.cuda.matmul.fp32_precision = "tf32" if name.endswith("_tf32") else "ieee"
    model, args, shapes = program(name)
    husk.export(
      model,
      args,
      folder / f"{name}.husk",
      dynamic_shapes=shapes,
      targets=("cuda:h200",),
      gemm="cublaslt",
    )
    print(name, flush=True)


def results(model, given, dtype=None):
  if torch.cuda.is_available():
    return attention.eager(model.cuda(), given, dtype)
  with torch.no_grad():
    made = model(*(each.to(dtype or each.dtype) for each in given))
  return [each.double() for each in (made if isinstance(made, tuple) else (made,))]


def check(folder, husk_run, names):
  wrong = 0
  for name in names or NAMES:
    kind, _, dtype = name.rpartition("_")
    torch.backends.cuda.matmul.fp32_precision = "tf32" if dtype == "tf32" else "ieee"
    for shape in SHAPES[kind]:
      given = inputs(name, shape)
      right = results(program(name)[0].double(), given, torch.float64)
      theirs = results(program(name)[0], given)
      try:
        ours, _ = attention.run(husk_run, pathlib.Path(folder) / f"{name}.husk", given)
      except RuntimeError as error:
        wrong += 1
        print(f"FAILED  {name} {shape}: {error}", flush=True)
        continue
      off, eagers = (
        max(
          attention.difference(*pair) for pair in zip(made, right, strict=True) if pair[1].numel()
        )
        for made in (ours, theirs)
      )
      bad = not off <= max(TOLERANCES[dtype], 2 * eagers)
      wrong += bad
      print(
        f"{'WRONG  ' if bad else 'ok     '} {name} {shape}: {len(ours)} results off by {off:.1e} "
        "at the most, eager by "
        f"{eagers:.1e}",
        flush=True,
      )
  print(f"{wrong} wrong")
  return wrong != 0


def find():
  """Prints a folder that has a libcublasLt; nothing if there is none."""
  root = pathlib.Path(torch.__file__).parent.parent
  folders = [
    *root.glob("nvidia/*/lib"),
    root / "torch" / "lib",
    *map(pathlib.Path, sorted(glob.glob("/usr/local/cuda*/lib*"))),
    pathlib.Path("/usr/lib/x86_64-linux-gnu"),
  ]
  found = next((folder for folder in folders if any(folder.glob("libcublasLt.so.1[2-9]*"))), "")
  print(found)
  return found == ""


def main():
  what, *rest = sys.argv[1:]
  if what == "find":
    return find()
  return pack(rest[0], rest[1:]) if what == "pack" else check(rest[0], rest[1], rest[2:])


if __name__ == "__main__":
  sys.exit(main())
