"""The backend of Triton Inference Server on a GPU: values, memory of the GPU, and the throughput of
BERT-base with dynamic batching beside a loop in C at the same batch.

  build/venv-servers/bin/python tests/gpu/triton_server.py pack DIR      # needs no GPU
  python tests/gpu/triton_server.py export DIR [--small] [--target cuda:h200]
  python tests/gpu/triton_server.py run DIR BIN [--clients 64] [--seconds 3] [--rounds 3]
                                                [--groups 2:0 2:1000:32]
                                                [--tool "compute-sanitizer --tool memcheck"]

`pack` writes DIR/server.tar.xz with the server of the wheel nvidia-pytriton, the backend of
HUSK_TRITON and h2load of Debian's nghttp2-client, and DIR/bert.request, which h2load sends.
`export` writes DIR/bert.husk and DIR/dense.husk, and the results of eager PyTorch. `run` unpacks
the server, and takes husk-bench from the folder BIN. All models have instances with KIND_GPU.
"""

import argparse
import base64
import concurrent.futures
import contextlib
import ctypes
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKENS = 128
BATCH = "max_batch_size: 64\ndynamic_batching { max_queue_delay_microseconds: %d %s }\n"
GPU = "instance_group { count: %d kind: KIND_GPU gpus: [ 0 ] }\n"


def pack(folder):
  sys.path[:0] = [str(ROOT / "tests" / "servers"), str(ROOT / "tests" / "bench")]
  import conftest
  import numpy as np
  import triton

  folder.mkdir(parents=True, exist_ok=True)
  program = conftest.tritonserver()
  tokens = np.random.default_rng(0).integers(0, 30000, (1, TOKENS))
  (folder / "bert.request").write_bytes(triton.grpc_request("bert", tokens, "tokens"))
  with tarfile.open(folder / "server.tar.xz", "w:xz", preset=2) as archive:
    archive.add(program, "server/tritonserver")
    archive.add(conftest.library(), "backends/husk/libtriton_husk.so")
    h2load = shutil.which("h2load")
    archive.add(os.path.realpath(h2load), "client/h2load")
    for file, into, wanted in (
      (program, "server", "nvidia_pytriton.libs"),
      (h2load, "client", "nghttp2|jemalloc|libev|ssl|crypto"),
    ):
      for line in subprocess.run(["ldd", file], capture_output=True, text=True).stdout.splitlines():
        found = re.search(r"(\S+) => (\S+)", line)
        if found and re.search(wanted, found[2]):
          archive.add(os.path.realpath(found[2]), f"{into}/{found[1]}")
  print(f"{folder}: {sum(file.stat().st_size for file in folder.iterdir()) >> 20} MiB")


def bert(small):
  import torch
  from transformers import BertConfig, BertModel

  sizes = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128)

  class Bert(torch.nn.Module):
    """The first token's features."""

    def __init__(self):
      super().__init__()
      self.bert = BertModel(BertConfig(attn_implementation="sdpa", **(sizes if small else {})))

    def forward(self, tokens):
      return self.bert(input_ids=tokens).pooler_output

  torch.manual_seed(0)
  return Bert().half().eval(), torch.randint(0, 30000, (32, TOKENS))


def dense(_):
  import torch

  torch.manual_seed(1)
  model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 64))
  return model.eval(), torch.randn(32, 256)


def export(folder, target, small):
  import husk
  import torch

  folder.mkdir(parents=True, exist_ok=True)
  rows = ({0: torch.export.Dim("rows", min=1, max=64)},)
  for make in (bert, dense):
    model, example = make(small)
    model.requires_grad_(False)
    file = folder / f"{make.__name__}.husk"
    husk.export(model, (example,), file, dynamic_shapes=rows, targets=[target])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.no_grad():
      result = model.to(device)(example.to(device)).cpu()
    torch.save((example, result), folder / f"{make.__name__}.pt")
    print(f"{file}: {file.stat().st_size >> 10} KiB", flush=True)


