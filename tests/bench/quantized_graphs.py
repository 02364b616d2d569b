"""Times networks of torchvision in f32 and quantized by torchao's convert_pt2e, and in onnxruntime.

  python tests/bench/quantized_graphs.py [--threads 1] [--rounds 30] [MODEL...]

Needs torchvision, torchao, onnx and onnxruntime. Networks have random weights and an image of
224 x 224. They take turns in one process. With one thread, the time is that of the CPU in this
process, which does not count what other processes take; with more, it is the clock's.
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


def network(name):
  """A network whose batch norms have the statistics of noise, so that no activation vanishes."""
  torch.manual_seed(0)
  model = getattr(torchvision.models, name)().train()
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


def peer(model, x, folder, threads):
  """The network in int8 in onnxruntime, with codes of the same dtypes."""
  plain, codes = folder / "plain.onnx", folder / "codes.onnx"
  torch.onnx.export(model, (x,), str(plain), dynamo=False, input_names=["x"], opset_version=17)
  quantization.shape_inference.quant_pre_process(plain, plain)
  unsigned = quantization.QuantType.QUInt8
  quantization.quantize_static(
    plain, codes, Calibration(x), per_channel=True, activation_type=unsigned
  )
  options = onnxruntime.SessionOptions()
  options.intra_op_num_threads = threads
  session = onnxruntime.InferenceSession(codes, options)
  return lambda x: session.run(None, {"x": x.numpy()})


def measure(name, threads, rounds, folder):
  model, x = network(name), torch.randn(1, 3, 224, 224)
  programs = {}
  for kind, one in (("f32", model), ("int8", quantized(model, x))):
    husk.export(one, (x,), folder / f"{kind}.husk", targets=("host",))
    programs[kind] = husk.load(folder / f"{kind}.husk", threads=threads)
  programs["onnxruntime"] = peer(model, x, folder, threads)
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
    for kind in ("f32", "onnxruntime")
  }
  text = ", ".join(f"int8 ÷ {kind} {ratio:.2f}" for kind, ratio in ratios.items())
  print(f"{name}, {threads} threads, ms: {shown}; {text}", flush=True)


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("models", nargs="*")
  parser.add_argument("--threads", type=int, default=1)
  parser.add_argument("--rounds", type=int, default=30)
  options = parser.parse_args()
  for name in options.models or ("mobilenet_v2", "mobilenet_v3_large", "resnet18", "resnet50"):
    with tempfile.TemporaryDirectory() as folder:
      measure(name, options.threads, options.rounds, pathlib.Path(folder))


if __name__ == "__main__":
  main()
