"""What husk.serve does with PyTorch: the copies of a model on a GPU, here with a device that is the
CPU. tests/serve has the tests of servers."""

import asyncio

import numpy as np
import pytest
import torch
from conftest import COPY, NUMBERS
from husk.serve import Model, RequestError, request
from husk.serve.http import read_body
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
