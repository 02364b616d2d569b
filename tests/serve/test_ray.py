"""The deployment of Ray Serve: two replicas on this machine, which some tests kill."""

import http.client
import json
import os
import pathlib
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import ray
from conftest import (
  HANG,
  ROOT,
  Client,
  continued,
  eventually,
  free_ports,
  linear,
  linear_2,
  tensor,
)
from husk.serve import RequestError, SettingsError
from husk.serve import ray as husk_ray
from ray import serve

X = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
REPLICAS = {"num_replicas": 2, "ray_actor_options": {"num_cpus": 0.2}, "health_check_period_s": 1}
REPLICAS["max_constructor_retry_count"] = 1
GENERATE = {
  "function": "prefill",
  "next_function": "decode",
  "max_sequences": 3,
  "max_tokens": 2_000_000,
}


class Server(Client):
  """Ray with one application, whose models tests replace."""

  def __init__(self, artifacts, folder):
    os.environ["PYTHONPATH"] = str(ROOT / "compiler" / "torch")  # of the replicas
    self.artifacts = artifacts
    self.folder = folder
    (port,) = free_ports(1)
    super().__init__(port)
    ray.init(
      num_cpus=2,
      num_gpus=2,  # numbers alone: what asks for them computes on the CPU
      include_dashboard=False,
      object_store_memory=200_000_000,
      logging_level="ERROR",
      log_to_driver=False,
    )
    serve.start(http_options={"host": "127.0.0.1", "port": port})

  def run(self, artifact="functions", **more):
    self.expected = {"functions": linear, "functions-2": linear_2}[artifact]
    models = {
      "linear": {"path": self.path(artifact), "function": "linear"},
      "batched": {"path": self.path(artifact), "function": "linear", "max_batch_size": 16},
      "stream": {"path": self.path("generate"), **GENERATE},
      "state": {"path": self.path("state")},
      "ranks": {"path": self.path("ranks"), "function": "add", "ranks": 2},
    } | more
    return serve.run(
      husk_ray.application(
        models,
        folder=str(self.folder),
        folder_settings={"function": "linear"},
        max_models=2,
        batch_wait_seconds=0.01,
        deployment=REPLICAS,
      ),
      route_prefix="/",
    )

  def path(self, artifact):
    return str(self.artifacts / f"{artifact}.husk")


@pytest.fixture(scope="module")
def server(artifacts, tmp_path_factory):
  folder = tmp_path_factory.mktemp("folder")
  for name in ["a", "b", "c"]:
    shutil.copyfile(artifacts / "functions.husk", folder / f"{name}.husk")
  (folder / "damaged.husk").write_bytes(b"no artifact")
  one = Server(artifacts, folder)
  try:
    one.handle = one.run()
    yield one
  finally:
    serve.shutdown()
    ray.shutdown()


@pytest.fixture(autouse=True)
def works(server):
  """Whatever a test does, the server answers as before."""
  yield
  np.testing.assert_allclose(retry(server, "linear"), server.expected(X), rtol=1e-5)


def is_retryable(answer):
  """Whether the same request may succeed later: the model says so, or the answer is that of Ray
  for a replica that has died, which is not JSON with an error."""
  return answer.status == 503 or answer.status >= 500 and not isinstance(answer.json, dict)


def retry(server, model, counts=None):
  """Sends X until it is answered, and returns the output."""

  def answer():
    try:
      answer = server.infer(model, {"x": X})
      if not is_retryable(answer):
        return [answer.outputs["y"]]
    except (OSError, http.client.HTTPException):
      pass
    if counts is not None:
      counts.append(1)
    return None

  return eventually(answer, pause=0.1)[0]


def test_a_model_of_two_ranks(server):
  """Both run in each replica."""
  x = np.arange(6, dtype=np.float32).reshape(3, 2)
  np.testing.assert_allclose(server.infer("ranks", {"x": x}).outputs["y"], 3 * x)


def options_of(models, **deployment):
  one = husk_ray.application(models, deployment=deployment)._bound_deployment
  return one.ray_actor_options, one._replica_config.placement_group_bundles


def test_replicas_get_the_gpus_of_their_models():
  one = {"path": "x.husk", "device": "cuda"}
  two = {"path": "x.husk", "device": "cuda", "ranks": 2}
  actor, bundles = options_of({"one": one})
  assert actor["num_gpus"] == 1 and bundles is None
  actor, bundles = options_of({"one": one, "two": two}, ray_actor_options={"num_cpus": 0.5})
  assert actor["num_gpus"] == 2 and bundles == [{"CPU": 0.5, "GPU": 2}]
  actor, bundles = options_of({"two": two}, ray_actor_options={"num_gpus": 0.5})
  assert actor["num_gpus"] == 0.5 and bundles is None
  actor, bundles = options_of({"host": {"path": "x.husk", "ranks": 2}})
  assert not actor.get("num_gpus") and bundles is None


