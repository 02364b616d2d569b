"""Measures the backend of Triton Inference Server beside Triton's Python backend with onnxruntime.

  build/venv-servers/bin/python tests/bench/triton.py [--model mlp|bert-small] [--seconds S]
                                                      [--rounds N] [--clients N...]
                                                      [--protocol grpc|http]

Both serve one model with one thread and one row a request, over gRPC, or over HTTP with binary
tensors. h2load of Debian's nghttp2-client is the client; it needs less of the machine than a client
in Python. The throughput is that of the server's own statistics. Rounds of all models take turns,
and the table has the median of each. `pip install onnxruntime "numpy<2"` into build/venv-servers
and `python3 tests/bench/compare.py --setup` come before.

The last lines are the time of a request inside of the backend by the server's statistics: all of
the execution, and the run of the function in it. Their difference includes sending the response.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "servers"))
import conftest  # noqa: E402

OUT = ROOT / "build" / "bench-triton"
BATCH = "max_batch_size: 64\ndynamic_batching { }\n"

MODELS = {
  # by name: the datatype, the numbers of a row, the results of a row
  "mlp": ("FP32", 32, 10),
  "bert-small": ("INT64", 128, 512),
}

PYTHON_CONFIG = """
input {{ name: "input" data_type: TYPE_{datatype} dims: [{rows}{width}] }}
output {{ name: "output" data_type: TYPE_FP32 dims: [{rows}{results}] }}
"""

# The stub of the Python backend ignores PYTHONPATH.
PYTHON_MODEL = """
import sys
sys.path[:0] = {path!r}
import onnxruntime
import triton_python_backend_utils as pb
import numpy as np

class TritonPythonModel:
  def initialize(self, args):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    self.session = onnxruntime.InferenceSession({onnx!r}, options)

  def execute(self, requests):
    inputs = [pb.get_input_tensor_by_name(each, "input").as_numpy() for each in requests]
    joined = inputs[0] if len(inputs) == 1 else np.concatenate(inputs)
    (output,) = self.session.run(None, {{"input": joined}})
    responses, row = [], 0
    for each in inputs:
      rows = output[row : row + len(each)]
      row += len(each)
      responses.append(pb.InferenceResponse([pb.Tensor("output", rows)]))
    return responses
"""


def prepare(model):
  shutil.rmtree(OUT, ignore_errors=True)
  OUT.mkdir(parents=True)
  huskc = os.environ.get("HUSKC", str(ROOT / "build" / "release" / "bin" / "huskc"))
  environment = os.environ | {"PYTHONPATH": str(ROOT / "compiler" / "torch"), "HUSKC": huskc}
  python = ROOT / "build" / "compare" / "torch" / "bin" / "python"
  command = [python, ROOT / "tests" / "bench" / "triton_models.py", model]
  subprocess.run(command, check=True, cwd=OUT, env=environment, stdout=subprocess.DEVNULL)

  server = conftest.tritonserver().parents[1]
  backends = OUT / "backends"
  shutil.copytree(server / "backends" / "python", backends / "python")
  version = f"{sys.version_info.major}.{sys.version_info.minor}"
  stub = backends / "python" / "triton_python_backend_stub"
  shutil.copyfile(server / "python_backend_stubs" / version / stub.name, stub)
  stub.chmod(0o755)
  (backends / "husk").mkdir()
  shutil.copy(conftest.library(), backends / "husk")
  return backends


def write_models(repository, model):
  paths = [path for path in sys.path if path.endswith("site-packages")]
  for batched in [False, True]:
    suffix = "_batched" if batched else ""
    instance = "instance_group { count: 1 kind: KIND_CPU }\n" + (BATCH if batched else "")
    for backend, file in [("husk", "model.husk"), ("python", "model.py")]:
      folder = repository / f"{backend}{suffix}"
      (folder / "1").mkdir(parents=True)
      config = f'backend: "{backend}"\n{instance}'
      if backend == "husk":
        shutil.copy(OUT / "model.husk", folder / "1" / file)
      else:
        datatype, width, results = MODELS[model]
        rows = "" if batched else "-1, "
        config += PYTHON_CONFIG.format(datatype=datatype, rows=rows, width=width, results=results)
        text = PYTHON_MODEL.format(path=paths, onnx=str(OUT / "model.onnx"))
        (folder / "1" / file).write_text(text)
      (folder / "config.pbtxt").write_text(config)


def counts(server, model):
  stats = server.http.get_inference_statistics(model)["model_stats"][0]
  parts = stats["inference_stats"]
  values = {"requests": int(parts["success"]["count"]), "failed": int(parts["fail"]["count"])}
  for name in ["compute_input", "compute_infer", "compute_output"]:
    values[name] = int(parts[name]["ns"])
  values["runs"] = int(stats["execution_count"])
  return values


def measure(server, model, tensor, clients, count, protocol):
  """Sends `count` requests with a tensor. Returns requests per second, and the server's counts."""
  command = ["h2load", "-t1", f"-c{clients}", "-m1", f"-n{count}", "-d", OUT / "request"]
  if protocol == "grpc":
    body = grpc_request(model, tensor)
    command += ["-H", "content-type: application/grpc", "-H", "te: trailers"]
    url = f"http://127.0.0.1:{server.grpc_port}/inference.GRPCInferenceService/ModelInfer"
  else:
    body, header = http_request(tensor)
    command += ["--h1", "-H", "content-type: application/octet-stream"]
    command += ["-H", f"inference-header-content-length: {header}"]
    url = f"http://127.0.0.1:{server.http_port}/v2/models/{model}/infer"
  (OUT / "request").write_bytes(body)
  before, start = counts(server, model), time.monotonic()
  subprocess.run([*command, url], check=True, capture_output=True)
  elapsed = time.monotonic() - start
  after = counts(server, model)
  values = {key: after[key] - before[key] for key in after}
  assert values["failed"] == 0 and values["requests"] == count, values
  return values["requests"] / elapsed, values


