"""Puts servers under load for a time, and fails if an answer is wrong or lost, if the backend has
damaged a server, or if the memory of a server grows.

  HUSK_TRITON=… HUSKC=… build/venv-servers/bin/python tests/servers/soak.py SECONDS

Clients send right requests over HTTP and gRPC to models that are loaded again every second,
sequences of requests and streams, and compare all answers. At the same time other clients send
wrong requests of many kinds, and close their connections over HTTP.

This version of the server may crash, with any backend, after gRPC clients cancel requests or
vanish. So a second server has these clients, beside right ones. If it crashes and its stack has no
function of the backend, it is started again, and the table has the number of these crashes and of
the right requests that got no answer.

With HUSK_SERVER_PRELOAD, the library of AddressSanitizer, and HUSK_TRITON, a backend of the preset
`fuzz`, each report of a sanitizer is a failure, unless it ends the second server and has no
function of the backend. Memory is not judged then.
"""

import http.client
import json
import os
import pathlib
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback

import grpc
import numpy as np
import tritonclient.grpc
import tritonclient.grpc.service_pb2 as pb
from conftest import (
  FUNCTIONS,
  HANG,
  HERE,
  STREAM,
  TABLE,
  Server,
  compile_text,
  continued,
  library,
  linear,
  stream,
)
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


# Under a sanitizer the server may wait for ever in the exit handler of a library of its wheel,
# libp11-kit, when all else has ended. Freed memory is kept for a while, and leaks are not looked
# for, since the server has some. Stacks name the library of each function.
SANITIZED = bool(os.environ.get("HUSK_SERVER_PRELOAD"))
FRAME = "    #%n %p in %f %S (%m+%o)"
os.environ.setdefault(
  "ASAN_OPTIONS", f"detect_leaks=0:quarantine_size_mb=16:stack_trace_format='{FRAME}'"
)


