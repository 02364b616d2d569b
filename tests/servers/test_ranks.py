"""Models whose artifact is for two ranks, which run on threads of one server."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

import idle_sequences
import numpy as np
import pytest
from conftest import STREAM, compile_text, library
from tritonclient.utils import InferenceServerException

# y: x of both ranks. z: the largest number of a rank, counted from 1. The function `fails` does so
# on rank 1, before it takes part.
FUNCTIONS = """
hir 1
world 2 rank RANK set "7777777777777777777777777777777777777777777777777777777777777777"
target place TARGET
function sums {
  input x tensor f32 [1..64, 4]
  output y tensor f32 rank 2
  output z tensor f32 rank 2
  variant place {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 16) align 16
    buffer y of output bytes mul(n, 16) align 16
    buffer z of output bytes mul(n, 16) align 16
    buffer order bytes 1
    extern "husk::all_reduce" (read tensor x f32 [n, 4] [4, 1], "sum", [0, 1],
      write tensor y f32 [n, 4] [4, 1], write tensor order u8 [1] [1])
    fill f32 (write z, NUMBER.0)
    extern "husk::all_reduce" (both tensor z f32 [n, 4] [4, 1], "max", [0, 1],
      both tensor z f32 [n, 4] [4, 1], write tensor order u8 [1] [1])
    return (tensor y f32 [n, 4] [4, 1], tensor z f32 [n, 4] [4, 1])
  }
}
function fails {
  input x tensor f32 [1..64, 4]
  output y tensor f32 rank 2
  variant place {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 16) align 16
    buffer y of output bytes mul(n, 16) align 16
    buffer a bytes mul(n, 16) align 64 ON_HOST
    buffer b bytes mul(n, 16) align 64 ON_HOST
    buffer order bytes 1
    copy (write a, read x)
    extern "aten::cumsum" (read tensor a f32 [n, 4] [4, 1], DIM, none,
      write tensor b f32 [n, 4] [4, 1])
    copy (write y, read b)
    extern "husk::all_reduce" (both tensor y f32 [n, 4] [4, 1], "sum", [0, 1],
      both tensor y f32 [n, 4] [4, 1], write tensor order u8 [1] [1])
    return (tensor y f32 [n, 4] [4, 1])
  }
}
"""
# sum: of both ranks, what their states have. A state begins with 10, and `add` adds x of both ranks
# and the number of the rank, counted from 1; `show` adds nothing. `fails` does so on rank 1, after
# it has written the state of both.
STATES = """
hir 1
world 2 rank RANK set "8888888888888888888888888888888888888888888888888888888888888888"
target place TARGET
constant zero i64 [1] bytes "0000000000000000"
state total f32 [1, 4] fill 10
function add {
  input x tensor f32 [1, 4]
  output sum tensor f32 rank 2
  variant place {
    buffer x of input bytes 16 align 16
    buffer sum of output bytes 16 align 16
    ADD
    SUM
    return (tensor sum f32 [1, 4] [4, 1])
  }
}
function show {
  input x tensor f32 [1, 4]
  output sum tensor f32 rank 2
  variant place {
    buffer x of input bytes 16 align 16
    buffer sum of output bytes 16 align 16
    buffer order bytes 1
    SUM
    return (tensor sum f32 [1, 4] [4, 1])
  }
}
function fails {
  input x tensor f32 [1, 4]
  output sum tensor f32 rank 2
  variant place {
    buffer x of input bytes 16 align 16
    buffer sum of output bytes 16 align 16
    ADD
    extern "aten::cumsum" (read tensor a f32 [1, 4] [4, 1], DIM, none,
      write tensor b f32 [1, 4] [4, 1])
    copy (write sum, read b)
    SUM
    return (tensor sum f32 [1, 4] [4, 1])
  }
}
"""
ADD = """
    buffer s bytes 16 align 64
    buffer a bytes 16 align 64 ON_HOST
    buffer b bytes 16 align 64 ON_HOST
    buffer k bytes 8 align 64 ON_HOST
    buffer order bytes 1
    extern "husk::all_reduce" (read tensor x f32 [1, 4] [4, 1], "sum", [0, 1],
      write tensor s f32 [1, 4] [4, 1], write tensor order u8 [1] [1])
    copy (write a, read total)
    copy (write b, read s)
    copy (write k, read zero)
    extern "aten::index_put_" (both tensor a f32 [1, 4] [4, 1],
      tensors [read tensor k i64 [1] [1], none], read tensor b f32 [1, 4] [4, 1], true)
    fill f32 (write s, NUMBER.0)
    copy (write b, read s)
    extern "aten::index_put_" (both tensor a f32 [1, 4] [4, 1],
      tensors [read tensor k i64 [1] [1], none], read tensor b f32 [1, 4] [4, 1], true)
    copy (write total, read a)
