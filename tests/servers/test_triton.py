"""Requests to models of the backend: answers, shapes, types, numbers, outputs."""

import numpy as np
import pytest
from conftest import TABLE, linear

CLIENTS = ["http", "grpc"]


def rows(count, width=3, seed=0):
  return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


@pytest.fixture(scope="module")
def functions(server):
  """A model for each function of functions.hir, of the function's name, without a config but for
  that name."""
  for name in ["linear", "numbers", "nonzero", "pick", "transpose"]:
    server.load(name, function=name)
  return server


@pytest.mark.parametrize("client", CLIENTS)
def test_answers_for_several_shapes(functions, client):
  for count in [1, 2, 64, 3, 1]:
    x = rows(count)
    outputs = functions.infer("linear", {"x": x}, client)
    np.testing.assert_allclose(outputs["y"], linear(x), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(outputs["z"], x)


@pytest.mark.parametrize("client", CLIENTS)
def test_only_the_outputs_that_are_asked_for(functions, client):
  x = rows(2)
  assert list(functions.infer("linear", {"x": x}, client, outputs=["z"])) == ["z"]


@pytest.mark.parametrize("client", CLIENTS)
def test_numbers(functions, client):
  inputs = {
    "one": np.array([2.5], np.float32),
    "n": np.array([3], np.int64),
    "t": np.array([1.25], np.float64),
    "flag": np.array([True]),
  }
  outputs = functions.infer("numbers", inputs, client)
  assert outputs["same"] == [2.5] and outputs["same"].dtype == np.float32
  assert outputs["next"] == [4] and outputs["next"].dtype == np.int64
  assert outputs["twice"] == [2.5] and outputs["twice"].dtype == np.float64
  np.testing.assert_array_equal(outputs["many"], np.full(3, 3, np.float32))
  # The number decides on a shape.
  inputs["n"][0] = 0
  inputs["flag"][0] = False
  outputs = functions.infer("numbers", inputs, client)
  assert outputs["next"] == [0] and outputs["many"].shape == (0,)


@pytest.mark.parametrize("client", CLIENTS)
def test_shapes_that_the_data_decide(functions, client):
  for values in [[0, 1, 0, 2], [1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1], [5], []]:
    x = np.array(values, np.float32)
    places = functions.infer("nonzero", {"x": x}, client)["places"]
    np.testing.assert_array_equal(places, np.argwhere(x))


@pytest.mark.parametrize("client", CLIENTS)
def test_results_with_strides_and_alignment(functions, client):
  for count in [1, 5, 2]:
    x = rows(count)
    y = functions.infer("transpose", {"x": x}, client)["y"]
    np.testing.assert_array_equal(y, x.T)


@pytest.mark.parametrize("client", CLIENTS)
def test_large_tensors(functions, client):
  x = rows(300_000)
  np.testing.assert_array_equal(functions.infer("transpose", {"x": x}, client)["y"], x.T)


def test_pick(functions):
  picked = functions.infer("pick", {"rows": np.array([2, 0, 2], np.int64)})["picked"]
  np.testing.assert_array_equal(picked, TABLE[[2, 0, 2]])


TYPES = {
  "bool": np.bool_,
  "u8": np.uint8,
  "i8": np.int8,
  "u16": np.uint16,
  "i16": np.int16,
  "u32": np.uint32,
  "i32": np.int32,
  "u64": np.uint64,
  "i64": np.int64,
  "f16": np.float16,
  "f32": np.float32,
  "f64": np.float64,
}


def types_program():
  """A program that copies an input of each type."""
  inputs, outputs, body, results = [], [], [], []
  for name, dtype in TYPES.items():
    size = np.dtype(dtype).itemsize
    inputs.append(f"input x_{name} tensor {name} [0..inf]")
    outputs.append(f"output y_{name} tensor {name} rank 1")
    body.append(f"let n_{name} = size(x_{name}, 0)")
    for side, letter in [("input", "x"), ("output", "y")]:
      body.append(f"buffer {letter}_{name} of {side} bytes mul(n_{name}, {size}) align {size}")
    body.append(f"copy (write y_{name}, read x_{name})")
    results.append(f"tensor y_{name} {name} [n_{name}] [1]")
  lines = [*inputs, "input nothing none", *outputs, "output nothing_too none", "variant cpu {"]
  lines += [*body, f"return ({', '.join(results)}, none)", "}"]
  head = 'hir 1\nproducer "husk"\ntarget cpu host "x86-64"\n'
  return head + "function forward {\n" + "\n".join(lines) + "\n}\n"


@pytest.mark.parametrize("client", CLIENTS)
def test_types(server, artifacts, tmp_path, client):
  from conftest import compile_text

  text = tmp_path / "types.hir"
  text.write_text(types_program())
  compile_text(text, artifacts / "types.husk")
  server.load(f"types_{client}", "types")
  inputs = {}
  for index, (name, dtype) in enumerate(TYPES.items()):
    inputs[f"x_{name}"] = np.arange(index + 1).astype(dtype)
  outputs = server.infer(f"types_{client}", inputs, client)
  assert len(outputs) == len(TYPES)
  for name, dtype in TYPES.items():
    assert outputs[f"y_{name}"].dtype == dtype
    np.testing.assert_array_equal(outputs[f"y_{name}"], inputs[f"x_{name}"])


def test_bfloat16(server, artifacts, tmp_path):
  from conftest import compile_text

  text = tmp_path / "bf16.hir"
  text.write_text(types_program().replace("f16", "bf16"))
  compile_text(text, artifacts / "bf16.husk")
  server.load("bf16", "bf16")
  config = server.http.get_model_config("bf16")
  kinds = {each["name"]: each["data_type"] for each in config["input"]}
  assert kinds["x_bf16"] == "TYPE_BF16"