def test_a_placement_group_of_two_gpus(server):
  """Two GPUs of Ray's, which the replica asks for in one bundle; its ranks compute on the CPU."""
  options = husk_ray._placed(2, {"name": "placed", "ray_actor_options": {"num_cpus": 0.2}})
  models = {"ranks": {"path": server.path("ranks"), "function": "add", "ranks": 2}}
  application = husk_ray.application(models, deployment=options)
  handle = serve.run(application, name="placed", route_prefix="/placed")
  try:
    groups = ray.util.placement_group_table().values()
    made = [one for one in groups if one["state"] == "CREATED"]
    assert [one["bundles"] for one in made] == [{0: {"CPU": 0.2, "GPU": 2.0}}]
    assert made[0]["strategy"] == "STRICT_PACK"
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    found = handle.infer.remote("ranks", {"x": x}).result()
    np.testing.assert_allclose(found["y"], 3 * x)
  finally:
    serve.delete("placed")


def test_metadata(server):
  described = server.send("GET", "/v2/models/linear").json
  assert described["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
  assert "pick" in described["parameters"]["functions"]
  assert server.send("GET", "/v2/models/linear/ready").json == {"name": "linear", "ready": True}
  for path in ["/v2", "/v2/health/live", "/v2/health/ready"]:
    assert server.send("GET", path).status == 200


@pytest.mark.parametrize("model", ["linear", "batched"])
def test_requests(server, model):
  outputs = server.infer(model, {"x": X}).outputs
  np.testing.assert_allclose(outputs["y"], linear(X), rtol=1e-5)
  np.testing.assert_array_equal(outputs["z"], X)
  assert list(server.infer(model, {"x": X}, outputs=["z"]).outputs) == ["z"]
  picked = server.infer(model, {"rows": np.array([2])}, function="pick").outputs["picked"]
  np.testing.assert_array_equal(picked, [[3, 1]])
  answer = server.send(
    "POST", f"/v2/models/{model}/infer", {"id": "seven", "inputs": [tensor("x", X)]}
  )
  assert answer.json["id"] == "seven"


def test_no_request_sees_the_state_of_another(server):
  for _ in range(4):
    x = np.array([[1, 2]], "f4")
    assert server.infer("state", {"x": x}).outputs["sum"].tolist() == [[11, 12]]


def test_numbers_that_are_not_finite(server):
  text = '{"inputs":[{"name":"x","datatype":"FP32","shape":[1,3],"data":[1e39,0,1]}]}'
  answer = server.send("POST", "/v2/models/linear/infer", text)
  assert answer.status == 200 and answer.json["outputs"][1]["data"] == [None, 0, 1]


WRONG = {
  "dtype": ([tensor("x", X.astype("f8"))], {}, 400, "must be FP32"),
  "unknown dtype": ([tensor("x", X, datatype="FP8")], {}, 400, "datatype FP8"),
  "name": ([tensor("z", X)], {}, 400, "no input 'z'"),
  "missing": ([], {}, 400, "lacks input 'x'"),
  "twice": ([tensor("x", X), tensor("x", X)], {}, 400, "two inputs 'x'"),
  "no list": (3, {}, 400, "'inputs'"),
  "no objects": ([3], {}, 400, "'inputs'"),
  "no shape": ([{"name": "x", "datatype": "FP32", "data": [1]}], {}, 400, "lacks its shape"),
  "no data": ([{"name": "x", "datatype": "FP32", "shape": [1]}], {}, 400, "or its data"),
  "no rows": ([tensor("x", X[:0])], {}, 400, "1..64"),
  "many rows": ([tensor("x", np.ones((65, 3), "f4"))], {}, 400, "1..64"),
  "data": ([tensor("x", X, data=[1, 2, 3])], {}, 400, "3 elements"),
  "2^62 rows": ([tensor("x", X, shape=[1 << 62, 4])], {}, 400, "many"),
  "text as size": ([tensor("x", X, shape=["2", 3])], {}, 400, "size '2'"),
  "function": ([tensor("x", X)], {"function": "no"}, 404, "no function 'no'"),
  "index": ([tensor("rows", np.array([3]))], {"function": "pick"}, 400, "index 3"),
  "sequence": ([tensor("x", X)], {"sequence_id": 7}, 400, "there are no sequences"),
  "parameters": ([tensor("x", X)], 3, 400, "'parameters'"),
}


@pytest.mark.parametrize("model", ["linear", "batched"])
@pytest.mark.parametrize("case", WRONG)
def test_wrong_requests(server, case, model):
  inputs, parameters, status, word = WRONG[case]
  body = {"inputs": inputs, "parameters": parameters}
  answer = server.send("POST", f"/v2/models/{model}/infer", body)
  assert answer.status == status and word in answer.error, answer.text
  assert "Traceback" not in answer.text


@pytest.mark.parametrize("body", ["", "{", "[]", "3", "[" * 100_000, "\0" * 100])
def test_text_that_is_no_request(server, body):
  answer = server.send("POST", "/v2/models/linear/infer", body)
  assert answer.status == 400 and "body" in answer.error


def test_bodies_that_are_too_large(server):
  """The server answers when it knows the size, before the body has arrived."""
  connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANG)
  try:
    connection.putrequest("POST", "/v2/models/linear/infer")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str((64 << 20) + 1))
    connection.endheaders()
    connection.send(b"{")
    answer = connection.getresponse()
    assert answer.status == 413 and "max_body_bytes" in json.loads(answer.read())["error"]
  finally:
    connection.close()
  assert server.infer("linear", {"x": X}).status == 200