class Soak:
  """The clients of one server."""

  def __init__(self, folder, end, may_crash=False):
    """`may_crash`: the server, by itself."""
    self.folder, self.end, self.may_crash = folder, end, may_crash
    self.counts, self.failures = {}, []
    self.crashes = self.unanswered = 0
    self.lock = threading.Lock()
    self.memory = []  # seconds and megabytes, by server that was started
    self.start()

  def start(self):
    folder = self.folder / str(self.crashes)
    folder.mkdir(parents=True)
    limit = 5 if self.may_crash else HANG
    self.server = server = Server(folder, self.folder.parent, exit_timeout=limit)
    two = "instance_group { count: 2 kind: KIND_CPU }\n"
    server.load("batched", function="linear", config=BATCHED % 64)
    server.load("nonzero", function="nonzero", config=two)
    server.load("pick", function="pick", config=BATCHED % 64)
    server.load("transpose", function="transpose", config=two)
    server.load("chosen", config=two + CHOICE)
    server.load("stream", "generate", config=STREAM + FUNCTIONS + two)
    server.load("sums", "state", config=SEQUENCES + two)
    self.memory.append([])

  def repeat(self, client, seed):
    """Calls `client` until the time is over; whatever it raises is a failure, unless the server has
    crashed by itself, and may."""
    random = np.random.default_rng(seed)
    while time.monotonic() < self.end and len(self.failures) < 10:
      server = self.server
      try:
        self.count(client.__name__, client(random))
      except Exception as error:
        text = f"{client.__name__}: {traceback.format_exc()}"
        if isinstance(error, AssertionError) or not self.start_again(server):
          self.failures.append(text)

  def count(self, name, number):
    with self.lock:
      self.counts[name] = self.counts.get(name, 0) + number

  def start_again(self, server):
    """Starts the server again if it has crashed by itself. Returns whether it has."""
    with self.lock:
      if self.server is server:
        server.wait_for_crash()
        if not self.may_crash or not server.crashed_by_itself():
          return False
        self.crashes += 1
        self.start()
      self.unanswered += 1
      return True

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
    """100 requests over HTTP."""
    connection = http.client.HTTPConnection("127.0.0.1", self.server.http_port, timeout=HANG)
    for _ in range(100):
      path, body, headers, statuses = WRONG_HTTP[random.integers(len(WRONG_HTTP))](random)
      connection.request("POST", f"/v2/models/{path}/infer", body, headers)
      answer = connection.getresponse()
      text = answer.read()
      assert answer.status in statuses, (answer.status, text, path, body, headers)
    connection.close()
    return 100

  def wrong_grpc(self, random):
    """100 requests over gRPC."""
    stub = self.server.grpc._client_stub
    for _ in range(100):
      request = WRONG_GRPC[random.integers(len(WRONG_GRPC))](random)
      try:
        stub.ModelInfer(request, timeout=HANG)
      except grpc.RpcError as error:
        assert error.code() in REFUSALS, (error, request)
    return 100

  def truncated(self, random):
    """Requests over HTTP that end before their body, after which the client waits for the answer or
    the end of the connection."""
    request = http_request(random)
    body = request.index(b"\r\n\r\n") + 4
    for _ in range(4):
      with socket.create_connection(("127.0.0.1", self.server.http_port)) as connection:
        connection.settimeout(HANG)
        connection.sendall(request[: random.integers(body, len(request))])
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(1 << 16)
        assert not answer or answer[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 500"), answer
    return 4

  def vanish(self, random):
    """Clients over HTTP that close their connection after a part of the request or all of it."""
    request = http_request(random)
    for _ in range(4):
      with socket.create_connection(("127.0.0.1", self.server.http_port)) as connection:
        connection.sendall(request[: random.integers(1, len(request) + 1)])
    time.sleep(0.01)
    return 4

  def vanish_grpc(self, random):
    """A client over gRPC whose connection is cut in the middle of its requests or the answers."""
    x = np.ones((4000, 3), np.float32)
    with Cut(self.server.grpc_port, int(random.integers(1, 400_000))) as cut:
      channel = grpc.insecure_channel(f"127.0.0.1:{cut.port}")
      call = channel.unary_unary(
        "/inference.GRPCInferenceService/ModelInfer",
        request_serializer=pb.ModelInferRequest.SerializeToString,
        response_deserializer=pb.ModelInferResponse.FromString,
      )
      request = grpc_request("transpose", "x", "FP32", x.shape, [x.tobytes()])
      calls = [call.future(request, timeout=20) for _ in range(8)]
      for each in calls:
        each.exception()
      channel.close()
    time.sleep(random.uniform(0, 2))  # a server that starts again does nothing else
    return 8

  def cancel(self, random):
    """Cancels the requests of a stream."""
    with self.server.grpc_client() as client:
      client.start_stream(lambda result, error: None)
      for _ in range(10):
        client.async_stream_infer("transpose", [large_input()])
      client.stop_stream(cancel_requests=True)
    time.sleep(0.02)
    return 10

  def cancel_calls(self, random):
    """Cancels calls at some time, most of them before their answer."""
    calls = [
      self.server.grpc.async_infer("transpose", [large_input()], lambda result, error: None)
      for _ in range(10)
    ]
    time.sleep(random.uniform(0, 0.005))
    for call in calls:
      call.cancel()
    time.sleep(0.02)
    return 10

  def reload(self, random):
    """Other sizes, so that the server takes the configuration for a new one."""
    time.sleep(1)
    rows = int(random.integers(8, 60))
    self.server.load("batched", function="linear", config=BATCHED % rows)
    self.server.load("nonzero", function="nonzero", config=f"# {time.monotonic()}\n")
    return 1


class Cut:
  """Passes the bytes of a connection on to a port, and cuts both ends after `limit` bytes."""

  def __init__(self, port, limit):
    self.listener = socket.create_server(("127.0.0.1", 0))
    self.port = self.listener.getsockname()[1]
    self.target, self.left = port, limit
    self.sockets = []
    self.thread = threading.Thread(target=self.serve)
    self.thread.start()

  def serve(self):
    self.listener.settimeout(20)
    try:
      client, _ = self.listener.accept()
      self.listener.close()  # whoever connects again is refused at once
      server = socket.create_connection(("127.0.0.1", self.target))
    except OSError:
      return
    self.sockets = [client, server]
    threads = [
      threading.Thread(target=self.copy, args=pair) for pair in [(client, server), (server, client)]
    ]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join()

  def copy(self, source, to):
    try:
      while self.left > 0:
        data = source.recv(min(self.left, 1 << 14))
        if not data:
          break
        self.left -= len(data)
        to.sendall(data)
    except OSError:
      pass
    for each in self.sockets:
      try:
        each.shutdown(socket.SHUT_RDWR)
      except OSError:
        pass

  def __enter__(self):
    return self

  def __exit__(self, *_):
    self.listener.close()
    for each in self.sockets:
      each.close()
    self.thread.join(30)


def large_input():
  x = np.ones((4000, 3), np.float32)
  tensor = tritonclient.grpc.InferInput("x", list(x.shape), "FP32")
  tensor.set_data_from_numpy(x)
  return tensor


def http_request(random):
  x = np.ones((4000, 3), np.float32)
  head = {"name": "x", "datatype": "FP32", "shape": list(x.shape)}
  head["parameters"] = {"binary_data_size": x.nbytes}
  head = json.dumps({"inputs": [head]}).encode()
  lines = ["POST /v2/models/transpose/infer HTTP/1.1", "Host: localhost"]
  lines += [f"Inference-Header-Content-Length: {len(head)}"]
  lines += [f"Content-Length: {len(head) + x.nbytes}", "", ""]
  return "\r\n".join(lines).encode() + head + x.tobytes()


def grpc_request(model, name, datatype, shape, contents, **more):
  request = pb.ModelInferRequest(model_name=model, **more)
  request.inputs.add(name=name, datatype=datatype, shape=shape)
  request.raw_input_contents.extend(contents)
  return request


SIZES = [0, 1, 2, 3, 64, 65, 1 << 31, 1 << 61, 1 << 62, (1 << 62) + 1, (1 << 63) - 1]
MODELS = ["batched", "nonzero", "pick", "transpose", "sums", "chosen", "stream"]
NAMES = ["x", "x", "x", "rows", "n", "tokens", "", "x" * 1000]
TYPES = ["FP32", "FP32", "INT64", "BYTES", "FP16", "BOOL", "FP8", ""]


def parts(random):
  """Name, datatype and shape of an input."""
  shape = [int(random.choice(SIZES)) for _ in range(random.integers(0, 4))]
  return str(random.choice(NAMES)), str(random.choice(TYPES)), shape


def http_parts(inputs, body, random, path=None):
  head = json.dumps({"inputs": inputs}).encode()
  headers = {"Inference-Header-Content-Length": str(len(head))}
  # 200: some requests are right by chance. 501: models of streams are refused over HTTP.
  return path or str(random.choice(MODELS)), head + body, headers, (200, 400, 501)


def described(name, datatype, shape, size):
  out = {"name": name, "datatype": datatype, "shape": shape}
  return out | {"parameters": {"binary_data_size": size}}


def http_unfit(random):
  """The parts do not fit one another."""
  size = int(random.choice([0, 3, 4, 8, 12, 24, 36]))
  return http_parts([described(*parts(random), size)], random.bytes(size), random)


def http_size(random):
  """The size of the tensor is not that of the bytes."""
  size = int(random.choice([0, 11, 13, 1 << 31, 1 << 40, 1 << 62, (1 << 63) - 1]))
  return http_parts([described("x", "FP32", [1, 3], size)], random.bytes(12), random, "batched")


def http_missing(random):
  """Inputs are missing, or there are more than the model has."""
  one = described("x", "FP32", [1, 3], 12)
  inputs = [[], [one, one], [one, described("z", "FP32", [1, 3], 12)]][random.integers(3)]
  return http_parts(inputs, random.bytes(12 * len(inputs)), random)


def http_unknown(random):
  """The model, its version or its function does not exist."""
  paths = [
    "none",
    "batched/versions/2",
    "batched/versions/x",
    f"b/versions/{1 << 70}",
    "a%2fb",
    "%",
  ]
  path = str(random.choice(paths))
  name, body, headers, _ = http_parts(
    [described("x", "FP32", [1, 3], 12)], random.bytes(12), random, path
  )
  return name, body, headers, (400, 404, 500)


def http_function(random):
  function = ["none", "", "x" * 5000, 7, True, 1.5][random.integers(6)]
  inputs = [described("x", "FP32", [1, 3], 12)]
  head = json.dumps({"parameters": {"function": function}, "inputs": inputs}).encode()
  headers = {"Inference-Header-Content-Length": str(len(head))}
  return "chosen", head + random.bytes(12), headers, (400,)


def http_header(random):
  """The header that says how long the JSON is does not fit the body."""
  path, body, headers, _ = http_parts(
    [described("x", "FP32", [1, 3], 12)], random.bytes(12), random, "batched"
  )
  headers["Inference-Header-Content-Length"] = str(
    random.choice(["0", "1", "-1", "x", "", "99999", str(1 << 31), str(1 << 64), "1 2"])
  )
  return path, body, headers, (400, 500)


def http_damaged(random):
  """The JSON has a damaged byte."""
  path, body, headers, _ = http_parts(
    [described("x", "FP32", [1, 3], 12)], random.bytes(12), random, "batched"
  )
  at = int(random.integers(int(headers["Inference-Header-Content-Length"])))
  return path, body[:at] + random.bytes(1) + body[at + 1 :], headers, (200, 400, 500)


WRONG_HTTP = [http_unfit, http_unfit, http_size, http_missing, http_unknown, http_function]
WRONG_HTTP += [http_header, http_damaged]

REFUSALS = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND}
REFUSALS |= {grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAVAILABLE}


