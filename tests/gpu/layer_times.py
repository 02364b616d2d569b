"""Single products and convolutions on a GPU, Husk's kernels by records against NVIDIA's libraries.

  python tests/gpu/layer_times.py export DIR [--target cuda:h200] [--jobs 4] [NAME...]
  python tests/gpu/layer_times.py run DIR [--json FILE] [NAME...]
  python tests/gpu/layer_times.py list

`export` writes DIR/NAME.husk for each layer and needs no GPU. `run` compares the results with those
in fp32, and measures 20 calls in a CUDA graph, so that only the GPU's time counts: Husk's launches
go into a capture of torch.cuda.graph. Products are compared with cuBLASLt with the same epilogue,
convolutions, channels last, with cuDNN with its benchmark. All is in fp16. The last lines tell the
median and the largest ratio, and name what takes more than 1.3 of the library's time.
"""

import argparse
import concurrent.futures
import json
import multiprocessing
import pathlib
import statistics
import sys

import torch
import torch.nn.functional as F
from torch import nn

CALLS, ROUNDS = 20, 5

# output and input width of a product
WIDTHS = (
  (768, 768),
  (2304, 768),
  (3072, 768),
  (768, 3072),
  (4096, 4096),
  (14336, 4096),
  (4096, 14336),
  (1024, 4096),
)
ROWS = (1, 8, 64, 128, 512, 2048, 8192)
PLAIN = ((1, 4096, 4096), (128, 4096, 4096), (2048, 4096, 4096), (128, 768, 768))

# input channels, output channels, kernel, stride, padding, groups, image size; of ResNet-50,
# DeepLabV3, ConvNeXt-T, EfficientNet-B0, MobileNetV3-L, a U-Net and Whisper-tiny
LAYERS = {
  "resnet_stem": (3, 64, 7, 2, 3, 1, 224),
  "resnet_1x1_56": (64, 256, 1, 1, 0, 1, 56),
  "resnet_3x3_56": (64, 64, 3, 1, 1, 1, 56),
  "resnet_3x3_s2": (128, 128, 3, 2, 1, 1, 56),
  "resnet_1x1_28": (512, 128, 1, 1, 0, 1, 28),
  "resnet_3x3_14": (256, 256, 3, 1, 1, 1, 14),
  "resnet_1x1_14": (1024, 256, 1, 1, 0, 1, 14),
  "resnet_3x3_7": (512, 512, 3, 1, 1, 1, 7),
  "resnet_1x1_7": (2048, 512, 1, 1, 0, 1, 7),
  "deeplab_layer3": (256, 256, 3, 1, 2, 1, 28),
  "deeplab_layer4": (512, 512, 3, 1, 4, 1, 28),
  "deeplab_dilated": (2048, 256, 3, 1, 12, 1, 28),
  "deeplab_dilated24": (2048, 256, 3, 1, 24, 1, 28),
  "deeplab_dilated36": (2048, 256, 3, 1, 36, 1, 28),
  "deeplab_large": (2048, 256, 3, 1, 12, 1, 65),
  "convnext_patch": (3, 96, 4, 4, 0, 1, 224),
  "convnext_dw_56": (96, 96, 7, 1, 3, 96, 56),
  "convnext_dw_14": (384, 384, 7, 1, 3, 384, 14),
  "convnext_down": (192, 384, 2, 2, 0, 1, 28),
  "efficientnet_dw": (240, 240, 5, 1, 2, 240, 28),
  "efficientnet_1x1": (192, 1152, 1, 1, 0, 1, 7),
  "mobilenet_stem": (3, 16, 3, 2, 1, 1, 224),
  "mobilenet_dw_s2": (64, 64, 3, 2, 1, 64, 112),
  "mobilenet_1x1": (960, 160, 1, 1, 0, 1, 7),
  "unet_3x3": (64, 64, 3, 1, 1, 1, 224),
  "whisper_conv1d": (384, 384, 3, 2, 1, 1, 3000),
}
BATCHES = (1, 8, 32)
DILATED = {
  "deeplab_layer3": 2,
  "deeplab_layer4": 4,
  "deeplab_dilated": 12,
  "deeplab_dilated24": 24,
  "deeplab_dilated36": 36,
  "deeplab_large": 12,
}


