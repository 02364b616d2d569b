"""Dynamic batching, concurrency, statistics, and what happens to a model under load."""

import http.client
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc
from conftest import HANG, TABLE, eventually, linear
from tritonclient.utils import InferenceServerException

BATCHED = """
max_batch_size: 16
dynamic_batching { max_queue_delay_microseconds: 20000 }
"""


def statistics(server, model):
  return server.http.get_inference_statistics(model)["model_stats"][0]


def send_many(server, model, inputs, client="http", threads=16):
  """Sends all requests at once; returns the outputs, or the error, of each."""

  def send(each):
    try:
      return server.infer(model, each, client)
    except InferenceServerException as error:
      return error

  with ThreadPoolExecutor(threads) as pool:
    return list(pool.map(send, inputs))


def rows(count, seed):
  return np.random.default_rng(seed).standard_normal((count, 3)).astype(np.float32)


def test_the_config_is_completed_without_the_batch(server):
  server.load("completed", function="linear", config=BATCHED)
  config = server.http.get_model_config("completed")
  assert config["max_batch_size"] == 16
  assert config["input"][0]["dims"] == [3]
  assert [each["dims"] for each in config["output"]] == [[-1], [-1]]
  # Without max_batch_size no dimension is a batch.
  server.load("unbatched", function="linear")
  config = server.http.get_model_config("unbatched")
  assert config["max_batch_size"] == 0
  assert config["input"][0] == config["input"][0] | {"data_type": "TYPE_FP32", "dims": [-1, 3]}


