"""What husk.serve does with PyTorch: the copies of a model on a GPU, here with a device that is the
CPU. tests/serve has the tests of servers."""

import numpy as np
import pytest
import torch
from conftest import COPY, NUMBERS
from husk.serve import Model, RequestError, request


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
