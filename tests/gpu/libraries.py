"""Matrix products by cuBLASLt and convolutions by cuDNN on a GPU against eager PyTorch: programs
that were exported with libraries=True.

  python tests/gpu/libraries.py pack DIR [NAME...]
  python tests/gpu/libraries.py check DIR HUSK_RUN [NAME...]
  python tests/gpu/libraries.py find

`pack` exports the programs for an H200 and needs no GPU. `check` runs them on the GPU with shapes
of all kinds and compares the results with eager PyTorch in f64; it also prints the error of eager
PyTorch in the program's dtype. HUSK_RUN may be a command of several words. `find` prints the
folders of the libraries: PyTorch's, or CUDA's.

The name of a program is what it computes and its dtype: `linear_f16`, `matrices_bf16`,
`batches_f32`, `convolutions_tf32`. Those of products consist of them alone, so they run on the fake
driver too, where there is no eager PyTorch on a GPU: `check` then compares with the CPU.
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
  "matrices_tf32",
  *(f"convolutions_{dtype}" for dtype in DTYPES),
]
SHAPES = {
  "linear": [(1, 1), (3, 17), (16, 128), (1, 1000)],
  "matrices": [(1,), (7,), (128,), (1000,)],
  "batches": [(1, 1), (3, 17), (16, 128), (64, 5)],
  "convolutions": [(2, 24), (1, 9), (8, 57)],
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


class Convolutions(nn.Module):
  """Convolutions of all kinds, with channels in their own order and last."""

  def __init__(self):
    super().__init__()
    self.images = nn.ModuleList(
      [
        nn.Conv2d(16, 24, 3, padding=1),
        nn.Conv2d(16, 32, (3, 5), stride=2, padding=(0, 2), dilation=(2, 1), bias=False),
        nn.Conv2d(16, 24, 3, groups=4),
        nn.Conv2d(16, 16, 5, groups=16, padding=2),
        nn.Conv2d(16, 64, 1, stride=2),
        nn.ConvTranspose2d(16, 8, 3, stride=2, padding=1, output_padding=1),
        nn.ConvTranspose2d(16, 8, 2, stride=2, groups=2, bias=False),
      ]
    )
    self.sequences = nn.ModuleList(
      [nn.Conv1d(16, 24, 5, padding=2, dilation=2), nn.ConvTranspose1d(16, 8, 4, stride=2)]
    )
    self.volumes = nn.ModuleList(
      [nn.Conv3d(4, 8, (1, 3, 2), padding=(0, 1, 1)), nn.ConvTranspose3d(4, 8, 2, stride=(1, 2, 1))]
    )

  def forward(self, x):
    made = [layer(x) for layer in self.images]
    made += [layer(x.to(memory_format=torch.channels_last)) for layer in self.images]
    made += [layer(x.flatten(2)) for layer in self.sequences]
    made += [layer(x.unflatten(1, (4, 4))) for layer in self.volumes]
    return tuple(torch.relu(one) for one in made)


def inputs(name, shape):
  """Random tensors with a seed, on the CPU. Products are about as large as their factors."""
  kind, _, dtype = name.rpartition("_")
  torch.manual_seed(5)
  if kind == "linear":
    made = [torch.randn(*shape, 96)]
  elif kind == "convolutions":
    made = [torch.randn(shape[0], 16, shape[1], shape[1] + 3)]
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
  if kind == "convolutions":
    model = Convolutions().to(DTYPES[dtype]).eval().requires_grad_(False)
    return model, tuple(inputs(name, SHAPES[kind][0])), None
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
    allow_tf32(name.endswith("_tf32"))
    # Sizes of images are fixed: one program for each.
    for number, shape in enumerate(SHAPES[name.rpartition("_")[0]]):
      model, args, shapes = program(name)
      if shapes is None:
        args = tuple(inputs(name, shape))
      elif number:
        break
      husk.export(
        model,
        args,
        path_of(folder, name, number if shapes is None else 0),
        dynamic_shapes=shapes,
        targets=("cuda:h200",),
        libraries=True,
      )
    print(name, flush=True)


def path_of(folder, name, number):
  """The program for one of the shapes; the first program is the only one if sizes may vary."""
  return pathlib.Path(folder) / (f"{name}.{number}.husk" if number else f"{name}.husk")


def allow_tf32(allowed):
  torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed


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
    allow_tf32(dtype == "tf32")
    for number, shape in enumerate(SHAPES[kind]):
      given = inputs(name, shape)
      right = results(program(name)[0].double(), given, torch.float64)
      theirs = results(program(name)[0], given)
      try:
        varies = kind != "convolutions"
        ours, _ = attention.run(husk_run, path_of(folder, name, 0 if varies else number), given)
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


LIBRARIES = ("libcublasLt.so.1[2-9]*", "libcudnn.so.9*")


def find():
  """Prints the folders of the libraries, as LD_LIBRARY_PATH takes them; fails if one is missing."""
  root = pathlib.Path(torch.__file__).parent.parent
  folders = [
    *root.glob("nvidia/*/lib"),
    root / "torch" / "lib",
    *map(pathlib.Path, sorted(glob.glob("/usr/local/cuda*/lib*"))),
    pathlib.Path("/usr/lib/x86_64-linux-gnu"),
  ]
  found = [
    next((str(folder) for folder in folders if any(folder.glob(pattern))), "")
    for pattern in LIBRARIES
  ]
  print(":".join(dict.fromkeys(filter(None, found))))
  return "" in found


def main():
  what, *rest = sys.argv[1:]
  if what == "find":
    return find()
  return pack(rest[0], rest[1:]) if what == "pack" else check(rest[0], rest[1], rest[2:])


if __name__ == "__main__":
  sys.exit(main())
