"""Attention on a GPU against eager PyTorch.

  python tests/gpu/attention.py pack DIR [NAME...]
  python tests/gpu/attention.py check DIR HUSK_RUN [NAME...]
  python tests/gpu/attention.py time DIR HUSK_RUN
  python tests/gpu/attention.py sweep DIR HUSK_RUN [SECONDS]

`pack` exports the programs for an H200 and needs no GPU. `check` runs them on the GPU with shapes
of all kinds and compares the results with attention in f64; it also prints the error of eager
PyTorch in the program's dtype. HUSK_RUN may be a command of several words. `time` prints the GPU's
times. `sweep` exports speed_* and decode_* with other tiles and times them, for the choices in
attention/launch.py; it takes at most 240 seconds.

The name of a program is its dtype and head size: `f16_80` has four results, causal attention, all
keys, a bool mask and a float mask, each over heads in groups of two. `decode_*` is one query over
part of a cache.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import multiprocessing
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

import torch
from torch.export import Dim
from torch.nn import functional as F

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
TOLERANCES = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 2e-5}
NAMES = [
  "f16_64",
  "f16_80",
  "f16_128",
  "f16_256",
  "bf16_64",
  "bf16_128",
  "f32_64",
  "f32_80",
  "f32_256",
  "decode_f16_128",
  "decode_f32_64",
  "speed_f16_64",
  "speed_f16_128",
]
SHAPES = [
  (1, 1, 1),
  (2, 7, 5),
  (1, 128, 128),
  (2, 333, 257),
  (1, 1, 1000),
  (1, 700, 64),
]  # batch, queries, keys
DECODED = [(1, 1), (1, 777), (2, 4096), (8, 130)]  # batch, keys
ROWS = [(4, 128), (4, 256), (4, 512), (4, 1024), (4, 2048), (4, 4096), (1, 8192)]
TIMED = {
  "speed_f16_64": ROWS,
  "speed_f16_128": ROWS,
  "decode_f16_128": [(1, 512), (1, 4096), (1, 16384), (8, 4096)],
}
SWEPT_ROWS = [(4, 512), (4, 2048), (4, 4096)]
# Tiles (rows, keys, warps, stages, and optionally the largest number of registers) that fit an H200
# without many spills. Three numbers (keys, stages, registers) are tiles of the kernel whose warps
# share the work.
SWEPT = {
  "speed_f16_64": [
    (128, 2, 232),
    (128, 3, 224),
    (128, 3, 240),
    (128, 4, 232),
    (64, 4, 232),
    (64, 64, 4, 2),
    (64, 64, 4, 3),
    (64, 128, 4, 2),
    (64, 128, 4, 3),
    (128, 32, 4, 3),
    (128, 64, 4, 2),
    (128, 64, 4, 3),
    (128, 64, 8, 2),
    (128, 64, 8, 3),
    (128, 128, 8, 2),
    (128, 128, 8, 3),
    (64, 64, 4, 2, 128),
    (64, 64, 4, 3, 128),
    (64, 128, 4, 2, 168),
    (128, 32, 4, 3, 168),
    (128, 64, 8, 2, 128),
    (128, 64, 8, 3, 128),
  ],
  "speed_f16_128": [
    (128, 2, 216),
    (128, 2, 232),
    (128, 2, 240),
    (64, 3, 232),
    (64, 32, 4, 3),
    (64, 64, 4, 2),
    (64, 64, 4, 3),
    (64, 128, 4, 2),
    (128, 32, 8, 3),
    (128, 64, 8, 2),
    (128, 64, 8, 3),
    (128, 128, 8, 2),
    (64, 32, 4, 3, 128),
    (128, 32, 8, 2, 128),
    (128, 32, 8, 3, 128),
    (128, 64, 8, 2, 128),
  ],
  "decode_f16_128": [
    (16, 32, 4, 4),
    (16, 64, 2, 4),
    (16, 64, 4, 2),
    (16, 64, 4, 3),
    (16, 64, 4, 4),
    (16, 128, 4, 2),
    (16, 128, 4, 3),
    (16, 128, 8, 3),
  ],
}

attend = functools.partial(F.scaled_dot_product_attention, enable_gqa=True)


class All(torch.nn.Module):
  def forward(self, q, k, v, mask, bias):
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    results = (
      attend(q, k, v, is_causal=True),
      attend(q, k, v),
      attend(q, k, v, mask),
      attend(q, k, v, bias),
    )
    return tuple(result.transpose(1, 2) for result in results)


class Causal(torch.nn.Module):
  def forward(self, q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Decode(torch.nn.Module):
  def forward(self, q, k, v):
    return attend(q, k, v)


def parts(name):
  kind, _, rest = name.rpartition("_")
  kind, _, dtype = kind.rpartition("_")
  return kind or "all", dtype, int(rest)


def inputs(name, shape):
  """Random tensors with a seed, on the CPU."""
  kind, dtype, size = parts(name)
  torch.manual_seed(3)
  number = functools.partial(torch.randn, dtype=torch.float32)
  if kind == "all":
    batch, queries, keys = shape
    mask = torch.rand(batch, 1, queries, keys) > 0.3
    mask[..., 0] = True  # Eager's kernels differ for rows without any key.
    tensors = [
      number(batch, queries, 4, size),
      number(batch, keys, 2, size),
      number(batch, keys, 2, size),
      mask,
      number(batch, 4, queries, keys),
    ]
  elif kind == "speed":
    batch, rows = shape
    tensors = [number(batch, 16, rows, size) for _ in range(3)]
  else:
    batch, keys = shape
    tensors = [
      number(batch, 32, 1, size),
      number(batch, 8, keys, size),
      number(batch, 8, keys, size),
    ]
  return [each if each.dtype == torch.bool else each.to(DTYPES[dtype]) for each in tensors]


def program(name):
  """(model, args, dynamic_shapes) of a program."""
  kind, _, _ = parts(name)
  batch, queries, keys = (
    Dim("batch", min=1, max=64),
    Dim("queries", min=1, max=65536),
    Dim("keys", min=1, max=65536),
  )
  if kind == "all":
    shapes = (
      {0: batch, 1: queries},
      {0: batch, 1: keys},
      {0: batch, 1: keys},
      {0: batch, 2: queries, 3: keys},
      {0: batch, 2: queries, 3: keys},
    )
    return All(), tuple(inputs(name, (3, 35, 67))), shapes
  if kind == "speed":
    return Causal(), tuple(inputs(name, (3, 35))), ({0: batch, 2: queries},) * 3
  return (
    Decode(),
    tuple(inputs(name, (3, 67))),
    ({0: batch}, {0: batch, 2: keys}, {0: batch, 2: keys}),
  )


def pack(folder, names):
  import husk

  for name in names or NAMES:
    model, args, shapes = program(name)
    husk.export(
      model,
      args,
      pathlib.Path(folder) / f"{name}.husk",
      dynamic_shapes=shapes,
      targets=("cuda:h200",),
    )
    print(name)


def run(husk_run, artifact, tensors, *options):
  """The outputs of an artifact, and the text that husk-run printed."""
  from safetensors.torch import load_file, save_file

  with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    save_file(
      {str(index): each.contiguous() for index, each in enumerate(tensors)},
      folder / "in.safetensors",
    )
    done = subprocess.run(
      [
        *shlex.split(husk_run),
        artifact,
        "--device=cuda",
        "--inputs",
        folder / "in.safetensors",
        "--outputs",
        folder / "out.safetensors",
        *options,
      ],
      capture_output=True,
      text=True,
    )
    if done.returncode:
      raise RuntimeError(done.stdout + done.stderr)
    outputs = load_file(folder / "out.safetensors")
  return [outputs[str(index)] for index in range(len(outputs))], done.stdout


def eager(model, tensors, dtype=None):
  """The results, computed on the GPU in a dtype and moved to the CPU."""
  moved = [
    each.cuda() if dtype is None or each.dtype == torch.bool else each.cuda().to(dtype)
    for each in tensors
  ]
  with torch.no_grad():
    results = model(*moved)
  return [each.cpu().double() for each in (results if isinstance(results, tuple) else (results,))]


def difference(one, right):
  """The largest difference; it is relative for numbers above 1."""
  return float(((one.double() - right).abs() / right.abs().clamp(min=1)).max())


def check(folder, husk_run, names):
  torch.backends.cuda.matmul.allow_tf32 = False
  wrong = 0
  for name in names or NAMES:
    kind, dtype, _ = parts(name)
    model = program(name)[0]
    for shape in (
      SHAPES if kind == "all" else DECODED if kind == "decode" else [(1, 1), (2, 300), (1, 1024)]
    ):
      tensors = inputs(name, shape)
      right = eager(model, tensors, torch.float64)
      theirs = eager(model, tensors)
      for mode in ("list", "graph"):
        try:
          ours, _ = run(husk_run, pathlib.Path(folder) / f"{name}.husk", tensors, f"--mode={mode}")
        except RuntimeError as error:
          wrong += 1
          print(f"FAILED  {name} {shape} {mode}: {error}")
          continue
        off, eagers = (
          [difference(*pair) for pair in zip(results, right, strict=True)]
          for results in (ours, theirs)
        )
        bad = not all(each <= TOLERANCES[dtype] for each in off)
        wrong += bad
        print(
          f"{'WRONG  ' if bad else 'ok     '} {name} {shape} {mode}: off by "
          f"{' '.join(f'{each:.1e}' for each in off)}, "
          f"eager by {' '.join(f'{each:.1e}' for each in eagers)}"
        )
  print(f"{wrong} wrong")
  return wrong != 0


def time_eager(model, tensors, repeat=200):
  """Microseconds of a call. Many calls are captured in a graph, so that Python's time does not
  count."""
  moved = [each.cuda() for each in tensors]
  stream = torch.cuda.Stream()
  with torch.no_grad(), torch.cuda.stream(stream):
    for _ in range(3):
      model(*moved)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
      for _ in range(10):
        model(*moved)
    times = []
    for _ in range(max(repeat // 10, 3)):
      begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
      begin.record()
      graph.replay()
      end.record()
      end.synchronize()
      times.append(begin.elapsed_time(end) * 100)
  return sorted(times)[len(times) // 2]


def time_ours(husk_run, artifact, file, mode):
  """Microseconds of the GPU for a run. Many runs are queued; except for the smallest programs the
  GPU is slower than the launches. `file` has the inputs."""
  command = [
    *shlex.split(husk_run),
    artifact,
    "--device=cuda",
    f"--mode={mode}",
    "--inputs",
    file,
    "--repeat=20",
    "--queue=400",
  ]
  done = subprocess.run(command, capture_output=True, text=True)
  found = re.search(r"queued: ([0-9.]+) us", done.stdout)
  if done.returncode or not found:
    raise RuntimeError(done.stdout + done.stderr)
  return float(found.group(1))


@contextlib.contextmanager
def file_of(tensors):
  from safetensors.torch import save_file

  with tempfile.TemporaryDirectory(
    dir="/dev/shm" if pathlib.Path("/dev/shm").is_dir() else None
  ) as folder:
    file = pathlib.Path(folder) / "in.safetensors"
    save_file({str(index): each.contiguous() for index, each in enumerate(tensors)}, file)
    yield file


def time_both(folder, husk_run):
  print(
    "microseconds of the GPU alone: runs one behind the other, eager's as a captured graph; x: how "
    "many times as fast"
  )
  for name, shapes in TIMED.items():
    model = program(name)[0]
    for shape in shapes:
      tensors = inputs(name, shape)
      with file_of(tensors) as file:
        ours = [
          time_ours(husk_run, pathlib.Path(folder) / f"{name}.husk", file, mode)
          for mode in ("list", "graph")
        ]
      theirs = time_eager(model, tensors)
      print(
        f"{name:16} {str(shape):12} husk list {ours[0]:8.2f}, graph {ours[1]:8.2f};  eager "
        f"{theirs:8.2f};  "
        f"{theirs / min(ours):.2f} x",
        flush=True,
      )
  return 0


# The sweep


@dataclasses.dataclass(frozen=True)
class Variant:
  """A program with other choices than those of attention/launch.py; None keeps these."""

  name: str
  tile: tuple = None
  cache: int = None
  splits: int = None

  def __str__(self):
    parts = ["x".join(map(str, self.tile)) if self.tile else "chosen"]
    parts += [f"cache{self.cache}"] * (self.cache is not None) + [f"splits{self.splits}"] * (
      self.splits is not None
    )
    return "-".join(parts)

  def file(self, folder):
    return pathlib.Path(folder) / f"{self.name}-{self}.husk"


def variants(name):
  """The present choice first, then other tiles, then other orders of blocks or numbers of parts."""
  choices = [Variant(name), *(Variant(name, tile) for tile in SWEPT[name])]
  if name.startswith("speed"):
    tiles = [
      next(tile for tile in SWEPT[name] if tile[:3] == begin)
      for begin in ((64, 64, 4), (128, 64, 8))
    ]
    return choices + [
      Variant(name, tile, cache=cache) for tile in tiles for cache in (1, 2**22, 2**30)
    ]
  return choices + [Variant(name, (16, 64, 4, 3), splits=splits) for splits in (8, 16, 64)]


def make(variant, folder):
  """The text of a failure, or None."""
  import husk
  from husk.attention import launch, tiles

  if variant.tile and len(variant.tile) == 3:
    launch.HOPPER = dict.fromkeys(launch.HOPPER, variant.tile)
  elif variant.tile:
    launch._Attention.suits_hopper = lambda its: False
    launch.tiles = lambda *_: [tiles.Tiles(*variant.tile)]
  if variant.cache is not None:
    launch.cache = lambda _: variant.cache
  if variant.splits is not None:
    launch.splits = lambda *_: variant.splits
  model, args, shapes = program(variant.name)
  try:
    husk.export(model, args, variant.file(folder), dynamic_shapes=shapes, targets=("cuda:h200",))
  except Exception as error:  # from any compiler; the other tiles are tried all the same
    return f"{variant.name} {variant}: {str(error)[:200]}"


def sweep(folder, husk_run, seconds=240.0):
  until = time.monotonic() + seconds
  folder = pathlib.Path(folder) / "sweep"
  folder.mkdir(parents=True, exist_ok=True)
  every = {name: variants(name) for name in SWEPT}
  missing = [
    variant
    for choices in every.values()
    for variant in choices
    if not variant.file(folder).exists()
  ]
  # Each choice has a process of its own, so that none affects another.
  spawn = multiprocessing.get_context("spawn")
  with concurrent.futures.ProcessPoolExecutor(os.cpu_count(), spawn, max_tasks_per_child=1) as pool:
    for wrong in pool.map(make, missing, [folder] * len(missing)):
      if wrong:
        print("not made:", wrong)
  print(
    f"{len(missing)} programs made; {until - time.monotonic():.0f} s left; microseconds of the "
    "GPU, x: as fast as eager",
    flush=True,
  )
  for name, choices in every.items():
    model = program(name)[0]
    for shape in SWEPT_ROWS if name.startswith("speed") else TIMED[name]:
      if time.monotonic() > until:
        print("no time is left for", name, shape)
        continue
      tensors = inputs(name, shape)
      theirs, times = time_eager(model, tensors), {}
      with file_of(tensors) as file:
        for variant in choices:
          if variant.file(folder).exists() and time.monotonic() < until:
            try:
              times[str(variant)] = time_ours(husk_run, variant.file(folder), file, "list")
            except RuntimeError as error:
              print(f"{name} {variant} {shape}: {str(error).strip()[-200:]}")
      best = sorted(times.items(), key=lambda pair: pair[1])
      print(
        f"{name} {shape}: eager {theirs:.2f};",
        ", ".join(f"{which} {ours:.2f} ({theirs / ours:.2f} x)" for which, ours in best),
        flush=True,
      )
  return 0


def main():
  what, folder, *rest = sys.argv[1:]
  if what == "pack":
    return pack(folder, rest)
  if what == "sweep":
    return sweep(folder, rest[0], *map(float, rest[1:2]))
  return check(folder, rest[0], rest[1:]) if what == "check" else time_both(folder, rest[0])


if __name__ == "__main__":
  sys.exit(main())
