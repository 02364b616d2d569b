"""Models with several functions of a file, of which each request chooses one by a parameter."""

import http.client
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import HANG, HERE, TABLE, compile_text, continued, linear
from tritonclient.utils import InferenceServerException

CLIENTS = ["http", "grpc"]
INVALID = {"http": "400", "grpc": "StatusCode.INVALID_ARGUMENT"}
X = np.arange(12, dtype=np.float32).reshape(4, 3)
ROWS = np.array([2, 0, 2], np.int64)


def choice(functions):
  return f'parameters {{ key: "functions" value {{ string_value: "{functions}" }} }}\n'


@pytest.fixture(scope="module")
def chosen(server):
  server.load("chosen", config=choice("linear, pick,transpose"))
  return server


def call(server, function, inputs, client="http", model="chosen", **more):
  parameters = {} if function is None else {"function": function}
  return server.infer(model, inputs, client, parameters=parameters, **more)


@pytest.mark.parametrize("client", CLIENTS)
def test_each_request_chooses(chosen, client):
  for _ in range(2):
    for function in [None, "linear"]:
      outputs = call(chosen, function, {"x": X}, client)
      assert list(outputs) == ["y", "z"]
      np.testing.assert_allclose(outputs["y"], linear(X), rtol=1e-6)
    outputs = call(chosen, "pick", {"rows": ROWS}, client)
    assert list(outputs) == ["picked"]
    np.testing.assert_array_equal(outputs["picked"], TABLE[ROWS])
    outputs = call(chosen, "transpose", {"x": X}, client)
    assert list(outputs) == ["y"]
    np.testing.assert_array_equal(outputs["y"], X.T)
  # An output is asked for by its name.
  assert list(call(chosen, "linear", {"x": X}, client, outputs=["z"])) == ["z"]
  assert list(call(chosen, "pick", {"rows": ROWS}, client, outputs=["picked"])) == ["picked"]


def test_the_config_has_the_inputs_of_all_functions(chosen):
  config = chosen.http.get_model_config("chosen")
  inputs = {each["name"]: each for each in config["input"]}
  assert sorted(inputs) == ["rows", "x"]
  assert inputs["x"]["optional"] and inputs["rows"]["optional"]
  assert inputs["x"]["dims"] == [-1, 3] and inputs["rows"]["dims"] == [-1]
  assert [each["name"] for each in config["output"]] == ["y", "z", "picked"]
  # An input that all functions have is not optional.
  chosen.load("both", config=choice("linear, transpose"))
  (x,) = chosen.http.get_model_config("both")["input"]
  assert not x["optional"]


# The function, the inputs, the outputs that are asked for, and words of the error.
WRONG = {
  "unknown": ("nonzero", {"x": X}, None, ["'nonzero'", "linear, pick, transpose"]),
  "empty": ("", {"x": X}, None, ["'function'", "linear, pick, transpose"]),
  "no text": (3, {"x": X}, None, ["'function'", "text"]),
  "missing": ("pick", {}, None, ["'rows'", "'pick'"]),
  "other input": ("pick", {"x": X}, None, ["'x'", "'pick'", "has rows"]),
  "one too many": ("linear", {"x": X, "rows": ROWS}, None, ["'rows'", "'linear'", "has x"]),
  "default": (None, {"rows": ROWS}, None, ["'rows'", "'linear'"]),
  "other output": ("linear", {"x": X}, ["picked"], ["'picked'", "'linear'", "has y, z"]),
  "shape": ("linear", {"x": np.ones((65, 3), np.float32)}, None, ["input 'x'", "65"]),
  "columns": ("transpose", {"x": np.ones((2, 4), np.float32)}, None, ["x", "3"]),
  "type": ("linear", {"x": np.ones((2, 3))}, None, ["x", "FP32"]),
  "index": ("pick", {"rows": np.array([7])}, None, ["index"]),
}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("case", WRONG)
def test_wrong_requests(chosen, case, client):
  function, inputs, outputs, words = WRONG[case]
  if not inputs and client == "http":  # this client does not send such a request
    status, text = post(chosen, "chosen", {"inputs": [], "parameters": {"function": function}})
  else:
    with pytest.raises(InferenceServerException) as caught:
      call(chosen, function, inputs, client, outputs=outputs)
    status, text = caught.value.status(), caught.value.message()
  assert status == INVALID[client], text
  for word in words:
    assert word in text
  np.testing.assert_array_equal(call(chosen, "pick", {"rows": ROWS})["picked"], TABLE[ROWS])


def post(server, model, body):
  connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=HANG)
  connection.request("POST", f"/v2/models/{model}/infer", json.dumps(body))
  answer = connection.getresponse()
  result = str(answer.status), answer.read().decode()
  connection.close()
  return result


