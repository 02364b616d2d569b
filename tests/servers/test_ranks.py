"""Models whose artifact is for two ranks, which run on threads of one server."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import compile_text, library
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
RANKS = """
instance_group { count: COUNT kind: KIND_CPU }
parameters { key: "ranks" value { string_value: "2" } }
parameters { key: "group_timeout_ms" value { string_value: "2000" } }
"""
CPU = RANKS.replace("COUNT", "1")
BATCHED = "max_batch_size: 16\ndynamic_batching { max_queue_delay_microseconds: 20000 }\n"
BOTH = 'parameters { key: "functions" value { string_value: "sums, fails" } }\n'


def joined(artifacts, name, target, on_host):
  """Writes an artifact of two ranks; returns its name."""
  parts = []
  for rank in range(2):
    text = FUNCTIONS.replace("RANK", str(rank)).replace("NUMBER", str(rank + 1))
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


def test_refusals(server, ranked):
  def refused(name, config, match, artifact=ranked):
    with pytest.raises(InferenceServerException, match=match):
      server.load(name, artifact, config, "sums")

  refused("ranked_alone", "", "is for rank 0 of 2")
  refused("ranked_none", CPU.replace('"2"', '"0"'), 'parameter "ranks".* is 0, must be 1 to 64')
  three = CPU.replace('"2"', '"3"')
  refused("ranked_three", three, r"rank \d: .*3")
  refused("ranked_stream", CPU + "sequence_batching { }\n", '"ranks" .* is for models without')
