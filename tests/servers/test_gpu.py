"""Models on a GPU, by the driver of tests/fake_driver. The server sees no GPU there, so the
instances have KIND_MODEL; tests/gpu/triton_server.py has those of KIND_GPU, on a real one."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import library, numbers, stream
from tritonclient.utils import InferenceServerException

GPU = """
instance_group { count: 2 kind: KIND_MODEL }
parameters { key: "device" value { string_value: "cuda:0" } }
"""
BATCHED = "max_batch_size: 16\ndynamic_batching { max_queue_delay_microseconds: 20000 }\n"
SEQUENCES = "sequence_batching { oldest { max_candidate_sequences: 8 } }\n"
STREAM = "model_transaction_policy { decoupled: true }\n"


@pytest.fixture(scope="module")
def gpu(start):
  driver = library().parents[3] / "fake_driver"
  if not (driver / "libcuda.so.1").exists():
    pytest.skip("the target fake_driver is not built")
  paths = f"{driver}:{os.environ.get('LD_LIBRARY_PATH', '')}"
  return start(environment={"LD_LIBRARY_PATH": paths})


def rows(count, seed=0):
  return np.random.default_rng(seed).standard_normal((count, 4)).astype(np.float32)


def check_sums(x, outputs):
  np.testing.assert_allclose(outputs["y"], x.cumsum(1), rtol=1e-6, atol=1e-6)
  np.testing.assert_array_equal(outputs["z"], x)
  if "t" in outputs:
    np.testing.assert_array_equal(outputs["t"], x.reshape(4, -1).T)


@pytest.mark.parametrize("client", ["http", "grpc"])
def test_values(gpu, client):
  gpu.load(f"sums_{client}", "gpu", GPU, "sums")
  for count in (1, 3, 64, 2):
    x = rows(count)
    check_sums(x, gpu.infer(f"sums_{client}", {"x": x}, client))
  gpu.load(f"numbers_{client}", "gpu", GPU, "numbers")
  for n in (2, 0, 5000):
    outputs = gpu.infer(f"numbers_{client}", numbers(n), client)
    assert outputs["same"] == 2.5 and outputs["next"] == n + 1 and outputs["twice"] == 2.5
    assert outputs["many"].tolist() == [3.0] * n
  gpu.load(f"nonzero_{client}", "gpu", GPU, "nonzero")
  for x in ([0, 1, 0, 2], [0, 0], [1]):
    outputs = gpu.infer(f"nonzero_{client}", {"x": np.array(x, np.float32)}, client)
    assert outputs["places"].ravel().tolist() == np.flatnonzero(x).tolist()


def test_batches(gpu):
  # The rows of `t` are not those of the batch in memory.
  outputs = 'output { name: "y" } output { name: "z" }\n'
  gpu.load("batches", "gpu", GPU + BATCHED + outputs, "sums")
  inputs = [rows(1 + seed % 3, seed) for seed in range(96)]
  with ThreadPoolExecutor(16) as pool:
    for x, found in zip(inputs, pool.map(lambda x: gpu.infer("batches", {"x": x}), inputs)):
      check_sums(x, found)
  stats = gpu.http.get_inference_statistics("batches")["model_stats"][0]
  assert int(stats["execution_count"]) < 60
  assert int(stats["inference_stats"]["fail"]["count"]) == 0


def test_sequences(gpu):
  gpu.load("totals", "gpu_state", GPU + SEQUENCES, "add")
  totals = {7: 10.0, 8: 10.0}
  for step in range(4):
    for sequence in totals:
      totals[sequence] += sequence + step
      outputs = gpu.infer(
        "totals",
        {"x": np.full((1, 2), sequence + step, np.float32)},
        "grpc",
        sequence_id=sequence,
        sequence_start=step == 0,
        sequence_end=step == 3,
      )
      assert outputs["sum"].tolist() == [[totals[sequence]] * 2]


def test_sequences_are_on_one_device(gpu):
  """A request of a sequence may come to an instance that is elsewhere."""
  gpu.load("places", "gpu_state", GPU + "instance_group { count: 3 kind: KIND_CPU }" + SEQUENCES)
  for step in range(12):
    flags = {"sequence_start": step == 0, "sequence_end": step == 11}
    x = np.ones((1, 2), np.float32)
    outputs = gpu.infer("places", {"x": x}, "grpc", sequence_id=1, **flags)
    assert outputs["sum"].tolist() == [[11.0 + step] * 2]
  assert "sequences of the model run on GPU 0" in gpu.log.read_text()


def test_a_request_begins_with_the_initial_state(gpu):
  gpu.load("total", "gpu_state", GPU, "add")
  for _ in range(3):
    assert gpu.infer("total", {"x": np.ones((1, 2), np.float32)})["sum"].tolist() == [[11.0, 11.0]]


def test_streams(gpu):
  gpu.load("stream", "gpu", GPU + STREAM, "token")
  assert stream(gpu, [3, 1, 4], max_tokens=5) == ([8] * 5, None)


def test_wrong_requests(gpu):
  gpu.load("flags", "gpu", GPU, "flags")
  flags = np.array([True, False, True])
  assert gpu.infer("flags", {"flags": flags})["same"].tolist() == flags.tolist()
  with pytest.raises(InferenceServerException, match="neither 0 nor 1"):
    gpu.infer("flags", {"flags": np.array([1, 2, 0], np.uint8).view(bool)})
  gpu.load("wrong", "gpu", GPU, "sums")
  with pytest.raises(InferenceServerException, match="input 'x'"):
    gpu.infer("wrong", {"x": rows(65)})
  check_sums(rows(2), gpu.infer("wrong", {"x": rows(2)}))
  limit = 'parameters { key: "memory_limit" value { string_value: "1000000" } }\n'
  gpu.load("limited", "gpu", GPU + limit, "numbers")
  with pytest.raises(InferenceServerException, match="memory_limit"):
    gpu.infer("limited", numbers(300_000))


def test_wrong_models(gpu, server):
  cases = {
    "no GPU kernels": (gpu, "functions", GPU, "linear", "GPU 0"),
    "no CPU kernels": (gpu, "gpu", "instance_group { kind: KIND_CPU }", "sums", "the CPU"),
    "device": (gpu, "gpu", GPU.replace("cuda:0", "gpu"), "sums", "cpu or cuda:N"),
    "number": (gpu, "gpu", GPU.replace("cuda:0", "cuda:x"), "sums", "cpu or cuda:N"),
    "no such GPU": (gpu, "gpu", GPU.replace("cuda:0", "cuda:99"), "sums", "99"),
    "kind": (gpu, "gpu", GPU.replace("KIND_MODEL", "KIND_CPU"), "sums", "KIND_MODEL"),
    "no driver": (server, "gpu", GPU, "sums", "libcuda"),
  }
  for name, (where, artifact, config, function, text) in cases.items():
    with pytest.raises(InferenceServerException) as caught:
      where.load("refused", artifact, config, function)
    assert text in caught.value.message(), name


def test_one_file_on_the_cpu_and_a_gpu(gpu, artifacts):
  """Instances of one model may be on different devices."""
  kinds = "instance_group [ { kind: KIND_CPU }, { kind: KIND_MODEL } ]\n"
  device = 'parameters { key: "device" value { string_value: "cuda:0" } }\n'
  gpu.load("both", "both", kinds + device, "copy")
  x = [rows(1 + seed % 4, seed) for seed in range(64)]
  with ThreadPoolExecutor(8) as pool:
    for sent, found in zip(x, pool.map(lambda x: gpu.infer("both", {"x": x}), x)):
      np.testing.assert_array_equal(found["y"], sent)
