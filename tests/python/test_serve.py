"""What husk.serve does with PyTorch: the copies of a model on a GPU, here with a device that is the
CPU. tests/serve has the tests of servers."""

import asyncio
import dataclasses
import sys

import numpy as np
import pytest
import torch
from conftest import COPY, NUMBERS
from husk.serve import Model, RequestError, SettingsError, request
from husk.serve.http import read_body
from husk.serve.settings import read as request_settings
from test_memory import WRITES


def test_arrays_pass_through_pytorch(compiled):
  served = Model(compiled(COPY))
  devices = []
  call = served._call_on_gpu

  def on_tensors(function, arguments):
    def checked(*tensors):
      devices.extend(one.device.type for one in tensors)
      return function(*tensors)

    return call(checked, arguments)

  served._torch, served._call_on_gpu = torch, on_tensors
  x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
  x.flags.writeable = False  # as the arrays of a request's bytes are
  results = served.run(request.read({"x": x}, {}))
  np.testing.assert_array_equal(results["y"], x)
  assert results["k"].tolist() == [6] and devices == ["cpu"]


@pytest.mark.parametrize(
  ("error", "status"), [(torch.OutOfMemoryError, 503), (torch.AcceleratorError, 500)]
)
def test_failures_of_pytorch(compiled, error, status):
  served = Model(compiled(COPY))
  served._torch = torch

  def fail(*_):
    raise error("the GPU says no")

  served._call_on_gpu = lambda _, arguments: type(served)._call_on_gpu(served, fail, arguments)
  with pytest.raises(RequestError, match="the GPU says no") as caught:
    served.run(request.read({"x": np.ones((1, 4), np.float32)}, {}))
  assert caught.value.status == status
  assert (served.failure is None) == (status == 503)


def test_numbers_do_not(compiled):
  with pytest.raises(Exception, match="'nothing'"):  # the protocol has no None
    Model(compiled(NUMBERS))
  text = NUMBERS.replace("  input nothing none\n", "")
  served = Model(compiled(text))
  served._torch = torch
  assert [one["name"] for one in served.signature.describe()["outputs"]] == ["i2", "f2"]
  inputs = {"i": np.array([4]), "f": np.array([1.5]), "b": np.array([True])}
  results = served.run(request.read(inputs, {}))
  assert {name: one.tolist() for name, one in results.items()} == {"i2": [5], "f2": [1.5]}
  with pytest.raises(RequestError, match="must be in 0..10"):
    served.run(request.read(inputs | {"i": np.array([11])}, {}))


def test_the_memory_of_a_request_is_not_written(compiled):
  """Also if several requests share it, and run together."""
  served = Model(compiled(WRITES))
  x = np.frombuffer(b"abcd", np.uint8)
  writable = np.arange(4, dtype=np.uint8)
  for array in (x, writable, writable[::2]):
    before = array.tolist()
    assert served.run(request.read({"x": array}, {}))["n"].tolist() == [array.size]
    assert array.tolist() == before


class Chunks:
  """A body in chunks; it counts those that are asked for."""

  def __init__(self, chunks):
    self.chunks = chunks
    self.asked = 0

  async def __aiter__(self):
    for chunk in self.chunks:
      self.asked += 1
      yield chunk


@pytest.mark.parametrize("length", [None, "5", "x", "-1"])
def test_bodies_up_to_the_limit(length):
  body = Chunks([b"ab", b"", b"cde"])
  assert asyncio.run(read_body(aiter(body), length, 5)) == b"abcde"


@pytest.mark.parametrize(
  ("chunks", "length", "asked"),
  [
    ([b"abc", b"def", b"ghi"], None, 2),
    ([b"abc", b"def", b"ghi"], "3", 2),
    ([b"abcdef"], "6", 0),
    ([b"a"], "9" * 5000, 0),
    ([b"a" * 6], None, 1),
  ],
)
def test_larger_bodies_are_refused(chunks, length, asked):
  body = Chunks(chunks)
  with pytest.raises(RequestError, match="more than 5 bytes, the max_body_bytes") as caught:
    asyncio.run(read_body(aiter(body), length, 5))
  assert caught.value.status == 413 and body.asked == asked


def numbers(*values):
  """The bytes of ints in a `.hir`."""
  return np.array(values, "<i8").tobytes().hex()


TABLE = np.random.default_rng(3).integers(0, 4, (4, 4))

