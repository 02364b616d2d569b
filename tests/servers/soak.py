"""Puts a server under load for a time, and fails if an answer is wrong or lost, if the server ends,
or if its memory grows.

  HUSK_TRITON=… HUSKC=… build/venv-servers/bin/python tests/servers/soak.py SECONDS [--no-cancel]

At the same time, clients send right requests over HTTP and gRPC to models that are loaded again
every second, sequences of requests, wrong requests, and requests that they cancel; other clients
close their connections. Cancelled requests may crash this version of the server, with any backend:
--no-cancel leaves them out.
"""

import http.client
import json
import pathlib
import socket
import sys
import tempfile
import threading
import time
import traceback

import numpy as np
import tritonclient.grpc
from conftest import FUNCTIONS, HERE, STREAM, TABLE, Server, compile_text, continued, linear, stream
from tritonclient.utils import InferenceServerException

BATCHED = "max_batch_size: %d\ndynamic_batching { max_queue_delay_microseconds: 500 }\n"
CHOICE = 'parameters { key: "functions" value { string_value: "linear, transpose, pick" } }\n'
# On a busy machine a client may wait between two requests for longer than the default, a second.
SEQUENCES = """
  sequence_batching {
    max_sequence_idle_microseconds: 60000000
    oldest { max_candidate_sequences: 16 }
  }
"""


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

  def right(self, random, client="http"):
    x = random.standard_normal((random.integers(1, 5), 3)).astype(np.float32)
    outputs = self.server.infer("batched", {"x": x}, client)
    np.testing.assert_allclose(outputs["y"], linear(x), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(outputs["z"], x)
    return 1

  def right_grpc(self, random):
    return self.right(random, "grpc")

  def places(self, random):
    x = random.integers(0, 2, random.integers(0, 2000)).astype(np.float32)
    outputs = self.server.infer("nonzero", {"x": x})
    np.testing.assert_array_equal(outputs["places"], np.argwhere(x))
    return 1

  def indices(self, random):
    """Some of them are out of range."""
    rows = random.integers(-3, 5, (2, 1))
    try:
      picked = self.server.infer("pick", {"rows": rows}, "grpc")["picked"]
      np.testing.assert_array_equal(picked, TABLE[rows[:, 0]])
    except InferenceServerException as error:
      assert rows.max() > 2 and "index" in error.message(), error
    return 1

  def choose(self, random):
    """A model of several functions: each request names one."""
    x = random.standard_normal((random.integers(1, 5), 3)).astype(np.float32)
    client = str(random.choice(["http", "grpc"]))
    function = str(random.choice(["linear", "transpose", "pick"]))
    rows = random.integers(0, 3, 2)
    inputs = {"rows": rows} if function == "pick" else {"x": x}
    outputs = self.server.infer("chosen", inputs, client, parameters={"function": function})
    if function == "linear":
      np.testing.assert_allclose(outputs["y"], linear(x), rtol=1e-5, atol=1e-5)
    elif function == "transpose":
      np.testing.assert_array_equal(outputs["y"], x.T)
    else:
      np.testing.assert_array_equal(outputs["picked"], TABLE[rows])
    return 1

  def sequence(self, random):
    number, total = int(random.integers(1, 1 << 40)), 10.0
    length = int(random.integers(1, 20))
    for step in range(length):
      x = random.integers(-5, 5, (1, 1)).astype(np.float32).repeat(2, 1)
      total += float(x[0, 0])
      flags = dict(sequence_start=step == 0, sequence_end=step == length - 1)
      sums = self.server.infer("sums", {"x": x}, "grpc", sequence_id=number, **flags)["sum"]
      assert sums[0, 0] == total, (sums, total)
    return length

  def stream(self, random):
    """None is cancelled: this server may keep a model for ever after that, whatever its backend."""
    prompt = random.integers(0, 8, random.integers(1, 7))
    count = int(random.integers(1, 30))
    tokens, error = stream(self.server, prompt, max_tokens=count)
    assert not error and tokens == continued(prompt, count), (tokens, error)
    return 1

  def wrong(self, random):
    """100 requests whose parts do not fit one another."""
    connection = http.client.HTTPConnection("127.0.0.1", self.server.http_port, timeout=20)
    sizes = [0, 1, 2, 3, 64, 65, 1 << 31, 1 << 61, 1 << 62, (1 << 62) + 1, (1 << 63) - 1]
    for _ in range(100):
      shape = [int(random.choice(sizes)) for _ in range(random.integers(0, 4))]
      size = int(random.choice([0, 3, 4, 8, 12, 24, 36]))
      described = {
        "name": str(random.choice(["x", "x", "x", "rows", "n", ""])),
        "datatype": str(random.choice(["FP32", "FP32", "INT64", "BYTES", "FP16", "BOOL"])),
        "shape": shape,
        "parameters": {"binary_data_size": size},
      }
      head = json.dumps({"inputs": [described]}).encode()
      model = str(random.choice(["batched", "nonzero", "pick", "transpose", "sums"]))
      connection.request(
        "POST",
        f"/v2/models/{model}/infer",
        head + random.bytes(size),
        {"Inference-Header-Content-Length": str(len(head))},
      )
      answer = connection.getresponse()
      text = answer.read()
      assert answer.status in (200, 400), (answer.status, text)
    connection.close()
    return 100

  def vanish(self, random):
    """Clients over HTTP that close their connection after a part of the request or all of it."""
    x = np.ones((4000, 3), np.float32)
    head = {"name": "x", "datatype": "FP32", "shape": list(x.shape)}
    head["parameters"] = {"binary_data_size": x.nbytes}
    head = json.dumps({"inputs": [head]}).encode()
    lines = ["POST /v2/models/transpose/infer HTTP/1.1", "Host: localhost"]
    lines += [f"Inference-Header-Content-Length: {len(head)}"]
    lines += [f"Content-Length: {len(head) + x.nbytes}", "", ""]
    request = "\r\n".join(lines).encode() + head + x.tobytes()
    for _ in range(4):
      with socket.create_connection(("127.0.0.1", self.server.http_port)) as connection:
        connection.sendall(request[: random.integers(1, len(request) + 1)])
    time.sleep(0.01)
    return 4

  def cancel(self, random):
    x = np.ones((4000, 3), np.float32)
    tensor = tritonclient.grpc.InferInput("x", list(x.shape), "FP32")
    tensor.set_data_from_numpy(x)
    with self.server.grpc_client() as client:
      client.start_stream(lambda result, error: None)
      for _ in range(10):
        client.async_stream_infer("transpose", [tensor])
      client.stop_stream(cancel_requests=True)
    time.sleep(0.02)
    return 10

  def reload(self, random):
    """Other sizes, so that the server takes the configuration for a new one."""
    time.sleep(1)
    rows = int(random.integers(8, 60))
    self.server.load("batched", function="linear", config=BATCHED % rows)
    self.server.load("nonzero", function="nonzero", config=f"# {time.monotonic()}\n")
    return 1


def resident(process):
  lines = pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines()
  return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) // 1024