class Server:
  def __init__(self, folder, place, tool, instances, delay, preferred):
    self.place = place
    with tarfile.open(folder / "server.tar.xz") as archive:
      archive.extractall(place, filter="fully_trusted")
    repository = place / "repository"
    for name, file, config in (
      ("bert", "bert", GPU % instances + BATCH % (delay, preferred)),
      ("dense", "dense", GPU % 1),
      ("dense_batched", "dense", GPU % 2 + BATCH % (5000, "")),
    ):
      (repository / name / "1").mkdir(parents=True)
      shutil.copy(folder / f"{file}.husk", repository / name / "1" / "model.husk")
      (repository / name / "config.pbtxt").write_text('backend: "husk"\n' + config)
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
      each.close()
    self.http, self.grpc = ports[:2]
    self.log = place / "server.log"
    command = [*tool, place / "server" / "tritonserver", f"--model-repository={repository}"]
    command += [f"--backend-directory={place / 'backends'}", "--exit-timeout-secs=5"]
    for name, port in zip(("http", "grpc", "metrics"), ports):
      command += [f"--{name}-port={port}"]
    libraries = f"{place / 'server'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    self.process = subprocess.Popen(
      command,
      stdout=self.log.open("w"),
      stderr=subprocess.STDOUT,
      env=os.environ | {"LD_LIBRARY_PATH": libraries},
    )
    for _ in range(1200 if tool else 300):
      if self.process.poll() is not None:
        break
      try:
        if self.call("GET", "/v2/health/ready")[0] == 200:
          return
      except OSError:
        pass
      time.sleep(0.1)
    raise SystemExit(f"the server is not ready:\n{self.log.read_text()[-6000:]}")

  def call(self, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=60)
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, data

  def infer(self, model, body):
    status, data = self.call("POST", f"/v2/models/{model}/infer", json.dumps(body))
    found = json.loads(data)
    if status != 200:
      raise RuntimeError(found.get("error", found))
    return found["outputs"]

  def counts(self, model):
    stats = json.loads(self.call("GET", f"/v2/models/{model}/stats")[1])["model_stats"][0]
    found = {"runs": stats["execution_count"], "rows": stats["inference_count"]}
    for name, part in stats["inference_stats"].items():
      found[name] = part["ns"]
    found["failed"] = stats["inference_stats"]["fail"]["count"]
    return found

  def stop(self):
    # A tool does not hand a signal on.
    for command in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
      with contextlib.suppress(OSError):
        if command.read_text().startswith(f"{self.place}/server/tritonserver\0"):
          os.kill(int(command.parent.name), signal.SIGTERM)
    return self.process.wait(120)


def names(server, model):
  config = json.loads(server.call("GET", f"/v2/models/{model}/config")[1])
  return config["input"][0]["name"], config["output"][0]["name"]


def check_values(server, folder):
  import torch

  x, expected = torch.load(folder / "dense.pt")
  for model in ("dense", "dense_batched"):
    input_name, _ = names(server, model)

    def ask(rows, model=model, input_name=input_name):
      tensor = {"name": input_name, "datatype": "FP32", "shape": list(rows.shape)}
      (output,) = server.infer(model, {"inputs": [tensor | {"data": rows.flatten().tolist()}]})
      return torch.tensor(output["data"]).view(output["shape"])

    parts = [slice(at, at + 1 + at % 3) for at in range(0, 29, 3)] * 20
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
      for part, found in zip(parts, pool.map(lambda part: ask(x[part]), parts)):
        torch.testing.assert_close(found, expected[part], rtol=1e-3, atol=1e-3)
    print(f"ok      {model}: values of {len(parts)} requests, {server.counts(model)['runs']} runs")


