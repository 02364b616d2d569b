"""Times networks in f32 and quantized by torchao's convert_pt2e, in onnxruntime and in OpenVINO.

  python tests/bench/quantized_graphs.py [--threads 1] [--rounds 30] [MODEL...]

Needs torchvision, torchao, onnx and onnxruntime; `--openvino` needs openvino, which reads the file
of onnxruntime. Networks are those of torchvision, and `detector`, which has the layers of a small
YOLO. They have random weights and an image of 224 x 224, the detector of 320 x 320. They take turns
in one process. With one thread, the time is that of the CPU in this process, which does not count
what other processes take; with more, it is the clock's.
"""

import argparse
import pathlib
import statistics
import tempfile
import time

import husk
import onnxruntime.quantization.shape_inference  # pyright: ignore[reportMissingImports]
import torch
import torchao.quantization.pt2e.quantize_pt2e as pt2e  # pyright: ignore[reportMissingImports]
import torchvision  # pyright: ignore[reportMissingImports]
from onnxruntime import quantization  # pyright: ignore[reportMissingImports]
from torchao.quantization.pt2e.quantizer import (  # pyright: ignore[reportMissingImports]
  x86_inductor_quantizer as x86,
)


def layer(inputs, outputs, kernel=1, stride=1):
  return torch.nn.Sequential(
    torch.nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
    torch.nn.BatchNorm2d(outputs),
    torch.nn.SiLU(),
  )


class Divided(torch.nn.Module):
  """Layers on a half of the channels, each of whose results is kept."""

  def __init__(self, inputs, outputs, count=1, adds=True):
    super().__init__()
    half = outputs // 2
    self.first = layer(inputs, outputs)
    self.steps = torch.nn.ModuleList(
      torch.nn.Sequential(layer(half, half, 3), layer(half, half, 3)) for _ in range(count)
    )
    self.last, self.adds = layer((2 + count) * half, outputs), adds

  def forward(self, x):
    parts = list(self.first(x).chunk(2, 1))
    for step in self.steps:
      parts.append(parts[-1] + step(parts[-1]) if self.adds else step(parts[-1]))
    return self.last(torch.cat(parts, 1))


class Detector(torch.nn.Module):
  """The layers of a small YOLO of 2023, with results for cells of 8, 16 and 32 pixels."""

  def __init__(self):
    super().__init__()
    self.to8 = torch.nn.Sequential(
      *(layer(3, 16, 3, 2), layer(16, 32, 3, 2), Divided(32, 32)),
      *(layer(32, 64, 3, 2), Divided(64, 64, 2)),
    )
    self.to16 = torch.nn.Sequential(layer(64, 128, 3, 2), Divided(128, 128, 2))
    self.to32 = torch.nn.Sequential(layer(128, 256, 3, 2), Divided(256, 256))
    self.before_pools, self.after_pools = layer(256, 128), layer(512, 256)
    self.pool = torch.nn.MaxPool2d(5, 1, 2)
    self.up = torch.nn.Upsample(scale_factor=2)
    self.up16, self.up8 = Divided(384, 128, adds=False), Divided(192, 64, adds=False)
    self.down16, self.down32 = layer(64, 64, 3, 2), layer(128, 128, 3, 2)
    self.out16, self.out32 = Divided(192, 128, adds=False), Divided(384, 256, adds=False)
    self.boxes = torch.nn.ModuleList(self.head(size, 64, 64) for size in (64, 128, 256))
    self.classes = torch.nn.ModuleList(self.head(size, 80, 80) for size in (64, 128, 256))

  @staticmethod
  def head(inputs, inner, outputs):
    return torch.nn.Sequential(
      layer(inputs, inner, 3), layer(inner, inner, 3), torch.nn.Conv2d(inner, outputs, 1)
    )

  def forward(self, x):
    at8 = self.to8(x)
    at16 = self.to16(at8)
    pooled = [self.before_pools(self.to32(at16))]
    for _ in range(3):
      pooled.append(self.pool(pooled[-1]))
    at32 = self.after_pools(torch.cat(pooled, 1))
    at16 = self.up16(torch.cat((self.up(at32), at16), 1))
    at8 = self.up8(torch.cat((self.up(at16), at8), 1))
    at16 = self.out16(torch.cat((self.down16(at8), at16), 1))
    at32 = self.out32(torch.cat((self.down32(at16), at32), 1))
    cells = zip((at8, at16, at32), self.boxes, self.classes, strict=True)
    return tuple(torch.cat((boxes(one), classes(one)), 1) for one, boxes, classes in cells)