def main():
  seconds = float(sys.argv[1])
  with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    for text in HERE.glob("*.hir"):
      compile_text(text, folder / f"{text.stem}.husk")
    server = Server(folder, folder)
    two = "instance_group { count: 2 kind: KIND_CPU }\n"
    server.load("batched", function="linear", config=BATCHED % 64)
    server.load("nonzero", function="nonzero", config=two)
    server.load("pick", function="pick", config=BATCHED % 64)
    server.load("transpose", function="transpose", config=two)
    server.load("chosen", config=two + CHOICE)
    server.load("stream", "generate", config=STREAM + FUNCTIONS + two)
    server.load("sums", "state", config=SEQUENCES + two)
    soak = Soak(server, seconds)
    clients = [soak.right, soak.right_grpc, soak.right_grpc, soak.places, soak.indices, soak.choose]
    clients += [soak.sequence, soak.sequence, soak.wrong, soak.vanish, soak.reload]
    clients += [soak.stream, soak.stream]
    if "--no-cancel" not in sys.argv:
      clients.append(soak.cancel)
    threads = [
      threading.Thread(target=soak.repeat, args=(client, seed))
      for seed, client in enumerate(clients)
    ]
    for thread in threads:
      thread.start()
    memory = []
    while any(thread.is_alive() for thread in threads):
      for thread in threads:
        thread.join(max(1.0, seconds / 20) / len(threads))
      if server.is_alive():
        memory.append(resident(server.process))
    alive = server.is_alive()
    server.exit_statuses = {0, 1}  # 1: a model stays live after requests were cancelled
    status = server.stop()
    print("requests:", ", ".join(f"{name} {count}" for name, count in soak.counts.items()))
    print("resident memory in MB:", *memory)
    print(f"the server {'ended with' if alive else 'crashed:'} {status}")
    for failure in soak.failures:
      print(failure)
    if soak.failures or not alive or status not in server.exit_statuses:
      print(server.log.read_text()[-4000:])
      sys.exit(1)
    # The first fifth is the time in which arenas of all kinds come to be.
    settled = memory[len(memory) // 5]
    if max(memory) > settled * 1.2 + 16:
      sys.exit("the memory has grown")


if __name__ == "__main__":
  main()