class Region:
  """Memory of the GPU that is registered as CUDA shared memory."""

  def __init__(self, server, name, size):
    self.cuda = ctypes.CDLL("libcuda.so.1")
    self.address, self.size = ctypes.c_uint64(), size
    self.check(self.cuda.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(size)))
    handle = (ctypes.c_char * 64)()
    self.check(self.cuda.cuIpcGetMemHandle(ctypes.byref(handle), self.address))
    body = {"raw_handle": {"b64": base64.b64encode(bytes(handle.raw)).decode()}}
    body |= {"device_id": 0, "byte_size": size}
    status, data = server.call(
      "POST", f"/v2/cudasharedmemory/region/{name}/register", json.dumps(body)
    )
    assert status == 200, data

  def check(self, result):
    assert result == 0, f"error {result} of the driver"

  def write(self, offset, tensor):
    data = tensor.numpy().tobytes()
    at = ctypes.c_uint64(self.address.value + offset)
    self.check(self.cuda.cuMemcpyHtoD_v2(at, data, ctypes.c_size_t(len(data))))

  def read(self, offset, like):
    import torch

    data = bytearray(like.numel() * like.element_size())
    target = (ctypes.c_char * len(data)).from_buffer(data)
    at = ctypes.c_uint64(self.address.value + offset)
    self.check(self.cuda.cuMemcpyDtoH_v2(target, at, ctypes.c_size_t(len(data))))
    return torch.frombuffer(data, dtype=like.dtype).view(like.shape)


def check_shared_memory(server, folder):
  import torch

  torch.zeros(1, device="cuda")  # makes a context current
  x, expected = torch.load(folder / "dense.pt")
  region = Region(server, "region", 1 << 20)
  for model in ("dense", "dense_batched"):
    input_name, wanted = names(server, model)
    for offset in (0, 256, 20):  # the last one suits no kernel
      for rows in (1, 5, 32):
        part, result = x[:rows].contiguous(), expected[:rows]
        region.write(offset, part)
        place = {"shared_memory_region": "region"}
        there = place | {
          "shared_memory_offset": offset,
          "shared_memory_byte_size": part.numel() * 4,
        }
        back = place | {
          "shared_memory_offset": (1 << 19) + offset,
          "shared_memory_byte_size": result.numel() * 4,
        }
        tensor = {"name": input_name, "datatype": "FP32", "shape": list(part.shape)}
        server.infer(
          model,
          {
            "inputs": [tensor | {"parameters": there}],
            "outputs": [{"name": wanted, "parameters": back}],
          },
        )
        torch.testing.assert_close(
          region.read((1 << 19) + offset, result), result, rtol=1e-3, atol=1e-3
        )
    print(f"ok      {model}: inputs and outputs in memory of the GPU")


def check_errors(server):
  input_name, _ = names(server, "dense")
  for rows, width, text in ((65, 256, input_name), (1, 255, input_name)):
    tensor = {
      "name": input_name,
      "datatype": "FP32",
      "shape": [rows, width],
      "data": [0] * rows * width,
    }
    try:
      server.infer("dense", {"inputs": [tensor]})
    except RuntimeError as error:
      assert text in str(error), error
    else:
      raise AssertionError("nothing was refused")
  print("ok      wrong shapes are refused")


def load(server, folder, clients, count):
  """Sends `count` requests; returns rows per second and the server's counts of the time."""
  client = server.place / "client"
  command = [client / "h2load", "-t4", f"-c{clients}", "-m1", f"-n{count}"]
  command += ["-d", folder / "bert.request", "-H", "content-type: application/grpc"]
  command += ["-H", "te: trailers"]
  url = f"http://127.0.0.1:{server.grpc}/inference.GRPCInferenceService/ModelInfer"
  before, start = server.counts("bert"), time.monotonic()
  environment = os.environ | {"LD_LIBRARY_PATH": str(client)}
  subprocess.run([*command, url], check=True, capture_output=True, env=environment)
  elapsed = time.monotonic() - start
  after = server.counts("bert")
  values = {key: after[key] - before[key] for key in after}
  assert values["failed"] == 0 and values["rows"] == count, values
  return count / elapsed, values


