"""Measures the time that a call from Python adds to a call from C.

  build/venv/bin/python tests/bench/python_call.py

The program has three inputs and one step, a copy of 128 bytes. The C call is the one of
`husk-bench`. If onnxruntime and onnx are installed, their Python is measured too, with a model of
two additions: `build/compare/torch/bin/python` of tests/bench/compare has both. Each number is the
least of several repetitions, in microseconds, on one thread.
"""

import json
import pathlib
import platform
import subprocess
import sys
import tempfile
import timeit

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "compiler" / "torch"))

import husk  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from husk import tools  # noqa: E402

SHAPE = (4, 8)
PROGRAM = """hir 1
target cpu host "{arch}"
function forward {{
  input a tensor f32 [1..1024, 8]
  input b tensor f32 [1..1024, 8]
  input c tensor f32 [1..1024, 8]
  output y tensor f32 rank 2
  variant cpu {{
    let n = size(a, 0)
    check_eq(n, size(b, 0))
    check_eq(n, size(c, 0))
    buffer a of input bytes mul(n, 32)
    buffer b of input bytes mul(n, 32)
    buffer c of input bytes mul(n, 32)
    buffer y of output bytes mul(n, 32)
    copy (write y, read a)
    return (tensor y f32 [n, 8] [8, 1])
  }}
}}
"""


def least(call, number=20000, repeat=15):
  """The least time of a call, in microseconds."""
  return min(timeit.repeat(call, number=number, repeat=repeat)) / number * 1e6


def c_call(artifact, folder):
  """The least time of a run in C, in microseconds."""
  report = folder / "bench.json"
  inputs = [f"--input={SHAPE[0]}x{SHAPE[1]}xf32=zeros"] * 3
  command = [tools.find("husk-bench"), str(artifact), *inputs, "--duration-s=1", "--json", report]
  subprocess.run(command, check=True, capture_output=True)
  return json.loads(report.read_text())["results"][0]["run_us"]["least"]


def onnxruntime_call(arrays):
  """The least time of a call of onnxruntime, in microseconds; None if it is not installed."""
  try:
    import onnx
    import onnxruntime
  except ImportError:
    return None
  value = onnx.helper.make_tensor_value_info
  inputs = [value(name, onnx.TensorProto.FLOAT, ["n", SHAPE[1]]) for name in "abc"]
  nodes = [
    onnx.helper.make_node("Add", ["a", "b"], ["t"]),
    onnx.helper.make_node("Add", ["t", "c"], ["y"]),
  ]
  outputs = [value("y", onnx.TensorProto.FLOAT, ["n", SHAPE[1]])]
  graph = onnx.helper.make_graph(nodes, "sum", inputs, outputs)
  model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
  model.ir_version = 8
  options = onnxruntime.SessionOptions()
  options.intra_op_num_threads = 1
  session = onnxruntime.InferenceSession(
    model.SerializeToString(), options, providers=["CPUExecutionProvider"]
  )
  feed = dict(zip("abc", arrays))
  return least(lambda: session.run(None, feed), number=5000)


def main():
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    text, artifact = folder / "three.hir", folder / "three.husk"
    arch = {"x86_64": "x86-64"}.get(platform.machine(), platform.machine())
    text.write_text(PROGRAM.format(arch=arch))
    command = [tools.find("huskc"), str(text), "-o", str(artifact)]
    subprocess.run(command, check=True, capture_output=True)
    program = husk.load(artifact, threads=1)
    tensors = [torch.ones(SHAPE) for _ in range(3)]
    arrays = [np.ones(SHAPE, np.float32) for _ in range(3)]
    out = torch.empty(SHAPE)
    c = c_call(artifact, folder)
    rows = [
      ("C", c),
      ("program(a, b, c), PyTorch", least(lambda: program(*tensors))),
      ("program(a, b, c, out=y), PyTorch", least(lambda: program(*tensors, out=out))),
      ("program(a, b, c), NumPy", least(lambda: program(*arrays))),
    ]
    reference = onnxruntime_call(arrays)
    if reference is not None:
      rows.append(("onnxruntime, session.run(None, feed), NumPy", reference))
  for label, microseconds in rows:
    ratio = "" if reference is None else f", {microseconds / reference:.2f} x onnxruntime"
    print(f"{label:45} {microseconds:6.2f} us, {microseconds - c:5.2f} over C{ratio}")


if __name__ == "__main__":
  main()