def test_paths(server):
  for method, path in [
    ("GET", "/"),
    ("GET", "/v2/models/linear/infer"),
    ("POST", "/v2/models/linear"),
    ("POST", "/v2/models/linear/more"),
    ("POST", "/v2/models/linear/infer/more"),
  ]:
    answer = server.send(method, path, "{}")
    assert answer.status == 404 and "there is nothing at" in answer.error


def test_models_of_the_folder(server):
  """Three models where a replica keeps two."""
  for name in ["a", "b", "c", "a", "c"]:
    for headers in [None, {"serve_multiplexed_model_id": name}]:
      answer = server.infer(name, {"x": X}, headers)
      np.testing.assert_allclose(answer.outputs["y"], linear(X), rtol=1e-5)
  for name in ["d", "..", "%2e%2e", ".a", "a%2f..%2fb", "a%00"]:
    answer = server.infer(name, {"x": X})
    assert answer.status == 404 and "no model" in answer.error or "nothing at" in answer.error
  answer = server.infer("damaged", {"x": X})
  assert answer.status == 500 and "'damaged' does not load" in answer.error


def test_calls_of_python(server):
  results = server.handle.infer.remote("batched", {"x": X}).result()
  np.testing.assert_allclose(results["y"], linear(X), rtol=1e-5)
  with pytest.raises(RequestError, match="no input 'z'"):
    server.handle.infer.remote("linear", {"z": X}).result()


def test_requests_are_gathered(server):
  """Wrong requests among others fail alone."""

  def send(seed):
    if seed % 8 == 0:
      return server.infer("batched", {"rows": np.array([3])}, function="pick")
    return server.infer("batched", {"x": X * seed})

  with ThreadPoolExecutor(16) as pool:
    for seed, answer in enumerate(pool.map(send, range(96))):
      if seed % 8 == 0:
        assert answer.status == 400 and "index 3" in answer.error
      else:
        np.testing.assert_allclose(answer.outputs["y"], linear(X * seed), rtol=1e-4, atol=1e-4)


def test_streams(server):
  expected = continued([3, 1, 4], 40)
  assert server.stream("stream", [3, 1, 4], max_tokens=40) == (expected, None)
  with ThreadPoolExecutor(3) as pool:
    prompts = [[seed % 8] for seed in range(9)]
    answers = pool.map(lambda one: server.stream("stream", one, max_tokens=20), prompts)
    assert list(answers) == [(continued(one, 20), None) for one in prompts]
  for prompt, word in [([], "1..6"), ([8], "index 8"), ([0] * 7, "1..6")]:
    body = {"inputs": [tensor("tokens", np.array(prompt, np.int64))]}
    answer = server.send("POST", "/v2/models/stream/infer_stream", body)
    assert answer.status == 400 and word in answer.error
  answer = server.send("POST", "/v2/models/linear/infer_stream", {"inputs": [tensor("x", X)]})
  assert answer.status == 400 and "cannot be streamed" in answer.error