def bare(binary, artifact, batch):
  """Rows per second of a loop in C: each run is waited for, or the next one is enqueued before."""
  with tempfile.TemporaryDirectory() as place:
    report = pathlib.Path(place) / "report.json"
    command = [binary / "husk-bench", artifact, "--device=cuda", "--duration-s=1"]
    command += [f"--shapes=0={batch}x{TOKENS}", f"--json={report}"]
    subprocess.run(command, check=True, capture_output=True)
    text = report.read_text()
  (result,) = json.loads(text)["results"]
  found = {"each run waited for": batch * 1e6 / result["run_us"]["median"]}
  if queued := result.get("queued_us"):
    found["the next run enqueued"] = batch * 1e6 / queued
  return found


def measure(server, folder, binary, options):
  load(server, folder, options.clients, 20 * options.clients)
  rate, _ = load(server, folder, options.clients, 40 * options.clients)
  count = max(options.clients, int(rate * options.seconds))
  rates, sizes, waits = [], [], []
  for _ in range(options.rounds):
    rate, values = load(server, folder, options.clients, count)
    rates.append(rate)
    sizes.append(values["rows"] / values["runs"])
    waits.append(values["compute_infer"] / values["rows"] / 1000)
  batch = round(statistics.median(sizes))
  rate = statistics.median(rates)
  print(
    f"BERT under Triton, {options.clients} clients: {rate:.0f} rows/s, {batch} rows a run; "
    f"a request waits {statistics.median(waits):.0f} µs for its run"
  )
  for size in sorted({batch, min(64, 2 * batch)}):
    for name, other in bare(binary, folder / "bert.husk", size).items():
      print(
        f"  a loop in C, {name}, {size} rows a run: {other:.0f} rows/s; "
        f"Triton ÷ it {rate / other:.2f}"
      )


def run(folder, binary, options):
  for number, group in enumerate(options.groups):
    instances, delay, *sizes = map(int, group.split(":"))
    preferred = f"preferred_batch_size: {sizes}" if sizes else ""
    print(f"BERT with {instances} instances, a delay of {delay} µs, {preferred or 'any batch'}")
    with tempfile.TemporaryDirectory() as place:
      place = pathlib.Path(place)
      server = Server(folder, place, options.tool.split(), instances, delay, preferred)
      try:
        if number == 0:
          check_values(server, folder)
          check_shared_memory(server, folder)
          check_errors(server)
        if not options.tool:
          measure(server, folder, binary, options)
      except Exception:
        print(server.log.read_text()[-5000:])
        raise
      finally:
        status = server.stop()
      print(f"the server ended with {status}")
      if options.tool:
        print(*re.findall("=========.*", server.log.read_text())[-12:], sep="\n")
      assert status == 0


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("command", choices=["pack", "export", "run"])
  parser.add_argument("folder", type=pathlib.Path)
  parser.add_argument("binary", type=pathlib.Path, nargs="?")
  parser.add_argument("--target", default="cuda:h200")
  parser.add_argument("--small", action="store_true")
  parser.add_argument(
    "--groups",
    nargs="+",
    default=["2:0"],
    metavar="INSTANCES:DELAY[:SIZE...]",
    help="instances of BERT, microseconds that a batch waits, batch sizes that are preferred",
  )
  parser.add_argument("--tool", default="", help="compute-sanitizer with options; only checks")
  parser.add_argument("--clients", type=int, default=64)
  parser.add_argument("--seconds", type=float, default=3)
  parser.add_argument("--rounds", type=int, default=3)
  options = parser.parse_args()
  folder = options.folder.resolve()
  if options.command == "pack":
    pack(folder)
  elif options.command == "export":
    export(folder, options.target, options.small)
  else:
    run(folder, options.binary.resolve(), options)


if __name__ == "__main__":
  main()
