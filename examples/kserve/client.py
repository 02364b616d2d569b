"""Sends requests of the KServe v2 protocol to the server that run.sh has started."""

import http.client
import json
import sys

import numpy as np

connection = http.client.HTTPConnection(sys.argv[1])


def ask(method, path, body=None):
  """Returns the answer, whose lines are read by the caller."""
  text = json.dumps(body) if body is not None else None
  connection.request(method, path, text, {"Content-Type": "application/json"})
  answer = connection.getresponse()
  if answer.status != 200:
    sys.exit(f"{path}: {answer.status} {answer.read().decode()}")
  return answer


x = 0.01 * np.arange(4 * 32, dtype=np.float32).reshape(4, 32)
answers = []
for model in ["mlp", "mlp_batched"]:
  described = json.load(ask("GET", f"/v2/models/{model}"))
  name = described["inputs"][0]["name"]
  tensor = {"name": name, "datatype": "FP32", "shape": x.shape, "data": x.reshape(-1).tolist()}
  output = json.load(ask("POST", f"/v2/models/{model}/infer", {"inputs": [tensor]}))["outputs"][0]
  answers.append(np.array(output["data"]).reshape(output["shape"]))
  print(f"{model}: {name} {list(x.shape)} -> {output['name']} {output['shape']}")
np.set_printoptions(precision=4, suppress=True)
print(answers[0])
if not np.allclose(answers[0], answers[1], atol=1e-6):
  sys.exit("the answers differ")

# A stream of tokens, as server-sent events.
prompt = {"name": "tokens", "datatype": "INT64", "shape": [3], "data": [5, 17, 200]}
body = {"inputs": [prompt], "parameters": {"max_tokens": 8}}
tokens = []
for line in ask("POST", "/v2/models/gpt/infer_stream", body):
  if line.startswith(b"data: "):
    event = json.loads(line.removeprefix(b"data: "))
    if not event["outputs"]:
      sys.exit(event["parameters"]["error"])
    tokens.append(event["outputs"][0]["data"][0])
print("gpt: 5 17 200 ->", *tokens)
