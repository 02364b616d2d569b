"""The runtime of MLServer, in a real server."""

import http.client
import json
import os
import shutil
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from conftest import (
  HANG,
  Client,
  Process,
  continued,
  eventually,
  free_ports,
  linear,
  linear_2,
  program,
  tensor,
)
from mlserver.grpc import dataplane_pb2 as pb
from mlserver.grpc.dataplane_pb2_grpc import GRPCInferenceServiceStub

X = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
GENERATE = {"function": "prefill", "next_function": "decode"}


class Server(Client):
  """A running MLServer, whose models are loaded on demand from `repository`."""

  def __init__(self, folder, artifacts, **settings):
    self.repository = folder / "repository"
    self.repository.mkdir()
    self.artifacts = artifacts
    http_port, self.grpc_port, self.metrics_port = free_ports(3)
    settings = {
      "host": "127.0.0.1",
      "http_port": http_port,
      "grpc_port": self.grpc_port,
      "metrics_port": self.metrics_port,
      "parallel_workers": 0,
      "gzip_enabled": False,
      "debug": False,
      "load_models_at_startup": False,
    } | settings
    super().__init__(http_port)
    (self.repository / "settings.json").write_text(json.dumps(settings))
    self.process = Process(
      folder,
      [program("mlserver"), "start", str(self.repository)],
      lambda: self.send("GET", "/v2/health/ready").status == 200,
    )

  def write(self, folder, artifact="functions", extra=None, **settings):
    """Writes a model. The file is renamed into its place, since the old one may be open."""
    name, folder = folder, self.repository / folder
    folder.mkdir(exist_ok=True)
    shutil.copyfile(self.artifacts / f"{artifact}.husk", folder / "new")
    (folder / "new").rename(folder / "model.husk")
    settings = {
      "name": name,
      "implementation": "husk.serve.mlserver.HuskModel",
      "parameters": {"uri": "./model.husk", "extra": extra or {}},
    } | settings
    (folder / "model-settings.json").write_text(json.dumps(settings))

  def post(self, model, action):
    return self.send("POST", f"/v2/repository/models/{model}/{action}", "{}")

  def load(self, name, *args, **kwargs):
    self.write(name, *args, **kwargs)
    answer = self.post(name, "load")
    assert answer.status == 200, answer.text

  def metric(self, line):
    text = Client(self.metrics_port).send("GET", "/metrics").text
    found = [each.rpartition(" ")[2] for each in text.splitlines() if each.startswith(line)]
    return float(found[0]) if found else None

  def raw(self, model, name, datatype, shape, content, **parameters):
    """Sends bytes over gRPC."""
    message = pb.ModelInferRequest(model_name=model)
    message.inputs.add(name=name, datatype=datatype, shape=shape)
    message.raw_input_contents.append(content)
    for key, value in parameters.items():
      message.parameters[key].string_param = value
    with grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}") as channel:
      return GRPCInferenceServiceStub(channel).ModelInfer(message, timeout=HANG)


@pytest.fixture(scope="module")
def start(tmp_path_factory, artifacts):
  servers = []

  def run(**settings):
    servers.append(Server(tmp_path_factory.mktemp("mlserver"), artifacts, **settings))
    return servers[-1]

  yield run
  logs = [one.process.log.read_text() for one in servers if one.process.stop() != 0]
  assert logs == []


@pytest.fixture(scope="module")
def server(start):
  one = start()
  one.load("linear", extra={"function": "linear", "sessions": 2})
  one.load("state", "state")
  one.load("stream", "generate", extra=GENERATE | {"max_sequences": 3, "max_tokens": 2_000_000})
  one.load("batched", extra={"function": "linear"}, max_batch_size=16, max_batch_time=0.02)
  yield one
  # Whatever the tests have sent, the server answers as before.
  np.testing.assert_allclose(one.infer("linear", {"x": X}).outputs["y"], linear(X), rtol=1e-5)
  np.testing.assert_allclose(one.infer("batched", {"x": X}).outputs["y"], linear(X), rtol=1e-5)