class Product(nn.Module):
  def __init__(self, n, k, epilogue):
    super().__init__()
    self.weight = nn.Parameter(torch.randn(n, k) / k**0.5)
    self.bias = nn.Parameter(torch.randn(n))
    self.epilogue = epilogue

  def forward(self, x, residual):
    if self.epilogue == "plain":
      return F.linear(x, self.weight)
    if self.epilogue == "residual":
      return F.linear(x, self.weight) + residual
    result = F.linear(x, self.weight, self.bias)
    return F.gelu(result, approximate="tanh") if self.epilogue == "gelu" else result

  def by_library(self, x, residual):
    weight = self.weight.t()
    if self.epilogue == "plain":
      return x @ weight
    if self.epilogue == "residual":
      return torch.addmm(residual, x, weight)
    if self.epilogue == "gelu":
      return torch._addmm_activation(self.bias, x, weight, use_gelu=True)
    return F.linear(x, self.weight, self.bias)


class Convolution(nn.Module):
  def __init__(self, layer, dilation, dims):
    super().__init__()
    inputs, outputs, kernel, stride, padding, groups, _ = layer
    kind = nn.Conv1d if dims == 1 else nn.Conv2d
    self.layer = kind(
      inputs, outputs, kernel, stride, padding, dilation=dilation, groups=groups, bias=False
    )

  def forward(self, x):
    return self.layer(x)

  by_library = forward


def names():
  epilogues = ("bias", "gelu", "residual")
  shapes = [(m, n, k) for n, k in WIDTHS for m in ROWS]
  products = [f"{epilogues[i % 3]}_{m}x{n}x{k}" for i, (m, n, k) in enumerate(shapes)]
  products += [f"plain_{m}x{n}x{k}" for m, n, k in PLAIN]
  return products + [f"{layer}.{batch}" for layer in LAYERS for batch in BATCHES]


def make(name):
  """A module and its inputs in fp32."""
  torch.manual_seed(0)
  if "." not in name:
    epilogue, shape = name.split("_")
    m, n, k = map(int, shape.split("x"))
    return Product(n, k, epilogue), (torch.randn(m, k), torch.randn(m, n))
  kind, batch = name.split(".")
  layer = LAYERS[kind]
  dims = 1 if "1d" in kind else 2
  convolution = Convolution(layer, DILATED.get(kind, 1), dims)
  x = torch.randn(int(batch), layer[0], *[layer[-1]] * dims)
  if dims == 2:
    convolution, x = (each.to(memory_format=torch.channels_last) for each in (convolution, x))
  return convolution, (x,)


def export(name, folder, target):
  import husk

  torch.set_num_threads(1)
  module, inputs = make(name)
  inputs = tuple(x.half() for x in inputs)
  path = pathlib.Path(folder) / f"{name}.husk"
  husk.export(module.eval().half(), inputs, path, targets=[target], tune="heuristic")


def graph_of(call):
  """A CUDA graph of CALLS calls."""
  stream = torch.cuda.Stream()
  with torch.cuda.stream(stream):
    for _ in range(3):
      call()
  torch.cuda.synchronize()
  graph = torch.cuda.CUDAGraph()
  with torch.cuda.graph(graph, stream=stream):
    for _ in range(CALLS):
      call()
  return graph


def measure(graphs):
  """The median over rounds of the microseconds of a call, by side. The sides take turns."""
  times = {side: [] for side in graphs}
  for _ in range(ROUNDS):
    for side, graph in graphs.items():
      count = 3
      while True:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(count):
          graph.replay()
        end.record()
        torch.cuda.synchronize()
        took = begin.elapsed_time(end)
        if took > 5:
          break
        count *= 3
      times[side].append(took * 1e3 / count / CALLS)
  return {side: statistics.median(values) for side, values in times.items()}


