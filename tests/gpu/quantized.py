"""Layers whose weights have codes on a GPU, against a read of the same bytes and against Husk's
layers in bf16.

  python tests/gpu/quantized.py [--dry] [--folder DIR] [--target cuda:h200] [--jobs N] [--json F]
                                [--formats int4,int8] [--rows 1,16] [--bytes N] [NxK...]

Each shape and format is an artifact of as many layers as have N bytes of weights (256 MB), since
weights that a cache keeps say nothing. It has a function for each number of rows, whose layers all
take one input; and for one row and shapes that can follow each other, a chain of 16 layers. The
script compares the first result with a product in float64, measures a call in a CUDA graph, and a
kernel that reads as many bytes as the codes and scales have, as often, in another graph. A row has
the microseconds of a layer, the time of the read divided by it, and it divided by the time of the
layer in bf16. Layers whose inputs have codes, too, are measured if --formats names them
(fp8-tensor, fp8-row, fp8-block, int8-row); they take one input, whose codes are made once.

`--dry` only exports, and needs no GPU. An artifact that DIR has is not made again.
"""

import argparse
import concurrent.futures
import json
import math
import multiprocessing
import os
import pathlib
import statistics
import sys
import tempfile

import torch
import triton
import triton.language as tl
from husk.quantized.operator import numbers, operator
from torch import nn

sys.path.append(str(pathlib.Path(__file__).parent))
from depthwise import failures, measure

SHAPES = (
  "2048x8192 8192x2048 4096x4096 14336x4096 4096x14336 1024x2048 6144x4096 32000x4096".split()
)
ROWS = (1, 2, 4, 8, 16, 32, 64)