# The next token is in a table by the last one and its position; what else a step gets goes through.
STEPS = f"""
constant table i64 [4, 4] bytes "{numbers(*TABLE.reshape(-1))}"
constant successor i64 [4] bytes "{numbers(1, 2, 3, 0)}"
function prefill {{
  input image tensor f32 [2]
  input start tensor i64 [1]
  output token tensor i64 rank 1
  output position tensor i64 rank 1
  variant cpu {{
    buffer image of input bytes 8
    buffer start of input bytes 8 align 8
    buffer token of output bytes 8
    buffer position of output bytes 8
    copy (write token, read start)
    extern "aten::index.Tensor" (read tensor successor i64 [4] [1],
      tensors [read tensor start i64 [1] [1]], write tensor position i64 [1] [1])
    return (tensor token i64 [1] [1], tensor position i64 [1] [1])
  }}
}}
function decode {{
  input image tensor f32 [2]
  input gain tensor bf16 [1]
  input last tensor i64 [1]
  input position tensor i64 [1]
  output token tensor i64 rank 1
  output position_2 tensor i64 rank 1
  output gain_2 tensor bf16 rank 1
  variant cpu {{
    buffer image of input bytes 8
    buffer gain of input bytes 2
    buffer last of input bytes 8 align 8
    buffer position of input bytes 8 align 8
    buffer token of output bytes 8
    buffer position_2 of output bytes 8
    buffer gain_2 of output bytes 2
    copy (write gain_2, read gain)
    extern "aten::index.Tensor" (read tensor table i64 [4, 4] [4, 1],
      tensors [read tensor last i64 [1] [1], read tensor position i64 [1] [1]],
      write tensor token i64 [1] [1])
    extern "aten::index.Tensor" (read tensor successor i64 [4] [1],
      tensors [read tensor position i64 [1] [1]], write tensor position_2 i64 [1] [1])
    return (tensor token i64 [1] [1], tensor position_2 i64 [1] [1], tensor gain_2 bf16 [1] [1])
  }}
}}
"""


@pytest.fixture
def steps(compiled):
  # The names of inputs and outputs differ in a `.hir`, but not in a file of an exporter.
  path = compiled(STEPS)
  settings = request_settings({"function": "prefill", "next_function": "decode"})
  return Model(path, settings)


async def tokens_of(served, asked):
  return [token async for token in served.stream(asked)]


def test_a_stream_of_several_tensors(steps):
  inputs = {
    "image": np.ones(2, np.float32),
    "start": np.array([2]),
    "gain": np.array([1.5], np.float32),
    "position": np.array([3]),
  }
  tokens = asyncio.run(tokens_of(steps, request.read(inputs, {"max_tokens": 3})))
  assert tokens == [2, TABLE[2, 3], TABLE[TABLE[2, 3], 3]]  # the request gives the position
  for name, status, text in (
    ("gain", 400, "nothing gives its input 'gain', which is neither an output of both functions"),
    ("start", 400, "lacks input 'start'"),
  ):
    less = {key: value for key, value in inputs.items() if key != name}
    with pytest.raises(RequestError, match=text) as caught:
      asyncio.run(tokens_of(steps, request.read(less, {})))
    assert caught.value.status == status
  wrong = {**inputs, "gain": np.array([1])}
  with pytest.raises(RequestError, match="'gain' has the type int64, must be FP32"):
    asyncio.run(tokens_of(steps, request.read(wrong, {})))
  with pytest.raises(RequestError, match="has no input 'more'"):
    asyncio.run(tokens_of(steps, request.read({**inputs, "more": inputs["start"]}, {})))


def test_an_output_goes_to_the_input_of_its_name(steps):
  """An exporter's file may have inputs and outputs of the same name."""
  decode = steps._signatures["decode"]
  outputs = [dataclasses.replace(one, name=one.name.removesuffix("_2")) for one in decode.outputs]
  steps._signatures["decode"] = dataclasses.replace(decode, outputs=tuple(outputs))
  inputs = {
    "image": np.ones(2, np.float32),
    "start": np.array([1]),
    "gain": np.array([1.5], np.float32),
  }
  tokens = asyncio.run(tokens_of(steps, request.read(inputs, {"max_tokens": 5})))
  expected, position = [1], 2
  while len(expected) < 5:
    expected.append(int(TABLE[expected[-1], position]))
    position = (position + 1) % 4
  assert tokens == expected


def test_bf16(steps, compiled):
  described = steps.functions["decode"].describe()
  assert [one["datatype"] for one in described["inputs"]] == ["FP32", "FP32", "INT64", "INT64"]
  inputs = {
    "image": np.ones(2, np.float32),
    "gain": np.array([1 + 2**-7 + 2**-9], np.float32),  # is rounded
    "last": np.array([0]),
    "position": np.array([0]),
  }
  results = steps.run(request.read(inputs, {"function": "decode"}))
  assert results["gain_2"].dtype == np.float32 and results["gain_2"].tolist() == [1 + 2**-7]
  assert results["token"].tolist() == [TABLE[0, 0]]
  text = "function forward {\n output y tensor bf16 rank 1\n variant cpu {\n"
  text += "buffer y of output bytes 4\nfill bf16 (write y, 1.0)\n"
  with pytest.raises(SettingsError, match="bf16 outputs and no tensor as input"):
    Model(compiled(text + "return (tensor y bf16 [2] [1])\n}\n}\n"))


def test_bf16_needs_pytorch(compiled, monkeypatch):
  path = compiled(STEPS)
  monkeypatch.setitem(sys.modules, "torch", None)
  with pytest.raises(SettingsError, match="bf16 inputs or outputs needs PyTorch.*: install torch"):
    Model(path, request_settings({"function": "prefill"}))