def test_clients_of_streams_that_vanish(server):
  """More of them than two replicas have sessions: each leaves its session to others."""
  body = {"inputs": [tensor("tokens", np.array([3]))], "parameters": {"max_tokens": 2_000_000}}
  for _ in range(10):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANG)
    connection.request("POST", "/v2/models/stream/infer_stream", json.dumps(body))
    answer = connection.getresponse()
    assert answer.readline().startswith(b"data: ")
    answer.close()
    connection.close()
  body["parameters"] = {"max_tokens": 2}

  def is_answered():
    answer = server.send("POST", "/v2/models/stream/infer_stream", body)
    assert answer.status in (200, 503)
    return answer.status == 200

  eventually(is_answered, pause=0.1)
  assert server.stream("stream", [3], max_tokens=2) == (continued([3], 2), None)


class Load:
  """Clients that send requests until the end of the block. Each answer is that of one of the two
  artifacts."""

  def __init__(self, server, clients=6):
    self.server = server
    self.answers, self.retries, self.failures = [], [], []
    self.stop = threading.Event()
    self.threads = [threading.Thread(target=self.client, args=(n,)) for n in range(clients)]

  def client(self, number):
    while not self.stop.is_set():
      try:
        y = retry(self.server, ["linear", "batched"][number % 2], self.retries)
        which = [np.allclose(y, one(X), atol=1e-4) for one in (linear, linear_2)]
        assert any(which)
        self.answers.append(which.index(True))
      except Exception as error:
        self.failures.append(repr(error))

  def __enter__(self):
    for thread in self.threads:
      thread.start()
    self.wait_for_answers()
    return self

  def wait_for_answers(self):
    """Waits for an answer to a request that begins after this call, of each client."""
    count = len(self.answers) + 2 * len(self.threads)
    eventually(lambda: len(self.answers) >= count or self.failures)

  def __exit__(self, *_):
    self.stop.set()
    for thread in self.threads:
      thread.join()


def test_rolling_update_under_load(server):
  """No request is lost, and none needs to be sent again, though all replicas are new ones."""
  before = set(replicas())
  with Load(server) as load:
    server.run("functions-2")
    updated = len(load.answers)
    load.wait_for_answers()
  assert load.failures == [] and load.retries == []
  assert 0 in load.answers[:updated] and load.answers[-1] == 1
  assert len(before) == 2
  eventually(lambda: not before & set(replicas()), pause=0.1)


def test_an_update_that_does_not_load(server):
  """The update fails, and the answers of clients do not."""
  bad = {"bad": {"path": str(server.folder / "damaged.husk")}}
  try:
    with Load(server, clients=2) as load:
      with pytest.raises(RuntimeError):
        server.run("functions-2", **bad)
      before = len(load.answers)
      retry(server, "linear")
    assert load.failures == [] and before > 0
  finally:
    server.run()


def replicas():
  """The processes of the replicas of this cluster: those whose ancestor is this process."""

  def parent(process):
    text = (process / "stat").read_text()
    return pathlib.Path("/proc", text.rpartition(")")[2].split()[1])

  found = []
  for process in pathlib.Path("/proc").glob("[0-9]*"):
    try:
      if not (process / "cmdline").read_bytes().startswith(b"ray::ServeReplica"):
        continue
      ancestor = process
      while ancestor.name not in ("0", "1") and ancestor.name != str(os.getpid()):
        ancestor = parent(ancestor)
      if ancestor.name == str(os.getpid()):
        found.append(int(process.name))
    except OSError:
      pass  # the process has ended
  return found


def test_a_replica_that_is_killed_under_load(server):
  """Each request is answered right, or fails with an error that the client may retry: with that,
  none is lost. Ray starts another replica."""
  before = set(replicas())
  assert len(before) == 2
  with Load(server) as load:
    for victim in before:
      os.kill(victim, signal.SIGKILL)
      time.sleep(2)
    eventually(lambda: len(set(replicas()) - before) == 2, pause=0.1)
    eventually(lambda: len(load.answers) > 100 or load.failures)
  assert load.failures == []
  assert set(load.answers) == {0}
  assert len(set(replicas()) - before) == 2


@pytest.mark.parametrize(
  ("models", "text"),
  [
    ({"a": {}}, "model 'a' lacks the setting path"),
    ({"a": {"path": "a.husk", "sesions": 2}}, "model 'a': there is no setting 'sesions'"),
    ({"a/b": {"path": "a.husk"}}, "model name 'a/b'"),
    ({"..": {"path": "a.husk"}}, "model name '..'"),
  ],
)
def test_wrong_applications(models, text):
  with pytest.raises(SettingsError) as caught:
    husk_ray.application(models)
  assert text in str(caught.value)
  with pytest.raises(SettingsError):
    husk_ray.build({"models": models})