class Quantized(nn.Module):
  """A layer of n x k codes: of 4 bits with a scale in f16 for each `group`, or of 8 bits with one
  for each row."""

  def __init__(self, n, k, dtype, group=None):
    super().__init__()
    self.bits, self.group = (4 if dtype == torch.uint8 else 8), group or k
    codes = torch.randint(0, 256, (n, k * self.bits // 8), dtype=torch.uint8)
    if dtype == torch.float8_e4m3fn:
      codes &= 0xBF  # no NaN
    self.register_buffer("codes", codes.view(dtype))
    scales = (torch.rand(n, k // self.group) + 0.5) / math.sqrt(k) / 8
    self.register_buffer("scales", scales.half() if self.bits == 4 else scales)

  def forward(self, x):
    more = (None, None, None, None, "none", self.bits, self.group)
    return operator()(x, self.codes, self.scales, *more)

  def weight(self):
    return numbers(self.codes, self.scales, None, None, self.bits, self.group)


class Plain(nn.Module):
  def __init__(self, n, k):
    super().__init__()
    self.register_buffer("matrix", (torch.randn(n, k) / math.sqrt(k)).bfloat16())

  def forward(self, x):
    return nn.functional.linear(x, self.matrix)

  def weight(self):
    return self.matrix


class Eight(nn.Module):
  """A layer whose weights and inputs have codes of 8 bits: fp8 with a scale for the tensor, for
  each row, or for each block of 128 columns, or ints with one for each row."""

  def __init__(self, n, k, of, dtype=torch.float8_e4m3fn):
    super().__init__()
    self.of, self.dtype = of, dtype
    codes, scales = self.codes_of(torch.randn(n, k) / math.sqrt(k))
    if of == "block":
      scales = scales[::128].contiguous()
    self.register_buffer("codes", codes)
    self.register_buffer("scales", scales)

  def codes_of(self, x):
    most = 127 if self.dtype == torch.int8 else 448
    parts = x.float().unflatten(-1, (-1, 128)) if self.of == "block" else x.float()
    largest = parts.abs().amax() if self.of == "tensor" else parts.abs().amax(-1, keepdim=True)
    scales = largest / most
    codes = parts / scales
    codes = codes.round() if self.dtype == torch.int8 else codes
    return codes.to(self.dtype).reshape(x.shape), scales.reshape(scales.shape[:2])

  def forward(self, x):
    codes, scales = self.codes_of(x)
    if self.dtype == torch.int8:
      return (torch._int_mm(codes, self.codes.T).float() * scales * self.scales.T).bfloat16()
    return torch._scaled_mm(
      codes,
      self.codes.T,
      scales,
      self.scales.T,
      out_dtype=torch.bfloat16,
      use_fast_accum=self.of != "block",  # as torchao does
    )

  def weight(self):
    scales = self.scales.float()
    if self.of == "block":
      scales = scales.repeat_interleave(128, 0).repeat_interleave(128, 1)
    return self.codes.float() * scales


FORMATS = {
  "bf16": Plain,
  "int4": lambda n, k: Quantized(n, k, torch.uint8, 32),
  "int4-128": lambda n, k: Quantized(n, k, torch.uint8, 128),
  "int8": lambda n, k: Quantized(n, k, torch.int8),
  "fp8": lambda n, k: Quantized(n, k, torch.float8_e4m3fn),
}
# Those whose inputs have codes, too: for many rows.
EIGHT = {
  "fp8-tensor": lambda n, k: Eight(n, k, "tensor"),
  "fp8-row": lambda n, k: Eight(n, k, "row"),
  "fp8-block": lambda n, k: Eight(n, k, "block"),
  "int8-row": lambda n, k: Eight(n, k, "row", torch.int8),
}


class Beside(nn.Module):
  """Layers that take one input."""

  def __init__(self, layers):
    super().__init__()
    self.layers = layers

  def forward(self, x):
    return [layer(x) for layer in self.layers]


class Chain(nn.Module):
  """16 layers, each of which takes the result of the one before."""

  def __init__(self, layers, others):
    super().__init__()
    self.layers, self.others = layers, others

  def forward(self, x):
    for one, other in zip(self.layers, self.others):
      x = other(one(x))
    return x


def sizes(shape):
  return [int(part) for part in shape.split("x")]


def size_of(module):
  return sum(one.numel() * one.element_size() for one in module.buffers())


def layers_of(format, n, k, least):
  """Layers with at least `least` bytes of weights, with numbers from a seed."""
  torch.manual_seed(0)
  make = {**FORMATS, **EIGHT}[format]
  layers = [make(n, k)]
  count = -(-least // size_of(layers[0]))
  return nn.ModuleList(layers + [make(n, k) for _ in range(count - 1)])


def export(path, target, shape, format, rows, least):
  import husk

  torch.set_num_threads(1)
  n, k = sizes(shape)
  layers = Beside(layers_of(format, n, k, least)).eval()
  functions = {
    f"rows_{count}": husk.Function(layers, (torch.zeros(count, k, dtype=torch.bfloat16),))
    for count in rows
  }
  if shape == "2048x8192":
    chain = Chain(
      layers.layers[:8], layers_of(format, k, n, 7 * size_of(layers.layers[0]) + 1)
    ).eval()
    functions["chain"] = husk.Function(chain, (torch.zeros(1, k, dtype=torch.bfloat16),))
  husk.export(functions, path, targets=[target], tune="heuristic")


@triton.jit
def read(memory, result, words, BLOCK: tl.constexpr):
  """Reads words, of which the result depends."""
  total = tl.zeros((BLOCK,), tl.int32)
  for step in tl.static_range(4):
    place = (tl.program_id(0) * 4 + step) * BLOCK + tl.arange(0, BLOCK)
    total += tl.load(memory + place, mask=place < words, other=0)
  if tl.sum(total) == 123456789:
    tl.store(result, 1)


def time_of_reads(size, count):
  """The microseconds of reads of `size` bytes, `count` of them after each other."""
  words = size // 4
  memory = torch.ones(count, words, dtype=torch.int32, device="cuda")
  result = torch.zeros(1, dtype=torch.int32, device="cuda")

  def call(_):
    for row in memory:
      read[(-(-words // 4096),)](row, result, words, BLOCK=1024)

  return measure(call, None, calls=1) / count


def run(path, shape, format, rows, least):
  """For each function the microseconds of a layer and of a read, and the error."""
  import husk

  n, k = sizes(shape)
  layers = layers_of(format, n, k, least)
  size, count = size_of(layers[0]), len(layers)
  weight = layers[0].cuda().weight().double()
  loaded = husk.load(path, device="cuda")
  session = loaded.session(mode="list")
  reads = time_of_reads(size, count)
  found = {}
  for each in rows:
    x = torch.randn(each, k).bfloat16().cuda()
    call = getattr(session, f"rows_{each}")
    right = x.double() @ weight.T
    error = float((call(x)[0].double() - right).pow(2).mean().sqrt() / right.pow(2).mean().sqrt())
    found[str(each)] = (measure(call, x, calls=1) / count, reads, error)
  if shape == "2048x8192":
    x = torch.randn(1, k).bfloat16().cuda()
    found["chain"] = (measure(session.chain, x, calls=1) / 16, reads, 0.0)
  return found


def main():
  arguments = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  arguments.add_argument("shapes", nargs="*", metavar="NxK", help=" ".join(SHAPES))
  arguments.add_argument("--dry", action="store_true")
  arguments.add_argument("--folder", type=pathlib.Path)
  arguments.add_argument("--target", default="cuda:h200")
  arguments.add_argument("--formats", default=",".join(FORMATS))
  arguments.add_argument("--rows", default=",".join(map(str, ROWS)))
  arguments.add_argument("--bytes", type=int, default=256 << 20)
  arguments.add_argument("--jobs", type=int, default=os.cpu_count())
  arguments.add_argument("--json", type=pathlib.Path)
  options = arguments.parse_args()
  rows = [int(each) for each in options.rows.split(",")]
  folder = options.folder or pathlib.Path(tempfile.mkdtemp(prefix="husk-quantized-"))
  folder.mkdir(parents=True, exist_ok=True)
  cases = [(s, f) for s in options.shapes or SHAPES for f in options.formats.split(",")]
  path_of = {case: folder / f"{'.'.join(case)}.husk" for case in cases}
  with concurrent.futures.ProcessPoolExecutor(
    options.jobs, multiprocessing.get_context("spawn")
  ) as pool:
    exports = {
      " ".join(case): pool.submit(export, path, options.target, *case, rows, options.bytes)
      for case, path in path_of.items()
      if not path.exists()
    }
    failed = failures(exports)
  print(f"{len(exports) - failed} exported into {folder}, {failed} failed", flush=True)
  if options.dry or failed:
    return failed != 0
  print(torch.cuda.get_device_name())
  print(f"{'':12}{'':10}{'rows':>6}{'us':>9}{'read / it':>11}{'it / bf16':>11}{'error':>9}")
  results, ratios = {}, {}
  for case in cases:
    found = results[" ".join(case)] = run(path_of[case], *case, rows, options.bytes)
    plain = results.get(f"{case[0]} bf16", {})
    for name, (took, reads, error) in found.items():
      part = took / plain[name][0] if name in plain else float("nan")
      ratios.setdefault((case[1], name), []).append(reads / took)
      print(
        f"{case[0]:12}{case[1]:10}{name:>6}{took:9.2f}{reads / took:11.2f}{part:11.2f}{error:9.1e}",
        flush=True,
      )
  for (format, name), values in ratios.items():
    print(
      f"{format} {name}: read / it, median {statistics.median(values):.2f}, least {min(values):.2f}"
    )
  if options.json:
    options.json.write_text(json.dumps(results))
  return 0


if __name__ == "__main__":
  sys.exit(main())
