"""Sequences: each has a session of its own, and so a state of its own."""

from concurrent.futures import ThreadPoolExecutor

import idle_sequences
import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

OLDEST = """
sequence_batching { oldest { max_candidate_sequences: 32 } }
instance_group { count: 2 kind: KIND_CPU }
"""
DIRECT = """
max_batch_size: 1
sequence_batching { direct {} }
instance_group { count: 4 kind: KIND_CPU }
"""


def step(server, model, sequence, value, client="http", **flags):
  x = np.full((1, 2), value, np.float32)
  names = {"start": "sequence_start", "end": "sequence_end"}
  more = {names[key]: flag for key, flag in flags.items()}
  sums = server.infer(model, {"x": x}, client, sequence_id=sequence, **more)["sum"]
  assert sums[0, 0] == sums[0, 1]
  return float(sums[0, 0])


@pytest.mark.parametrize("client", ["http", "grpc"])
@pytest.mark.parametrize("strategy", ["oldest", "direct"])
def test_sequences_at_the_same_time(server, strategy, client):
  model = f"sequences_{strategy}_{client}"
  server.load(model, "state", config=OLDEST if strategy == "oldest" else DIRECT)

  def sequence(number):
    total = 10.0
    for count in range(20):
      total += number
      flags = dict(start=count == 0, end=count == 19)
      assert step(server, model, number, number, client, **flags) == total

  with ThreadPoolExecutor(4) as pool:
    list(pool.map(sequence, range(1, 25)))


def test_ids_that_are_texts(server):
  server.load("texts", "state", config=OLDEST)
  assert step(server, "texts", "a", 1, start=True) == 11
  assert step(server, "texts", "b", 2, start=True) == 12
  assert step(server, "texts", "a", 1) == 12
  assert step(server, "texts", "b", 2) == 14


def test_a_start_begins_anew(server):
  server.load("anew", "state", config=OLDEST)
  assert step(server, "anew", 1, 1, start=True) == 11
  assert step(server, "anew", 1, 1) == 12
  assert step(server, "anew", 1, 1, start=True) == 11
  assert step(server, "anew", 1, 1, end=True) == 12
  # A later sequence gets the session of one that has ended.
  assert step(server, "anew", 2, 5, start=True, end=True) == 15


def test_a_sequence_that_ended_or_never_began(server):
  server.load("ended", "state", config=OLDEST)
  step(server, "ended", 1, 1, start=True, end=True)
  for sequence in [1, 99]:
    with pytest.raises(InferenceServerException) as caught:
      step(server, "ended", sequence, 1)
    assert caught.value.status() == "400"


def test_a_wrong_request_does_not_end_a_sequence(server):
  server.load("goes_on", "state", config=OLDEST)
  assert step(server, "goes_on", 1, 1, start=True) == 11
  with pytest.raises(InferenceServerException):
    server.infer("goes_on", {"x": np.ones((1, 3), np.float32)}, sequence_id=1)
  assert step(server, "goes_on", 1, 1) == 12


def test_limit_and_idle_time(server):
  server.load("few", "state", config=idle_sequences.CONFIG)
  idle_sequences.check(lambda sequence, **flags: step(server, "few", sequence, 1, **flags), 11)


def test_a_reload_ends_sequences(server):
  server.load("reloaded", "state", config=OLDEST)
  assert step(server, "reloaded", 1, 1, start=True) == 11
  server.load("reloaded", "state", config=OLDEST.replace("count: 2", "count: 1"))
  with pytest.raises(InferenceServerException):
    step(server, "reloaded", 1, 1)


def test_implicit_state_is_refused(server):
  state = 'state { input_name: "a" output_name: "b" data_type: TYPE_FP32 dims: [1] }'
  config = "sequence_batching { oldest { } " + state + " }\n"
  with pytest.raises(InferenceServerException, match="sequence_batching.state"):
    server.load("implicit", "state", config=config)
