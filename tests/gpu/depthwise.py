"""Times of depthwise convolutions with each of their tiles, with which the rule that chooses tiles
is compared (tests/torch/cuda/test_depthwise.py).

  python tests/gpu/depthwise.py [--target cuda:h200] [--jobs 12] FILE

writes a JSON file: for each problem the median time of a run in microseconds, by tiles.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import tempfile

import husk
import torch
from husk.cuda import depthwise

# Channels, rows and columns of the image, kernel, stride, batch.
PROBLEMS = [
  (768, 7, 7, 7, 1, 1),  # ConvNeXt, the last layers
  (384, 14, 14, 7, 1, 8),
  (96, 56, 56, 7, 1, 8),  # the first ones
  (96, 56, 56, 7, 1, 1),
  (240, 28, 28, 5, 2, 8),  # EfficientNet
  (576, 14, 14, 3, 1, 1),  # MobileNet
  (144, 56, 56, 3, 1, 16),
  (960, 7, 7, 5, 1, 32),
]


def text(tiles):
  return " ".join(map(str, (tiles.strips, tiles.channels, tiles.columns, tiles.warps)))


def exported(place, number, target, folder):
  """Exports one problem with one choice of tiles, in a process of its own."""
  torch.set_num_threads(1)
  tiles = depthwise.TILES[number]
  depthwise.TILES[:] = [tiles]
  channels, height, width, kernel, stride, batch = PROBLEMS[place]
  layer = torch.nn.Conv2d(channels, channels, kernel, stride, kernel // 2, groups=channels)
  image = torch.randn(batch, channels, height, width).to(memory_format=torch.channels_last)
  path = folder / f"{place}-{number}.husk"
  husk.export(layer.eval(), (image,), path, targets=(target,), tune="heuristic", progress=False)
  return path


def measured(path):
  bench = os.environ.get("HUSK_BENCH", "husk-bench")
  report = path.with_suffix(".json")
  command = [bench, path, "--device=cuda", "--warmup-ms=60", "--duration-s=0.2"]
  subprocess.run([*command, f"--json={report}"], check=True, capture_output=True)
  return json.loads(report.read_text())["results"][0]["run_us"]["median"]


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("file", type=pathlib.Path)
  parser.add_argument("--target", default="cuda:h200")
  parser.add_argument("--jobs", type=int, default=12)
  options = parser.parse_args()
  # A task a process: each changes the list of tiles.
  with (
    tempfile.TemporaryDirectory() as folder,
    concurrent.futures.ProcessPoolExecutor(options.jobs, max_tasks_per_child=1) as pool,
  ):
    places = [(p, n) for p in range(len(PROBLEMS)) for n in range(len(depthwise.TILES))]
    jobs = [pool.submit(exported, *place, options.target, pathlib.Path(folder)) for place in places]
    found = [{"problem": problem, "us": {}} for problem in PROBLEMS]
    paths = [job.result() for job in jobs]
    for (place, number), path in zip(places, paths, strict=True):
      times = [measured(path) for _ in range(3)]
      found[place]["us"][text(depthwise.TILES[number])] = round(min(times), 2)
  options.file.write_text(json.dumps(found, indent=1) + "\n")
  for row in found:
    print(row["problem"], row["us"])


if __name__ == "__main__":
  main()