def run(name, folder):
  import husk

  module, inputs = make(name)
  module, inputs = module.eval().cuda(), tuple(x.cuda() for x in inputs)
  expected = module(*inputs)
  module, inputs = module.half(), tuple(x.half() for x in inputs)
  program = husk.load(pathlib.Path(folder) / f"{name}.husk", device="cuda")
  session = program.session(mode="list")
  scale = expected.abs().max()
  own, other = (
    ((call(*inputs).float() - expected).abs().max() / scale).item()
    for call in (session, module.by_library)
  )
  graphs = {
    "library": graph_of(lambda: module.by_library(*inputs)),
    "husk": graph_of(lambda: session(*inputs)),
  }
  times = measure(graphs)
  wrong = not own <= max(2 * other, 1e-3)  # NaN is wrong too
  return {**times, "ratio": times["husk"] / times["library"], "error": own, "wrong": wrong}


def summary(title, rows):
  ratios = [row["ratio"] for row in rows.values()]
  if not ratios:
    return
  over = {name: row["ratio"] for name, row in rows.items() if row["ratio"] > 1.3}
  print(
    f"{title}: {len(ratios)}, median {statistics.median(ratios):.2f}, largest {max(ratios):.2f}, "
    f"{sum(r > 1.15 for r in ratios)} over 1.15, {len(over)} over 1.3, "
    f"{sum(r > 2 for r in ratios)} over 2, {sum(row['wrong'] for row in rows.values())} wrong"
  )
  for name, ratio in sorted(over.items(), key=lambda item: -item[1]):
    print(f"  {name}: {ratio:.2f}")


def main():
  arguments = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  arguments.add_argument("command", choices=("export", "run", "list"))
  arguments.add_argument("folder", nargs="?", type=pathlib.Path)
  arguments.add_argument("names", nargs="*", metavar="NAME")
  arguments.add_argument("--target", default="cuda:h200")
  arguments.add_argument("--jobs", type=int, default=4)
  arguments.add_argument("--json", type=pathlib.Path)
  options = arguments.parse_args()
  wanted = options.names or names()
  if options.command == "list":
    print("\n".join(wanted))
    return 0
  if not options.folder:
    arguments.error("write a folder after the command")
  failed = 0
  if options.command == "export":
    options.folder.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(options.jobs, context) as pool:
      futures = {n: pool.submit(export, n, options.folder, options.target) for n in wanted}
      for name, result in futures.items():
        if result.exception():
          failed += 1
          print(f"{name}: {str(result.exception()).splitlines()[0]}", flush=True)
    print(f"{len(wanted) - failed} exported, {failed} failed")
    return failed != 0
  torch.backends.cudnn.benchmark = True
  torch.backends.cudnn.allow_tf32 = False
  rows = {}
  print(f"{'':28} {'library us':>10} {'husk us':>10} {'ratio':>6}  error")
  with torch.no_grad():
    for name in wanted:
      try:
        row = rows[name] = run(name, options.folder)
      except Exception as error:
        failed += 1
        print(f"{name:28} FAILED {str(error).splitlines()[0] if str(error) else repr(error)}")
        continue
      text = f"{row['library']:10.2f} {row['husk']:10.2f} {row['ratio']:6.2f}  {row['error']:.1e}"
      print(f"{name:28} {text}{' WRONG' if row['wrong'] else ''}", flush=True)
      if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
  summary("products", {n: r for n, r in rows.items() if "." not in n})
  summary("convolutions", {n: r for n, r in rows.items() if "." in n})
  return failed != 0 or any(row["wrong"] for row in rows.values())


if __name__ == "__main__":
  sys.exit(main())
