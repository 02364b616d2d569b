"""Wrong requests and wrong models: a clear error with the right code, and a server that goes on."""

import http.client
import json
import pathlib
import resource
import struct

import numpy as np
import pytest
import tritonclient.grpc.service_pb2 as pb
from conftest import HANG, linear, numbers
from tritonclient.utils import InferenceServerException

CODES = {"http": {"invalid": "400", "unavailable": "503", "unsupported": "501"}}
CODES["grpc"] = {
  "invalid": "StatusCode.INVALID_ARGUMENT",
  "unavailable": "StatusCode.UNAVAILABLE",
  "unsupported": "StatusCode.UNIMPLEMENTED",
}


@pytest.fixture(scope="module")
def functions(server):
  for name in ["linear", "numbers", "nonzero", "pick"]:
    server.load(f"wrong_{name}", function=name)
  limit = 'parameters { key: "memory_limit" value { string_value: "1000000" } }\n'
  server.load("limited", function="numbers", config=limit)
  server.load("limited_nonzero", function="nonzero", config=limit)
  yield server
  x = np.ones((2, 3), np.float32)
  np.testing.assert_allclose(server.infer("wrong_linear", {"x": x})["y"], linear(x))


# Model, inputs, code, and what the text says.
WRONG = {
  "many rows": ("wrong_linear", {"x": np.ones((65, 3), "f4")}, "invalid", ["input 'x'", "65"]),
  "no rows": ("wrong_linear", {"x": np.ones((0, 3), "f4")}, "invalid", ["input 'x'", "0"]),
  "columns": ("wrong_linear", {"x": np.ones((2, 4), "f4")}, "invalid", ["x", "3"]),
  "rank": ("wrong_linear", {"x": np.ones(3, "f4")}, "invalid", ["x"]),
  "type": ("wrong_linear", {"x": np.ones((2, 3), "f8")}, "invalid", ["x", "FP32"]),
  "name": ("wrong_linear", {"z": np.ones((2, 3), "f4")}, "invalid", ["x"]),
  "index": ("wrong_pick", {"rows": np.array([0, 7])}, "invalid", ["index"]),
  "negative number": ("wrong_numbers", numbers(-1), "invalid", ["input 'n'", "-1"]),
  "2^62 elements": ("wrong_numbers", numbers(1 << 62), "invalid", []),
  "2^40 elements": ("wrong_numbers", numbers(1 << 40), "invalid", ["many", "memory_limit"]),
  "limit": ("limited", numbers(300_000), "invalid", ["many", "memory_limit", "1000000"]),
  "limit of data": ("limited_nonzero", {"x": np.ones(200_000, "f4")}, "invalid", []),
}


@pytest.mark.parametrize("client", ["http", "grpc"])
@pytest.mark.parametrize("case", WRONG)
def test_wrong_requests(functions, case, client):
  model, inputs, code, words = WRONG[case]
  with pytest.raises(InferenceServerException) as caught:
    functions.infer(model, inputs, client)
  assert caught.value.status() == CODES[client][code], caught.value
  for word in words:
    assert word in caught.value.message(), caught.value
  assert "0x" not in caught.value.message()
  assert "/" not in caught.value.message().replace("docs/", "")
  assert functions.is_alive()


@pytest.mark.parametrize("shape", [[1 << 62, 4], [(1 << 62) + 1, 1], [1 << 32, 1 << 32], [-4, 3]])
@pytest.mark.parametrize("content", [b"", b"\0" * 16, b"\0" * 48])
def test_shapes_whose_bytes_wrap_around(functions, shape, content):
  """The server lets some of them through to the backend."""
  with pytest.raises(InferenceServerException) as caught:
    raw_grpc(functions, "wrong_linear", "x", "FP32", shape, content)
  assert "INVALID_ARGUMENT" in caught.value.status()
  assert functions.is_alive()


def test_one_dim_whose_bytes_wrap_around(functions):
  with pytest.raises(InferenceServerException, match="input 'x'"):
    raw_grpc(functions, "wrong_nonzero", "x", "FP32", [(1 << 62) + 4], b"\0" * 16)
  assert functions.is_alive()