def network(name):
  """A network whose batch norms have the statistics of noise, so that no activation vanishes."""
  torch.manual_seed(0)
  model = (Detector() if name == "detector" else getattr(torchvision.models, name)()).train()
  with torch.no_grad():
    for _ in range(3):
      model(torch.randn(4, 3, 96, 96))
  return model.eval()


def quantized(model, x):
  quantizer = x86.X86InductorQuantizer()
  quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
  prepared = pt2e.prepare_pt2e(torch.export.export(model, (x,), strict=True).module(), quantizer)
  prepared(x)
  return pt2e.convert_pt2e(prepared)


class Calibration(quantization.CalibrationDataReader):
  def __init__(self, x):
    self.inputs = iter([{"x": x.numpy()}])

  def get_next(self):
    return next(self.inputs, None)


def onnx_file(model, x, folder):
  """A file of the network in int8, with codes of the same dtypes."""
  plain, codes = folder / "plain.onnx", folder / "codes.onnx"
  torch.onnx.export(model, (x,), str(plain), dynamo=False, input_names=["x"], opset_version=17)
  quantization.shape_inference.quant_pre_process(plain, plain)
  unsigned = quantization.QuantType.QUInt8
  quantization.quantize_static(
    plain, codes, Calibration(x), per_channel=True, activation_type=unsigned
  )
  return codes


def onnxruntime_of(codes, threads):
  options = onnxruntime.SessionOptions()
  options.intra_op_num_threads = threads
  session = onnxruntime.InferenceSession(codes, options)
  return lambda x: session.run(None, {"x": x.numpy()})


def openvino_of(codes, threads):
  import openvino  # pyright: ignore[reportMissingImports]

  settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
  request = openvino.Core().compile_model(codes, "CPU", settings).create_infer_request()
  return lambda x: request.infer({"x": x.numpy()})


def measure(name, options, folder):
  threads, rounds = options.threads, options.rounds
  size = 320 if name == "detector" else 224
  model, x = network(name), torch.randn(1, 3, size, size)
  programs = {}
  for kind, one in (("f32", model), ("int8", quantized(model, x))):
    husk.export(one, (x,), folder / f"{kind}.husk", targets=("host",))
    programs[kind] = husk.load(folder / f"{kind}.husk", threads=threads)
  codes = onnx_file(model, x, folder)
  programs["onnxruntime"] = onnxruntime_of(codes, threads)
  if options.openvino:
    programs["OpenVINO"] = openvino_of(codes, threads)
  clock = time.process_time if threads == 1 else time.perf_counter
  times = {kind: [] for kind in programs}
  for _ in range(rounds):
    for kind, program in programs.items():
      begin = clock()
      program(x)
      times[kind].append(clock() - begin)
  shown = " ".join(f"{kind} {statistics.median(t) * 1e3:.2f}" for kind, t in times.items())
  ratios = {
    kind: statistics.median(a / b for a, b in zip(times["int8"], times[kind], strict=True))
    for kind in programs
    if kind != "int8"
  }
  text = ", ".join(f"int8 ÷ {kind} {ratio:.2f}" for kind, ratio in ratios.items())
  print(f"{name}, {threads} threads, ms: {shown}; {text}", flush=True)


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("models", nargs="*")
  parser.add_argument("--threads", type=int, default=1)
  parser.add_argument("--rounds", type=int, default=30)
  parser.add_argument("--openvino", action="store_true")
  options = parser.parse_args()
  names = ("mobilenet_v2", "mobilenet_v3_large", "resnet18", "resnet50", "detector")
  for name in options.models or names:
    with tempfile.TemporaryDirectory() as folder:
      measure(name, options, pathlib.Path(folder))


if __name__ == "__main__":
  main()