"""
SUM = """
    copy (write sum, read total)
    extern "husk::all_reduce" (both tensor sum f32 [1, 4] [4, 1], "sum", [0, 1],
      both tensor sum f32 [1, 4] [4, 1], write tensor order u8 [1] [1])
"""
STATES = STATES.replace("ADD", ADD).replace("SUM", SUM)
RANKS = """
instance_group { count: COUNT kind: KIND_CPU }
parameters { key: "ranks" value { string_value: "2" } }
parameters { key: "group_timeout_ms" value { string_value: "2000" } }
"""
CPU = RANKS.replace("COUNT", "1")
BATCHED = "max_batch_size: 16\ndynamic_batching { max_queue_delay_microseconds: 20000 }\n"
BOTH = 'parameters { key: "functions" value { string_value: "sums, fails" } }\n'


def joined(artifacts, name, target, on_host, program=FUNCTIONS):
  """Writes an artifact of two ranks; returns its name."""
  parts = []
  for rank in range(2):
    text = program.replace("RANK", str(rank)).replace("NUMBER", str(rank + 1))
    text = text.replace("TARGET", target).replace("ON_HOST", on_host)
    text = text.replace("DIM", "9" if rank == 1 else "0")
    file = artifacts / f"{name}.{rank}.text"
    file.write_text(text)
    compile_text(file, file.with_suffix(".part"))
    parts.append(file.with_suffix(".part"))
  command = [os.environ["HUSKC"], *parts, "-o", artifacts / f"{name}.husk"]
  subprocess.run(command, check=True, capture_output=True)
  return name


@pytest.fixture(scope="session")
def ranked(artifacts):
  return joined(artifacts, "ranks", 'host "x86-64"', "")


@pytest.fixture(scope="session")
def ranked_gpu(artifacts):
  return joined(artifacts, "ranks_gpu", 'cuda "sm_80"', "on host")


@pytest.fixture(scope="session")
def states(artifacts):
  return joined(artifacts, "rank_states", 'host "x86-64"', "", STATES)


@pytest.fixture(scope="session")
def states_gpu(artifacts):
  return joined(artifacts, "rank_states_gpu", 'cuda "sm_80"', "on host", STATES)


@pytest.fixture(scope="module")
def gpus(start, tmp_path_factory):
  """A server with two GPUs of tests/fake_driver that reach the memory of each other. There is no
  NCCL: the fake one needs ranks that are processes, and another library of that name hides a real
  one."""
  driver = library().parents[3] / "fake_driver" / "libcuda.so.1"
  if not driver.exists():
    pytest.skip("the target fake_driver is not built")
  folder = tmp_path_factory.mktemp("driver")
  (folder / driver.name).symlink_to(driver)
  (folder / "libnccl.so.2").symlink_to(driver)
  paths = f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"
  devices = {"FAKE_CUDA_DEVICES": "2", "FAKE_PEERS": "1"}
  return start(environment={"LD_LIBRARY_PATH": paths, **devices})


def rows(count, seed=0):
  return np.random.default_rng(seed).integers(-9, 9, (count, 4)).astype(np.float32)


def check(x, outputs):
  np.testing.assert_array_equal(outputs["y"], 2 * x)
  np.testing.assert_array_equal(outputs["z"], np.full_like(x, 2))


@pytest.mark.parametrize("count", [1, 2])
def test_values(server, ranked, count):
  """Several instances take turns."""
  name = f"ranked{count}"
  server.load(name, ranked, RANKS.replace("COUNT", str(count)), "sums")
  inputs = [rows(1 + seed % 5, seed) for seed in range(24)]
  with ThreadPoolExecutor(4) as pool:
    for x, outputs in zip(inputs, pool.map(lambda x: server.infer(name, {"x": x}), inputs)):
      check(x, outputs)
  server.http.unload_model(name)


def test_batches(server, ranked):
  server.load("ranked_batches", ranked, CPU + BATCHED, "sums")
  inputs = [rows(1 + seed % 3, seed) for seed in range(48)]
  infer = lambda x: server.infer("ranked_batches", {"x": x})  # noqa: E731
  with ThreadPoolExecutor(16) as pool:
    for x, outputs in zip(inputs, pool.map(infer, inputs)):
      check(x, outputs)
  stats = server.http.get_inference_statistics("ranked_batches")["model_stats"][0]
  assert int(stats["execution_count"]) < 48
  assert int(stats["inference_stats"]["fail"]["count"]) == 0


def fail_one_rank(server, name, artifact, config):
  """A model of which one rank fails, and that is unloaded then."""
  server.load(name, artifact, config)
  x = rows(3)
  check(x, server.infer(name, {"x": x}, outputs=["y", "z"]))
  with pytest.raises(InferenceServerException, match=r"rank 1: .*cumsum"):
    server.infer(name, {"x": x}, outputs=["y"], parameters={"function": "fails"})
  with pytest.raises(InferenceServerException, match=r"rank [01]: .*of no more use"):
    server.infer(name, {"x": x}, outputs=["y", "z"])
  server.http.unload_model(name)


def test_an_error_of_one_rank(server, ranked):
  """The request gets the status of the rank that failed, later ones that of the group, and a model
  that is loaded again answers."""
  fail_one_rank(server, "ranked_errors", ranked, CPU + BOTH)
  server.load("ranked_errors", ranked, CPU + BOTH)
  x = rows(3)
  check(x, server.infer("ranked_errors", {"x": x}, outputs=["y", "z"]))


GPU = CPU.replace("KIND_CPU", "KIND_MODEL") + (
  'parameters { key: "device" value { string_value: "cuda:0" } }\n'
)


def test_two_gpus(gpus, ranked_gpu):
  gpus.load("ranked_gpu", ranked_gpu, GPU + BATCHED, "sums")
  for count in (1, 3, 16, 2):
    x = rows(count)
    check(x, gpus.infer("ranked_gpu", {"x": x}))
  inputs = [rows(1 + seed % 3, seed) for seed in range(32)]
  with ThreadPoolExecutor(8) as pool:
    for x, outputs in zip(inputs, pool.map(lambda x: gpus.infer("ranked_gpu", {"x": x}), inputs)):
      check(x, outputs)
  gpus.http.unload_model("ranked_gpu")


def test_an_error_of_one_gpu(gpus, ranked_gpu):
  fail_one_rank(gpus, "gpu_errors", ranked_gpu, GPU + BOTH)


def test_a_gpu_that_is_not_there(gpus, ranked_gpu):
  beyond = GPU.replace("cuda:0", "cuda:1")
  with pytest.raises(InferenceServerException, match=r"rank 1: .*device"):
    gpus.load("gpu_beyond", ranked_gpu, beyond, "sums")


SEQUENCES = "sequence_batching { oldest { max_candidate_sequences: 32 } }\n"


def step(server, model, sequence, value, function=None, **flags):
  x = np.full((1, 4), value, np.float32)
  more = {f"sequence_{key}": flag for key, flag in flags.items()}
  if function:
    more["parameters"] = {"function": function}
  (sums,) = server.infer(model, {"x": x}, sequence_id=sequence, **more).values()
  assert (sums == sums[0, 0]).all()
  return float(sums[0, 0])


def total(*values):
  """The states of both ranks after requests of a sequence with these numbers."""
  return sum([20, *(4 * value + 3 for value in values)])


def run_sequences(server, model, artifact, config):
  """Sequences at the same time have states of their own, on both ranks."""
  server.load(model, artifact, config + SEQUENCES, "add")

  def sequence(number):
    values = [number] * 6
    for count in range(len(values)):
      flags = dict(start=count == 0, end=count == len(values) - 1)
      assert step(server, model, number, number, **flags) == total(*values[: count + 1])

  # Twelve at the same time: more than the sessions that are kept for later ones.
  with ThreadPoolExecutor(12) as pool:
    list(pool.map(sequence, range(1, 37)))
  # A start begins anew, and a sequence that ended or never began is refused.
  assert step(server, model, 1, 1, start=True) == total(1)
  assert step(server, model, 1, 2, start=True) == total(2)
  assert step(server, model, 1, 3, end=True) == total(2, 3)
  for ended in 1, 99:
    with pytest.raises(InferenceServerException, match="START flag"):  # the server's own
      step(server, model, ended, 1)
  # A wrong request ends neither its sequence nor the group.
  assert step(server, model, 5, 1, start=True) == total(1)
  with pytest.raises(InferenceServerException):
    server.infer(model, {"x": np.ones((1, 3), np.float32)}, sequence_id=5)
  assert step(server, model, 5, 1) == total(1, 1)


@pytest.mark.parametrize("count", [1, 2])
def test_sequences(server, states, count):
  model = f"rank_sequences{count}"
  run_sequences(server, model, states, RANKS.replace("COUNT", str(count)))
  server.http.unload_model(model)


def test_sequences_on_two_gpus(gpus, states_gpu):
  run_sequences(gpus, "rank_sequences_gpu", states_gpu, GPU)
  gpus.http.unload_model("rank_sequences_gpu")


def test_a_function_for_later_requests(server, states):
  later = 'parameters { key: "next_function" value { string_value: "show" } }\n'
  server.load("rank_next", states, CPU + SEQUENCES + later, "add")
  assert step(server, "rank_next", 1, 5, start=True) == total(5)
  assert step(server, "rank_next", 2, 7, start=True) == total(7)
  assert step(server, "rank_next", 1, 9) == total(5)
  assert step(server, "rank_next", 2, 9, end=True) == total(7)


def test_idle_sequences(server, states):
  server.load("rank_idle", states, CPU + idle_sequences.CONFIG, "add")
  idle_sequences.check(
    lambda sequence, **flags: step(server, "rank_idle", sequence, 1, **flags), total(1)
  )


def fail_in_a_sequence(server, model, artifact, config):
  """The error of a rank is the status of the request, ends its sequence, and the group with it."""
  both = 'parameters { key: "functions" value { string_value: "add, fails" } }\n'
  server.load(model, artifact, config + SEQUENCES + both)
  assert step(server, model, 1, 1, start=True) == total(1)
  assert step(server, model, 2, 2, start=True) == total(2)
  with pytest.raises(InferenceServerException, match=r"rank 1: .*cumsum"):
    step(server, model, 1, 1, "fails")
  with pytest.raises(InferenceServerException, match="sequence 1 "):  # it has ended
    step(server, model, 1, 1)
  with pytest.raises(InferenceServerException, match=r"rank [01]: .*of no more use"):
    step(server, model, 2, 1, start=True)
  server.load(model, artifact, config + SEQUENCES + both)
  assert step(server, model, 2, 1, start=True) == total(1)
  server.http.unload_model(model)


def test_an_error_in_a_sequence(server, states):
  fail_in_a_sequence(server, "rank_failing", states, CPU)


def test_an_error_in_a_sequence_on_two_gpus(gpus, states_gpu):
  fail_in_a_sequence(gpus, "rank_failing_gpu", states_gpu, GPU)


def test_refusals(server, ranked):
  def refused(name, config, match, artifact=ranked):
    with pytest.raises(InferenceServerException, match=match):
      server.load(name, artifact, config, "sums")

  refused("ranked_alone", "", "is for rank 0 of 2")
  refused("ranked_none", CPU.replace('"2"', '"0"'), 'parameter "ranks".* is 0, must be 1 to 64')
  three = CPU.replace('"2"', '"3"')
  refused("ranked_three", three, r"rank \d: .*3")
  refused("ranked_stream", CPU + STREAM, '"ranks" .* is for models without')