def raw_grpc(server, model, name, datatype, shape, content):
  """Sends a request that the client's own checks would refuse."""
  request = pb.ModelInferRequest(model_name=model)
  request.inputs.add(name=name, datatype=datatype, shape=shape)
  request.raw_input_contents.append(content)
  import grpc

  try:
    return server.grpc._client_stub.ModelInfer(request, timeout=HANG)
  except grpc.RpcError as error:
    raise InferenceServerException(error.details(), status=str(error.code())) from None


def test_bools_of_other_bytes(server, artifacts, tmp_path):
  from conftest import compile_text

  text = tmp_path / "mask.hir"
  text.write_text(
    'hir 1\nproducer "husk"\ntarget cpu host "x86-64"\nfunction forward {\n'
    "input x tensor bool [1..inf]\noutput y tensor bool rank 1\nvariant cpu {\n"
    "let n = size(x, 0)\nbuffer x of input bytes n\nbuffer y of output bytes n\n"
    "copy (write y, read x)\nreturn (tensor y bool [n] [1])\n}\n}\n"
  )
  compile_text(text, artifacts / "mask.husk")
  server.load("mask", "mask")
  with pytest.raises(InferenceServerException, match="input 'x' has a bool"):
    raw_grpc(server, "mask", "x", "BOOL", [3], b"\0\1\2")
  answer = raw_grpc(server, "mask", "x", "BOOL", [3], b"\0\1\1")
  assert answer.raw_output_contents[0] == b"\0\1\1"


def post(server, model, body, headers):
  connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=HANG)
  connection.request("POST", f"/v2/models/{model}/infer", body, headers)
  answer = connection.getresponse()
  result = answer.status, answer.read()
  connection.close()
  return result