def grpc_unfit(random):
  size = int(random.choice([0, 3, 4, 8, 12, 24, 36]))
  return grpc_request(str(random.choice(MODELS)), *parts(random), [random.bytes(size)])


def grpc_contents(random):
  """There are not as many contents as inputs, or they have another size."""
  contents = [[], [random.bytes(12)] * 2, [random.bytes(11)], [random.bytes(1 << 20)]]
  return grpc_request("batched", "x", "FP32", [1, 3], contents[random.integers(4)])


def grpc_missing(random):
  request = pb.ModelInferRequest(model_name=str(random.choice(MODELS)))
  for _ in range(random.integers(0, 3)):
    request.inputs.add(name="z", datatype="FP32", shape=[1, 3])
    request.raw_input_contents.append(random.bytes(12))
  return request


def grpc_unknown(random):
  unknown = [("none", ""), ("batched", "2"), ("batched", "x"), ("", ""), ("a/b", "")]
  model, version = unknown[random.integers(5)]
  return grpc_request(model, "x", "FP32", [1, 3], [random.bytes(12)], model_version=version)


def grpc_parameters(random):
  request = grpc_request(
    str(random.choice(["chosen", "sums", "stream"])), "x", "FP32", [1, 2], [random.bytes(8)]
  )
  values = [
    pb.InferParameter(string_param="none"),
    pb.InferParameter(int64_param=-1),
    pb.InferParameter(bool_param=True),
    pb.InferParameter(),
  ]
  for name in ["function", "max_tokens", "sequence_end"]:
    request.parameters[name].CopyFrom(values[random.integers(4)])
  return request


