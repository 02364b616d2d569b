"""Functions that continue a sequence of tokens: as a stream, and as requests of a sequence."""

import http.client
import json

import numpy as np
import pytest
from conftest import FUNCTIONS, HANG, STREAM, continued, stream
from tritonclient.utils import InferenceServerException


@pytest.fixture(scope="module")
def model(server):
  server.load("stream", "generate", config=STREAM + FUNCTIONS + "instance_group { count: 2 }\n")
  return server


@pytest.mark.parametrize("prompt", [[0], [3, 1, 4], [1, 1, 1, 1, 1, 1]])
def test_streams(model, prompt):
  expected = continued(prompt, 40)
  assert len(set(expected)) > 6
  assert stream(model, prompt, max_tokens=40) == (expected, None)
  assert stream(model, prompt, max_tokens=1) == (expected[:1], None)
  assert stream(model, prompt) == (expected[:32], None)
  assert stream(model, prompt, stop_token=expected[4]) == (
    expected[: expected.index(expected[4]) + 1],
    None,
  )


def test_events_over_http(model):
  connection = http.client.HTTPConnection("127.0.0.1", model.http_port, timeout=HANG)
  body = json.dumps({"tokens": [3, 1, 4], "max_tokens": 5})
  connection.request("POST", "/v2/models/stream/generate_stream", body)
  answer = connection.getresponse()
  assert answer.status == 200
  events = [line for line in answer.read().decode().splitlines() if line.startswith("data: ")]
  connection.close()
  tokens = [json.loads(event.removeprefix("data: "))["token"] for event in events]
  assert tokens == continued([3, 1, 4], 5)


def test_wrong_streams(model):
  for prompt, parameters, words in [
    ([9], {}, "index"),
    ([0] * 7, {}, "input 'tokens'"),
    ([0], {"max_tokens": 0}, "max_tokens"),
    ([0], {"max_tokens": "5"}, "max_tokens"),
  ]:
    tokens, error = stream(model, prompt, **parameters)
    assert tokens == [] and words in error.message()
  assert stream(model, [0], max_tokens=3) == (continued([0], 3), None)


def test_a_cancelled_stream_ends(try_cancelling):
  """It would take minutes to its end."""

  def cancel(server):
    server.load("stream", "generate", config=STREAM + FUNCTIONS + "instance_group { count: 2 }\n")
    for _ in range(3):
      tokens, _ = stream(server, [0], cancel_after=5, max_tokens=1 << 40)
      assert tokens == continued([0], 5)
    # Both instances answer again.
    for _ in range(4):
      assert stream(server, [0], max_tokens=3) == (continued([0], 3), None)

  try_cancelling(cancel)


def test_statistics(model):
  def count():
    stats = model.http.get_inference_statistics("stream")["model_stats"][0]
    return int(stats["inference_stats"]["success"]["count"]), int(stats["execution_count"])

  before = count()
  stream(model, [0], max_tokens=3)
  assert count() == (before[0] + 1, before[1] + 1)


def test_a_sequence_calls_the_next_function(server):
  config = "sequence_batching { oldest { max_candidate_sequences: 8 } }\n" + FUNCTIONS
  server.load("dialogue", "generate", config=config)

  def request(tokens, number, **flags):
    inputs = {"tokens": np.array(tokens, np.int64)}
    return server.infer("dialogue", inputs, sequence_id=number, **flags)["logits"]

  prompts = {1: [3, 1, 4], 2: [0]}
  tokens = {}
  for number, prompt in prompts.items():
    tokens[number] = [int(request(prompt, number, sequence_start=True).argmax())]
  for _ in range(9):
    for number in prompts:
      tokens[number].append(int(request(tokens[number][-1:], number).argmax()))
  for number, prompt in prompts.items():
    assert tokens[number] == continued(prompt, 10)
  with pytest.raises(InferenceServerException, match="tokens"):
    request([1, 2], 1)  # `decode` takes one token


def test_wrong_configs(server):
  for name, artifact, config, words in [
    ("next_alone", "generate", FUNCTIONS, "next_function"),
    (
      "next_differs",
      "functions",
      STREAM + FUNCTIONS.replace("prefill", "linear").replace("decode", "pick"),
      "'linear' and 'pick'",
    ),
    ("next_missing", "generate", STREAM + FUNCTIONS.replace("decode", "code"), "'code'"),
    (
      "no_tokens",
      "functions",
      STREAM + FUNCTIONS.replace("prefill", "linear").replace("decode", "linear"),
      "tokens",
    ),
    (
      "no_logits",
      "functions",
      STREAM + FUNCTIONS.replace("prefill", "nonzero").replace("decode", "nonzero"),
      "tokens",
    ),
    ("batched_stream", "generate", STREAM + FUNCTIONS + "max_batch_size: 1\n", "decoupled"),
  ]:
    with pytest.raises(InferenceServerException) as caught:
      server.load(name, artifact, config=config)
    assert words in caught.value.message()
