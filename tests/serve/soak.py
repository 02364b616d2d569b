"""Puts MLServer with models of Husk under load for a time, and fails if an answer is wrong or lost,
if the server ends, or if its memory grows.

  HUSKC=… build/venv-mlserver/bin/python tests/serve/soak.py SECONDS

At the same time, clients send right requests over HTTP and gRPC to models that are replaced every
second, requests that name a function, sequences of requests, streams, and wrong requests; other
clients close their connections. tests/servers/soak.py is the same for Triton Inference Server.
"""

import json
import pathlib
import socket
import sys
import tempfile
import threading
import time
import traceback

import grpc
import numpy as np
from conftest import HANG, PROGRAMS, WEIGHT, compile_text, continued, linear, linear_2, tensor
from test_mlserver import GENERATE, GRPCInferenceServiceStub, Server, pb

LINEAR = {"extra": {"function": "linear", "sessions": 2}}
BATCHED = LINEAR | {"max_batch_size": 16, "max_batch_time": 0.002}


def is_linear(y, x):
  """Whether one of the two artifacts, which replace one another, has answered."""
  return any(np.allclose(y, each(x), rtol=1e-4, atol=1e-4) for each in (linear, linear_2))


class Soak:
  def __init__(self, server, seconds):
    self.server = server
    self.end = time.monotonic() + seconds
    self.counts, self.failures = {}, []

  def repeat(self, client, seed):
    """Calls `client` until the time is over; whatever it raises is a failure."""
    random = np.random.default_rng(seed)
    while time.monotonic() < self.end and len(self.failures) < 10:
      try:
        count = client(random)
        self.counts[client.__name__] = self.counts.get(client.__name__, 0) + count
      except Exception:
        self.failures.append(f"{client.__name__}: {traceback.format_exc()}")

  def rows(self, random):
    return random.standard_normal((random.integers(1, 5), 3)).astype(np.float32)

  def right(self, random):
    x = self.rows(random)
    outputs = self.server.infer(str(random.choice(["linear", "batched"])), {"x": x}).outputs
    assert is_linear(outputs["y"], x), (x, outputs)
    np.testing.assert_allclose(outputs["z"], x, rtol=1e-6)
    return 1

  def right_grpc(self, random):
    """Ten requests on a connection."""
    with grpc.insecure_channel(f"127.0.0.1:{self.server.grpc_port}") as channel:
      stub = GRPCInferenceServiceStub(channel)
      for _ in range(10):
        x = self.rows(random)
        message = pb.ModelInferRequest(model_name=str(random.choice(["linear", "batched"])))
        message.inputs.add(name="x", datatype="FP32", shape=x.shape)
        message.raw_input_contents.append(x.tobytes())
        answer = stub.ModelInfer(message, timeout=HANG)
        y = np.frombuffer(answer.raw_output_contents[0], "f4").reshape(answer.outputs[0].shape)
        assert is_linear(y, x), (x, y)
    return 10

  def choose(self, random):
    """A function that the request names. Some indices are out of range."""
    rows = random.integers(0, 4, 2)
    answer = self.server.infer("linear", {"rows": rows}, function="pick")
    if rows.max() > 2:
      assert answer.status == 400 and "index" in answer.error, answer.text
    else:
      np.testing.assert_array_equal(answer.outputs["picked"], WEIGHT[rows])
    return 1

  def sequence(self, random):
    name, total = str(random.integers(1 << 40)), 10.0
    length = int(random.integers(1, 20))
    for step in range(length):
      x = random.integers(-5, 5, (1, 1)).astype(np.float32).repeat(2, 1)
      total += float(x[0, 0])
      flags = {"sequence_start": step == 0, "sequence_end": step == length - 1}
      answer = self.server.infer("state", {"x": x}, sequence_id=name, **flags)
      assert answer.outputs["sum"][0, 0] == total, (answer.text, total)
    return length

  def stream(self, random):
    prompt = random.integers(0, 8, random.integers(1, 7)).tolist()
    count = int(random.integers(1, 30))
    tokens, error = self.server.stream("stream", prompt, max_tokens=count)
    assert not error and tokens == continued(prompt, count), (tokens, error)
    return 1

  def wrong(self, random):
    """A request whose parts do not fit one another, or no request at all."""
    if random.integers(10) == 0:
      body = random.bytes(int(random.integers(0, 200)))
      answer = self.server.send("POST", "/v2/models/linear/infer", body)
      assert answer.status in (400, 422), answer.text
      return 1
    sizes = [0, 1, 2, 3, 64, 65, 1 << 31, 1 << 62, (1 << 63) - 1, -1]
    one = {
      "name": str(random.choice(["x", "x", "rows", ""])),
      "datatype": str(random.choice(["FP32", "FP32", "INT64", "BYTES", "FP16", "BOOL", "FP8"])),
      "shape": [int(random.choice(sizes)) for _ in range(random.integers(0, 4))],
      "data": [1.5] * int(random.choice([0, 1, 3, 6, 9])),
    }
    answer = self.server.infer(str(random.choice(["linear", "batched", "state"])), [one])
    assert answer.status in (200, 400, 422) and "Traceback" not in answer.text, answer.text
    return 1

  def vanish(self, random):
    """Clients that close their connection after a part of the request or all of it."""
    model, action = "linear", "infer"
    body = {"inputs": [tensor("x", np.ones((60, 3), np.float32))]}
    if random.integers(2):
      model, action = "stream", "infer_stream"
      body = {"inputs": [tensor("tokens", np.array([3]))], "parameters": {"max_tokens": 50}}
    text = json.dumps(body).encode()
    head = f"POST /v2/models/{model}/{action} HTTP/1.1\r\nHost: localhost\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    request = head.encode() + text
    with socket.create_connection(("127.0.0.1", self.server.port)) as connection:
      connection.sendall(request[: random.integers(1, len(request) + 1)])
    time.sleep(0.02)
    return 1

  def reload(self, random):
    time.sleep(1)
    artifact = str(random.choice(["functions", "functions-2"]))
    self.server.load("linear", artifact, **LINEAR)
    self.server.load("batched", artifact, **BATCHED)
    return 1


