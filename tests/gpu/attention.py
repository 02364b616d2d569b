"""Attention on a GPU against eager PyTorch.

    python tests/gpu/attention.py pack DIR [NAME...]    exports the programs for an H200; needs no GPU
    python tests/gpu/attention.py check DIR HUSK_RUN [NAME...]   runs them on shapes of all kinds and compares; on the GPU;
                                                        HUSK_RUN may be a command of several words
    python tests/gpu/attention.py time DIR HUSK_RUN     and how long they take there

A program is called after its dtype and head size: `f16_80` has four results, causal attention, all keys, a bool mask and a
float mask, each over heads in groups of two. `decode_*` is one query over part of a cache. `check` compares with attention
in f64, and says how far eager PyTorch in the program's own dtype is off.
"""

import functools
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

import torch
from torch.export import Dim
from torch.nn import functional as F

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
TOLERANCES = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 2e-5}
NAMES = ["f16_64", "f16_80", "f16_128", "f16_256", "bf16_64", "bf16_128", "f32_64", "f32_80", "f32_256", "decode_f16_128",
         "decode_f32_64", "speed_f16_64", "speed_f16_128"]
SHAPES = [(1, 1, 1), (2, 7, 5), (1, 128, 128), (2, 333, 257), (1, 1, 1000), (1, 700, 64)]      # batch, queries, keys
DECODED = [(1, 1), (1, 777), (2, 4096), (8, 130)]                                              # batch, keys
TIMED = {"speed_f16_64": [(4, 512), (4, 2048), (1, 8192)], "speed_f16_128": [(4, 512), (4, 2048), (1, 8192)],
         "decode_f16_128": [(1, 512), (1, 4096), (1, 16384), (8, 4096)]}

attend = functools.partial(F.scaled_dot_product_attention, enable_gqa=True)


class All(torch.nn.Module):
  def forward(self, q, k, v, mask, bias):
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    results = (attend(q, k, v, is_causal=True), attend(q, k, v), attend(q, k, v, mask), attend(q, k, v, bias))
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
  """Seeded, on the CPU."""
  kind, dtype, size = parts(name)
  torch.manual_seed(3)
  number = functools.partial(torch.randn, dtype=torch.float32)
  if kind == "all":
    batch, queries, keys = shape
    mask = torch.rand(batch, 1, queries, keys) > 0.3
    mask[..., 0] = True      # eager's kernels do not agree on rows that see nothing
    made = [number(batch, queries, 4, size), number(batch, keys, 2, size), number(batch, keys, 2, size), mask,
            number(batch, 4, queries, keys)]
  elif kind == "speed":
    batch, rows = shape
    made = [number(batch, 16, rows, size) for _ in range(3)]
  else:
    batch, keys = shape
    made = [number(batch, 32, 1, size), number(batch, 8, keys, size), number(batch, 8, keys, size)]
  return [each if each.dtype == torch.bool else each.to(DTYPES[dtype]) for each in made]


def program(name):
  """(model, args, dynamic_shapes)."""
  kind, _, _ = parts(name)
  batch, queries, keys = Dim("batch", min=1, max=64), Dim("queries", min=1, max=65536), Dim("keys", min=1, max=65536)
  if kind == "all":
    shapes = ({0: batch, 1: queries}, {0: batch, 1: keys}, {0: batch, 1: keys}, {0: batch, 2: queries, 3: keys},
              {0: batch, 2: queries, 3: keys})
    return All(), tuple(inputs(name, (3, 35, 67))), shapes
  if kind == "speed":
    return Causal(), tuple(inputs(name, (3, 35))), ({0: batch, 2: queries},) * 3
  return Decode(), tuple(inputs(name, (3, 67))), ({0: batch}, {0: batch, 2: keys}, {0: batch, 2: keys})


def pack(folder, names):
  import husk
  for name in names or NAMES:
    model, args, shapes = program(name)
    husk.export(model, args, pathlib.Path(folder) / f"{name}.husk", dynamic_shapes=shapes, targets=("cuda:h200",))
    print(name)


def run(husk_run, artifact, given, *options):
  """(outputs, what was printed) of an artifact."""
  from safetensors.torch import load_file, save_file
  with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    save_file({str(index): each.contiguous() for index, each in enumerate(given)}, folder / "in.safetensors")
    done = subprocess.run([*shlex.split(husk_run), artifact, "--device=cuda", "--inputs", folder / "in.safetensors", "--outputs",
                           folder / "out.safetensors", *options], capture_output=True, text=True)
    if done.returncode:
      raise RuntimeError(done.stdout + done.stderr)
    made = load_file(folder / "out.safetensors")
  return [made[str(index)] for index in range(len(made))], done.stdout


def eager(model, given, dtype=None):
  """Results on the CPU, computed on the GPU in a dtype."""
  moved = [each.cuda() if dtype is None or each.dtype == torch.bool else each.cuda().to(dtype) for each in given]
  with torch.no_grad():
    results = model(*moved)
  return [each.cpu().double() for each in (results if isinstance(results, tuple) else (results,))]


def difference(one, right):
  """The largest, of numbers above 1 relative to them."""
  return float(((one.double() - right).abs() / right.abs().clamp(min=1)).max())


def check(folder, husk_run, names):
  torch.backends.cuda.matmul.allow_tf32 = False
  wrong = 0
  for name in names or NAMES:
    kind, dtype, _ = parts(name)
    model = program(name)[0]
    for shape in SHAPES if kind == "all" else DECODED if kind == "decode" else [(1, 1), (2, 300), (1, 1024)]:
      given = inputs(name, shape)
      right = eager(model, given, torch.float64)
      theirs = eager(model, given)
      for mode in ("list", "graph"):
        try:
          ours, _ = run(husk_run, pathlib.Path(folder) / f"{name}.husk", given, f"--mode={mode}")
        except RuntimeError as error:
          wrong += 1
          print(f"FAILED  {name} {shape} {mode}: {error}")
          continue
        off, eagers = ([difference(*pair) for pair in zip(made, right, strict=True)] for made in (ours, theirs))
        bad = not all(each <= TOLERANCES[dtype] for each in off)
        wrong += bad
        print(f"{'WRONG  ' if bad else 'ok     '} {name} {shape} {mode}: off by {' '.join(f'{each:.1e}' for each in off)}, "
              f"eager by {' '.join(f'{each:.1e}' for each in eagers)}")
  print(f"{wrong} wrong")
  return wrong != 0


def time_eager(model, given, repeat=200):
  """Microseconds of a call: many in a captured graph, so that Python's part does not count."""
  moved = [each.cuda() for each in given]
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


def time_both(folder, husk_run):
  for name, shapes in TIMED.items():
    model = program(name)[0]
    for shape in shapes:
      given = inputs(name, shape)
      _, text = run(husk_run, pathlib.Path(folder) / f"{name}.husk", given, "--mode=graph", "--repeat=200")
      ours = re.search(r"median ([0-9.]+) us", text)
      print(f"{name:16} {str(shape):12} husk {ours.group(1) if ours else text.strip():>9} us a run, waited for;  eager "
            f"{time_eager(model, given):9.1f} us of the GPU alone")
  return 0


def main():
  what, folder, *rest = sys.argv[1:]
  if what == "pack":
    return pack(folder, rest)
  return check(folder, rest[0], rest[1:]) if what == "check" else time_both(folder, rest[0])


if __name__ == "__main__":
  sys.exit(main())
