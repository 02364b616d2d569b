"""Exports the GPT of examples/models.py to an artifact, runs the artifact with husk-run, and
compares it with eager PyTorch.

    python examples/gpt/gpt.py --build build/release --out build/gpt [--repeat 20]

For each shape, the script prints the first logit of eager and of Husk, the largest difference of
all logits, and the median times of a call. It exits with status 1 if a difference is larger than
the rounding errors of float32 sums in different orders.
"""

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT / "compiler" / "torch"), str(ROOT / "examples")]

SHAPES = [
  (1, 16),
  (2, 50),
  (8, 128),
]  # (batch, sequence); none is the shape of the export's example
TOLERANCE = 1e-3  # the logits are of magnitude 100


def eager_median(model, tokens, repeat):
  """The median time of a call in eager mode, in microseconds."""
  times = []
  for _ in range(repeat):
    start = time.perf_counter()
    model(tokens)
    times.append(time.perf_counter() - start)
  return statistics.median(times) * 1e6


def husk_run(build, artifact, inputs, outputs, repeat):
  """Runs an artifact in a process without Python and PyTorch. Returns the median time of a call in
  microseconds."""
  command = [
    build / "bin" / "husk-run",
    artifact,
    f"--inputs={inputs}",
    f"--outputs={outputs}",
    f"--repeat={repeat}",
  ]
  done = subprocess.run(command, capture_output=True, text=True)
  if done.returncode:
    sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
  return float(re.search(r"median ([0-9.]+) us", done.stdout).group(1))


def show_sizes(build, artifact):
  """Prints the sizes of the artifact and of the library, and the libraries that it needs."""
  library = build / "lib" / "libhusk.so"
  stripped = artifact.parent / "libhusk.so.stripped"
  subprocess.run(["strip", "-o", stripped, library.resolve()], check=True)
  needed = subprocess.run(
    ["readelf", "-d", stripped], capture_output=True, text=True, check=True
  ).stdout
  needed = " ".join(re.findall(r"NEEDED.*\[(.*)\]", needed))
  print(f"artifact  {artifact.relative_to(ROOT)}: {artifact.stat().st_size / 1e6:.2f} MB")
  print(
    f"library   {library.relative_to(ROOT)}: {stripped.stat().st_size / 1e3:.0f} KB stripped; "
    f"needs {needed}"
  )


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
  parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "gpt")
  parser.add_argument("--repeat", type=int, default=20)
  options = parser.parse_args()
  build, out = options.build.resolve(), options.out.resolve()
  out.mkdir(parents=True, exist_ok=True)
  os.environ.setdefault("HUSKC", str(build / "bin" / "huskc"))

  print("== exporting a GPT: 4 layers, width 128, batch 1..8, sequence 1..128", flush=True)
  import husk
  import models
  import torch
  from safetensors.torch import load_file, save_file

  model, example, dynamic_shapes = models.gpt()
  artifact = out / "gpt.husk"
  start = time.perf_counter()
  husk.export(model, example, artifact, dynamic_shapes=dynamic_shapes)
  print(f"exported in {time.perf_counter() - start:.0f} s")

  print("== running it")
  print(
    f"{'batch x sequence':>18} {'eager':>12} {'husk':>12} {'difference':>12} {'eager us':>10} "
    f"{'husk us':>10}   (one thread each)"
  )
  torch.set_num_threads(1)
  torch.manual_seed(0)
  worst = 0.0
  with torch.no_grad():
    for batch, length in SHAPES:
      tokens = torch.randint(0, 256, (batch, length))
      expected = model(tokens)
      save_file({"0": tokens}, out / "in.safetensors")
      husk_us = husk_run(
        build, artifact, out / "in.safetensors", out / "out.safetensors", options.repeat
      )
      got = load_file(out / "out.safetensors")["0"]
      difference = (
        (got - expected).abs().max().item() if got.shape == expected.shape else float("inf")
      )
      worst = max(worst, difference)
      eager_us = eager_median(model, tokens, options.repeat)
      print(
        f"{f'{batch} x {length}':>18} {expected.flatten()[0].item():12.5f} "
        f"{got.flatten()[0].item():12.5f} {difference:12.2e} {eager_us:10.0f} {husk_us:10.0f}",
        flush=True,
      )
  print(
    'The table "On the CPU" of tests/bench/PERFORMANCE.md compares this model, at 1 x 16 and '
    "8 x 128, with six other runtimes."
  )
  show_sizes(build, artifact)
  if not worst <= TOLERANCE:
    sys.exit(f"Husk differs from eager by {worst}, more than {TOLERANCE}")
  print("equal within rounding")


if __name__ == "__main__":
  main()