def test_random_binary_requests(functions):
  """Headers and bytes that do not fit one another, over HTTP."""
  random = np.random.default_rng(1)
  statuses = set()
  for _ in range(1000):
    rank = int(random.integers(0, 4))
    shape = [
      int(random.choice([0, 1, 2, 3, 64, 65, 1 << 31, 1 << 61, 1 << 62])) for _ in range(rank)
    ]
    size = int(random.choice([0, 4, 12, 24, 36]))
    described = {
      "name": str(random.choice(["x", "x", "x", "y", ""])),
      "datatype": str(random.choice(["FP32", "FP32", "FP32", "INT64", "BYTES", "FP16"])),
      "shape": shape,
      "parameters": {"binary_data_size": size},
    }
    head = json.dumps({"inputs": [described]}).encode()
    body = head + struct.pack(f"{size // 4}f", *random.standard_normal(size // 4))
    headers = {"Inference-Header-Content-Length": str(len(head))}
    model = str(random.choice(["wrong_linear", "wrong_nonzero"]))
    status, text = post(functions, model, body, headers)
    statuses.add(status)
    assert status in (200, 400), text
    assert functions.is_alive()
  assert statuses == {200, 400}


# Configurations that do not fit an artifact, and words of the error that each of them causes.
CONFIGS = {
  "function": (
    'parameters { key: "function" value { string_value: "f" } }',
    ["function", "linear"],
  ),
  "no function": ("", ["function", "linear, numbers"]),
  "input name": ('input { name: "w" data_type: TYPE_FP32 dims: [-1, 3] }', ["input 'w'", "has x"]),
  "data type": (
    'input { name: "x" data_type: TYPE_FP64 dims: [-1, 3] }',
    ["data_type", "TYPE_FP32"],
  ),
  "dims": (
    'input { name: "x" data_type: TYPE_FP32 dims: [-1, 4] }',
    ["dims", "[-1, 4]", "[-1, 3]"],
  ),
  "rank": ('input { name: "x" data_type: TYPE_FP32 dims: [-1] }', ["dims", "[-1]", "[-1, 3]"]),
  "range": ('input { name: "x" data_type: TYPE_FP32 dims: [65, 3] }', ["dims", "[65, 3]"]),
  "output name": (
    'output { name: "w" data_type: TYPE_FP32 dims: [-1, 2] }',
    ["output 'w'", "y, z"],
  ),
  "output rank": ('output { name: "y" data_type: TYPE_FP32 dims: [-1] }', ["output 'y'", "dims"]),
  "output type": ('output { name: "y" data_type: TYPE_INT8 dims: [2, 2] }', ["data_type"]),
  "batch": ("max_batch_size: 65", ["max_batch_size", "65", "input 'x'", "64"]),
  "decoupled": ("model_transaction_policy { decoupled: true }", ["decoupled"]),
  "limit": (
    'parameters { key: "memory_limit" value { string_value: "1G" } }',
    ["memory_limit", "1G"],
  ),
  "gpu": ("instance_group { kind: KIND_GPU }", ["KIND_GPU"]),
  "optional": (
    'input { name: "x" data_type: TYPE_FP32 dims: [-1, 3] optional: true }',
    ["optional"],
  ),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_wrong_configs(server, case):
  config, words = CONFIGS[case]
  function = None if "function" in case else "linear"
  name = "config_" + case.replace(" ", "_")
  with pytest.raises(InferenceServerException) as caught:
    server.load(name, config=config + "\n", function=function)
  for word in words:
    assert word in caught.value.message(), caught.value
  assert str(server.repository) not in caught.value.message()


def test_numbers_have_no_batch(server):
  with pytest.raises(InferenceServerException, match="max_batch_size to 0"):
    server.load("numbers_batch", function="numbers", config="max_batch_size: 2\n")


def test_damaged_and_missing_files(server, artifacts):
  server.write("damaged", "functions")
  file = server.repository / "damaged" / "1" / "model.husk"
  whole = file.read_bytes()
  file.write_bytes(whole[:2000] + bytes([whole[2000] ^ 1]) + whole[2001:])
  with pytest.raises(InferenceServerException) as caught:
    server.http.load_model("damaged")
  assert "1/model.husk" in caught.value.message()
  assert str(server.repository) not in caught.value.message()
  file.unlink()
  with pytest.raises(InferenceServerException) as caught:
    server.http.load_model("damaged")
  assert "1/model.husk" in caught.value.message()
  assert str(server.repository) not in caught.value.message()


def test_a_server_without_memory(start):
  server = start()
  server.load("numbers", function="numbers")
  lines = pathlib.Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
  now = int(next(line for line in lines if line.startswith("VmSize")).split()[1]) * 1024
  limit = now + 400_000_000
  resource.prlimit(server.process.pid, resource.RLIMIT_AS, (limit, limit))
  for client in ["http", "grpc"]:
    with pytest.raises(InferenceServerException, match="no memory for output 'many'") as caught:
      server.infer("numbers", numbers(200_000_000), client)
    assert caught.value.status() == CODES[client]["unavailable"]
    assert server.infer("numbers", numbers(3), client)["many"].shape == (3,)


def test_a_config_must_be_whole_without_auto_complete(start):
  server = start("--disable-auto-complete-config")
  with pytest.raises(InferenceServerException):
    server.load("linear", function="linear")
  whole = """
    input { name: "x" data_type: TYPE_FP32 dims: [-1, 3] }
    output { name: "y" data_type: TYPE_FP32 dims: [-1, 2] }
  """
  server.load("linear", function="linear", config=whole)
  x = np.ones((2, 3), np.float32)
  outputs = server.infer("linear", {"x": x})
  assert list(outputs) == ["y"]
  np.testing.assert_allclose(outputs["y"], linear(x))
  server.write("numbers", "functions", whole)
  with pytest.raises(InferenceServerException):
    server.load(
      "numbers",
      function="numbers",
      config='input { name: "n" data_type: TYPE_INT64 '
      "dims: [1] }\n" + 'output { name: "next" data_type: TYPE_INT64 dims: [1] }\n',
    )