def test_metadata(server):
  described = server.send("GET", "/v2/models/linear").json
  assert described["platform"] == "husk"
  assert described["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
  assert [one["name"] for one in described["outputs"]] == ["y", "z"]
  functions = described["parameters"]["functions"]
  assert functions["pick"]["inputs"] == [{"name": "rows", "datatype": "INT64", "shape": [-1]}]


def test_requests(server):
  outputs = server.infer("linear", {"x": X}).outputs
  np.testing.assert_allclose(outputs["y"], linear(X), rtol=1e-5)
  np.testing.assert_array_equal(outputs["z"], X)
  assert list(server.infer("linear", {"x": X}, outputs=["z"]).outputs) == ["z"]
  nested = [tensor("x", X, data=X.tolist())]
  np.testing.assert_allclose(server.infer("linear", nested).outputs["y"], linear(X), rtol=1e-5)
  picked = server.infer("linear", {"rows": np.array([2])}, function="pick").outputs["picked"]
  np.testing.assert_array_equal(picked, [[3, 1]])
  numbers = [
    tensor("one", np.array([2.5], "f4")),
    tensor("n", np.array([3])),
    tensor("t", np.array([1.25])),
    tensor("flag", np.array([True])),
  ]
  outputs = server.infer("linear", numbers, function="numbers").outputs
  assert outputs["next"] == [4] and outputs["many"].tolist() == [3, 3, 3]


def test_grpc(server):
  answer = server.raw("linear", "x", "FP32", X.shape, X.tobytes())
  y = np.frombuffer(answer.raw_output_contents[0], "f4").reshape(answer.outputs[0].shape)
  np.testing.assert_allclose(y, linear(X), rtol=1e-5)
  answer = server.raw("batched", "x", "FP32", X.shape, X.tobytes())
  y = np.frombuffer(answer.raw_output_contents[0], "f4").reshape(answer.outputs[0].shape)
  np.testing.assert_allclose(y, linear(X), rtol=1e-5)
  answer = server.raw("linear", "rows", "INT64", [1], b"\2" + b"\0" * 7, function="pick")
  assert np.frombuffer(answer.raw_output_contents[0], "f4").tolist() == [3, 1]
  for model in ["linear", "batched"]:
    for name, datatype, shape, content, code in [
      ("z", "FP32", [2, 3], X.tobytes(), grpc.StatusCode.INVALID_ARGUMENT),
      ("x", "FP64", [1, 3], X.tobytes(), grpc.StatusCode.INVALID_ARGUMENT),
      ("x", "FP32", [65, 3], b"\0" * 780, grpc.StatusCode.INVALID_ARGUMENT),
      # MLServer itself unpacks bytes, and has one code for what it cannot unpack.
      ("x", "FP32", [1 << 62, 4], X.tobytes(), grpc.StatusCode.INTERNAL),
      ("x", "FP32", [-4, 3], X.tobytes(), grpc.StatusCode.INTERNAL),
    ]:
      with pytest.raises(grpc.RpcError) as caught:
        server.raw(model, name, datatype, shape, content)
      assert caught.value.code() == code, (model, shape, caught.value)


WRONG = {
  "dtype": ([tensor("x", X.astype("f8"))], {}, 400, "must be FP32"),
  "unknown dtype": ([tensor("x", X, datatype="FP8")], {}, 422, ""),
  "strings": ([tensor("x", X, datatype="BYTES", data=["a"] * 6)], {}, 400, "datatype BYTES"),
  "name": ([tensor("z", X)], {}, 400, "no input 'z'"),
  "missing": ([], {}, 400, "lacks input 'x'"),
  "twice": ([tensor("x", X), tensor("x", X)], {}, 400, "two inputs 'x'"),
  "rank": ([tensor("x", X[0])], {}, 400, "dims"),
  "no rows": ([tensor("x", X[:0])], {}, 400, "1..64"),
  "many rows": ([tensor("x", np.ones((65, 3), "f4"))], {}, 400, "1..64"),
  "data": ([tensor("x", X, data=[1, 2, 3])], {}, 400, "3 elements"),
  "ragged": ([tensor("x", X, data=[[1], [2, 3], 4])], {}, 400, "not a tensor"),
  "nulls": ([tensor("x", X, data=[None] * 6)], {}, 400, "no numbers"),
  "negative": ([tensor("x", X, shape=[-2, -3])], {}, 400, "size -2"),
  "2^62 rows": ([tensor("x", X, shape=[1 << 62, 4])], {}, 400, "many"),
  "2^70": ([tensor("x", X, shape=[1 << 70])], {}, 400, ""),
  "function": ([tensor("x", X)], {"function": "no"}, 404, "no function 'no'"),
  "function's type": ([tensor("x", X)], {"function": 3}, 400, "parameter 'function'"),
  "index": ([tensor("rows", np.array([3]))], {"function": "pick"}, 400, "index 3"),
  "sequence": ([tensor("x", X)], {"sequence_id": 7}, 400, "sequence"),
}


@pytest.mark.parametrize("model", ["linear", "batched"])
@pytest.mark.parametrize("case", WRONG)
def test_wrong_requests(server, case, model):
  inputs, parameters, status, word = WRONG[case]
  answer = server.infer(model, inputs, **parameters)
  assert answer.status == status or status == 400 and answer.status == 422, answer.text
  assert word in answer.text
  assert "Traceback" not in answer.text


@pytest.mark.parametrize("body", ["", "{", "[]", '{"inputs": 3}', "[" * 100_000, "\0" * 100])
def test_text_that_is_no_request(server, body):
  assert server.send("POST", "/v2/models/linear/infer", body).status in (400, 422)


def test_unknown_models_and_outputs(server):
  assert server.infer("nobody", {"x": X}).status == 404
  assert server.send("GET", "/v2/models/nobody").status == 404
  answer = server.infer("linear", {"x": X}, outputs=["w"])
  assert answer.status == 400 and "no output 'w': the outputs are 'y', 'z'" in answer.error


def test_requests_are_gathered(server):
  # MLServer does not gather requests of a model that was loaded again.
  server.load("batched", extra={"function": "linear"}, max_batch_size=16, max_batch_time=2)
  runs = server.metric('husk_run_seconds_count{model_name="batched"')
  inputs = [
    np.random.default_rng(seed).standard_normal((1 + seed % 3, 3)).astype("f4")
    for seed in range(96)
  ]

  def send(seed):
    if seed % 8 == 0:  # a wrong request among the others
      return server.infer("batched", {"rows": np.array([3])}, function="pick")
    return server.infer("batched", {"x": inputs[seed]})

  with ThreadPoolExecutor(16) as pool:
    for seed, answer in enumerate(pool.map(send, range(96))):
      if seed % 8 == 0:
        assert answer.status == 400 and "index 3" in answer.error
      else:
        np.testing.assert_allclose(answer.outputs["y"], linear(inputs[seed]), rtol=1e-4, atol=1e-5)
  labels = '{model_name="batched"'
  assert server.metric(f"husk_run_seconds_count{labels}") - runs < 90
  gathered = server.metric(f"husk_batch_requests_sum{labels}")
  assert gathered > 1.5 * server.metric(f"husk_batch_requests_count{labels}")


def test_a_gathered_request_whose_client_goes(server):
  """MLServer itself would lose the other answers of such a batch."""

  def send(seed):
    message = pb.ModelInferRequest(model_name="batched")
    message.inputs.add(name="x", datatype="FP32", shape=[2, 3])
    message.raw_input_contents.append(X.tobytes())
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
      call = GRPCInferenceServiceStub(channel).ModelInfer.future(message, timeout=HANG)
      if seed % 3 == 0:
        time.sleep(0.01)
        call.cancel()
        return None
      return call.result()

  with ThreadPoolExecutor(12) as pool:
    answers = list(pool.map(send, range(48)))
  for answer in answers:
    if answer is not None:
      y = np.frombuffer(answer.raw_output_contents[0], "f4").reshape(2, 2)
      np.testing.assert_allclose(y, linear(X), rtol=1e-5)


def test_sequences(server):
  def add(x, **parameters):
    return server.infer("state", {"x": np.array([x], "f4")}, **parameters)

  assert add([1, 2]).outputs["sum"].tolist() == [[11, 12]]
  answer = add([1, 2], sequence_id="a")
  assert answer.status == 404 and "sequence_start" in answer.error
  assert add([1, 2], sequence_id="a", sequence_start=True).outputs["sum"].tolist() == [[11, 12]]
  assert add([1, 2], sequence_id="b", sequence_start=True).outputs["sum"].tolist() == [[11, 12]]
  assert server.metric('husk_sequences{model_name="state"') == 2
  assert add([1, 2], sequence_id="a", sequence_end=True).outputs["sum"].tolist() == [[12, 14]]
  assert add([1, 2], sequence_id="a").status == 404
  add([1, 2], sequence_id="b", sequence_end=True)
  assert server.metric('husk_sequences{model_name="state"') == 0


def test_streams(server):
  expected = continued([3, 1, 4], 40)
  assert server.stream("stream", [3, 1, 4], max_tokens=40) == (expected, None)
  assert server.stream("stream", [3, 1, 4]) == (expected[:32], None)
  assert server.stream("stream", [3, 1, 4], max_tokens=40, stop_token=expected[4]) == (
    expected[: expected.index(expected[4]) + 1],
    None,
  )
  with ThreadPoolExecutor(3) as pool:
    prompts = [[seed % 8] for seed in range(12)]
    answers = pool.map(lambda one: server.stream("stream", one, max_tokens=20), prompts)
    assert list(answers) == [(continued(one, 20), None) for one in prompts]
  for prompt, word in [([], "1..6"), ([8], "index 8"), ([0] * 7, "1..6")]:
    tokens, error = server.stream("stream", prompt)
    assert tokens == [] and error["status"] == 400 and word in error["error"]
  tokens, error = server.stream("stream", [1], max_tokens="x")
  assert error["status"] == 400 and "max_tokens" in error["error"]


def test_clients_of_streams_that_vanish(server):
  """More of them than max_sequences: each leaves its session to others."""
  body = json.dumps(
    {
      "inputs": [tensor("tokens", np.array([3]))],
      "parameters": {"max_tokens": 2_000_000},
    }
  )
  for _ in range(8):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANG)
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/v2/models/stream/infer_stream", body, headers)
    answer = connection.getresponse()
    assert answer.readline().startswith(b"data: ")
    answer.close()
    connection.close()

    def tokens():
      tokens, error = server.stream("stream", [3, 1], max_tokens=2)
      return tokens if error is None else None

    assert eventually(tokens) == continued([3, 1], 2)
  eventually(lambda: server.metric('husk_requests{model_name="stream"') == 0)


