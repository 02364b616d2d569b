"""Operators on the CPU between kernels of a GPU, against eager PyTorch.

  python tests/gpu/host_operators.py pack DIR [NAME...]
  python tests/gpu/host_operators.py check DIR HUSK_RUN [NAME...]
  python tests/gpu/host_operators.py time DIR HUSK_RUN [NAME...]

`pack` exports the programs for an H200 and needs no GPU. `check` runs them on the GPU, as a list
and in the mode of the session's choice, at several shapes, and compares the results with eager
PyTorch there; each artifact runs 20 times, and the last results count. HUSK_RUN may be a command of
several words, as compute-sanitizer and its options. `time` prints the medians of a run beside those
of eager mode."""

import pathlib
import re
import sys
import time as clock

import attention
import torch
from torch.export import Dim

TOLERANCE = 2e-3


class Chain(torch.nn.Module):
  """Kernels, a chain of linear algebra whose results stay on the CPU, kernels."""

  def forward(self, x, y):
    inverse = torch.linalg.inv((x * 0.5).tanh() + 3 * torch.eye(x.shape[-1]))
    solved = torch.linalg.solve(inverse, y)
    return torch.linalg.det(solved).tanh() + 1, solved.sin() @ y


class Alternating(torch.nn.Module):
  """Kernels and host steps in turn, so that each waits for the other."""

  def forward(self, x, y):
    for _ in range(4):
      x = torch.linalg.inv(x).tanh() + 3 * torch.eye(x.shape[-1])
      y = y.roll(1, -1).cos() + x
    return x, y


class Parameters(torch.nn.Module):
  """A constant and a state that host steps read."""

  def __init__(self):
    super().__init__()
    self.weight = torch.nn.Parameter(torch.eye(16) * 2 + torch.randn(16, 16) / 8)
    self.register_buffer("calls", torch.zeros(()))

  def forward(self, x, y):
    self.calls.add_(1)
    solved = torch.linalg.solve(self.weight, x[0] + y[0])
    return solved * 2, self.calls * 0


class Branches(torch.nn.Module):
  """Host steps in a branch that the data selects, and sizes that the data decides."""

  def forward(self, x, y):
    chosen = torch.cond(
      y.sum() > 0, lambda x: torch.linalg.inv(x) * 2, lambda x: torch.linalg.inv(-x) + 1, (x,)
    )
    rows = torch.unique((y[0] * 2).round(), dim=0)
    return chosen, rows + 1


class Complex(torch.nn.Module):
  def forward(self, x, y):
    return torch.view_as_real(torch.linalg.inv(torch.complex(x, y)) * 2)


MODELS = {
  "chain": Chain,
  "alternating": Alternating,
  "parameters": Parameters,
  "branches": Branches,
  "complex": Complex,
}
BATCHES = (3, 1, 64)
TIMED = ("chain", "alternating")


def model_of(name):
  torch.manual_seed(4)
  return MODELS[name]().eval()


def inputs(batch):
  torch.manual_seed(5 + batch)
  return [torch.randn(batch, 16, 16) / 4 + 3 * torch.eye(16), torch.randn(batch, 16, 16)]


def pack(folder, names):
  import husk

  folder = pathlib.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  batch = Dim("batch", min=1, max=64)
  for name in names or MODELS:
    path, shapes = folder / f"{name}.husk", ({0: batch}, {0: batch})
    args = tuple(inputs(3))
    husk.export(model_of(name), args, path, dynamic_shapes=shapes, targets=("cuda:h200",))
    print(name, flush=True)


def eager(name, args):
  """The results of eager mode: on the GPU, or on the CPU if there is none."""
  model, device = model_of(name), "cuda" if torch.cuda.is_available() else "cpu"
  with torch.no_grad(), torch.device(device):
    results = model.to(device)(*(each.to(device) for each in args))
  return [each.cpu() for each in (results if isinstance(results, tuple) else (results,))]


def check(folder, husk_run, names):
  wrong = 0
  for name in names or MODELS:
    for batch in BATCHES:
      args = inputs(batch)
      right = eager(name, args)
      for mode in ("list", "auto"):
        try:
          artifact = pathlib.Path(folder) / f"{name}.husk"
          ours, _ = attention.run(husk_run, artifact, args, f"--mode={mode}", "--repeat=20")
          off = max(attention.difference(*pair) for pair in zip(ours, right, strict=True))
        except (RuntimeError, ValueError) as error:
          wrong += 1
          print(f"FAILED  {name} {batch}, {mode}: {error}", flush=True)
          continue
        bad = not off <= TOLERANCE
        wrong += bad
        print(
          f"{'WRONG  ' if bad else 'ok     '} {name} {batch}, {mode}: off by {off:.1e}", flush=True
        )
  print(f"{wrong} wrong")
  return wrong != 0


def time(folder, husk_run, names):
  for name in names or TIMED:
    for batch in BATCHES:
      args = inputs(batch)
      _, text = attention.run(
        husk_run, pathlib.Path(folder) / f"{name}.husk", args, "--mode=list", "--repeat=200"
      )
      ours = re.search(r"median ([0-9.]+) us", text)[1]
      print(f"{name:12} {batch:3}  husk {ours:>9} us, eager {eager_time(name, args):9.1f} us")


def eager_time(name, args, repeat=50):
  """Microseconds of a call in eager mode, until its results are there."""
  model, args = model_of(name).cuda(), [each.cuda() for each in args]
  times = []
  with torch.no_grad(), torch.device("cuda"):
    for _ in range(repeat):
      begin = clock.perf_counter()
      model(*args)
      torch.cuda.synchronize()
      times.append((clock.perf_counter() - begin) * 1e6)
  return sorted(times)[repeat // 2]


def main():
  what, folder, *rest = sys.argv[1:]
  if what == "pack":
    return pack(folder, rest)
  return (check if what == "check" else time)(folder, rest[0], rest[1:])


if __name__ == "__main__":
  sys.exit(main())