def test_a_request_over_plain_http(chosen):
  body = {
    "parameters": {"function": "pick"},
    "inputs": [{"name": "rows", "datatype": "INT64", "shape": [2], "data": [1, 2]}],
  }
  status, text = post(chosen, "chosen", body)
  assert status == "200"
  (output,) = json.loads(text)["outputs"]
  assert output["name"] == "picked" and output["data"] == TABLE[[1, 2]].ravel().tolist()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_model_of_one_function_refuses_others(server, client):
  server.load("only", function="linear")
  np.testing.assert_allclose(
    call(server, "linear", {"x": X}, client, "only")["y"], linear(X), rtol=1e-6
  )
  with pytest.raises(InferenceServerException, match="'transpose'.* linear") as caught:
    call(server, "transpose", {"x": X}, client, "only")
  assert caught.value.status() == INVALID[client]


# Takes the inputs of `linear`, so that the server gathers requests for both.
SAME = """
function same {
  input x tensor f32 [1..64, 3]
  output y tensor f32 rank 2
  variant cpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 12)
    buffer y of output bytes mul(n, 12)
    copy (write y, read x)
    return (tensor y f32 [n, 3] [3, 1])
  }
}
"""


def test_batches_are_of_one_function(server, artifacts, tmp_path):
  text = tmp_path / "same.hir"
  text.write_text((HERE / "functions.hir").read_text() + SAME)
  compile_text(text, artifacts / "same.husk")
  batched = "max_batch_size: 16\ndynamic_batching { max_queue_delay_microseconds: 20000 }\n"
  server.load("batches", "same", config=batched + choice("linear, same"))

  def send(seed):
    x = np.random.default_rng(seed).standard_normal((1 + seed % 3, 3)).astype(np.float32)
    function, expected = ("linear", linear(x)) if seed % 2 else ("same", x)
    y = call(server, function, {"x": x}, "grpc", "batches")["y"]
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)

  with ThreadPoolExecutor(16) as pool:
    list(pool.map(send, range(160)))
  stats = server.http.get_inference_statistics("batches")["model_stats"][0]
  assert int(stats["execution_count"]) < 120
  assert int(stats["inference_stats"]["success"]["count"]) == 160


def test_the_functions_of_a_sequence_share_its_state(server):
  sequences = "sequence_batching { oldest { max_candidate_sequences: 8 } }\n"
  server.load("sequences_chosen", "generate", config=sequences + choice("prefill, decode"))

  def step(sequence, function, tokens, **flags):
    inputs = {"tokens": np.array(tokens, np.int64)}
    logits = call(
      server, function, inputs, "grpc", "sequences_chosen", sequence_id=sequence, **flags
    )
    return int(logits["logits"].argmax())

  prompts = {1: [3, 1], 2: [5]}
  tokens = {each: [step(each, "prefill", prompts[each], sequence_start=True)] for each in prompts}
  for _ in range(4):
    for each in prompts:
      tokens[each].append(step(each, "decode", tokens[each][-1:]))
  for each in prompts:
    assert tokens[each] == continued(prompts[each], 5)


# Configurations that do not fit, and words of the errors.
CONFIGS = {
  "unknown": (choice("linear, f"), ["'f'", "linear, numbers"]),
  "rank": (choice("linear, nonzero"), ["input 'x'", "'nonzero'", "rank"]),
  "default": (
    choice("linear, pick") + 'parameters { key: "function" value { string_value: "numbers" } }',
    ["'numbers'", "functions"],
  ),
  "next": (
    choice("linear, pick") + 'parameters { key: "next_function" value { string_value: "pick" } }',
    ["next_function"],
  ),
  "cache": (choice("linear, pick") + "response_cache { enable: true }", ["response_cache"]),
  "decoupled": (
    choice("linear, pick") + "model_transaction_policy { decoupled: true }",
    ["decoupled"],
  ),
  "batch": (choice("linear, numbers") + "max_batch_size: 2", ["'one'", "no batch"]),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_wrong_configs(server, case):
  config, words = CONFIGS[case]
  with pytest.raises(InferenceServerException) as caught:
    server.load("choice_" + case, config=config + "\n")
  for word in words:
    assert word in caught.value.message(), caught.value


def test_the_default_need_not_be_the_first(server):
  config = choice("linear, transpose")
  server.load("second", config=config, function="transpose")
  np.testing.assert_array_equal(call(server, None, {"x": X}, model="second")["y"], X.T)
  np.testing.assert_array_equal(call(server, "linear", {"x": X}, model="second")["z"], X)