def test_a_stream_over_grpc(server):
  def requests(count):
    message = pb.ModelInferRequest(model_name="stream")
    message.inputs.add(name="tokens", datatype="INT64", shape=[3])
    message.raw_input_contents.append(np.array([3, 1, 4]).tobytes())
    message.parameters["max_tokens"].int64_param = count
    yield message

  def token(answer):
    return np.frombuffer(answer.raw_output_contents[0], np.int64)[0]

  with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
    stub = GRPCInferenceServiceStub(channel)
    tokens = [token(one) for one in stub.ModelStreamInfer(requests(20), timeout=HANG)]
    assert tokens == continued([3, 1, 4], 20)
    call = stub.ModelStreamInfer(requests(1_000_000), timeout=HANG)
    next(call)
    call.cancel()
  eventually(lambda: server.metric('husk_sequences{model_name="stream"') == 0)


def test_unload_with_a_request_that_waits_for_others(server):
  server.load("slow", extra={"function": "linear"}, max_batch_size=8, max_batch_time=5)
  with ThreadPoolExecutor(1) as pool:
    waiting = pool.submit(server.infer, "slow", {"x": X})
    eventually(lambda: server.metric('husk_requests{model_name="slow"') == 1 or waiting.done())
    assert server.post("slow", "unload").status == 200
    np.testing.assert_allclose(waiting.result().outputs["y"], linear(X), rtol=1e-5)


