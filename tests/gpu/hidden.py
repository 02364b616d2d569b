"""Exports the same programs with the GPU hidden and with the GPU visible, and compares the results.

  python tests/gpu/hidden.py DIR [--target h200] [--tune heuristic]

For each program the Triton sources, the chosen configurations, the images and the text of the
`.hir` are compared. Prints the differences, and fails if there are any.
"""

import argparse
import difflib
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [
  str(ROOT / "compiler" / "torch"),
  str(ROOT / "examples"),
  str(ROOT / "tests" / "gpu"),
]


def programs():
  """A function that returns (model, args, dynamic_shapes), by the name of the program."""
  import models
  import torch
  from torch import nn
  from torch.export import Dim

  class Reductions(nn.Module):
    def forward(self, x):
      return (
        x.sum(),
        x.softmax(-1),
        x.var(0),
        x.argmax(-1),
        torch.cumsum(x, 1),
        nn.functional.layer_norm(x, x.shape[-1:]),
      )

  def gpt():
    model = models.Gpt(vocabulary=128, width=64, layers=2, heads=2, context=32).eval()
    shapes = {"tokens": {0: Dim("batch", min=1, max=8), 1: Dim("length", min=1, max=32)}}
    return model, (torch.randint(0, 128, (2, 16)),), shapes

  def conv():
    model = nn.Sequential(
      nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 1, stride=2)
    ).eval()
    return model, (torch.randn(4, 8, 32, 32),), None

  def row():
    return (
      nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 64, bias=False)).half().eval(),
      (torch.randn(1, 256).half(),),
      None,
    )

  def bert():
    import transformers_models

    model, functions, _ = transformers_models.make("bert", small=True)
    ((args, shapes),) = functions.values()
    return model, args, shapes

  return {
    "mlp": models.mlp,
    "gpt": gpt,
    "conv": conv,
    "reductions": lambda: (Reductions(), (torch.randn(96, 1000),), None),
    "row": row,
    "bert": bert,
  }


def export_all(folder, target, tune):
  """Writes FOLDER/NAME/model.hir and FOLDER/NAME/kernels.json of each program."""
  import husk
  import torch
  from husk import devices

  cuda_devices = []

  class Kept(devices.DEVICES["cuda"]):
    def __init__(self, *positional, **named):
      super().__init__(*positional, **named)
      cuda_devices.append(self)

  devices.DEVICES["cuda"] = Kept
  print(f"GPU visible: {torch.cuda.is_available()}", flush=True)
  for name, make in programs().items():
    begin = time.perf_counter()
    try:
      torch.manual_seed(0)
      model, args, shapes = make()
      husk.write(
        model, args, folder / name, dynamic_shapes=shapes, targets=[f"cuda:{target}"], tune=tune
      )
    except Exception as error:
      print(f"{name}: {type(error).__name__}: {str(error)[-600:]}", flush=True)
      continue
    kernels = cuda_devices[-1].kernels
    rows = {
      row: {
        "source": kernels._definitions[row.removeprefix(kernels.prefix)].source,
        "meta": repr(kernel.triton_meta),
        "config": kernel.config,
        "image": hashlib.sha256(kernel.cubin).hexdigest(),
      }
      for row, kernel in kernels.kernels()
    }
    (folder / name / "kernels.json").write_text(json.dumps(rows))
    print(f"{name}: {len(rows)} kernels, {time.perf_counter() - begin:.0f} s", flush=True)


def differences(one, other):
  """The differences between two folders of a program: (part, lines)."""

  def read(folder):
    return json.loads((folder / "kernels.json").read_text()), (folder / "model.hir").read_text()

  (kernels, text), (others, other_text) = read(one), read(other)
  if sorted(kernels) != sorted(others):
    yield (
      "kernels",
      [
        *(f"-{name}" for name in sorted(set(kernels) - set(others))),
        *(f"+{name}" for name in sorted(set(others) - set(kernels))),
      ],
    )
  for what in ("source", "meta", "config", "image"):
    for name in sorted(set(kernels) & set(others)):
      if kernels[name][what] != others[name][what]:
        yield f"{what} of {name}", diff(str(kernels[name][what]), str(others[name][what]))
  if text != other_text:
    yield ".hir", diff(text, other_text)


def diff(one, other):
  return list(difflib.unified_diff(one.splitlines(), other.splitlines(), lineterm="", n=0))[2:]


def main():
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("dir", type=pathlib.Path)
  parser.add_argument("--target", default="h200")
  parser.add_argument("--tune", default="heuristic")
  parser.add_argument(
    "--export", action="store_true", help="only this: export into DIR, with the GPU as it is"
  )
  options = parser.parse_args()
  if options.export:
    export_all(options.dir, options.target, options.tune)
    return 0
  runs = {}
  for name, more in (("hidden", {"CUDA_VISIBLE_DEVICES": ""}), ("visible", {})):
    (options.dir / name).mkdir(parents=True, exist_ok=True)
    runs[name] = subprocess.Popen(
      [
        sys.executable,
        __file__,
        options.dir / name,
        "--export",
        "--target",
        options.target,
        "--tune",
        options.tune,
      ],
      env={**os.environ, **more},
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
    )
  for name, run in runs.items():
    text, _ = run.communicate()
    print(f"{name}:", *text.splitlines()[-12:], sep="\n  ")
  wrong = 0
  for name in programs():
    one, other = (options.dir / each / name for each in ("hidden", "visible"))
    missing = [each.parent.name for each in (one, other) if not (each / "kernels.json").exists()]
    found = [] if missing else list(differences(one, other))
    wrong += bool(missing or found)
    print(
      f"{name}: "
      + (
        f"not exported with the GPU {' and '.join(missing)}"
        if missing
        else "same sources, configurations, images and .hir"
        if not found
        else "DIFFERS"
      )
    )
    for what, lines in found[:6]:
      print(f"  {what}:", *(line[:160] for line in lines[:12]), sep="\n    ")
  return int(wrong > 0)


if __name__ == "__main__":
  sys.exit(main())
