"""Serves the models of run.sh by two replicas, and asks them. `send` is how a client asks so that
no request is lost when a replica ends."""

import http.client
import json
import os
import pathlib
import signal
import sys
import threading
import time

import numpy as np
import ray
from husk.serve import ray as husk_ray
from ray import serve

FOLDER, PORT = pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2])


def run(artifact):
  """Starts the application, or replaces its models in one replica after the other."""
  models = {
    "mlp": {"path": f"{FOLDER}/{artifact}", "max_batch_size": 64},
    "gpt": {"path": f"{FOLDER}/gpt.husk", "function": "prefill", "next_function": "decode"},
  }
  replicas = {"num_replicas": 2, "ray_actor_options": {"num_cpus": 0.5}}
  serve.run(husk_ray.application(models, deployment=replicas), route_prefix="/")


def request(method, path, body=None):
  """Sends one request, and returns the status and the text of the answer."""
  connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=600)
  try:
    connection.request(method, path, None if body is None else json.dumps(body))
    answer = connection.getresponse()
    return answer.status, answer.read().decode()
  finally:
    connection.close()


def send(path, body, seconds=600, on_retry=lambda: None):
  """Sends a request until it is answered. It may be sent twice, so it must not change anything on
  the server; requests to Husk do not. Retryable are: a lost connection, 503, and an answer of Ray
  itself, which has no JSON, when the replica has died. Other errors are those of the request."""
  end, pause = time.monotonic() + seconds, 0.05
  while True:
    try:
      status, text = request("POST", path, body)
      is_json = text.startswith(("{", "data:"))
      if status == 200:
        return text
      if is_json and status != 503:
        raise RuntimeError(f"{path}: {status} {text}")
    except (OSError, http.client.HTTPException):
      pass
    if time.monotonic() > end:
      raise TimeoutError(f"{path} was not answered in {seconds} s")
    on_retry()
    time.sleep(pause)
    pause = min(2 * pause, 1)


def rows(x):
  return {
    "inputs": [
      {"name": INPUT, "datatype": "FP32", "shape": x.shape, "data": x.reshape(-1).tolist()}
    ]
  }


def infer(x, **options):
  output = json.loads(send("/v2/models/mlp/infer", rows(x), **options))["outputs"][0]
  return np.array(output["data"]).reshape(output["shape"])


def wait_for(is_true):
  while not is_true():
    time.sleep(0.1)


def under_load(name, action):
  """Calls `action` while four clients send requests, and says what became of these."""
  answers, retries, lost, stop = [], [], [], threading.Event()

  def client():
    while not stop.is_set():
      try:
        right = np.allclose(infer(X, on_retry=lambda: retries.append(1)), EXPECTED, atol=1e-5)
        (answers if right else lost).append(1)
      except Exception as error:
        lost.append(error)

  threads = [threading.Thread(target=client) for _ in range(4)]
  for thread in threads:
    thread.start()
  wait_for(lambda: lost or len(answers) >= 20)
  action()
  count = len(answers) + 20
  wait_for(lambda: lost or len(answers) >= count)
  stop.set()
  for thread in threads:
    thread.join()
  print(f"{name}: {len(answers)} answers, {len(retries)} sent again, {len(lost)} lost", flush=True)
  if lost:
    sys.exit(f"lost: {lost[0]}")


def kill_a_replica():
  """Ends the process of a replica, as the kernel does when memory is exhausted."""
  victim = serve.get_app_handle("default").process.remote().result()
  os.kill(victim, signal.SIGKILL)


ray.init(
  num_cpus=2,
  include_dashboard=False,
  object_store_memory=200_000_000,
  logging_level="ERROR",
  log_to_driver=False,
)
serve.start(http_options={"host": "127.0.0.1", "port": PORT})
try:
  run("mlp-1.husk")
  INPUT = json.loads(request("GET", "/v2/models/mlp")[1])["inputs"][0]["name"]
  X = 0.01 * np.arange(4 * 32, dtype=np.float32).reshape(4, 32)
  EXPECTED = infer(X)
  np.set_printoptions(precision=4, suppress=True)
  print(f"mlp: {INPUT} {list(X.shape)} -> {list(EXPECTED.shape)}")
  print(EXPECTED)

  prompt = {"name": "tokens", "datatype": "INT64", "shape": [3], "data": [5, 17, 200]}
  body = {"inputs": [prompt], "parameters": {"max_tokens": 8}}
  events = send("/v2/models/gpt/infer_stream", body).split("\n\n")[:-1]
  tokens = [json.loads(one.removeprefix("data: "))["outputs"][0]["data"][0] for one in events]
  print("gpt: 5 17 200 ->", *tokens, flush=True)

  under_load("update", lambda: run("mlp-2.husk"))
  under_load("killed", kill_a_replica)
finally:
  serve.shutdown()
  ray.shutdown()