def test_a_reload_leaves_streams_under_way(server):
  server.load("long", "generate", extra=GENERATE)
  with ThreadPoolExecutor(1) as pool:
    stream = pool.submit(server.stream, "long", [3], max_tokens=4000)
    for _ in range(3):
      assert server.post("long", "load").status == 200
    assert stream.result() == (continued([3], 4000), None)


@pytest.mark.parametrize("model", ["linear", "batched"])
def test_clients_that_vanish(server, model):
  body = json.dumps({"inputs": [tensor("x", X)]}).encode()
  head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: localhost\r\n"
  head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
  text = head.encode() + body
  for length in [len(text), len(text) // 2, 40]:
    for _ in range(10):
      with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(text[:length])
  np.testing.assert_allclose(server.infer(model, {"x": X}).outputs["y"], linear(X), rtol=1e-5)


@pytest.mark.parametrize("batched", [False, True])
def test_reload_under_load(server, batched):
  """A model is replaced by another artifact and back; every request is answered by one of them."""
  name = f"replaced{int(batched)}"
  options = {"max_batch_size": 8, "max_batch_time": 0.002} if batched else {}
  options["extra"] = {"function": "linear"}
  server.load(name, **options)
  stop = threading.Event()
  wrong, answered = [], []

  def client():
    while not stop.is_set():
      answer = server.infer(name, {"x": X})
      if answer.status != 200:
        wrong.append(answer.text)
        continue
      y = answer.outputs["y"]
      which = [np.allclose(y, f(X), atol=1e-4) for f in (linear, linear_2)]
      answered.append(which)
      if not any(which):
        wrong.append(y)

  threads = [threading.Thread(target=client) for _ in range(4)]
  for thread in threads:
    thread.start()
  for count in range(10):
    server.load(name, "functions-2" if count % 2 == 0 else "functions", **options)
    enough = len(answered) + 2 * len(threads)
    eventually(lambda count=enough: len(answered) >= count or wrong)
  stop.set()
  for thread in threads:
    thread.join()
  assert wrong == []
  assert [True, False] in answered and [False, True] in answered
  assert server.post(name, "unload").status == 200
  assert server.infer(name, {"x": X}).status == 404


def test_an_artifact_that_does_not_load_leaves_the_old_one(server):
  server.load("kept", extra={"function": "linear"})
  file = server.repository / "kept" / "model.husk"
  new = file.with_suffix(".new")
  new.write_bytes(b"no artifact")
  new.rename(file)
  answer = server.post("kept", "load")
  assert answer.status == 400 and "not a Husk artifact" in answer.error
  np.testing.assert_allclose(server.infer("kept", {"x": X}).outputs["y"], linear(X), rtol=1e-5)


LOADS = {
  "setting": ({"extra": {"sesions": 2}}, "no setting 'sesions'"),
  "function": ({"extra": {"function": "no"}}, "no function 'no'"),
  "batch of numbers": (
    {"extra": {"function": "numbers"}, "max_batch_size": 2, "max_batch_time": 0.1},
    "'one' has no dim 0",
  ),
  "batch of states": (
    {"artifact": "state", "max_batch_size": 2, "max_batch_time": 0.1},
    "has states",
  ),
  "cache of states": ({"artifact": "state", "cache_enabled": True}, "leave cache_enabled out"),
  "no time": ({"extra": {"function": "linear"}, "max_batch_size": 2}, "max_batch_time"),
  "extra batch": ({"extra": {"max_batch_size": 2}}, "belongs beside 'parameters'"),
  "inputs": (
    {
      "extra": {"function": "linear"},
      "inputs": [{"name": "x", "datatype": "FP64", "shape": [-1, 3]}],
    },
    "leave it out",
  ),
  "no file": ({"parameters": {"uri": "./other.husk"}}, "other.husk"),
}


@pytest.mark.parametrize("case", LOADS)
def test_wrong_models(server, case):
  options, words = LOADS[case]
  name = "wrong " + case
  server.write(name.replace(" ", "_"), **options)
  answer = server.post(name.replace(" ", "_"), "load")
  assert 400 <= answer.status < 500 and words in answer.error, answer.text
  shutil.rmtree(server.repository / name.replace(" ", "_"))


def test_declared_inputs_that_fit(server):
  inputs = [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
  server.load("declared", extra={"function": "linear"}, inputs=inputs)
  assert server.send("GET", "/v2/models/declared").json["inputs"] == inputs


def test_versions(server):
  for version, artifact in [("1", "functions"), ("2", "functions-2")]:
    parameters = {"uri": "./model.husk", "version": version, "extra": {"function": "linear"}}
    server.write(f"v{version}", artifact, name="versions", parameters=parameters)
  assert server.post("versions", "load").status == 200
  for path, expected in [("", linear_2), ("/versions/1", linear), ("/versions/2", linear_2)]:
    y = server.infer(f"versions{path}", {"x": X}).outputs["y"]
    np.testing.assert_allclose(y, expected(X), rtol=1e-4)
  assert server.infer("versions/versions/3", {"x": X}).status == 404


def test_metrics(server):
  before = server.metric('husk_run_seconds_count{model_name="linear"') or 0
  for _ in range(3):
    server.infer("linear", {"x": X})
  assert server.metric('husk_run_seconds_count{model_name="linear"') == before + 3
  assert server.metric('husk_requests{model_name="linear"') == 0
  assert server.metric('model_infer_request_success_total{model="linear"') >= 3


def resident(server):
  with open(f"/proc/{server.process.process.pid}/status") as lines:
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) // 1024


def test_memory_stays_flat(server):
  """Reloads, wrong requests and streams leave nothing behind."""

  def round_of_requests():
    server.load("flat", extra={"function": "linear"})
    server.load(
      "flat_batched", extra={"function": "linear"}, max_batch_size=4, max_batch_time=0.001
    )
    for name in ["flat", "flat_batched"]:
      server.infer(name, {"x": X})
      server.infer(name, {"x": X}, function="no")
    server.stream("stream", [3, 1, 4], max_tokens=5)

  for _ in range(10):
    round_of_requests()
  before = resident(server)
  for _ in range(30):
    round_of_requests()
  assert resident(server) < before + 16


def test_stop_with_requests_under_way(start):
  """Each request is answered right, or its connection is refused or closed."""
  server = start()
  server.load("linear", extra={"function": "linear"})
  server.load("stream", "generate", extra=GENERATE)
  stop = threading.Event()
  wrong, answered = [], []

  def client():
    while not stop.is_set():
      try:
        answer = server.infer("linear", {"x": X})
      except (OSError, http.client.HTTPException):
        time.sleep(0.01)
        continue
      if answer.status == 200:
        answered.append(np.allclose(answer.outputs["y"], linear(X), atol=1e-4))
      elif answer.status not in (404, 503):
        wrong.append(answer.text)

  threads = [threading.Thread(target=client) for _ in range(4)]
  for thread in threads:
    thread.start()
  eventually(lambda: answered or wrong)
  server.process.process.send_signal(signal.SIGTERM)
  assert server.process.process.wait(HANG) == 0
  stop.set()
  for thread in threads:
    thread.join()
  assert wrong == [] and answered and all(answered)


def test_workers(start):
  """With workers of MLServer, requests pass to another process; batches are refused."""
  if os.cpu_count() < 2:
    pytest.skip("one CPU")
  server = start(parallel_workers=1)
  server.load("linear", extra={"function": "linear"})
  np.testing.assert_allclose(server.infer("linear", {"x": X}).outputs["y"], linear(X), rtol=1e-5)
  answer = server.infer("linear", {"z": X})
  assert 400 <= answer.status <= 500 and "no input 'z'" in answer.text
  server.write("batched", extra={"function": "linear"}, max_batch_size=4, max_batch_time=0.1)
  answer = server.post("batched", "load")
  assert "parallel_workers" in answer.text


def test_a_device_that_has_failed(artifacts, tmp_path):
  """The model is no longer ready, so that the server is replaced."""
  import asyncio

  import husk
  from husk.serve.mlserver import HuskModel
  from mlserver.errors import MLServerError
  from mlserver.settings import ModelSettings
  from mlserver.types import InferenceRequest

  parameters = {"uri": str(artifacts / "functions.husk"), "extra": {"function": "linear"}}
  model = HuskModel(ModelSettings(name="m", implementation=HuskModel, parameters=parameters))
  request = InferenceRequest(inputs=[tensor("x", X)])

  def fail(*_):
    raise husk.DeviceError("no answer", 7, 700)

  async def run():
    model.ready = await model.load()
    assert (await model.predict(request)).outputs[0].name == "y" and model.ready
    with pytest.raises(MLServerError, match="no function 'no'"):
      wrong = InferenceRequest(inputs=[tensor("x", X)], parameters={"function": "no"})
      await model.predict(wrong)
    assert model.ready
    model._model._call = fail
    with pytest.raises(MLServerError, match="the device has failed") as caught:
      await model.predict(request)
    assert caught.value.status_code == 500 and not model.ready
    await model.unload()

  asyncio.run(run())