@pytest.mark.parametrize("client", ["http", "grpc"])
def test_requests_share_a_run(server, client):
  model = f"batched_{client}"
  server.load(model, function="linear", config=BATCHED)
  inputs = [{"x": rows(1 + seed % 3, seed)} for seed in range(160)]
  for each, outputs in zip(inputs, send_many(server, model, inputs, client)):
    np.testing.assert_allclose(outputs["y"], linear(each["x"]), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(outputs["z"], each["x"])
  stats = statistics(server, model)
  assert int(stats["execution_count"]) < 100
  assert int(stats["inference_count"]) == sum(len(each["x"]) for each in inputs)
  assert max(int(each["batch_size"]) for each in stats["batch_stats"]) > 3
  assert int(stats["inference_stats"]["success"]["count"]) == 160
  assert int(stats["inference_stats"]["fail"]["count"]) == 0


def test_one_dimension_is_the_batch(server):
  """Values of rank 1 have no dims besides the batch."""
  server.load("picks", function="pick", config=BATCHED)
  assert server.http.get_model_config("picks")["input"][0]["dims"] == [1]
  indices = np.random.default_rng(0).integers(0, 3, (64, 2))
  inputs = [{"rows": each.reshape(2, 1)} for each in indices]
  for each, outputs in zip(indices, send_many(server, "picks", inputs)):
    np.testing.assert_array_equal(outputs["picked"], TABLE[each])
  assert int(statistics(server, "picks")["execution_count"]) < 64


def test_one_wrong_request_fails_alone(server):
  server.load("some_wrong", function="pick", config=BATCHED)
  indices = np.random.default_rng(0).integers(0, 3, (64, 1))
  indices[::8] = 3
  inputs = [{"rows": each.reshape(1, 1)} for each in indices]
  for (index,), outputs in zip(indices, send_many(server, "some_wrong", inputs)):
    if index == 3:
      assert "index" in outputs.message()
    else:
      np.testing.assert_array_equal(outputs["picked"], TABLE[[index]])
  stats = statistics(server, "some_wrong")["inference_stats"]
  assert int(stats["fail"]["count"]) == 8 and int(stats["success"]["count"]) == 56


def test_outputs_of_a_batch_that_only_some_ask_for(server):
  server.load("some_outputs", function="linear", config=BATCHED)

  def send(seed):
    asked = [["y"], ["z"], None][seed % 3]
    return asked, rows(2, seed), server.infer("some_outputs", {"x": rows(2, seed)}, outputs=asked)

  with ThreadPoolExecutor(16) as pool:
    for asked, x, outputs in pool.map(send, range(60)):
      assert sorted(outputs) == (asked or ["y", "z"])
      if "y" in outputs:
        np.testing.assert_allclose(outputs["y"], linear(x), rtol=1e-6, atol=1e-6)


def test_instances_at_the_same_time(server):
  server.load("instances", function="linear", config="instance_group { count: 3 kind: KIND_CPU }\n")
  inputs = [{"x": rows(1 + seed % 60, seed)} for seed in range(300)]
  for each, outputs in zip(inputs, send_many(server, "instances", inputs)):
    np.testing.assert_allclose(outputs["y"], linear(each["x"]), rtol=1e-6, atol=1e-6)
  stats = statistics(server, "instances")["inference_stats"]
  assert int(stats["success"]["count"]) == 300
  assert 0 < int(stats["compute_infer"]["ns"]) <= int(stats["success"]["ns"])


def test_reload_under_load(server):
  """A model is replaced 20 times; no request is lost."""
  batched = BATCHED.replace("20000", "100")
  server.load("replaced", function="linear", config=batched)
  stop = threading.Event()
  wrong, answered = [], []

  def client(seed):
    x = rows(2, seed)
    while not stop.is_set():
      try:
        np.testing.assert_allclose(
          server.infer("replaced", {"x": x})["y"], linear(x), rtol=1e-6, atol=1e-6
        )
        answered.append(1)
      except Exception as error:
        wrong.append(error)

  threads = [threading.Thread(target=client, args=(seed,)) for seed in range(4)]
  for thread in threads:
    thread.start()
  loads = server.log.read_text().count("successfully unloaded 'replaced'")
  count = 0
  while not wrong and (count < 20 or len(answered) <= 100):
    count += 1
    config = batched.replace("16", str(16 + count % 2))
    server.load("replaced", function="linear", config=config)
    time.sleep(0.05)
  stop.set()
  for thread in threads:
    thread.join()
  assert wrong == []
  assert len(answered) > 100
  assert server.log.read_text().count("successfully unloaded 'replaced'") >= loads + 15
  server.http.unload_model("replaced")
  with pytest.raises(InferenceServerException):
    eventually(lambda: not server.infer("replaced", {"x": rows(2, 0)}))


def test_a_new_version_and_another_function(server):
  server.load("versions", function="linear")
  server.load("versions", function="linear", version=2)
  x = rows(2, 0)
  outputs = server.infer("versions", {"x": x}, model_version="2")
  np.testing.assert_allclose(outputs["y"], linear(x), rtol=1e-6, atol=1e-6)
  server.load("versions", function="transpose", version=2)
  np.testing.assert_array_equal(server.infer("versions", {"x": x})["y"], x.T)


def test_a_folder_without_a_config(server):
  """The name of the folder names the backend; the artifact has one function."""
  server.write("total.husk", "state")
  (server.repository / "total.husk" / "config.pbtxt").unlink()
  server.http.load_model("total.husk")
  x = np.array([[1, 2]], np.float32)
  np.testing.assert_array_equal(server.infer("total.husk", {"x": x})["sum"], x + 10)


def test_no_request_sees_the_state_of_another(server):
  server.load("total", "state")
  x = np.array([[1, 2]], np.float32)
  for _ in range(3):
    np.testing.assert_array_equal(server.infer("total", {"x": x})["sum"], x + 10)
  with pytest.raises(InferenceServerException, match="has states"):
    server.load("total_batch", "state", config="max_batch_size: 1\n")


def test_cancelled_requests(try_cancelling):
  """Requests of a stream that the client ends."""
  x = rows(20_000, 0)
  tensor = tritonclient.grpc.InferInput("x", list(x.shape), "FP32")
  tensor.set_data_from_numpy(x)

  def cancel(server):
    server.load("cancelled", function="transpose")
    for _ in range(3):
      results = []
      with server.grpc_client() as client:
        client.start_stream(lambda result, error, to=results: to.append((result, error)))
        for _ in range(50):
          client.async_stream_infer("cancelled", [tensor])
        client.stop_stream(cancel_requests=True)
      assert {str(error.status()) for _, error in results if error} <= {"StatusCode.CANCELLED"}
      np.testing.assert_array_equal(server.infer("cancelled", {"x": x})["y"], x.T)

  try_cancelling(cancel)


def test_clients_that_vanish(server):
  """HTTP clients that close their connections while requests are under way. (Such clients over
  gRPC can end this version of the server without a backend having a part in it.)"""
  server.load(
    "vanished", function="transpose", config="instance_group { count: 2 kind: KIND_CPU }\n"
  )
  x = rows(20_000, 0)
  head = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[20000,3],"parameters":' + (
    b'{"binary_data_size":%d}}]}' % x.nbytes
  )
  lines = [
    b"POST /v2/models/vanished/infer HTTP/1.1",
    b"Host: localhost",
    b"Inference-Header-Content-Length: %d" % len(head),
    b"Content-Length: %d" % (len(head) + x.nbytes),
  ]
  request = b"\r\n".join(lines) + b"\r\n\r\n" + head + x.tobytes()
  for length in [len(request), len(request) // 2, 100]:
    sockets = [socket.create_connection(("127.0.0.1", server.http_port)) for _ in range(16)]
    for each in sockets:
      each.sendall(request[:length])
    for each in sockets:
      each.close()
  np.testing.assert_array_equal(server.infer("vanished", {"x": x})["y"], x.T)
  assert server.is_alive()


def test_response_cache(start):
  import conftest

  caches = conftest.tritonserver().parents[1] / "caches"
  server = start(f"--cache-directory={caches}", "--cache-config=local,size=1000000")
  server.load("cached", function="linear", config="response_cache { enable: true }\n")
  x = rows(2, 0)
  for _ in range(3):
    np.testing.assert_allclose(server.infer("cached", {"x": x})["y"], linear(x), atol=1e-6)
  stats = statistics(server, "cached")["inference_stats"]
  assert int(stats["cache_hit"]["count"]) == 2


def test_stop_with_requests_under_way(start):
  server = start()
  server.load("linear", function="linear", config=BATCHED)
  stop = threading.Event()

  def client():
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=HANG)
    body = '{"inputs":[{"name":"x","datatype":"FP32","shape":[1,3],"data":[1,2,3]}]}'
    try:
      while not stop.is_set():
        connection.request("POST", "/v2/models/linear/infer", body)
        connection.getresponse().read()
    except OSError:
      pass
    except http.client.HTTPException:
      pass
    connection.close()

  threads = [threading.Thread(target=client) for _ in range(8)]
  for thread in threads:
    thread.start()
  time.sleep(0.5)
  stopper = threading.Timer(1, stop.set)
  stopper.start()
  assert server.stop() == 0
  for thread in threads:
    thread.join()


def test_threads_of_the_backend(start):
  server = start("--backend-config=husk,threads=2")
  server.load("linear", function="linear")
  x = rows(64, 0)
  np.testing.assert_allclose(server.infer("linear", {"x": x})["y"], linear(x), atol=1e-5)
  for value, words in [("some", "threads"), ("5000", "at most 1024")]:
    server = start(f"--backend-config=husk,threads={value}")
    with pytest.raises(InferenceServerException) as caught:
      server.load("linear", function="linear")
    assert words in caught.value.message()


def test_two_models_of_one_file_share_nothing_but_constants(server):
  """Models load, run and unload in any order."""
  for _ in range(3):
    server.load("one", function="linear")
    server.load("other", function="pick")
    x = rows(2, 0)
    np.testing.assert_allclose(server.infer("one", {"x": x})["y"], linear(x), atol=1e-5)
    server.http.unload_model("one")
    picked = server.infer("other", {"rows": np.array([1])})["picked"]
    np.testing.assert_array_equal(picked, TABLE[[1]])
    server.http.unload_model("other")