def grpc_outputs(random):
  """Outputs that the model does not have."""
  request = grpc_request("batched", "x", "FP32", [1, 3], [random.bytes(12)])
  request.outputs.add(name=str(random.choice(["w", "", "x" * 1000])))
  return request


WRONG_GRPC = [grpc_unfit, grpc_unfit, grpc_contents, grpc_missing, grpc_unknown]
WRONG_GRPC += [grpc_parameters, grpc_outputs]


def resident(process):
  lines = pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines()
  return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def watch(soak):
  """Samples the memory of the server every second. Returns when the time is over."""
  begin = time.monotonic()
  while time.monotonic() < soak.end and len(soak.failures) < 10:
    try:
      soak.memory[-1].append((time.monotonic() - begin, resident(soak.server.process)))
    except (OSError, StopIteration):
      pass  # the server has just ended
    time.sleep(1)


def growth(samples):
  """The megabytes a minute by which memory grows after the first fifth of the time, in which arenas
  of all kinds come to be; and whether that is more than noise."""
  settled = samples[len(samples) // 5 :]
  if len(settled) < 3:
    return 0.0, False
  times, sizes = np.array(settled).T
  slope = np.polyfit(times, sizes, 1)[0]
  return slope * 60, slope * (times[-1] - times[0]) > sizes[0] * 0.1 + 16


def finish(soak, title):
  """Ends the server, prints its table, and returns whether all was right."""
  server, failures = soak.server, soak.failures
  alive = server.is_alive() or (soak.may_crash and server.crashed_by_itself())
  server.exit_statuses = {0, 1} if soak.may_crash else {0}  # 1: a model stays live after cancels
  if SANITIZED:
    server.exit_statuses |= {-signal.SIGKILL}
  crashed = not server.is_alive()
  status = server.stop()
  if not alive or not (crashed or status in server.exit_statuses):
    failures.append(f"the server ended with {status}")
  for log in soak.folder.glob("*/server.log"):
    text = log.read_text(errors="replace")
    for sign in ["ERROR: AddressSanitizer", "runtime error:"]:
      _, found, report = text.partition(sign)
      own = soak.may_crash and "Address" in sign and library().name not in report
      if found and not own:
        failures.append(sign + report[:4000])
  print(f"\n{title}\n| requests of | number |\n| --- | ---: |")
  for name, number in sorted(soak.counts.items()):
    print(f"| {name} | {number} |")
  if soak.may_crash:
    print(f"| crashes of the server by itself | {soak.crashes} |")
    print(f"| calls without an answer after these | {soak.unanswered} |")
  samples = max(soak.memory, key=len)  # of the server that ran longest
  slope, grows = growth(samples)
  sizes = [size for _, size in samples] or [0]
  print(
    f"memory in MB, {len(samples)} samples: {sizes[0]:.0f} at first, {sizes[len(sizes) // 5]:.0f} "
    f"after a fifth, {sizes[-1]:.0f} at the end, {max(sizes):.0f} at most; after the fifth "
    f"{slope:+.2f} a minute"
  )
  if grows and not soak.may_crash and not SANITIZED:
    failures.append("the memory has grown")
  print("wrong or lost answers, and other failures:", len(failures))
  for failure in failures:
    print(failure)
  if failures:
    print(server.log.read_text(errors="replace")[-4000:])
  return not failures


def main():
  end = time.monotonic() + float(sys.argv[1])
  with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    for text in HERE.glob("*.hir"):
      compile_text(text, folder / f"{text.stem}.husk")
    steady, cancelled = (
      Soak(folder / "steady", end),
      Soak(folder / "cancelled", end, may_crash=True),
    )
    clients = [steady.right, steady.right_grpc, steady.right_grpc, steady.places, steady.indices]
    clients += [steady.choose, steady.sequence, steady.sequence, steady.stream, steady.stream]
    clients += [steady.wrong, steady.wrong, steady.wrong_grpc, steady.wrong_grpc]
    clients += [steady.truncated, steady.vanish, steady.reload]
    clients += [cancelled.right, cancelled.right_grpc, cancelled.cancel, cancelled.cancel_calls]
    clients += [cancelled.vanish_grpc, cancelled.vanish, cancelled.reload]
    threads = [
      threading.Thread(target=client.__self__.repeat, args=(client, seed))
      for seed, client in enumerate(clients)
    ]
    threads += [threading.Thread(target=watch, args=(soak,)) for soak in [steady, cancelled]]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join()
    right = finish(steady, "right, wrong and vanishing clients")
    right &= finish(cancelled, "right, cancelling and vanishing clients")
  sys.exit(0 if right else 1)


if __name__ == "__main__":
  main()
