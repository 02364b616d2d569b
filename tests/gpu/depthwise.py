"""The tiles of depthwise convolutions on a GPU: that which the rule chooses, against the best one.

  python tests/gpu/depthwise.py [--dry] [--folder DIR] [--target cuda:h200] [--jobs N] [--json F]
                                [SHAPE...]

It exports a convolution of each shape with each tile of husk/cuda/depthwise.py alone, as two
functions of an artifact: one for a contiguous image, which a kernel brings into the order of
channels last first, and one for an image that is channels last. Then it compares the results with
PyTorch's in fp32, measures calls in a CUDA graph, so that only the GPU's time counts, and prints a
row for each shape and layout. All is in fp16. The last line has the mean and the largest of the
chosen tile's time divided by the best tile's.

`--dry` only exports, and needs no GPU. An artifact that DIR has is not made again, so that one
machine can export what another measures. It takes 2 seconds of processor time per shape and tile.
`--json` writes the microseconds of each tile to a file, with the sizes of the problem as batch,
channels, height and width of the result, kernel and stride. tests/torch/cuda/test_depthwise.py asks
how far the rule's choices are from the best ones in such a file.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import math
import multiprocessing
import os
import pathlib
import statistics
import sys
import tempfile

import torch
from husk.cuda import depthwise
from husk.cuda.target import Target
from torch import nn

CALLS, ROUNDS, LEAST_MS = 20, 3, 2
LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


@dataclasses.dataclass(frozen=True)
class Shape:
  batch: int
  channels: int
  side: int  # of the image
  kernel: int
  stride: int = 1

  def problem(self):
    """As the rule sees it."""
    side = (self.side - 1) // self.stride + 1
    both = (self.kernel, self.kernel), (self.stride, self.stride)
    return depthwise.Problem(self.batch, self.channels, side, side, *both)

  def make(self):
    """The module and its image in fp32."""
    torch.manual_seed(0)
    convolution = nn.Conv2d(
      self.channels,
      self.channels,
      self.kernel,
      self.stride,
      self.kernel // 2,
      groups=self.channels,
    )
    return convolution.eval(), torch.randn(self.batch, self.channels, self.side, self.side)


# Convolutions of ConvNeXt, EfficientNet and MobileNet, with few and many results; and sizes that no
# tile divides.
SHAPES = {
  "convnext_56": Shape(1, 96, 56, 7),
  "convnext_56_8": Shape(8, 96, 56, 7),
  "convnext_56_64": Shape(64, 96, 56, 7),
  "convnext_14": Shape(1, 384, 14, 7),
  "convnext_14_32": Shape(32, 384, 14, 7),
  "convnext_7": Shape(1, 768, 7, 7),
  "efficientnet_28": Shape(1, 240, 28, 5),
  "efficientnet_28_32": Shape(32, 240, 28, 5),
  "efficientnet_7_8": Shape(8, 1152, 7, 5),
  "mobilenet_112_s2": Shape(1, 64, 112, 3, 2),
  "mobilenet_112_s2_32": Shape(32, 64, 112, 3, 2),
  "odd_33": Shape(4, 72, 33, 3),
  "convnext_28": Shape(1, 192, 28, 7),
  "convnext_28_16": Shape(16, 192, 28, 7),
  "convnext_7_32": Shape(32, 768, 7, 7),
  "efficientnet_56": Shape(1, 144, 56, 3),
  "efficientnet_56_s2_16": Shape(16, 144, 56, 5, 2),
  "efficientnet_14_8": Shape(8, 672, 14, 5),
  "mobilenet_14": Shape(1, 512, 14, 3),
  "mobilenet_7_64": Shape(64, 960, 7, 5),
}


def path_of(folder, name, tiles):
  return folder / f"{name}.{'_'.join(map(str, dataclasses.astuple(tiles)))}.husk"


def export(folder, target, name, tiles):
  """Exports a convolution with one tile, for both layouts."""
  import husk

  torch.set_num_threads(1)
  depthwise.TILES = [tiles]
  module, x = SHAPES[name].make()
  module, path = module.half(), path_of(folder, name, tiles)
  functions = {
    layout: husk.Function(module, (x.half().to(memory_format=order),))
    for layout, order in LAYOUTS.items()
  }
  with tempfile.TemporaryDirectory() as kept:
    husk.export(functions, path, targets=[target], tune="heuristic", keep=kept)
    text = (pathlib.Path(kept) / "model.hir").read_text()
  if "_tem_" not in text:
    path.unlink()
    raise RuntimeError("the export has no kernel of the template")


def measure(call, image, calls=CALLS):
  """The microseconds of a call with an image: the median over rounds, in graphs of `calls`."""
  stream = torch.cuda.Stream()
  with torch.cuda.stream(stream):
    call(image)
  torch.cuda.synchronize()
  graph = torch.cuda.CUDAGraph()
  with torch.cuda.graph(graph, stream=stream):
    for _ in range(calls):
      call(image)
  times, count = [], 1
  while len(times) < ROUNDS:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(count):
      graph.replay()
    end.record()
    torch.cuda.synchronize()
    took = begin.elapsed_time(end)
    if took < LEAST_MS:
      count *= 4
    else:
      times.append(took * 1e3 / count / calls)
  return statistics.median(times)


def run(folder, name):
  """The microseconds of each tile, by layout, and the tiles whose results are wrong."""
  import husk

  module, x = SHAPES[name].make()
  expected = module.cuda()(x.cuda())
  limit = 2e-3 * expected.abs().max()
  times, wrong = {layout: {} for layout in LAYOUTS}, []
  for tiles in depthwise.TILES:
    session = husk.load(path_of(folder, name, tiles), device="cuda").session(mode="list")
    for layout, order in LAYOUTS.items():
      half_input = x.cuda().half().to(memory_format=order)
      call = getattr(session, layout)
      if not (call(half_input).float() - expected).abs().max() <= limit:  # NaN is wrong too
        wrong.append(f"{layout} {tiles}")
      times[layout][tiles] = measure(call, half_input)
  return times, wrong


def failures(exports):
  """Waits for exports, prints the error of each that fails, and returns their number. `exports` are
  futures by name."""
  failed = 0
  for name, future in exports.items():
    if error := future.exception():
      failed += 1
      print(f"{name}: {str(error).splitlines()[0]}", flush=True)
  return failed


def words(tiles):
  return "x".join(map(str, dataclasses.astuple(tiles)))


def main():
  arguments = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  arguments.add_argument("shapes", nargs="*", metavar="SHAPE", help=", ".join(SHAPES))
  arguments.add_argument("--dry", action="store_true")
  arguments.add_argument("--folder", type=pathlib.Path)
  arguments.add_argument("--target", default="cuda:h200")
  arguments.add_argument("--jobs", type=int, default=os.cpu_count())
  arguments.add_argument("--json", type=pathlib.Path)
  options = arguments.parse_args()
  shapes = options.shapes or list(SHAPES)
  if unknown := set(shapes) - set(SHAPES):
    arguments.error(f"no shape {', '.join(sorted(unknown))}")
  folder = options.folder or pathlib.Path(tempfile.mkdtemp(prefix="husk-depthwise-"))
  folder.mkdir(parents=True, exist_ok=True)
  pairs = [(name, tiles) for name in shapes for tiles in depthwise.TILES]
  missing = [pair for pair in pairs if not path_of(folder, *pair).exists()]
  with concurrent.futures.ProcessPoolExecutor(
    options.jobs, multiprocessing.get_context("spawn")
  ) as pool:
    failed = failures(
      {
        f"{name} {words(tiles)}": pool.submit(export, folder, options.target, name, tiles)
        for name, tiles in missing
      }
    )
  print(f"{len(missing) - failed} exported into {folder}, {failed} failed", flush=True)
  if options.dry or failed:
    return failed != 0
  torch.backends.cudnn.allow_tf32 = False
  target = Target.load(options.target.split(":")[1])
  print(f"strips x channels x columns x warps, us\n{'':22} {'layout':14}{'chosen':>22}{'best':>24}")
  ratios, wrong, measured = [], 0, {}
  for name in shapes:
    problem = SHAPES[name].problem()
    chosen = min(depthwise.TILES, key=lambda tiles: depthwise.cost(target, problem, tiles))
    with torch.no_grad():
      by_layout, lost = run(folder, name)
    for layout, times in by_layout.items():
      sizes = (*dataclasses.astuple(problem)[:4], problem.kernel[0], problem.stride[0])
      measured[f"{name} {layout}"] = {
        "problem": "x".join(map(str, sizes)),
        **{words(tiles): round(took, 2) for tiles, took in times.items()},
      }
      best = min(times, key=times.get)
      ratios.append(times[chosen] / times[best])
      texts = [f"{words(tiles)} {times[tiles]:9.2f}" for tiles in (chosen, best)]
      print(f"{name:22} {layout:14}{texts[0]:>22}  {texts[1]:>22} {ratios[-1]:6.2f}", flush=True)
    for text in lost:
      wrong += 1
      print(f"{name:22} WRONG {text}", flush=True)
  if options.json:
    options.json.write_text(json.dumps(measured, indent=1))
  mean = math.exp(statistics.mean(map(math.log, ratios)))
  print(f"chosen / best: mean {mean:.3f}, largest {max(ratios):.2f}; {wrong} wrong")
  return wrong != 0


if __name__ == "__main__":
  sys.exit(main())