def resident(pid):
  lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
  return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) // 1024


def main():
  seconds = float(sys.argv[1])
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    for text in PROGRAMS.glob("*.hir"):
      compile_text(text, folder / f"{text.stem}.husk")
    other = (PROGRAMS / "functions.hir").read_text()
    (folder / "2.hir").write_text(other.replace('"0000003f000000bf"', '"0000204100002041"'))
    compile_text(folder / "2.hir", folder / "functions-2.husk")
    server = Server(folder, folder)
    server.load("linear", **LINEAR)
    server.load("batched", **BATCHED)
    server.load("state", "state")
    server.load("stream", "generate", extra=GENERATE)
    soak = Soak(server, seconds)
    clients = [soak.right, soak.right, soak.right_grpc, soak.choose, soak.sequence, soak.stream]
    clients += [soak.wrong, soak.vanish, soak.reload]
    threads = [
      threading.Thread(target=soak.repeat, args=(client, seed))
      for seed, client in enumerate(clients)
    ]
    for thread in threads:
      thread.start()
    memory, process = [], server.process.process
    while any(thread.is_alive() for thread in threads):
      for thread in threads:
        thread.join(max(1.0, seconds / 20) / len(threads))
      if process.poll() is None:
        memory.append(resident(process.pid))
    alive = process.poll() is None
    status = server.process.stop()
    print("requests:", ", ".join(f"{name} {count}" for name, count in soak.counts.items()))
    print("resident memory in MB:", *memory)
    print(f"the server {'ended with' if alive else 'crashed:'} {status}")
    for failure in soak.failures:
      print(failure)
    if soak.failures or not alive or status != 0:
      print(server.process.log.read_text()[-4000:])
      sys.exit(1)
    # The first fifth is the time in which sessions of all kinds come to be.
    settled = memory[len(memory) // 5]
    if max(memory) > settled * 1.2 + 16:
      sys.exit("the memory has grown")


if __name__ == "__main__":
  main()