def grpc_request(model, tensor, name="input"):
  import tritonclient.grpc.service_pb2 as pb

  message = pb.ModelInferRequest(model_name=model)
  message.inputs.add(name=name, datatype=conftest.datatype(tensor), shape=tensor.shape)
  message.raw_input_contents.append(tensor.tobytes())
  body = message.SerializeToString()
  return b"\0" + struct.pack(">I", len(body)) + body


def http_request(tensor):
  """Returns the body of a request, and the bytes of the JSON with which it begins."""
  import tritonclient.http as client

  request_input = client.InferInput("input", tensor.shape, conftest.datatype(tensor))
  request_input.set_data_from_numpy(tensor)
  wanted = client.InferRequestedOutput("output")
  return client.InferenceServerClient.generate_request_body([request_input], outputs=[wanted])


def random_rows(model, count):
  datatype, width, _ = MODELS[model]
  random = np.random.default_rng(0)
  if datatype == "INT64":
    return random.integers(0, 30000, (count, width))
  return random.standard_normal((count, width)).astype(np.float32)


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--model", choices=list(MODELS), default="mlp")
  parser.add_argument("--seconds", type=int, default=3)
  parser.add_argument("--rounds", type=int, default=5)
  parser.add_argument("--clients", type=int, nargs="+", default=[1, 16])
  parser.add_argument("--protocol", choices=["grpc", "http"], default="grpc")
  arguments = parser.parse_args()
  default = ROOT / "build/release/lib/triton/husk/libtriton_husk.so"
  os.environ.setdefault("HUSK_TRITON", str(default))
  backends = prepare(arguments.model)
  libraries = conftest.tritonserver().parents[3] / "nvidia_pytriton.libs"
  os.environ["LD_LIBRARY_PATH"] = str(libraries)
  write_models(OUT / "repository", arguments.model)
  server = conftest.Server(OUT, OUT, f"--backend-directory={backends}")
  try:
    names = [backend + batch for batch in ["", "_batched"] for backend in ["husk", "python"]]
    x = random_rows(arguments.model, 3)
    answers = []
    for name in names:
      server.http.load_model(name)
      answers.append(server.infer(name, {"input": x}, "grpc")["output"])
    for answer in answers:
      np.testing.assert_allclose(
        answer, answers[0], atol=1e-5 if arguments.model == "mlp" else 1e-3
      )

    rates, inside = {}, {}
    for clients in arguments.clients:
      # A round has the requests of about so many seconds. (A limit of time would make h2load cut
      # its connections, and the server cancel requests.)
      count = {}
      for name in names:
        first = 1000 if arguments.model == "mlp" else 32
        measure(server, name, x[:1], clients, first, arguments.protocol)
        rate = measure(server, name, x[:1], clients, first, arguments.protocol)[0]
        count[name] = max(clients, int(rate * arguments.seconds))
      for _ in range(arguments.rounds):
        for name in names:
          rate, values = measure(server, name, x[:1], clients, count[name], arguments.protocol)
          rates.setdefault((name, clients), []).append(rate)
          inside.setdefault((name, clients), []).append(values)
    by = {"grpc": "gRPC", "http": "HTTP"}[arguments.protocol]
    print(f"| requests/s over {by} |" + "".join(f" {n} clients |" for n in arguments.clients))
    print("| --- |" + " ---: |" * len(arguments.clients))
    median = {key: statistics.median(value) for key, value in rates.items()}
    for name in names:
      print(f"| {name} |" + "".join(f" {median[name, n]:.0f} |" for n in arguments.clients))
    for batch in ["", "_batched"]:
      pairs = [(median[f"husk{batch}", n], median[f"python{batch}", n]) for n in arguments.clients]
      print(f"| husk{batch} ÷ python{batch} |" + "".join(f" {a / b:.2f} |" for a, b in pairs))
    for (name, clients), rounds in inside.items():
      if not name.startswith("husk"):
        continue
      parts = {}
      for key in ["compute_input", "compute_infer", "compute_output"]:
        parts[key] = statistics.median(each[key] / each["requests"] / 1000 for each in rounds)
      size = statistics.median(each["requests"] / each["runs"] for each in rounds)
      print(
        f"{name}, {clients} clients: {size:.1f} requests a run; a request: reading "
        f"{parts['compute_input']:.1f} µs, running {parts['compute_infer']:.1f} µs, "
        f"copying and sending {parts['compute_output']:.1f} µs"
      )
  finally:
    server.stop()


if __name__ == "__main__":
  main()
