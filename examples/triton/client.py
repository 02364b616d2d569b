"""Sends requests to the server that run.sh has started, over HTTP and gRPC."""

import http.client
import json
import sys

import numpy as np
import tritonclient.grpc
import tritonclient.http

x = 0.01 * np.arange(4 * 32, dtype=np.float32).reshape(4, 32)
answers = []
for module, address in [(tritonclient.http, sys.argv[1]), (tritonclient.grpc, sys.argv[2])]:
  client = module.InferenceServerClient(address)
  for model in ["mlp", "mlp_batched"]:
    metadata = client.get_model_metadata(model)
    if module is tritonclient.http:
      name, output = metadata["inputs"][0]["name"], metadata["outputs"][0]["name"]
    else:
      name, output = metadata.inputs[0].name, metadata.outputs[0].name
    tensor = module.InferInput(name, list(x.shape), "FP32")
    tensor.set_data_from_numpy(x)
    answers.append(client.infer(model, [tensor]).as_numpy(output))
    print(f"{address} {model}: {name} {list(x.shape)} -> {output} {list(answers[-1].shape)}")
  client.close()
np.set_printoptions(precision=4, suppress=True)
print(answers[0])
if any(not np.allclose(answers[0], other, atol=1e-6) for other in answers):
  sys.exit("the answers differ")

# A stream of tokens, as events of HTTP.
connection = http.client.HTTPConnection(sys.argv[1])
body = json.dumps({"tokens": [5, 17, 200], "max_tokens": 8})
connection.request("POST", "/v2/models/gpt/generate_stream", body)
tokens = []
for line in connection.getresponse():
  if line.startswith(b"data: "):
    tokens.append(json.loads(line.removeprefix(b"data: "))["token"])
print("gpt: 5 17 200 ->", *tokens)
